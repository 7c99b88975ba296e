"""One pass over a table before its first row is learned: facts about its rows that seasons, warm-up and checks use."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgp.windows.calendar import Bools, Floats, Ints
from streamgp.windows.rows import times
from streamgp.windows.windows import WindowSpec
from streamgp_data.batches import together
from streamgp_data.checkpoint import Saved
from streamgp_data.moments import Moments
from streamgp_data.pace import Pace
from streamgp_data.table import Table
from streamgp_pipelines.config import DataConfig, TrainConfig
from streamgp_pipelines.learning.columns import columns_read, test_column, window_spec
from streamgp_pipelines.learning.of_days import OfDays
from streamgp_pipelines.learning.seasons import (
    PANEL_BATCH,
    clock_of,
    undecided,
    with_batch,
    with_calendar,
    with_seasons,
)
from streamgp_pipelines.learning.warmup import Needs, needed
from streamgp_pipelines.seasons import ROWS

Config = TypeVar("Config", bound=DataConfig)


class Survey:
    """Facts about the rows of a table. `look` reads the first of them, `finish` the rest, from where `look` ended.

    Memory is bounded by the first rows, which are those of the warm-up, and the series; in batch training some bytes a
    row are held besides.

    Args:
        table: to read.
        spec: whose columns are read; its lags and seasons may still change.
        test: the column that says which rows are held out.
        rowwise: whether what batch training must know of each row is held.
        since: the time from which on rows are scored, where they are counted until then.

    Attributes:
        series: rows of each series, by its name; of a table without series, of None.
        empty: columns that have no value in any row.
        same: targets whose values have all been the same so far -> that value, and how many there were.
        pace: the intervals between rows, where windows look back; of the first rows where an interval is declared.
        order: whether series follow one another.
        of_days: inputs that have one value in each day, among the first rows.
        before: rows before `since`.
        needs: rows until the warm-up has what it needs; None where it was not asked.
    """

    def __init__(
        self,
        table: Table,
        spec: WindowSpec,
        test: str | None = None,
        rowwise: bool = False,
        since: int | None = None,
    ) -> None:
        self.table, self.spec, self.test, self.rowwise, self.since = table, spec, test, rowwise, since
        self.series: dict[Any, int] = {} if spec.series else {None: table.rows}
        self.empty = list(spec.columns) if table.rows else []
        self.same = dict.fromkeys(spec.targets, (math.nan, 0))
        self.pace, self.order, self.before, self.of_days = Pace(), Order(), 0, OfDays(spec)
        self.needs: Needs | None = None
        self._codes: dict[Any, int] = {}
        self._rowwise: list[tuple[NDArray[np.int32], Bools, Floats]] = []
        self._opening: list[pa.RecordBatch] = []
        self._read = 0
        names = [name for name in (*columns_read(spec), test) if name is not None]
        self._chunks = (chunk.rows for chunk in table.read({}, list(dict.fromkeys(names))))

    @classmethod
    def of(cls, table: Table, spec: WindowSpec, test: str | None = None, rowwise: bool = False) -> Survey:
        """Of all rows."""
        survey = cls(table, spec, test, rowwise)
        survey.finish(0)
        return survey

    @property
    def opening(self) -> pa.RecordBatch | None:
        """Time, series and targets of the first rows: 20,000 at least, and all of the warm-up; None without a row."""
        if not self._opening:
            return None
        self._opening = [together(self._opening)]
        return self._opening[0]

    @property
    def count(self) -> int:
        """How many series there are; a table that has none yet may get one."""
        return max(len(self.series), 1)

    @property
    def codes(self) -> NDArray[np.int32]:
        """(R,) of the series of each row; of a survey by rows."""
        return np.concatenate([np.zeros(0, np.int32), *(codes for codes, _, _ in self._rowwise)])

    @property
    def held(self) -> Bools:
        """(R,) which rows the test column holds out; of a survey by rows."""
        return np.concatenate([np.zeros(0, bool), *(flags for _, flags, _ in self._rowwise)])

    @property
    def targets(self) -> Floats:
        """(R, O) values of the targets; of a survey by rows, without lags."""
        return np.concatenate([np.zeros((0, len(self.spec.targets))), *(values for _, _, values in self._rowwise)])

    @property
    def whole(self) -> bool:
        """Whether every row of the table was read."""
        return self._read >= self.table.readable

    def look(self) -> None:
        """Read the first rows."""
        while self._read < ROWS and self._take() is not None:
            pass

    def finish(self, warmup: int, needs: Needs | None = None, batch: int = 0) -> None:
        """Read the other rows, and hold those of the warm-up.

        Args:
            warmup: rows of warm-up, as far as they are known.
            needs: what the warm-up is found by, where it is not known.
            batch: rows of a micro-batch, at most.
        """
        self.needs = needs
        if needs is not None and (opening := self.opening) is not None:
            needs.add(opening)
        while self._wanted or self._read < self._held(warmup, batch):
            rows = self._take(warmup, batch)
            if rows is None:
                break
            if needs is not None:
                needs.add(rows)
        self._chunks.close()  # a file may be open

    @property
    def _wanted(self) -> bool:
        """Whether rows that are not held say something too."""
        spaced = self.spec.time is not None and self.spec.every_ns is None and self.spec.lags > 0
        return self.rowwise or self.spec.series is not None or spaced or self.since is not None or bool(self.empty)

    def _held(self, warmup: int, batch: int) -> float:
        """Rows that are held, as far as it is known."""
        needed = 0 if self.needs is None else self.needs.bound(batch)
        return math.inf if needed is None else max(ROWS, warmup + batch, needed)

    def _take(self, warmup: int = 0, batch: int = 0) -> pa.RecordBatch | None:
        """Note the next rows; None where there are no more."""
        rows = next((rows for rows in self._chunks if rows.num_rows), None)
        if rows is None:
            return None
        if self._read < self._held(warmup, batch):
            names = [name for name in (self.spec.time, self.spec.series, *self.spec.targets) if name is not None]
            self._opening.append(rows.select(names))
        self._read += rows.num_rows
        self._note(rows)
        return rows

    def _note(self, rows: pa.RecordBatch) -> None:
        spec = self.spec
        names = None if spec.series is None else rows.column(spec.series)
        if names is not None:
            for name, count in zip(*map(pa.Array.to_pylist, pc.value_counts(names).flatten()), strict=True):
                self.series[name] = self.series.get(name, 0) + count
        self.empty = [name for name in self.empty if rows.column(name).null_count == rows.num_rows]
        for name, (value, count) in list(self.same.items()):
            numbers = _numbers(rows.column(name))
            numbers = numbers[np.isfinite(numbers)]
            if len(numbers) and (numbers != (value if count else numbers[0])).any():
                del self.same[name]
            elif len(numbers):
                self.same[name] = float(numbers[0]), count + len(numbers)
        if self._read <= ROWS:
            self.of_days.add(rows)
        if spec.time is not None:
            ticks = rows.column(spec.time).cast(pa.int64()).to_numpy()
            if names is not None:
                self.order.add(ticks, names)
            if spec.lags and (spec.every_ns is None or self._read <= ROWS):
                self.pace.add(ticks, names)
            if self.since is not None:
                self.before += int((times(rows, spec.time) < self.since).sum())
        if self.rowwise:
            self._rowwise.append(self._each(rows, names))

    def _each(self, rows: pa.RecordBatch, names: Any) -> tuple[NDArray[np.int32], Bools, Floats]:
        """What is held of each row: the code of its series, whether it is held out, its targets."""
        codes = np.zeros(rows.num_rows, np.int32)
        if names is not None:
            encoded = names.dictionary_encode()
            own = [self._codes.setdefault(name, len(self._codes)) for name in encoded.dictionary.to_pylist()]
            codes = np.array(own, np.int32)[encoded.indices.to_numpy(zero_copy_only=False)]
        flags: Bools = np.zeros(rows.num_rows, np.bool_)
        if self.test is not None:
            flags = np.nan_to_num(_numbers(rows.column(self.test))) != 0
        wanted = () if self.spec.lags else self.spec.targets
        values = np.empty((rows.num_rows, len(self.spec.targets) if wanted else 0))
        for at, name in enumerate(wanted):
            values[:, at] = _numbers(rows.column(name))
        return codes, flags, values


class Order:
    """Whether the clock of a table starts over, as it does where series are stacked: a few times, and far back.

    A row is behind when its time lies in the first half of what the rows up to it span. Stacked series stay behind
    for many rows; rows that come a little late do not, nor does a clock that goes back and forth. It is the same
    however the table is cut into chunks.
    """

    def __init__(self) -> None:
        self._rows, self._restarts, self._behind, self._changes = 0, 0, 0, 0
        self._seen: tuple[int, int, bool] | None = None  # first, newest, whether the last row was behind
        self._last: Any = None

    def add(self, ticks: Ints, names: pa.Array[Any]) -> None:
        """The next rows: (N,) times and series."""
        first, newest, last = self._seen or (int(ticks[0]), int(ticks[0]), False)
        so_far = np.maximum.accumulate(np.maximum(ticks, newest))
        behind = ticks < first + (so_far - first) // 2
        self._restarts += int((behind & ~np.append(last, behind[:-1])).sum())
        self._behind += int(behind.sum())
        self._seen = first, int(so_far[-1]), bool(behind[-1])
        self._changes += int(pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False).sum())
        self._changes += names[0].as_py() != self._last
        self._last, self._rows = names[-1].as_py(), self._rows + len(ticks)

    @property
    def one_after_another(self) -> bool:
        """Whether series follow one another: the clock starts over, and fewer than one row in 20 change the series."""
        rare = 0 < self._restarts < self._rows / 20 and self._behind >= 10 * self._restarts
        return rare and self._changes <= self._rows / 20


def surveyed(config: Config, table: Table, saved: Saved | None = None) -> tuple[Config, WindowSpec, Survey]:
    """The options with what is left to the data filled in, the windows, and the survey of the table that they are of.

    Args:
        config: of a run, or of tuning.
        table: its table.
        saved: the checkpoint that the run continues from.

    Raises:
        UsageError: a column does not exist, or is asked to be two things.
        SchemaError: a column is not a number.
    """
    online = isinstance(config, TrainConfig) and config.online
    since = None
    if isinstance(config, TrainConfig) and config.init is not None and config.score_from is not None:
        moments = Moments.of(table.meta)
        if not moments.counts_rows(config.score_from):
            since = moments.instant(config.score_from, "--score-from")
    survey = Survey(table, _columns(config, table), test_column(config, table.schema), not online, since)
    config = with_calendar(with_seasons(config, survey, saved), survey, saved)
    spec = window_spec(config, table.schema, table.meta, clock_of(config, survey, saved))
    if isinstance(config, TrainConfig) and online and saved is None:
        needs = Needs(spec, table.readable) if config.warmup is None and spec.series and not spec.fleet else None
        longest = needed(spec) if config.warmup is None else config.warmup
        survey.finish(longest, needs, max(config.batch, PANEL_BATCH))
    else:
        survey.finish(0)
    return with_batch(config, survey, saved), spec, survey


def with_shown(config: Config, table: Table) -> Config:
    """The options with the seasons that the first rows of the table show, where they are left to the data."""
    return with_seasons(config, Survey(table, _columns(config, table)))


def is_undecided(config: DataConfig, table: Table) -> bool:
    """Whether a run that follows its table has to wait for rows before its seasons can be taken from the clock."""
    return undecided(config, Survey(table, _columns(config, table)))


def _columns(config: DataConfig, table: Table) -> WindowSpec:
    """Windows whose columns are those of the run; its seasons are not known yet."""
    plain = config.model_copy(update={"season": ()}) if isinstance(config.season, str) else config
    return window_spec(plain, table.schema, table.meta)


def _numbers(column: Any) -> Floats:
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False))
