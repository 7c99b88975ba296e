"""How many rows are fitted in batch before the first forecast, where the command line does not say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamgp.windows.calendar import Bools, Ints
from streamgp.windows.windows import WindowSpec
from streamgp_data.checkpoint import Saved
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.restored import recipe_of
from streamgp_pipelines.learning.whole import span

if TYPE_CHECKING:
    from streamgp_pipelines.learning.survey import Survey

WINDOWS = 500
"""Complete windows of a warm-up without a season."""

SEASONS = 3
"""Seasons of one series in a warm-up with a season, which also has one window."""

LEAST = 10
"""Least complete windows of a fit: on a single one models are far too certain, or not at all."""

SHARE = 5
"""At most one in this many rows of the table is warm-up."""


class Needs:
    """Rows of a stream of several series until a fit has the least that will do, and all that it needs, found as rows
    come: ten whole windows; three seasons of one series and a window or, without a season, 500 whole windows.

    Args:
        spec: of the windows.
        readable: rows of the table.

    Attributes:
        least, enough: None while there are fewer.
        most: rows that are a fifth of the table.
    """

    def __init__(self, spec: WindowSpec, readable: int) -> None:
        assert spec.series is not None
        self.series = spec.series
        self.first, self.long, self.seasonal = span(spec), _long(spec), spec.season > 1
        self.most = readable // SHARE
        self.least: int | None = None
        self.enough: int | None = None
        self._seen: dict[Any, int] = {}
        self._rows = self._windows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """The next rows."""
        if self.least is not None and (self.enough is not None or self._rows >= self.most):
            return
        place = _places(rows.column(self.series), self._seen)
        whole = self._windows + np.cumsum(place >= self.first)
        if self.least is None:
            self.least = _first(whole >= LEAST, self._rows)
        if self.enough is None:
            self.enough = _first(place >= self.long if self.seasonal else whole >= WINDOWS, self._rows)
        self._rows, self._windows = self._rows + len(place), self._windows + int((place >= self.first).sum())

    def bound(self, batch: int) -> int | None:
        """Rows that the warm-up has at most, in micro-batches of at most `batch` rows; None where that is not known."""
        if self.least is None:
            return None
        return max(self.most if self.enough is None else min(self.enough + batch, self.most), self.least)


def needed(spec: WindowSpec) -> int:
    """Rows of one series that a fit needs, the least among them."""
    return max(_long(spec), least(spec))


def least(spec: WindowSpec) -> int:
    """Rows of one series with as many whole windows as a fit has at least."""
    return span(spec) + LEAST - 1


def warmup_rows(config: TrainConfig, spec: WindowSpec, survey: Survey, saved: Saved | None) -> int:
    """Rows of warm-up: as asked for, as the run began, or by default; 0 in batch training, which has none."""
    if not config.online:
        return 0
    if config.warmup is not None:
        return config.warmup
    if saved is None:
        return default_warmup(spec, survey, config.batch)
    return recipe_of(saved).schedule.warmup


def has_begun(saved: Saved) -> bool:
    """Whether the run had rows to find seasons, warm-up and transforms by."""
    return bool(saved.manifest["begun"])


def default_warmup(spec: WindowSpec, survey: Survey, batch: int) -> int:
    """What a model needs to be fitted, at most a fifth of the table, and never less than ten whole windows.

    It needs three seasons and a window of one series or, without a season, 500 whole windows of any, and then the rest
    of a micro-batch of `batch` rows. Rows are counted in the order of the table; values are not looked at. Of a fleet
    they are the rows of one series, of which the table has the mean number.
    """
    few, most, needs = least(spec), survey.table.readable // SHARE, survey.needs
    if needs is None:
        most //= survey.count if spec.fleet else 1
        return max(min(_full(_long(spec), batch), most), few)
    return max(most if needs.enough is None else min(_full(needs.enough, batch), most), needs.least or few)


def _long(spec: WindowSpec) -> int:
    """Rows of one series that are three seasons and a window or, without a season, 500 windows."""
    return span(spec) + ((SEASONS - 1) * spec.season if spec.season > 1 else WINDOWS - 1)


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
