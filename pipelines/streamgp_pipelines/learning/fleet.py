"""A fleet: one stream of many series, each learned as if it were alone.

Every series has a model, a calibration, a warm-up and micro-batches of its own: those of B of its own rows. Rows wait
until the micro-batch of their series is full; all series whose micro-batch is full are asked, answered, scored and
learned together. So the numbers of a series are those of a run on it alone, in whatever order the others come; a
silent series costs nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import Assesses, Due, Fleet, Inputs, Json, Model, Predictive, Stateful, Step, Timed
from streamgp.forecasting.bands import Bands, Issued
from streamgp.fork import fork
from streamgp.state import Declared, Tensors, Whole
from streamgp.windows.calendar import Ints
from streamgp.windows.windows import Answers, Asks
from streamgp_data.batches import together
from streamgp_pipelines.learning.columns import columns_read
from streamgp_pipelines.learning.learner import Learner, WarmUp
from streamgp_pipelines.learning.pairs import alone
from streamgp_pipelines.learning.recipe import Recipe, Schedule
from streamgp_pipelines.learning.separate import Separate
from streamgp_pipelines.learning.tail import Tail

AT_ONCE = 2**14
"""Forecasts that are made together at most, T for each row: memory stays bounded, and near."""
READ = 8192
"""Rows that are read at a time at most, about."""
NEVER = 2**62
"""A place in the stream that no row has."""


def read_size(batch: int, series: int, most: int = READ) -> int:
    """Rows that are read at a time: a micro-batch of every series, in all `most` at most.

    Example:
        >>> read_size(batch=48, series=3), read_size(batch=48, series=5000)
        (144, 8160)
    """
    return batch * max(1, min(series, most // batch))


class PartialBatches:
    """Rows whose micro-batch is not full, and how many rows each series has had; Stateful.

    Rows are put together only when some leave, and each leaves once: the cost is linear in the rows.
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[pa.RecordBatch, Ints]] = []
        self._count = np.zeros(0, np.int64)  # (S,) rows of each series that wait
        self.taken = np.zeros(0, np.int64)  # (S,) rows of each series that left

    def __deepcopy__(self, _: object) -> PartialBatches:
        found = copy.copy(self)
        found._pieces, found._count, found.taken = list(self._pieces), self._count.copy(), self.taken.copy()
        return found

    def add(self, rows: pa.RecordBatch, code: Ints) -> None:
        """Let rows wait, in the order of the stream. code: (N,) of their series."""
        if self._pieces:
            rows = rows.cast(self._pieces[0][0].schema)
        if len(code):
            self._pieces.append((rows, code))
        more = np.zeros(max(int(code.max(initial=-1)) + 1 - len(self.taken), 0), np.int64)
        self.taken, self._count = np.concatenate([self.taken, more]), np.concatenate([self._count, more])
        self._count += np.bincount(code, minlength=len(self._count))

    def full(self, schedule: Schedule, most: int) -> Iterator[tuple[pa.RecordBatch, Ints]]:
        """The micro-batches that are full, one series after another, while there are any.

        Args:
            schedule: of the micro-batches of a series.
            most: rows that come at once, beside those of the first series.

        Yields:
            rows, and the code of each.
        """
        while True:
            room = schedule.rooms(self.taken)
            ready = np.flatnonzero(self._count >= room)
            if not len(ready):
                return
            yield from self._parts(np.where(self._count >= room, room, 0), most)

    def rest(self, most: int) -> Iterator[tuple[pa.RecordBatch, Ints]]:
        """All rows that wait, one series after another; `most`: as of `full`."""
        if self._pieces:
            yield from self._parts(self._count, most)

    def _parts(self, wanted: Ints, most: int) -> Iterator[tuple[pa.RecordBatch, Ints]]:
        """The first rows of each series, so many as are wanted of it; the rows of some series at a time."""
        rows, code = self._leave(wanted)
        ready, first = np.flatnonzero(wanted), 0
        ends = wanted[ready].cumsum()
        while first < len(ready):
            start = int(ends[first] - wanted[ready[first]])
            behind = max(first + 1, int(np.searchsorted(ends, start + most, "right")))
            stop, own = int(ends[behind - 1]), ready[first:behind]
            self.taken[own] += wanted[own]
            first = behind
            yield rows.slice(start, stop - start), code[start:stop]

    def _whole(self) -> tuple[pa.RecordBatch, Ints]:
        """All rows that wait, in the order of the stream."""
        rows, code = zip(*self._pieces, strict=True)
        return together(rows), np.concatenate(code)

    def _leave(self, wanted: Ints) -> tuple[pa.RecordBatch, Ints]:
        """The first rows of each series, so many as are wanted of it, one series after another."""
        rows, code = self._whole()
        few = len(wanted) <= np.iinfo(np.uint16).max
        order = np.argsort(code.astype(np.uint16) if few else code, kind="stable")  # of 16 bits in linear time
        of = code[order]
        leaves = np.arange(len(of)) - (self._count.cumsum() - self._count)[of] < wanted[of]
        stays = np.sort(order[~leaves])
        self._pieces = [(rows.take(stays), code[stays])] if len(stays) else []
        self._count = self._count - wanted
        return rows.take(order[leaves]), of[leaves]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        rows, code = self._whole() if self._pieces else (None, np.zeros(0, np.int64))
        own = {"code": torch.from_numpy(code.copy()), "taken": torch.from_numpy(self.taken.copy())}
        return own | Tail(rows).state()[0], {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        tail = Tail()
        tail.restore(tensors, rest)
        code, self.taken = (tensors[name].numpy().copy() for name in ("code", "taken"))
        self._pieces = [] if tail.rows is None else [(tail.rows, code)]
        self._count = np.bincount(code, minlength=len(self.taken))


class Kept(Declared):
    """Windows of series that are not fitted yet, and from which place in the stream on each is fitted, and is scored;
    Stateful."""

    STATE = (Tensors("series", prefix="_", grows=(0,)), Tensors("begun", prefix="_", grows=(1,)), Whole("_windows"))

    def __init__(self) -> None:
        self._windows = WarmUp()
        self._series = torch.zeros(0, dtype=torch.int64)
        self._begun = torch.full((2, 0), NEVER)

    def add(self, x: Inputs, y: Tensor, series: Tensor) -> None:
        """Keep N windows of these series, and their truths (N, T)."""
        self._windows.add(x, y)
        self._series = torch.cat([self._series, series])

    def fit(self, ready: Tensor, place: int) -> tuple[Inputs, Tensor, Tensor] | None:
        """The windows of the series that are ready, (S,), with truths and series; these are fitted from here on.

        A series without a window is not, and goes on waiting for one.
        """
        leaves = ready[self._series]
        kept = self._windows.windows() if bool(leaves.any()) else None
        if kept is None:
            return None
        x, y = kept
        found = x.rows(leaves), y[leaves], self._series[leaves]
        self._windows.finish(0)
        self._windows.add(x.rows(~leaves), y[~leaves])
        self._series = self._series[~leaves]
        self._begun[0, found[2]] = place
        return found

    def score(self, series: Tensor, place: Tensor) -> None:
        """These series are scored from these places on."""
        self._begun[1, series] = place

    def fitted(self, series: Tensor) -> Tensor:
        """(N,) the places from which on these series are fitted."""
        return self._begun[0].index_select(0, series)

    def scored(self, series: Tensor) -> Tensor:
        """(N,) the places from which on these series are scored."""
        return self._begun[1].index_select(0, series)

    def reserve(self, series: int) -> None:
        """Room for so many series."""
        grown = series - self._begun.shape[1]
        if grown > 0:
            self._begun = torch.cat([self._begun, torch.full((2, grown), NEVER)], 1)


class FleetLearner(Learner):
    """A fleet on its stream: as `Learner`, for the series of a table, each alone.

    Args:
        recipe: as of `Learner`; the rows of its schedule are those of a series.
        model: as each of the models begins.
        fleet: the models.
        device: where they live.
    """

    def __init__(self, recipe: Recipe, model: Model, fleet: Fleet, device: torch.device | None = None) -> None:
        self.fleet = fleet
        super().__init__(recipe, model, device)

    def begin(self) -> None:
        super().begin()
        shape, calibration, period = self.windows.shape, self.calibration, self.phases.period
        self.bands = Bands(shape, calibration, period, apart=True)
        self.waiting, self.kept = PartialBatches(), Kept()
        self._none: Due | None = None  # of rows that only wait

    def parts(self) -> dict[str, Stateful]:
        return super().parts() | {"model": self.fleet, "waiting": self.waiting, "kept": self.kept}

    @property
    def streams(self) -> int:
        return max(len(self.windows.names), 1)

    @property
    def _most(self) -> int:
        """Rows that come at once."""
        return AT_ONCE // self.windows.shape.columns

    @property
    def room(self) -> int:
        """Rows that are read next: of the series that have come, as what series learn from one another depends on it,
        and so must not depend on what the table holds behind them."""
        size = read_size(self.schedule.batch, self.streams)
        return size - self.rows % size

    def learn(self, rows: pa.RecordBatch, each: Callable[[Due], None]) -> Step | None:
        """Let rows wait, and learn the micro-batches that they fill."""
        self.rows += rows.num_rows
        names = [name for name in columns_read(self.windows.spec) if name != self.windows.spec.series]
        self.waiting.add(rows.select(names), self.windows.codes(rows))
        self.kept.reserve(len(self.windows.names))
        self.bands.reserve(len(self.windows.names))  # at once: series by series, each would copy all before it
        steps, rounds = list[Step](), 0
        if isinstance(self.fleet, Timed):
            self.fleet.begin()
        for rounds, full in enumerate(self.waiting.full(self.schedule, self._most), 1):  # noqa: B007
            due = self._round(*full)
            self._assess(due)
            steps += self._learned(due)
            each(alone(self.counted(due)))
        if not rounds:
            self._none = self._none or self._pair(*self.windows.push(rows.slice(0, 0)))
            each(self._none)
        return in_all(steps)

    def preview(self, rows: pa.RecordBatch | None) -> tuple[Self, list[Due]]:
        """A copy that has learned the full micro-batches of these rows, and asked and scored the partial ones."""
        ahead = copy.copy(self)
        for name in ("windows", "ledger", "bands", "scores", "counts", "clock", "waiting", "kept", "warmup", "fleet"):
            setattr(ahead, name, fork(getattr(self, name)))
        found = [] if rows is None else [ahead.advance(rows)[1]]
        found += [alone(ahead.counted(ahead._round(*rest))) for rest in ahead.waiting.rest(self._most)]
        found.append(ahead.counted(ahead._pair(*ahead.windows.flush())))
        return ahead, found

    def branch(self, rows: pa.RecordBatch | None) -> list[Due]:
        """Learn these rows and all that wait, to forecast from there; see `Learner.branch`."""
        counted = [] if rows is None else [self.advance(rows)[1]]
        found = [self._round(*rest) for rest in self.waiting.rest(self._most)]
        found.append(self._pair(*self.windows.flush()))
        counted += [alone(self.counted(due)) for due in found]
        some = [(due, due.whole) for due in found if due.whole is not None and len(due.whole)]
        for due in found:
            self._assess(due)
        if some:
            dues, whole = [due for due, _ in some], torch.cat([series for _, series in some])
            x, y = Inputs.cat([due.x for due in dues]), torch.cat([due.target for due in dues])
            issued = torch.cat([due.issued for due in dues], 1)
            self._learned(found[-1]._replace(x=x, target=y, issued=issued, whole=whole))
        return counted

    @property
    def warmed(self) -> int:
        return int(np.minimum(self.waiting.taken, self.schedule.warmup).sum())

    def fitted(self, series: Tensor) -> Tensor:
        self.kept.reserve(len(self.windows.names))
        return self.kept.fitted(series) < NEVER

    def predict(self, asks: Asks) -> Tensor:
        return self.fleet.predict(asks.x.to(self.device), asks.series).cpu()

    def _predict(self, asks: Asks) -> Predictive:
        with self.clock.measure("predict"):
            found = self.fleet.predict(asks.x.to(self.device), asks.series, self.schedule.batch)
            return self.model.family.from_parameters(found.cpu())

    def _warm(self, series: Tensor, position: Tensor) -> Tensor:
        self.kept.reserve(len(self.windows.names))
        return position < self.kept.fitted(series)

    def _scored_from(self, series: Tensor) -> Tensor:
        return self.kept.scored(series)

    def _round(self, rows: pa.RecordBatch, code: Ints) -> Due:
        """Ask, answer and score rows, one series after another."""
        first = self.schedule.score_from
        if first is not None:
            before = self.waiting.taken - np.bincount(code, minlength=len(self.waiting.taken))
            begins = before[code] + np.arange(len(code)) - np.searchsorted(code, code) == first
            place = self.windows.rows + np.flatnonzero(begins)
            self.kept.score(torch.from_numpy(code[begins]), torch.from_numpy(place))
        return self._taken(*self.windows.push(rows, code))

    def _calibrated(self, asks: Asks, issued: Predictive, answers: Answers) -> Issued:
        """The quantiles of forecasts; those of series in their warm-up are not known."""
        now, before = self.fitted(asks.series), self.fitted(answers.series)
        if bool(now.all()) and bool(before.all()):
            return super()._calibrated(asks, issued, answers)
        whole = self._uncalibrated(issued)
        if not bool(before.any()):
            return whole
        given = self.model.family.from_parameters(issued.parameters()[:, now]) if bool(now.any()) else self._nothing()
        found = super()._calibrated(asks.rows(now), given, answers.rows(before))
        more = len(found.features) - len(whole.features)
        if more > 0:
            whole = whole._replace(features=torch.cat([whole.features, whole.features[:1].expand(more, -1, -1)]))
        whole.quantiles[:, now] = found.quantiles
        whole.features[: len(found.features), now] = found.features
        return whole

    def _assess(self, due: Due) -> None:
        if not isinstance(self.model, Assesses) or not isinstance(self.fleet, Separate):
            return
        issued, y, series = self._assessed(due)
        with self.clock.measure("update"):
            self.fleet.assess(issued.to(self.device), y.to(self.device), series)

    def _learned(self, due: Due) -> list[Step]:
        """Learn the windows that are complete: those of series that are fitted, and of those that now are to be."""
        assert due.whole is not None
        steps, fitted = list[Step](), self.fitted(due.whole)
        if isinstance(self.fleet, Timed):
            self.fleet.reach(*_reached(due))
        x, y, series = due.x.to(self.device), due.target.to(self.device), due.whole
        with self.clock.measure("update"):
            if bool(fitted.all()):
                steps += self.fleet.update(x, y, series, due.issued.to(self.device))
            elif bool(fitted.any()):
                issued = due.issued[:, fitted].to(self.device)
                steps += self.fleet.update(x.rows(fitted), y[fitted], series[fitted], issued)
            if not bool(fitted.all()):
                self.kept.add(due.x.rows(~fitted), due.target[~fitted], series[~fitted])
            ready = torch.from_numpy(self.waiting.taken >= self.schedule.warmup)
            first = self.kept.fit(ready, self.windows.rows)
            if first is not None:
                x, y, series = first
                steps += self.fleet.fit(x.to(self.device), y.to(self.device), series)
                if self.warmup.done_at is None:
                    self.warmup.finish(self.windows.rows)
        for step in steps:
            self.counts.add_step(step)
        return steps


def fleet_learner(recipe: Recipe, model: Model, device: torch.device) -> FleetLearner:
    """A fleet of models, before any data: one batched model where they are of one size, or separate ones.

    Args:
        recipe, device: as of `FleetLearner`.
        model: as each of them begins.
    """
    fleet = recipe.build_fleet(device) or Separate(lambda: recipe.build(device))
    return FleetLearner(recipe, model, fleet, device)


def _reached(due: Due) -> tuple[int, int]:
    """The time that each series with complete windows has reached, and that of the last truth.

    Where a series shows no truth, nobody knows the first, and it is long ago; where none does, the second is never.
    """
    assert due.whole is not None
    if not len(due.ds) or not bool(torch.isin(due.whole, due.series).all()):
        return -NEVER, int(due.ds.max()) if len(due.ds) else NEVER
    place = torch.searchsorted(codes := due.series.unique(), due.series)
    latest = torch.full_like(codes, -NEVER).scatter_reduce_(0, place, due.ds, "amax")
    return int(latest.min()), int(latest.max())


def in_all(steps: list[Step]) -> Step | None:
    """One step for those of many models."""
    if not steps:
        return None
    losses = torch.tensor([step.loss for step in steps])
    worst = next((step for step in steps if not step.healthy), steps[0])
    return Step(losses.nanmean().item(), max(step.basis for step in steps), worst.healthy, worst.done)
