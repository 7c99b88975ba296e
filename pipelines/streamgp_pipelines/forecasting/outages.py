"""What to know of a forecast whose newest rows are missing, or stand alone."""

from __future__ import annotations

import numpy as np
import torch

from streamgp.windows.windows import Asks, Windows
from streamgp_pipelines.learning.frames import Naming

SHOWN = 5
"""Series that are named."""


def after_outages(asks: Asks, windows: Windows, naming: Naming) -> list[str]:
    """A warning where targets were last known before the newest row, and one where the newest row stands alone.

    Args:
        asks: the questions that were asked.
        windows: of the rows read.
        naming: how times are written.
    """
    if not windows.spec.lags or not len(asks.origin):
        return []
    found, oldest = [], asks.age.amax(1)
    old = oldest > 0
    if bool(old.any()):
        most = int(oldest.max())
        found.append(
            f"{_those(asks, windows, old)} had no value at the newest row, and was last known up to {most:,} "
            f"step{'s' * (most > 1)} before it: the bands are wider for it"
        )
    jumps = torch.from_numpy(windows.jumps())[asks.series]
    alone = jumps > windows.spec.lags
    if bool(alone.any()):
        first = int(alone.to(torch.int64).argmax())
        when = naming.times(asks.cutoff[first : first + 1])[0]
        text = (
            f"the newest row of {_those(asks, windows, alone)}, {when}, stands {int(jumps[first]):,} steps behind the "
            "one before it: what stands in for the rows between is the last known season"
        )
        if windows.late:
            text += (
                f"; {windows.late:,} row{'s' * (windows.late > 1)} were left out, for they came behind a newer one: if "
                "its time is wrong, ingest the source into a new table with --max-ahead 1d, or without that row"
            )
        found.append(text)
    return found


def _those(asks: Asks, windows: Windows, which: torch.Tensor) -> str:
    """The series of these questions in words."""
    spec = windows.spec
    if spec.series is None:
        return " and ".join(spec.targets)
    names = [windows.names[code] for code in np.unique(asks.series[which].numpy()).tolist()]
    return ", ".join(names[:SHOWN]) + f" and {len(names) - SHOWN:,} others" * (len(names) > SHOWN)
