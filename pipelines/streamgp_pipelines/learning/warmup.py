"""How many rows are fitted in batch before the first forecast, where the command line does not say it."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgp.windows.calendar import Bools, Ints
from streamgp.windows.windows import WindowSpec
from streamgp_data.checkpoint import Saved
from streamgp_data.table import Table
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.restored import recipe_of
from streamgp_pipelines.learning.sizes import count_series
from streamgp_pipelines.learning.whole import span

WINDOWS = 500
"""Whole windows that a fit without a season is made of."""

SEASONS = 3
"""Seasons of one series that a fit with a season is made of, beside one window."""

LEAST = 10
"""Whole windows without which nothing is fitted: on one alone, models are far too sure of themselves or not at all."""

SHARE = 5
"""At most one in so many rows of the table is warm-up."""


def warmup_rows(config: TrainConfig, spec: WindowSpec, table: Table, saved: Saved | None) -> int:
    """Rows of warm-up: as asked for, as the run began, or by default; 0 in batch training, which has none."""
    if not config.online:
        return 0
    if config.warmup is not None:
        return config.warmup
    if saved is None or not has_begun(saved):
        return default_warmup(spec, table, config.batch)
    return recipe_of(saved).schedule.warmup


def has_begun(saved: Saved) -> bool:
    """Whether the run had rows to choose its warm-up by."""
    return bool(saved.manifest["begun"])


def default_warmup(spec: WindowSpec, table: Table, batch: int) -> int:
    """What a model needs to be fitted, at most a fifth of the table, and never less than ten whole windows.

    It needs three seasons and a window of one series or, without a season, 500 whole windows of any, and then the rest
    of a micro-batch of `batch` rows. Rows are counted in the order of the table; values are not looked at. Of a fleet
    they are the rows of one series, of which the table has the mean number.
    """
    season = spec.season if spec.season > 1 else 0
    first = span(spec)
    long = first + (SEASONS - 1) * season if season else first + WINDOWS - 1
    most = table.readable // SHARE
    if spec.fleet:
        most //= max(count_series(table), 1)
    if spec.series is None or spec.fleet:
        return max(min(_full(long, batch), most), first + LEAST - 1)
    seen: dict[Any, int] = {}
    least = enough = None  # rows of the stream up to the least that will do, and up to all that is needed
    rows = windows = 0
    for chunk in table.read({}, (spec.series,)):
        place = _places(chunk.rows.column(spec.series), seen)
        whole = windows + np.cumsum(place >= first)
        if least is None:
            least = _first(whole >= LEAST, rows)
        if enough is None:
            enough = _first(place >= long if season else whole >= WINDOWS, rows)
        rows, windows = rows + len(place), windows + int((place >= first).sum())
        if least is not None and (enough is not None or rows >= most):
            break
    return max(most if enough is None else min(_full(enough, batch), most), least or first + LEAST - 1)


def _first(there: Bools, before: int) -> int | None:
    """Rows up to the first that is there, with those before; None where none is."""
    return before + int(there.argmax()) + 1 if there.any() else None


def _full(rows: int, batch: int) -> int:
    """The rows of as many full micro-batches."""
    return -(-rows // batch) * batch


def _places(series: Any, seen: dict[Any, int]) -> Ints:
    """(R,) which row of its series each row is, counted from 1; `seen` has the rows of each series, and is updated."""
    encoded = series.dictionary_encode()
    code = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
    names = encoded.dictionary.to_pylist()
    order = np.argsort(code, kind="stable")
    sorted_code = code[order]
    place = np.empty(len(code), np.int64)
    place[order] = np.arange(1, len(code) + 1) - np.searchsorted(sorted_code, sorted_code)
    before = np.array([seen.get(name, 0) for name in names], np.int64)
    for name, count in zip(names, np.bincount(code, minlength=len(names)).tolist(), strict=True):
        seen[name] = seen.get(name, 0) + count
    return place + before[code]
