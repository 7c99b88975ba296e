"""A fleet: one stream of many series, each learned as if it were alone.

Every series has a model, a calibration, a warm-up and micro-batches of its own: those of B of its own rows. Rows wait
until the micro-batch of their series is full; all series whose micro-batch is full are asked, answered, scored and
learned together. So the numbers of a series are those of a run on it alone, in whatever order the others come; a
silent series costs nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import Due, Fleet, Inputs, Json, Model, Predictive, Stateful, Step
from streamgp.forecasting.bands import Bands, Issued
from streamgp.forecasting.calibration import Calibration
from streamgp.streaming.calendar import Ints
from streamgp.streaming.windows import Answers, Asks, Windows
from streamgp_pipelines.assembly import build_fleet, build_model
from streamgp_pipelines.learning.columns import columns_read
from streamgp_pipelines.learning.each import Separate
from streamgp_pipelines.learning.learner import Learner, Schedule, WarmUp
from streamgp_pipelines.learning.tail import Tail

AT_ONCE = 2**15
"""Forecasts that are made together at most, T for each row: memory stays bounded, and near."""
READ = 8192
"""Rows that are read at a time at most."""
NEVER = 2**62
"""A place in the stream that no row has."""


def read_size(batch: int, series: int) -> int:
    """Rows that are read at a time: a micro-batch of every series that there is at the beginning, `READ` at most.

    No number of any series depends on it.

    Example:
        >>> read_size(batch=48, series=3), read_size(batch=48, series=5000)
        (144, 8192)
    """
    return max(batch, min(batch * series, READ))


class ModelOptions(NamedTuple):
    """What a model is built with: name, options, seed."""

    name: str
    set: Mapping[str, Any]
    seed: int


class Waiting:
    """Rows whose micro-batch is not full, and how many rows each series has had; Stateful."""

    def __init__(self) -> None:
        self._rows: pa.RecordBatch | None = None
        self._code = np.zeros(0, np.int64)
        self.taken = np.zeros(0, np.int64)  # (S,) rows of each series that left

    def add(self, rows: pa.RecordBatch, code: Ints) -> None:
        """Let rows wait, in the order of the stream. code: (N,) of their series."""
        whole = rows
        if self._rows is not None:
            named = rows.select(self._rows.schema.names).cast(self._rows.schema)
            whole = pa.Table.from_batches([self._rows, named]).combine_chunks().to_batches()[0]
        self._rows, self._code = whole, np.concatenate([self._code, code])
        grown = int(code.max(initial=-1)) + 1 - len(self.taken)
        if grown > 0:
            self.taken = np.concatenate([self.taken, np.zeros(grown, np.int64)])

    def full(self, schedule: Schedule, most: int) -> tuple[pa.RecordBatch, Ints] | None:
        """The next micro-batch of each series that has one, one series after another; None where none has.

        Args:
            schedule: of the micro-batches of a series.
            most: rows, beside those of the first series.

        Returns:
            the rows, and the code of each.
        """
        room = (schedule.warmup - self.taken - 1) % schedule.batch + 1
        ready = np.flatnonzero(np.bincount(self._code, minlength=len(room)) >= room)
        if not len(ready):
            return None
        ready = ready[: max(1, int(np.searchsorted(room[ready].cumsum(), most, "right")))]
        wanted = np.zeros(len(room), np.int64)
        wanted[ready] = room[ready]
        return self._leave(wanted)

    def rest(self) -> tuple[pa.RecordBatch, Ints] | None:
        """All rows that wait, one series after another; None where none does."""
        return self._leave(np.bincount(self._code, minlength=len(self.taken))) if len(self._code) else None

    def _leave(self, wanted: Ints) -> tuple[pa.RecordBatch, Ints]:
        """The first rows of each series, so many as are wanted of it."""
        assert self._rows is not None
        order = np.argsort(self._code, kind="stable")
        code = self._code[order]
        leaves = np.arange(len(code)) - np.searchsorted(code, code) < wanted[code]
        stays = np.sort(order[~leaves])
        rows = self._rows.take(order[leaves])
        self._rows = self._rows.take(stays) if len(stays) else None
        self._code = self._code[stays]
        self.taken = self.taken + wanted
        return rows, code[leaves]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        own = {"code": torch.from_numpy(self._code.copy()), "taken": torch.from_numpy(self.taken.copy())}
        return own | Tail(self._rows).state()[0], {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        tail = Tail()
        tail.restore(tensors, rest)
        self._rows, self._code, self.taken = tail.rows, *(tensors[name].numpy().copy() for name in ("code", "taken"))


class Kept:
    """Windows of series that are not fitted yet, and from which place in the stream on each is fitted, and is scored;
    Stateful."""

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
        self._reserve(found[2])
        self._begun[0, found[2]] = place
        return found

    def score(self, series: Tensor, place: Tensor) -> None:
        """These series are scored from these places on."""
        self._reserve(series)
        self._begun[1, series] = place

    def fitted(self, series: Tensor) -> Tensor:
        """(N,) the places from which on these series are fitted."""
        self._reserve(series)
        return self._begun[0, series]

    def scored(self, series: Tensor) -> Tensor:
        """(N,) the places from which on these series are scored."""
        self._reserve(series)
        return self._begun[1, series]

    def _reserve(self, series: Tensor) -> None:
        grown = int(series.max()) + 1 - self._begun.shape[1] if len(series) else 0
        if grown > 0:
            self._begun = torch.cat([self._begun, torch.full((2, grown), NEVER)], 1)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, rest = self._windows.state()
        return tensors | {"series": self._series, "begun": self._begun}, rest

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        windows = dict(tensors)
        self._series, self._begun = windows.pop("series").clone(), windows.pop("begun").clone()
        self._windows.restore(windows, rest)


class FleetLearner(Learner):
    """A fleet on its stream: as `Learner`, for the series of a table, each alone.

    Args:
        fleet: the models.
        model: as each of them begins.
        windows, calibration, schedule, device: as of `Learner`; the rows of the schedule are those of a series.
        size: rows that are read at a time.
    """

    def __init__(
        self,
        fleet: Fleet,
        model: Model,
        windows: Windows,
        calibration: Calibration,
        schedule: Schedule,
        size: int,
        device: torch.device | None = None,
    ) -> None:
        self.fleet, self._size = fleet, size
        super().__init__(model, windows, calibration, schedule, device)

    def begin(self) -> None:
        super().begin()
        shape, calibration, period = self.windows.shape, self.calibration, self.phases.period
        self.bands = Bands(shape, calibration, period, apart=True)
        self.waiting, self.kept = Waiting(), Kept()

    def parts(self) -> dict[str, Stateful]:
        return super().parts() | {"model": self.fleet, "waiting": self.waiting, "kept": self.kept}

    @property
    def streams(self) -> int:
        return max(len(self.windows.names), 1)

    @property
    def size(self) -> int:
        return self._size

    @property
    def room(self) -> int:
        return self._size - self.rows % self._size

    def advance(self, rows: pa.RecordBatch) -> tuple[Step | None, Due]:
        """Let rows wait, and learn the micro-batches that they fill; the returned pairs are those that count."""
        self.rows += rows.num_rows
        self.waiting.add(rows.select(columns_read(self.windows.spec)), self.windows.codes(rows))
        steps, found = list[Step](), list[Due]()
        most = AT_ONCE // self.windows.shape.columns
        while (full := self.waiting.full(self.schedule, most)) is not None:
            due = self._round(*full)
            steps += self._learned(due)
            found.append(self.counted(due))
        return _in_all(steps), joined(found or [self._pair(*self._no_rows(rows))])

    def preview(self, rows: pa.RecordBatch | None) -> tuple[Self, list[Due]]:
        """A copy that has learned the full micro-batches of these rows, and asked and scored the partial ones."""
        ahead = copy.copy(self)
        for name in ("windows", "ledger", "bands", "scores", "counts", "clock", "waiting", "kept", "warmup", "fleet"):
            setattr(ahead, name, copy.deepcopy(getattr(self, name)))
        found = [] if rows is None else [ahead.advance(rows)[1]]
        rest = ahead.waiting.rest()
        if rest is not None:
            found.append(ahead.counted(ahead._round(*rest)))
        found.append(ahead.counted(ahead._pair(*ahead.windows.flush())))
        return ahead, found

    def branch(self, rows: pa.RecordBatch | None) -> None:
        """Learn these rows and all that wait, to forecast from there; see `Learner.branch`."""
        if rows is not None:
            self.advance(rows)
        rest = self.waiting.rest()
        found = [] if rest is None else [self._round(*rest)]
        found.append(self._pair(*self.windows.flush()))
        some = [(due, due.whole) for due in found if due.whole is not None and len(due.whole)]
        if some:
            dues, whole = [due for due, _ in some], torch.cat([series for _, series in some])
            x, y = Inputs.cat([due.x for due in dues]), torch.cat([due.target for due in dues])
            issued = torch.cat([due.issued for due in dues], 1)
            self._learned(found[-1]._replace(x=x, target=y, issued=issued, whole=whole))

    @property
    def warmed(self) -> int:
        return int(np.minimum(self.waiting.taken, self.schedule.warmup).sum())

    def fitted(self, series: Tensor) -> Tensor:
        return self.kept.fitted(series) < NEVER

    def predict(self, asks: Asks) -> Tensor:
        return self.fleet.predict(asks.x.to(self.device), asks.series).cpu()

    def _predict(self, asks: Asks) -> Predictive:
        with self.clock.measure("predict"):
            found = self.fleet.predict(asks.x.to(self.device), asks.series, self.schedule.batch)
            return self.model.family.from_parameters(found.cpu())

    def _warm(self, series: Tensor, position: Tensor) -> Tensor:
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
        return self._taken(*self.windows.push(rows))

    def _calibrated(self, asks: Asks, issued: Predictive, answers: Answers) -> Issued:
        """The quantiles of forecasts; those of series in their warm-up are not known."""
        whole = self._uncalibrated(issued)
        now, before = self.fitted(asks.series), self.fitted(answers.series)
        if not bool(before.any()):
            return whole
        given = self.model.family.from_parameters(issued.parameters()[:, now]) if bool(now.any()) else self._nothing()
        found = super()._calibrated(asks.rows(now), given, Answers(*(part[before] for part in answers)))
        more = len(found.features) - len(whole.features)
        if more > 0:
            whole = whole._replace(features=torch.cat([whole.features, whole.features[:1].expand(more, -1, -1)]))
        whole.quantiles[:, now] = found.quantiles
        whole.features[: len(found.features), now] = found.features
        return whole

    def _learned(self, due: Due) -> list[Step]:
        """Learn the windows that are complete: those of series that are fitted, and of those that now are to be."""
        assert due.whole is not None
        steps, fitted = list[Step](), self.fitted(due.whole)
        x, y, series = due.x.to(self.device), due.target.to(self.device), due.whole
        with self.clock.measure("update"):
            if bool(fitted.any()):
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

    def _no_rows(self, rows: pa.RecordBatch) -> tuple[Asks, Answers]:
        """Neither a question nor an answer."""
        return self.windows.push(rows.slice(0, 0))


def fleet_learner(
    model: Model,
    options: ModelOptions,
    windows: Windows,
    calibration: Calibration,
    schedule: Schedule,
    size: int,
    device: torch.device,
) -> FleetLearner:
    """A fleet of models, before any data: one batched model where they are of one size, or separate ones.

    Args:
        model: as each of them begins.
        options: what it was built with.
        windows, calibration, schedule, size, device: as of `FleetLearner`.
    """
    shape = windows.shape
    fleet = build_fleet(options.name, options.set, shape, device)
    if fleet is None:
        fleet = Separate(lambda: build_model(options.name, options.set, shape, device, options.seed))
    return FleetLearner(fleet, model, windows, calibration, schedule, size, device)


def _in_all(steps: list[Step]) -> Step | None:
    """One step for those of many models."""
    if not steps:
        return None
    losses = torch.tensor([step.loss for step in steps])
    worst = next((step for step in steps if not step.healthy), steps[0])
    return Step(losses.nanmean().item(), max(step.basis for step in steps), worst.healthy, worst.done)


def joined(found: list[Due]) -> Due:
    """The pairs of all, without what only the calibration looks at."""
    issued = [due.predictive.parameters() for due in found]
    issued = [part for part in issued if part.shape[1]] or issued[:1]
    columns = zip(*(due[:6] for due in found), strict=True)
    series, position, cutoff, ds, column, y = (torch.cat(parts) for parts in columns)
    quantiles = torch.cat([due.quantiles for due in found], 1)
    return found[-1]._replace(
        series=series,
        position=position,
        cutoff=cutoff,
        ds=ds,
        column=column,
        y=y,
        predictive=type(found[0].predictive).from_parameters(torch.cat(issued, 1)),
        quantiles=quantiles,
        features=quantiles[:0],
    )
