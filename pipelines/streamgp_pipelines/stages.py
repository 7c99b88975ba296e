"""Progress of work that is a part of other work."""

from __future__ import annotations

from collections.abc import Callable

from streamgp.base import Progress


def staged(progress: Callable[[Progress], None], name: str) -> Callable[[Progress], None]:
    """Progress whose stage names the part, such as "linear: train"."""
    return lambda now: progress(now._replace(stage=f"{name}: {now.stage}"))
