"""A learner on its stream: micro-batches are asked, scored and learned. It holds everything that the next row depends
on.

A panel has one model, which all of its series share; a fleet has one for each, with a calibration, a warm-up and
micro-batches of its own.

asks, answers = windows.push(rows)            # an ask uses rows up to its origin only
ledger.add(asks, model.predict(asks.x))       # 1 ask, with parameters as at the start of the micro-batch
ledger.calibrate(bands.issue(asks, errors))   #   and with the volatility that is known at the row asked at
due = ledger.pop(answers)                     # 2 truths that have now arrived, step by step
alarms.judge(due)                             #   with --alarm-rate: how improbable each was; what
                                              #   is silent was found in all rows before (`silences`)
scores.add(due); bands.update(due)            # 3 score what was issued, then learn from it
model.update(due.x, due.target, due.issued)   # 4 one update, with windows whose last step is due
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import FLOAT, Assesses, Due, Fleet, Inputs, Json, Model, Predictive, Progress, Stateful, Step, Timed
from streamgp.forecasting.alarms import Alarms
from streamgp.forecasting.bands import Bands, Questions
from streamgp.forecasting.issued import Issued, feature_count
from streamgp.forecasting.scores import Scores
from streamgp.forecasting.silence import Silences, Silent
from streamgp.forecasting.units import in_units
from streamgp.forecasting.volatility import TINY, Errors
from streamgp.fork import fork
from streamgp.predictives.gaussian import Gaussian
from streamgp.recalled import RecalledByName
from streamgp.windows.calendar import Ints
from streamgp.windows.ledger import Ledger
from streamgp.windows.rows import numbers, times
from streamgp.windows.windows import Answers, Asks, Windows
from streamgp_data.numbers import number
from streamgp_pipelines.learning.clock import Stopwatch
from streamgp_pipelines.learning.columns import columns_read
from streamgp_pipelines.learning.counts import Counts
from streamgp_pipelines.learning.doubt import blurred
from streamgp_pipelines.learning.heldout import HeldOut, restrict
from streamgp_pipelines.learning.own_units import OwnUnits, SeriesUnits
from streamgp_pipelines.learning.pairs import alone, by_truth, joined, select
from streamgp_pipelines.learning.partial import AT_ONCE, PartialBatches, read_size
from streamgp_pipelines.learning.phases import Phases
from streamgp_pipelines.learning.recipe import Recipe
from streamgp_pipelines.learning.rollout import Rehearsal
from streamgp_pipelines.learning.separate import Separate
from streamgp_pipelines.learning.warming import NEVER, WarmUp


class Learner:
    """Models on their stream. `advance` takes a full micro-batch; `preview` scores a partial one without learning, and
    `branch` learns it too, in a copy that is only forecast from.

    Args:
        recipe: all that it is made of, but the state; `learning.making` makes learners.
        model: of the recipe, on its device, which windows travel to once a micro-batch: that of a panel, or as each
            of a fleet begins.
        device: where the models live.

    Attributes:
        apart: whether each series has a model.
        models: by the codes of `_owner`.
    """

    def __init__(self, recipe: Recipe, model: Model, device: torch.device | None = None) -> None:
        self.recipe, self.apart = recipe, recipe.spec.fleet
        self.device = device or torch.device("cpu")
        self.model = model.to(self.device)
        self.models = self._made()
        self.calibration, self.schedule, self.alarm_rate = recipe.calibration, recipe.schedule, recipe.alarm_rate
        self.rehearsal: Rehearsal | None = None
        if recipe.simulate is not None:
            self.rehearsal = Rehearsal(recipe.spec, recipe.simulate, recipe.calibration, recipe.seed)
        self.phases = Phases(recipe.spec)
        self.only: HeldOut | None = None
        """Which rows of the stream are scored, in batch training; None is all of them."""
        self.progress: Callable[[Progress], None] = lambda _: None
        """Called after each epoch of the warm-up, where there are several."""
        first = recipe.schedule.score_from
        self.warmup = WarmUp(
            None if self.apart else 1, NEVER if self.apart or first is None else first, recipe.own_units
        )
        self.clock = Stopwatch()
        self.recalled = RecalledByName()
        self.scoring = True
        """Whether scores are kept; nothing that is forecast depends on them."""
        self.branched = False
        """Whether this is a copy that goes no further: see `branch`."""
        self.begin()

    def _made(self) -> Fleet:
        """The models, before any data: batched where the family has that form, else separate ones."""
        together = self.recipe.build_fleet(self.device) if self.apart else None
        own = {} if self.apart else {0: self.model}
        return together or Separate(lambda: self.recipe.build(self.device), self.model, own)

    def begin(self) -> None:
        """Go back to the first row of the stream; the model keeps what it has learned."""
        self.recalled.forget()
        self.windows = Windows(self.recipe.spec)
        shape = self.windows.shape
        calibration, period = self.calibration, self.phases.period
        kept = len(calibration.probabilities), feature_count(calibration)
        self.ledger = Ledger(shape, *kept, self.model.family)
        free = replace(calibration, lower=None, upper=None, finds=False)
        inner = free if calibration.transformed else calibration
        self.bands = Bands(shape, inner, period, self.apart)
        self.scores = Scores(shape, calibration, self.model.family.binary, period)
        rate = self.alarm_rate
        self.alarms = None if rate is None else Alarms(shape, calibration.probabilities, rate, self.apart)
        self.silences = None if self.recipe.buckets else self._silences()  # those of buckets are of all rows
        self._silent: list[Silent] = []
        self.own_units = OwnUnits(shape, self.recipe.units) if self.recipe.own_units else None
        self.counts = Counts()
        self.waiting = PartialBatches()
        self._none: Due | None = None  # of rows that only wait
        self.rows = 0

    def parts(self) -> dict[str, Stateful]:
        """What a checkpoint holds."""
        names = ("model", "windows", "ledger", "bands", "scores", "counts", "warmup", "clock")
        parts: dict[str, Stateful] = {name: getattr(self, name) for name in names}
        more: dict[str, Stateful | None] = {
            "rehearsal": self.rehearsal,
            "alarms": self.alarms,
            "silences": self.silences,
            "own_units": self.own_units,
        }
        more |= {"model": self.models, "waiting": self.waiting} if self.apart else {}
        return parts | {name: part for name, part in more.items() if part is not None}

    def shards(self) -> Iterable[tuple[str, bytes]]:
        """Name and packed state of what is learned in shards."""
        return ()

    @property
    def notes(self) -> list[str]:
        """Notes on how it was learned, a sentence each."""
        wrong = 0 if self.silences is None else self.silences.wrong
        said = f"rows far ahead of all others: {wrong:,}; alarms of silence do not follow their clock: is it wrong?"
        return [said] if wrong else []

    def close(self) -> None:
        """Let go of other processes, where there are some."""

    @property
    def streams(self) -> int:
        """How many streams are learned, each alone."""
        return max(len(self.windows.names), 1) if self.apart else 1

    @property
    def size(self) -> int:
        """Rows that are read at a time."""
        return self.schedule.batch

    @property
    def warmed(self) -> int:
        """Rows of warm-up so far."""
        if self.apart:
            return int(np.minimum(self.waiting.taken, self.schedule.warmup).sum())
        done = self.warmup.done_at
        return self.rows if done is None else done

    @property
    def room(self) -> int:
        """Rows that make the next micro-batch full; of a fleet those that are read next, by the series that have come:
        what they learn from one another depends on it, and so must not depend on what the table holds next."""
        if not self.apart:
            return self.schedule.room(self.rows)
        size = read_size(self.schedule.batch, self.streams)
        return size - self.rows % size

    def advance(self, rows: pa.RecordBatch) -> tuple[Step | None, Due]:
        """`learn` what `room` said; the returned pairs are those that count."""
        found = list[Due]()
        step = self.learn(rows, found.append)
        return step, joined(found)

    def learn(self, rows: pa.RecordBatch, each: Callable[[Due], None]) -> Step | None:
        """Ask, answer, score and learn full micro-batches: these rows of a panel, or those of its series that they
        fill; the others wait.

        Args:
            rows: as many as `room` says.
            each: called with the pairs that count, in one piece or in several that are never held together.
        """
        self.recalled.forget()
        if isinstance(self.models, Timed):
            self.models.begin()
        steps, rounds = list[Step](), 0
        for rounds, full in enumerate(self._full(rows), 1):  # noqa: B007
            due = self._round(*full)
            self._assess(due)
            steps += self._learn(due)
            if self.rehearsal is not None:
                self.rehearsal.follow(rows, self.model, self.windows.names, self.warmup.done_at is not None)
            each(self._kept(due))
        if not rounds:
            self._none = self._none or self._pair(*self.windows.push(rows.slice(0, 0)))
            each(self._none)
        return in_all(steps) if self.apart else steps[-1] if steps else None

    def observe(self, rows: pa.RecordBatch) -> Due:
        """Ask, answer and score rows of a panel without learning; the returned pairs are those that count."""
        self.rows += rows.num_rows
        return self.counted(self._round(rows))

    def watch(self, rows: pa.RecordBatch) -> None:
        """Read rows after the last one learned: the windows move, and the volatility follows the forecasts that were
        still open; nothing else is learned, and nothing is asked."""
        asks, answers = self.windows.push(rows)
        self._calibrate(asks.rows(slice(0, 0)), self._nothing(), answers)
        self.ledger.pop(answers)

    def preview(self, rows: pa.RecordBatch | None) -> tuple[Self, list[Due]]:
        """A copy that has asked and scored the partial micro-batches, but not learned from them.

        Rows that wait for known values count as truths in the copy: it is what is known when the table ends. The model
        of a panel is shared with the copy, which never updates it; the models of a fleet learn the micro-batches that
        these rows fill.
        """
        ahead = copy.copy(self)
        for name in ("windows", "ledger", "bands", "scores", "counts", "clock", "alarms", "silences", "own_units"):
            setattr(ahead, name, fork(getattr(self, name)))
        ahead._silent = []
        for name in ("waiting", "warmup", "models") if self.apart else ():
            setattr(ahead, name, fork(getattr(self, name)))
        found = ahead._advanced(rows)
        found += [ahead._kept(ahead._round(*rest)) for rest in ahead._rest(rows)]
        found.append(ahead.counted(ahead._pair(*ahead.windows.flush())))
        return ahead, found

    def branch(self, rows: pa.RecordBatch | None) -> list[Due]:
        """Learn the partial micro-batches, and the rows that wait for known values, to forecast from there.

        This is for a copy of the state (`fork`), such as a checkpoint that was read: learning continues from the state
        before, which learns a whole micro-batch when it is full. What is learned here is a function of the rows
        alone. All rows after the last full micro-batch are learned again after each new one; what the state before
        forecast for them is recalled, of a panel.

        Returns:
            the pairs that count, as `preview` does.
        """
        self.branched = not self.apart
        counted = self._advanced(rows)
        found = [self._round(*rest) for rest in self._rest(rows)]
        if self.apart or self.windows.waiting or not found:
            found.append(self._pair(*self.windows.flush()))
        counted += [self._kept(due) for due in found]
        if self.branched and self.warmup.done_at is not None:
            self.recalled.lend(self.model)
        for due in found:
            self._assess(due)
        some = [due for due in found if len(due.target)]
        if some:
            x, y = Inputs.cat([due.x for due in some]), torch.cat([due.target for due in some])
            issued, whole = torch.cat([due.issued for due in some], 1), torch.cat([_whole(due) for due in some])
            self._learn(found[-1]._replace(x=x, target=y, issued=issued, whole=whole))
        return counted

    def _advanced(self, rows: pa.RecordBatch | None) -> list[Due]:
        """Learn the micro-batches of the series of a fleet that rows fill; the pairs that count."""
        return [self.advance(rows)[1]] if self.apart and rows is not None else []

    def _full(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, Ints | None]]:
        """Rows whose micro-batches are full now; with the codes of their series, where they are known."""
        code = self._count(rows)
        if not self.apart:
            yield rows, code
            return
        names = [name for name in columns_read(self.windows.spec) if name != self.windows.spec.series]
        self.waiting.add(rows.select(names), self.windows.codes(rows) if code is None else code)
        self.bands.reserve(len(self.windows.names))  # at once: series by series, each would copy all before it
        if self.alarms is not None:
            self.alarms.reserve(len(self.windows.names))
        yield from self.waiting.full(self.schedule, self._most)

    def _rest(self, rows: pa.RecordBatch | None) -> Iterator[tuple[pa.RecordBatch, Ints | None]]:
        """Rows of partial micro-batches, as `_full`: those given of a panel, those that wait of a fleet."""
        if self.apart:
            yield from self.waiting.rest(self._most)
        elif rows is not None and rows.num_rows:
            yield rows, self._count(rows)

    def _silences(self) -> Silences | None:
        """What finds silent targets, where alarms are raised."""
        spec, rate = self.recipe.spec, self.alarm_rate
        if rate is None:
            return None
        ahead = bool(spec.known) or not spec.lags  # rows may be of inputs that are known ahead
        return Silences(len(spec.targets), rate, spec.every_ns, spec.horizon if ahead else 0)

    def _count(self, rows: pa.RecordBatch) -> Ints | None:
        """Rows of the stream, in the order in which they come, before any of them waits; returns as `_listen`."""
        code = self._listen(rows)
        self.rows += rows.num_rows
        return code

    def _listen(self, rows: pa.RecordBatch) -> Ints | None:
        """Find what falls silent at these rows; the codes of their series, where they were looked up for it."""
        if self.silences is None or not rows.num_rows:
            return None
        spec, code = self.windows.spec, self.windows.codes(rows)
        values = numbers(rows, spec.targets)
        known = ~(np.isnan(values) | np.isin(values, spec.sentinels))
        ds = np.arange(self.rows, self.rows + len(values)) if spec.time is None else times(rows, spec.time)
        found = self.silences.see(code, ds, known)
        if len(found.ds):
            self._silent.append(found)
        return code

    def silent(self) -> list[Silent]:
        """Silences that were noticed since this was asked last."""
        found, self._silent = self._silent, []
        return found

    @property
    def _most(self) -> int:
        """Rows that come at once."""
        return AT_ONCE // self.windows.shape.columns

    def _kept(self, due: Due) -> Due:
        """The pairs that count, without the windows where there are several rounds."""
        counted = self.counted(due)
        return alone(counted) if self.apart else counted

    def counted(self, due: Due) -> Due:
        """The pairs whose forecast was issued by a warmed-up model and after scoring starts, in target units."""
        return self.in_units(select(due, self._counts(due.series, due.position, due.cutoff)))

    def in_units(self, due: Due) -> Due:
        """Forecasts in target units, also where the model learns transformed targets."""
        return in_units(due, self.windows.spec.transforms, self.windows.shape, self.calibration)

    def summary(self) -> dict[str, Any]:
        """Scores so far, coverage in parts, rows that came late and, of a mix, the weights of its experts in each of
        `steps`."""
        found: dict[str, Any] = self.scores.summary()
        shares = self.models.shares() if isinstance(self.models, Separate) else {}
        for at, one in enumerate(found.get("steps", []) if shares else []):
            one["weights"] = {name: float(share[at]) for name, share in shares.items()}
        found["coverage_by"] = self.scores.breakdown(self.windows.names)
        found["by_series"] = self.scores.by_series(self.windows.names)
        return found | {"late": self.windows.late, "late_used": self.windows.late_used}

    def raised(self) -> dict[str, Json]:
        """Alarms so far, with `Alarms.summary` and the number of targets that fell silent; {} where none are raised."""
        if self.alarms is None:
            return {}
        return {**self.alarms.summary(), "silent": 0 if self.silences is None else self.silences.raised}

    def to_come(self) -> int:
        """Forecasts that count and whose truth is not due yet."""
        series, position, cutoff, left = self.ledger.to_come()
        return int(left[self._counts(series, position, cutoff)].sum())

    def _counts(self, series: Tensor, position: Tensor, cutoff: Tensor) -> Tensor:
        """Whether a forecast of these series, issued at these rows, at these times, counts."""
        keep = ~self._warm(series, position)
        if self.schedule.score_from is not None:
            keep &= position >= self.warmup.scored(self._owner(series))
        if self.schedule.score_time is not None:
            keep &= cutoff >= self.schedule.score_time
        return keep

    def _owner(self, series: Tensor) -> Tensor:
        """(N,) the codes of the models of these series."""
        if not self.apart:
            return torch.zeros_like(series)
        self.warmup.reserve(len(self.windows.names))
        return series

    def _warm(self, series: Tensor, position: Tensor) -> Tensor:
        """Whether these rows of these series belong to the warm-up."""
        return position < self.warmup.fitted(self._owner(series))

    def fitted(self, series: Tensor) -> Tensor:
        """(N,) whether the model of these series has been fitted."""
        return self.warmup.fitted(self._owner(series)) < NEVER

    def _round(self, rows: pa.RecordBatch, code: Ints | None = None) -> Due:
        """Ask, answer and score rows; code: (N,) of their series; of a fleet one after another."""
        first = self.schedule.score_from
        if self.apart and code is not None and first is not None:
            before = self.waiting.taken - np.bincount(code, minlength=len(self.waiting.taken))
            begins = before[code] + np.arange(len(code)) - np.searchsorted(code, code) == first
            place = self.windows.rows + np.flatnonzero(begins)
            self.warmup.score(self._owner(torch.from_numpy(code[begins])), torch.from_numpy(place))
        return self._taken(*self.windows.push(rows, code))

    def _taken(self, asks: Asks, answers: Answers) -> Due:
        """Count the rows that became current, and pair them."""
        warm = self._warm(answers.series, answers.position)
        counting = self._counts(answers.series, answers.position, answers.ds)
        for text in self.windows.told():
            self.counts.say(text)
        self.counts.add_values(answers.y, self.calibration.lower, self.calibration.upper)
        asked = self._counts(asks.series, asks.position, asks.cutoff)
        self.counts.add(warm, counting, int(asked.sum()), answers.filed)
        return self._pair(asks, answers)

    def _pair(self, asks: Asks, answers: Answers) -> Due:
        """Steps 1 to 3: issue, match with the truths that arrived, score, calibrate."""
        came = self.windows.spec.learned(answers.y)
        if self.only is not None:
            held = self.only.rows[answers.position]
            self.scores.scale(answers.y[~held], answers.seasonal[~held], answers.series[~held])
            self.counts.add_held(answers.y[held])
            asks, answers = restrict(asks, answers, self.only)
        issued = self._nothing()
        if len(asks.origin):
            issued = self._issue(asks)
            if self.own_units is not None:
                self.own_units.see(asks.x, asks.series)
            asks = blurred(self.windows, asks, issued, self._predict)
            self.ledger.add(asks, self.widened(asks, issued))
        self._calibrate(asks, issued, answers)
        due = self.ledger.pop(answers)
        due = due._replace(target=self.windows.spec.learned(due.target))
        self.bands.see(answers.series, came)
        self._note(answers)
        fitted = self.fitted(answers.series)
        if self.scoring and not bool(fitted.all()):
            self.scores.scale(answers.y[~fitted], answers.seasonal[~fitted], answers.series[~fitted])
        if self.warmup.done_at is None:
            return due
        if self.scoring:
            scored = fitted & self._counts(answers.series, answers.position, answers.ds)
            self.scores.follow(answers.y[scored], answers.seasonal[scored], answers.series[scored])
        now, before = (self.windows.spec.learned(part[fitted]) for part in (answers.y, answers.seasonal))
        self.bands.follow(answers.series[fitted], now, before)
        if self.alarms is not None:
            learned = due._replace(y=self.windows.spec.learned(due.y, due.column))
            found = self.alarms.judge(learned, self._counts(due.series, due.position, due.cutoff))
            due = due._replace(tail=found.p, alarm=found.kind)
        if self.scoring:
            self.scores.add(self.counted(due))
        fair = ~self._warm(due.series, due.position)
        self.bands.update(self._as_learned(due, fair))
        return due

    def _as_learned(self, due: Due, keep: Tensor) -> Due:
        """The pairs to keep (R,), but for those whose target was not known at their row or whose forecast is no number,
        with truths as they are learned."""
        assert due.aged is not None
        kept = select(due, keep & ~due.aged & due.predictive.mean[:, 0].isfinite())
        return kept._replace(y=self.windows.spec.learned(kept.y, kept.column))

    def _assess(self, due: Due) -> None:
        """Let models that are fitted learn from truths beside the forecasts of them."""
        told = isinstance(self.model, Assesses) and self.model.assesses
        if not told or not isinstance(self.models, Separate):
            return
        fitted = self._as_learned(due, self.fitted(due.series))
        issued, y, series = by_truth(fitted, self.windows.shape.columns)
        if self.own_units is not None and self.own_units.used:
            units = self.own_units.of_series(series)
            issued = units.take(self.model.family.from_parameters(issued)).parameters()
            y = units.learned(y)
        with self.clock.measure("assess"):
            self.models.assess(issued.to(self.device), y.to(self.device), self._owner(series))

    def _note(self, answers: Answers) -> None:
        """Learn a lower bound of targets, which is said once."""
        change, names = self.bands.note(answers.series, answers.y), self.windows.spec.targets
        for output in change.found.tolist():
            self.counts.say(
                f"{names[output]} was 0 or more in all rows so far, and exactly 0 in {self.bands.zeros(output):.0%}: "
                "forecasts and bands are not below 0; --lower none takes no bound"
            )
        for output in change.ended.tolist():
            self.counts.say(f"{names[output]} is below 0 now: its bound of 0, which was found, has ended")

    def _nothing(self) -> Predictive:
        """Forecasts of no window."""
        return Gaussian.from_parameters(torch.zeros(3, 0, self.windows.shape.columns, dtype=FLOAT))

    def _calibrate(self, asks: Asks, issued: Predictive, answers: Answers) -> None:
        """The quantiles of what was issued now."""
        self.ledger.calibrate(*self._calibrated(asks, issued, answers))

    def _uncalibrated(self, issued: Predictive) -> Issued:
        """Quantiles that are not known."""
        kept, shape = (len(self.calibration.probabilities), feature_count(self.calibration)), issued.mean.shape
        return Issued(*(torch.full((count, *shape), torch.nan, dtype=FLOAT) for count in kept))

    def _calibrated(self, asks: Asks, issued: Predictive, answers: Answers) -> Issued:
        """The quantiles of forecasts; those of models in their warm-up are not known."""
        now, before, begun = self.fitted(asks.series), self.fitted(answers.series), self.warmup.done_at is not None
        if begun and bool(now.all()) and bool(before.all()):
            return self._issued(asks, issued, answers)
        whole = self._uncalibrated(issued)
        if not begun or not bool(before.any()):
            return whole
        given = self.model.family.from_parameters(issued.parameters()[:, now]) if bool(now.any()) else self._nothing()
        found = self._issued(asks.rows(now), given, answers.rows(before))
        more = len(found.features) - len(whole.features)
        if more > 0:
            whole = whole._replace(features=torch.cat([whole.features, whole.features[:1].expand(more, -1, -1)]))
        whole.quantiles[:, now] = found.quantiles
        whole.features[: len(found.features), now] = found.features
        return whole

    def _issued(self, asks: Asks, issued: Predictive, answers: Answers) -> Issued:
        """The quantiles of forecasts of models that are fitted."""
        seen = self.ledger.seen(answers._replace(y=self.windows.spec.learned(answers.y)))
        fair = ~self._warm(answers.series[seen.row], seen.position) & seen.error.isfinite()
        errors = Errors(answers.series, seen.row[fair], seen.column[fair], seen.error[fair])
        if torch.equal(asks.position, answers.position):
            at = torch.arange(len(asks.position))
        else:
            order = answers.position.argsort()
            at = order[torch.searchsorted(answers.position[order], asks.position)]
        return self.bands.issue(self.questions(asks, issued, at), errors)

    def questions(self, asks: Asks, issued: Predictive, at: Tensor | None = None) -> Questions:
        """What the calibration looks at; `at` (N,): the row that is asked at, among those that errors are of."""
        shape = self.windows.shape
        if shape.seasonal:
            reference = asks.x.future[:, :, : shape.outputs].mT.flatten(1)
        elif shape.lags:
            reference = asks.x.past[:, -1, : shape.outputs].repeat_interleave(shape.horizon, 1)
        else:
            reference = torch.full((len(asks.origin), shape.columns), torch.nan, dtype=FLOAT)
        return Questions(
            asks.series,
            asks.origin if at is None else at,
            self.phases.of(asks),
            issued,
            reference,
            asks.x.past[..., : shape.outputs],
            asks.age,
            asks.blur,
        )

    def widened(self, asks: Asks, issued: Predictive) -> Predictive:
        """Raw distributions (N, T), wider where a target was not known at the row asked at, or an input ahead; outcomes
        as they are."""
        if issued.binary or not bool((asks.age > 0).any() or (asks.blur > 0).any()):
            return issued
        wider = self.bands.wider(asks.series, asks.age)
        wider *= torch.sqrt(1.0 + asks.blur.square() / issued.variance.clamp(min=TINY))
        return issued.affine(wider, issued.mean * (1.0 - wider))

    def _learn(self, due: Due) -> list[Step]:
        """Step 4: learn the windows that are complete. Before the end of its warm-up the windows of a model are only
        kept, and at its end fitted together; it lasts until a window was whole."""
        series, x, y, issued = _whole(due), due.x, due.target, due.issued
        of = self._owner(series)
        fitted = self.warmup.fitted(of) < NEVER
        if isinstance(self.models, Timed):
            self.models.reach(*_reached(due))
        if not bool(fitted.all()):
            self.warmup.add(x.rows(~fitted), y[~fitted], series[~fitted])
            x, y, series, issued = x.rows(fitted), y[fitted], series[fitted], issued[:, fitted]
            of = of[fitted]
        taken = self.waiting.taken if self.apart else np.array([self.rows])
        first = self.warmup.of(torch.from_numpy(taken >= self.schedule.warmup))
        steps = list[Step]()
        if not len(y) and first is None:
            return steps
        with self.clock.measure("update"):
            if len(y):
                x, y, issued = self._in_own(x, y, series, issued)
                steps += self.models.update(x.to(self.device), y.to(self.device), of, issued.to(self.device))
            if first is not None:
                x, y, series = first
                of = self._owner(series)
                self._settle_units()
                x, y, _ = self._in_own(x, y, series, issued[:, :0])
                epochs = 1 if self.apart else self.model.warmup_epochs(len(y))
                for step in self.models.fit(x.to(self.device), y.to(self.device), of):
                    steps.append(step)
                    if epochs > 1:
                        told = f"loss {number(step.loss)}"
                        self.progress(Progress("warm-up", len(steps), epochs, told, "epochs"))
                self.warmup.fit(of, self.windows.rows)
        for step in steps:
            self.counts.add_step(step)
        return steps

    def predict(self, asks: Asks, batch: int = 1) -> Tensor:
        """(P, N, T) parameters of the raw predictive, on the CPU; nothing changes. batch: see `Fleet.predict`."""
        x, units = self.in_own_units(asks)
        found = self.models.predict(x.to(self.device), self._owner(asks.series), batch).cpu()
        return found if units is None else units.put(self.model.family.from_parameters(found)).parameters()

    def in_own_units(self, asks: Asks) -> tuple[Inputs, SeriesUnits | None]:
        """The windows of a panel whose series are unlike as its model sees them, and the units of its forecasts."""
        if self.own_units is None or not self.own_units.used:
            return asks.x, None
        return self.own_units.of(asks.x, asks.series)

    def _in_own(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor) -> tuple[Inputs, Tensor, Tensor]:
        """What is learned, windows, truths (N, T) and what was issued (P, N, T) or nothing, as the model sees it."""
        if self.own_units is None or not self.own_units.used:
            return x, y, issued
        x, units = self.own_units.of(x, series)
        if issued.shape[1]:
            issued = units.take(self.model.family.from_parameters(issued)).parameters()
        return x, units.learned(y), issued

    def _settle_units(self) -> None:
        """Decide whether series are learned in units of their own, which is said."""
        if self.own_units is None:
            return
        names = self.own_units.settle()
        if names and self.recipe.units == self.recipe.scale:
            self.counts.say(
                f"the series are of unlike scale: {', '.join(names)} of each is learned in units of its own standard "
                "deviation (--scale all: one unit for all)"
            )

    def _issue(self, asks: Asks) -> Predictive:
        """The raw predictive of N windows; in a branch, those that an earlier one asked about are not asked again."""
        if not self.branched:
            return self._predict(asks)
        with self.clock.measure("predict"):
            found = self.recalled["issued"].of(asks.x, lambda some: [self.predict(asks.rows(some))], [1])
        return self.model.family.from_parameters(found[0])

    def _predict(self, asks: Asks) -> Predictive:
        """The raw predictive of N windows, back on the CPU; during the warm-up it is the prior."""
        with self.clock.measure("predict"):
            return self.model.family.from_parameters(self.predict(asks, self.schedule.batch))


def _whole(due: Due) -> Tensor:
    """(N,) the codes of the series of complete windows."""
    assert due.whole is not None
    return due.whole


def _reached(due: Due) -> tuple[int, int]:
    """The time that each series with complete windows has reached, and that of the last truth.

    Where a series shows no truth, nobody knows the first, and it is long ago; where none does, the second is never.
    """
    if not len(due.ds) or not bool(torch.isin(_whole(due), due.series).all()):
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
