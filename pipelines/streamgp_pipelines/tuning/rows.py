"""Which rows of a table are tuned on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from streamgp.errors import UsageError
from streamgp.windows.rows import times
from streamgp.windows.windows import WindowSpec
from streamgp_data.moments import Moments
from streamgp_data.table import Table
from streamgp_pipelines.config import TuneConfig


def spread(count: int, wanted: int, generator: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(≤ wanted,) places among `count`: one drawn from each of `wanted` stretches of equal length.

    Example:
        >>> places = spread(1000, 10, np.random.default_rng(0))
        >>> (places // 100).tolist(), spread(3, 10, np.random.default_rng(0)).tolist()
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 1, 2])
    """
    if count <= wanted:
        return np.arange(count)
    return ((np.arange(wanted) + generator.random(wanted)) * (count / wanted)).astype(np.int64)


def edges(config: TuneConfig, table: Table, spec: WindowSpec) -> tuple[Tensor, Tensor]:
    """(R,), (R,) which rows of the table are before `--start`, and which are not before `--end`.

    Raises:
        UsageError: one of them is neither rows nor a time, or nothing is between them.
    """
    before = _reached(config.start, "--start", table, spec).logical_not()
    behind = torch.zeros_like(before) if config.end is None else _reached(config.end, "--end", table, spec)
    if not bool((before | behind).logical_not().any()):
        first = config.start or 0
        if config.end is None:
            where = f"at or after --start {first}"
        else:
            where = f"between --start {first} and --end {config.end}" if config.start else f"before --end {config.end}"
        raise UsageError(
            f"no row is {where}",
            hint=f"the table has {table.rows} rows; see: streamgp describe --table {table.path}",
        )
    return before, behind


def _reached(text: str | None, flag: str, table: Table, spec: WindowSpec) -> Tensor:
    """(R,) which rows are at this place or time, or after it."""
    rows = torch.arange(table.rows)
    moments = Moments.of(table.meta)
    if text is None or moments.counts_rows(text):
        return rows >= int(text or 0)
    at = moments.instant(text, flag)
    assert spec.time is not None
    found = [times(chunk.rows, spec.time) for chunk in table.read({}, (spec.time,))]
    return torch.from_numpy(np.concatenate([*found, np.zeros(0, np.int64)])[: table.rows] >= at)
