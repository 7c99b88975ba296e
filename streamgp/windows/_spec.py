"""What windows are made of, and what they hand out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from streamgp.base import Inputs, Shape
from streamgp.context import Context
from streamgp.errors import UsageError
from streamgp.transforms import Transform, Transforms, by_row, each
from streamgp.windows import calendar


class Asks(NamedTuple):
    """Questions. series: (N,) codes; origin: (N,) step of the row asked at; position: (N,) its place in the stream
    from 0; cutoff: (N,) its time, ns (its step where there is no clock); ds: (N, H) the times asked about; x: windows.

    Without lags the question is about the row itself, so that origin is one step less than the row's own.

    age: (N, O) steps since the last known value of each target: 0 where the row asked at has one.
    doubt: (N, H, K) standard deviations of the known inputs ahead: 0 where they are known (`lost_inputs`).
    blur: (N, T) root mean square errors of the means for that doubt, which a learner finds; 0 before.
    stale: (N, H) whether what stands in for one of them says little of it.
    """

    series: Tensor
    origin: Tensor
    position: Tensor
    cutoff: Tensor
    ds: Tensor
    age: Tensor
    doubt: Tensor
    blur: Tensor
    stale: Tensor
    x: Inputs

    def rows(self, index: Tensor | slice) -> Asks:
        """The questions at `index`."""
        return Asks(*(part[index] for part in self[:-1]), self.x.rows(index))  # type: ignore[call-arg,arg-type]

    @staticmethod
    def cat(parts: list[Asks]) -> Asks:
        """The questions of all parts."""
        whole = (torch.cat(part) for part in zip(*(one[:-1] for one in parts), strict=True))
        return Asks(*whole, Inputs.cat([one.x for one in parts]))  # type: ignore[call-arg,arg-type]


class Answers(NamedTuple):
    """Truths. series, step, position, ds: (R,) as in Asks; y: (R, O), NaN is missing; seasonal: (R, O) the targets one
    season before (one step, without a season), NaN where not known; filed: (R,) of late rows that took their places,
    at which nothing is asked."""

    series: Tensor
    step: Tensor
    position: Tensor
    ds: Tensor
    y: Tensor
    seasonal: Tensor
    filed: Tensor

    def rows(self, index: Tensor) -> Answers:
        """The truths at `index`."""
        return Answers(*(part[index] for part in self))


class History(NamedTuple):
    """Rows of the past, oldest first within a series. series: (R,) codes; ds: (R,); y: (R, O)."""

    series: Tensor
    ds: Tensor
    y: Tensor


@dataclass(frozen=True)
class WindowSpec:
    """What windows are made of.

    Attributes:
        targets, inputs, known: columns; a known column need not be named among the inputs.
        calendar: whether the calendar of the target times is looked at.
        lags: rows looked back on; 0 is regression on the inputs of the row itself.
        horizon: H, steps ahead.
        season: steps in the season, the longest where there are several; 1: no season.
        seasons: steps in each season, shortest first, the last one `season`; with them windows have a context. None
            where only `season` is looked at.
        gaps: "fill": a target that is missing in a window is as the last known one at its phase of the season, and as
            its neighbours depart from theirs (`missing`); an input as in its last season (`lost_inputs`), or else as in
            the next row, and NaN where it has had no value. No window begins before its series. "reset":
            ask only where every value of a window is there. Truths are never filled.
        time: the time column; None where rows have no clock.
        series: the series column; None where there is one series.
        every_ns: the interval of the rows, ns (or in units of an integer clock); None counts rows.
        tolerance_ns: how far from the next tick of its clock a row may be and still be on the grid (`steps`); None
            counts intervals from the first row of the series.
        zone: an IANA name or an offset such as +10:00, for the calendar; None is UTC.
        fleet: whether each series has a model of its own, so that no model sees several.
        simulated: steps that the model is going to be simulated; 0: none are planned.
        contexts: whether windows hold the context that seasons give them; a model that looks at none needs none.
        late: what becomes of a row that comes after a newer one of its series. "skip": it is left out. "use": from then
            on windows look at it where it belongs, and it is the truth of forecasts that are open; nothing is asked at
            it. Where rows have no lags, their order says nothing, and it is as any other.
        sentinels: values that stand for a missing one, in any column.
        faults: whether other sentinels, and dead sensors, are detected (`faults`).
        transforms: one a target, of what windows hold of the targets and models learn; none where they are left as
            they are. Answers and the history are in the units of the targets.

    Raises:
        UsageError: the parts do not fit each other.
    """

    targets: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    calendar: bool = False
    lags: int = 24
    horizon: int = 1
    season: int = 1
    gaps: Literal["reset", "fill"] = "fill"
    time: str | None = None
    series: str | None = None
    every_ns: int | None = None
    zone: str | None = None
    tolerance_ns: int | None = None
    seasons: tuple[int, ...] = ()
    transforms: Transforms = ()
    simulated: int = 0
    fleet: bool = False
    contexts: bool = True
    late: Literal["skip", "use"] = "skip"
    sentinels: tuple[float, ...] = ()
    faults: bool = True

    def __post_init__(self) -> None:
        made = tuple(Transform(**one) if isinstance(one, dict) else one for one in self.transforms)
        object.__setattr__(self, "transforms", made)  # as a checkpoint has them, or as they are
        if len(made) not in (0, len(self.targets)):
            raise UsageError("there must be a transform for each target", hint="use none for those left as they are")
        if not self.targets:
            raise UsageError("no target was named", hint="name one with --target COLUMN")
        if len(set(self.columns)) < len(self.columns):
            raise UsageError("a column is named twice, or is target and input", hint="targets' own lags are always in")
        if self.lags == 0 and (self.horizon != 1 or self.season != 1):
            raise UsageError("without lags there is neither horizon nor season", hint="use --lags 1 or more")
        if self.lags == 0 and not (self.columns[len(self.targets) :] or self.calendar):
            raise UsageError("without lags a model needs inputs", hint="name them with --inputs 'a,b*'")
        if min(self.lags, self.horizon - 1, self.season - 1) < 0:
            raise UsageError("lags, horizon or season is too small", hint="lags ≥ 0, horizon ≥ 1, season ≥ 1")
        if self.seasons and (sorted(set(self.seasons)) != [*self.seasons] or self.seasons[-1] != self.season):
            raise UsageError("seasons must grow, and end with the longest", hint="such as --season 48,336")
        if self.calendar and self.time is None:
            raise UsageError("the calendar needs a clock", hint="leave --calendar out, or name the time column")
        if self.every_ns is not None and (self.time is None or self.every_ns <= 0):
            raise UsageError("an interval needs a clock and must be positive", hint="name the time column at ingest")
        if self.tolerance_ns is not None and not (self.every_ns is not None and 0 < self.tolerance_ns < self.every_ns):
            raise UsageError("a tolerance must be positive and less than the interval", hint="declare it at ingest")
        if self.late == "use" and self.lags and self.every_ns is None:
            raise UsageError(
                "a late row has no place where windows count rows",
                hint="declare the interval, streamgp ingest --every 30m or Forecaster(every='30m'); or leave late rows "
                "out, and give a longer lateness",
            )
        calendar.check(self.zone)

    @property
    def columns(self) -> tuple[str, ...]:
        """Targets, inputs that are not known, known inputs: the order of the channels."""
        return (*self.targets, *(name for name in self.inputs if name not in self.known), *self.known)

    def learned(self, y: Tensor, column: Tensor | None = None) -> Tensor:
        """Targets as models learn them: (..., O · K), or (R,) of the output column of each."""
        if not self.transforms:
            return y
        if column is None:
            return torch.from_numpy(each(self.transforms, "forward", y.numpy()))
        output = column.numpy() // self.horizon
        return torch.from_numpy(by_row(self.transforms, "forward", y.numpy(), output))

    def in_units(self, z: Tensor) -> Tensor:
        """The inverse of `learned`: (..., O · K)."""
        return torch.from_numpy(each(self.transforms, "backward", z.numpy())) if self.transforms else z

    @property
    def context(self) -> Context | None:
        """What windows hold beside their lags, where they hold it; None without seasons."""
        if not self.seasons or self.season < 2 or not self.lags:
            return None
        own = tuple(name for name in self.columns[len(self.targets) :] if name not in self.known)
        return Context(self.seasons, self.horizon, self.targets, own, self.known)

    @property
    def shape(self) -> Shape:
        """What a model is built for."""
        seasonal = tuple(f"season({name})" for name in self.targets) if self.season > 1 else ()
        clock = calendar.channels(self.every_ns) if self.calendar else ()
        future = self.known if self.lags else self.columns[len(self.targets) :]
        return Shape(
            targets=self.targets,
            horizon=self.horizon,
            lags=self.lags,
            past=(*self.columns, *seasonal),
            future=(*seasonal, *future, *clock),
            season=self.season,
            context=self.context if self.contexts else None,
            panel=self.series is not None and not self.fleet,
            simulated=self.simulated,
        )
