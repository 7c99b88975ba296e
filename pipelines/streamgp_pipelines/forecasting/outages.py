"""What to know of a forecast whose newest rows are missing, lack values, or stand alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from streamgp.windows.windows import Asks, Windows
from streamgp_pipelines.learning.frames import Naming

SHOWN = 5
"""Series that are named."""


def after_outages(asks: Asks, windows: Windows, naming: Naming) -> list[str]:
    """A warning each: targets were last known before the newest row; inputs are not known in a whole window; the newest
    row stands far from the one before it; series have ended long before the others.

    Args:
        asks: the questions that were asked.
        windows: of the rows read.
        naming: how times are written.
    """
    if not windows.spec.lags or not len(asks.origin):
        return []
    found = [_of_target(asks, windows, output) for output in range(len(windows.spec.targets))]
    found += [_of_inputs(asks, windows), _of_jumps(asks, windows, naming), _of_ends(asks, windows, naming)]
    return [text for text in found if text]


def _of_target(asks: Asks, windows: Windows, output: int) -> str:
    """That a target is old."""
    age = asks.age[:, output]
    if not bool((age > 0).any()):
        return ""
    most = int(age.max())
    steps = f"{'up to ' * (len(age) > 1)}{most:,} step{'s' * (most > 1)} before"
    name, where = windows.spec.targets[output], _series(asks, windows, age > 0)
    return f"{name}{where} was last known {steps} the newest row: the bands are wider for it"


def _of_inputs(asks: Asks, windows: Windows) -> str:
    """That inputs have no value in any row of a window."""
    spec = windows.spec
    first, stop = len(spec.targets), len(spec.columns)
    lost = torch.isnan(asks.x.past[:, -1, first:stop])  # (N, C − O), which were never known
    lost |= torch.from_numpy(windows.lost())[asks.series] >= spec.lags
    if not bool(lost.any()):
        return ""
    names = [name for name, gone in zip(spec.columns[first:], lost.any(0).tolist(), strict=True) if gone]
    where = _series(asks, windows, lost.any(1))
    return (
        f"{' and '.join(names)}{where} had no value in the newest {spec.lags} rows: the last season stands in for what "
        "the forecast would take from them, and the bands are not wider for it"
    )


def _of_jumps(asks: Asks, windows: Windows, naming: Naming) -> str:
    """That the newest row stands far from the one before it."""
    jumps = torch.from_numpy(windows.jumps())[asks.series]
    alone = jumps > windows.spec.lags
    if not bool(alone.any()):
        return ""
    first = int(alone.to(torch.int64).argmax())
    when = naming.moments.say(int(asks.cutoff[first]))
    text = (
        f"the newest row{_series(asks, windows, alone)}, {when}, stands {int(jumps[first]):,} steps after the one "
        "before it: the last known season stands in for the rows between"
    )
    if windows.late:
        text += (
            f"; {windows.late:,} row{'s' * (windows.late > 1)} were left out, for they came after a newer one: if its "
            "time is wrong, ingest the source into a new table with --max-ahead 1d, or without that row"
        )
    return text


def _of_ends(asks: Asks, windows: Windows, naming: Naming) -> str:
    """That series have ended more than a horizon before the newest row of all."""
    spec = windows.spec
    if spec.every_ns is None or len(asks.series) < 2:
        return ""
    behind = (asks.cutoff.max() - asks.cutoff) // spec.every_ns
    ended = behind > spec.horizon
    if not bool(ended.any()):
        return ""
    newest = naming.moments.say(int(asks.cutoff.max()))
    return (
        f"the rows{_series(asks, windows, ended)} end up to {int(behind.max()):,} steps before the newest of all, "
        f"{newest}: their forecasts begin where their rows end"
    )


def _series(asks: Asks, windows: Windows, which: Tensor) -> str:
    """ " of A, B and 3 others": the series of these questions; "" where there is one series."""
    if windows.spec.series is None:
        return ""
    names = [windows.names[code] for code in np.unique(asks.series[which].numpy()).tolist()]
    return f" of {', '.join(names[:SHOWN])}" + f" and {len(names) - SHOWN:,} others" * (len(names) > SHOWN)
