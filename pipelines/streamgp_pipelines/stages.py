"""How far work is, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamgp.base import Progress, Tracker


def staged(progress: Callable[[Progress], None], name: str) -> Callable[[Progress], None]:
    """Progress whose stage names the part, such as "linear: train"."""
    return lambda now: progress(now._replace(stage=f"{name}: {now.stage}"))


@contextmanager
def finishing(run: Tracker) -> Iterator[None]:
    """Finish the run of a tracker with this context: as killed by an interrupt, as failed by any other error."""
    status = "FAILED"
    try:
        yield
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        run.finish(status)
