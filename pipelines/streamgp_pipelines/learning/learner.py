"""One micro-batch of the stream: ask, wait for the truth, score, learn. Everything the next row depends on.

asks, answers = windows.push(rows)            # an ask uses rows up to its origin only
ledger.add(asks, model.predict(asks.x))       # 1 ask, with parameters as at the start of the micro-batch
ledger.calibrate(bands.issue(asks, errors))   #   and with the volatility that is known at the row asked at
due = ledger.pop(answers)                     # 2 truths that have now arrived, step by step
alarms.judge(due)                             #   with --alarm-rate: how improbable each was
scores.add(due); bands.update(due)            # 3 score what was issued, then learn from it
model.update(due.x, due.target, due.issued)   # 4 one update, with windows whose last step is due
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import FLOAT, Assesses, Due, Inputs, Json, Model, Predictive, Progress, Stateful, Step
from streamgp.forecasting.alarms import Alarms
from streamgp.forecasting.bands import Bands, Issued, Questions, features
from streamgp.forecasting.scores import Scores
from streamgp.forecasting.units import in_units
from streamgp.forecasting.volatility import TINY, Errors
from streamgp.fork import fork
from streamgp.predictives.gaussian import Gaussian
from streamgp.recalled import RecalledByName
from streamgp.windows.ledger import Ledger
from streamgp.windows.windows import Answers, Asks, Windows
from streamgp_pipelines.learning.clock import Stopwatch
from streamgp_pipelines.learning.counts import Counts
from streamgp_pipelines.learning.doubt import blurred
from streamgp_pipelines.learning.heldout import HeldOut, restrict
from streamgp_pipelines.learning.pairs import by_truth, joined, select
from streamgp_pipelines.learning.phases import Phases
from streamgp_pipelines.learning.recipe import Recipe
from streamgp_pipelines.learning.rollout import Rehearsal
from streamgp_pipelines.numbers import number


class WarmUp:
    """The windows of the first rows, kept until the model is fitted on them; Stateful."""

    def __init__(self) -> None:
        self.x: list[Inputs] = []
        self.y: list[Tensor] = []
        self.done_at: int | None = None
        """Rows seen when the model was fitted; forecasts count from there."""

    def add(self, x: Inputs, y: Tensor) -> None:
        """Keep N windows and their truths (N, T)."""
        if len(y):
            self.x.append(x)
            self.y.append(y)

    def windows(self) -> tuple[Inputs, Tensor] | None:
        """All that were kept, or None."""
        if not self.y:
            return None
        return Inputs.cat(self.x), torch.cat(self.y)

    def finish(self, rows: int) -> None:
        """Forget the windows: the model has them."""
        self.x, self.y, self.done_at = [], [], rows

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        kept = self.windows()
        if kept is None:
            return {}, {"done_at": self.done_at}
        tensors = {name: part for name, part in kept[0]._asdict().items() if part is not None}
        return tensors | {"y": kept[1]}, {"done_at": self.done_at}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.finish(0)
        done = rest["done_at"]
        self.done_at = int(done) if isinstance(done, int) else None
        if tensors:
            self.add(Inputs(tensors["past"], tensors["future"], tensors.get("context")), tensors["y"])


class Learner:
    """A model on its stream. `advance` takes a full micro-batch; `preview` scores a partial one without learning, and
    `branch` learns it, in a learner that goes no further.

    Args:
        recipe: all that it is made of, but the state; `learning.making` makes learners.
        model: of the recipe, on its device; windows travel there once a micro-batch.
        device: where the model lives.
    """

    def __init__(self, recipe: Recipe, model: Model, device: torch.device | None = None) -> None:
        self.recipe = recipe
        self.device = device or torch.device("cpu")
        self.model = model.to(self.device)
        self.calibration, self.schedule, self.alarm_rate = recipe.calibration, recipe.schedule, recipe.alarm_rate
        self.rehearsal: Rehearsal | None = None
        if recipe.simulate is not None:
            self.rehearsal = Rehearsal(recipe.spec, recipe.simulate, recipe.calibration, recipe.seed)
        self.phases = Phases(recipe.spec)
        self.only: HeldOut | None = None
        """Which rows of the stream are scored, in batch training; None is all of them."""
        self.progress: Callable[[Progress], None] = lambda _: None
        """Called after each epoch of the warm-up, where there are several."""
        self.warmup = WarmUp()
        self.clock = Stopwatch()
        self.recalled = RecalledByName()
        self.scoring = True
        """Whether scores are kept; nothing that is forecast depends on them."""
        self.branched = False
        """Whether this is a copy that goes no further: see `branch`."""
        self.begin()

    def begin(self) -> None:
        """Go back to the first row of the stream; the model keeps what it has learned."""
        self.recalled.forget()
        self.windows = Windows(self.recipe.spec)
        shape = self.windows.shape
        calibration, period = self.calibration, self.phases.period
        kept = len(calibration.probabilities), features(calibration)
        self.ledger = Ledger(shape, *kept, self.model.family)
        free = replace(calibration, lower=None, upper=None, finds=False)
        inner = free if calibration.transformed else calibration
        self.bands = Bands(shape, inner, period)
        self.scores = Scores(shape, calibration, self.model.family.binary, period)
        rate = self.alarm_rate
        self.alarms = None if rate is None else Alarms(shape, calibration.probabilities, rate)
        self.counts = Counts()
        self.rows = 0

    def parts(self) -> dict[str, Stateful]:
        """What a checkpoint holds."""
        names = ("model", "windows", "ledger", "bands", "scores", "counts", "warmup", "clock")
        parts: dict[str, Stateful] = {name: getattr(self, name) for name in names}
        more = {"rehearsal": self.rehearsal, "alarms": self.alarms}
        return parts | {name: part for name, part in more.items() if part is not None}

    def shards(self) -> Iterable[tuple[str, bytes]]:
        """Name and packed state of what is learned in shards."""
        return ()

    @property
    def notes(self) -> list[str]:
        """What should be known of how it was learned."""
        return []

    def close(self) -> None:
        """Let go of other processes, where there are some."""

    @property
    def streams(self) -> int:
        """How many streams are learned, each alone."""
        return 1

    @property
    def size(self) -> int:
        """Rows that are read at a time."""
        return self.schedule.batch

    @property
    def warmed(self) -> int:
        """Rows of warm-up so far."""
        done = self.warmup.done_at
        return self.rows if done is None else done

    @property
    def room(self) -> int:
        """Rows that make the next micro-batch full."""
        return self.schedule.room(self.rows)

    def advance(self, rows: pa.RecordBatch) -> tuple[Step | None, Due]:
        """`learn` a full micro-batch; the returned pairs are those that count."""
        found = list[Due]()
        step = self.learn(rows, found.append)
        return step, joined(found)

    def learn(self, rows: pa.RecordBatch, each: Callable[[Due], None]) -> Step | None:
        """Ask, answer, score and learn one full micro-batch.

        Args:
            rows: the micro-batch.
            each: called with the pairs that count, in one piece or in several that are never held together.
        """
        due = self._take(rows)
        self.recalled.forget()
        self._assess(due)
        step = self._learn(due)
        if self.rehearsal is not None:
            self.rehearsal.follow(rows, self.model, self.windows.names, self.warmup.done_at is not None)
        each(self.counted(due))
        return step

    def observe(self, rows: pa.RecordBatch) -> Due:
        """Ask, answer and score rows without learning from them; the returned pairs are those that count."""
        return self.counted(self._take(rows))

    def watch(self, rows: pa.RecordBatch) -> None:
        """Read rows behind the last one learned: the windows move, and the volatility follows the forecasts that were
        still open; nothing else is learned, and nothing is asked."""
        asks, answers = self.windows.push(rows)
        self._calibrate(asks.rows(slice(0, 0)), self._nothing(), answers)
        self.ledger.pop(answers)

    def preview(self, rows: pa.RecordBatch | None) -> tuple[Self, list[Due]]:
        """A copy that has asked and scored the last, partial micro-batch but not learned from it.

        Rows that wait for known values count as truths in the copy: it is what is known when the table ends. The
        model is shared with the copy, which never updates it.
        """
        ahead = copy.copy(self)
        for name in ("windows", "ledger", "bands", "scores", "counts", "clock", "alarms"):
            setattr(ahead, name, fork(getattr(self, name)))
        found = []
        if rows is not None and rows.num_rows:
            found.append(ahead.observe(rows))
        found.append(ahead.counted(ahead._pair(*ahead.windows.flush())))
        return ahead, found

    def branch(self, rows: pa.RecordBatch | None) -> list[Due]:
        """Learn the last, partial micro-batch, and the rows that wait for known values, to forecast from there.

        This is for a copy of the state (`fork`), such as a checkpoint that was read: learning goes on from the state
        before, which learns the whole micro-batch when it is full. What is learned here is a function of the rows
        alone. All rows behind the last full micro-batch are learned again after each new one; what the state before
        forecast for them is recalled.

        Returns:
            the pairs that count, as `preview` does.
        """
        self.branched = True
        found = [] if rows is None else [self._take(rows)]
        if self.windows.waiting or not found:
            found.append(self._pair(*self.windows.flush()))
        counted = [self.counted(due) for due in found]
        last = WarmUp()
        for due in found:
            last.add(due.x, due.target)
        windows = last.windows()
        if windows is not None:
            issued = torch.cat([due.issued for due in found if len(due.target)], 1)
            if self.warmup.done_at is not None:
                self.recalled.lend(self.model)
            for due in found:
                self._assess(due)
            self._learn(found[-1]._replace(x=windows[0], target=windows[1], issued=issued))
        return counted

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
        shares = self.model.shares()
        for at, one in enumerate(found.get("steps", []) if shares else []):
            one["weights"] = {name: float(share[at]) for name, share in shares.items()}
        found["coverage_by"] = self.scores.breakdown(self.windows.names)
        found["by_series"] = self.scores.by_series(self.windows.names)
        return found | {"late": self.windows.late, "late_used": self.windows.late_used}

    def to_come(self) -> int:
        """Forecasts that count and whose truth is not due yet."""
        series, position, cutoff, left = self.ledger.to_come()
        return int(left[self._counts(series, position, cutoff)].sum())

    def _counts(self, series: Tensor, position: Tensor, cutoff: Tensor) -> Tensor:
        """Whether a forecast of these series, issued at these rows, at these times, counts."""
        keep = ~self._warm(series, position)
        if self.schedule.score_from is not None:
            keep &= position >= self._scored_from(series)
        if self.schedule.score_time is not None:
            keep &= cutoff >= self.schedule.score_time
        return keep

    def _scored_from(self, series: Tensor) -> Tensor:
        """The place in the stream of the first row that is scored, of each of these series."""
        return torch.tensor(self.schedule.score_from)

    def _warm(self, series: Tensor, position: Tensor) -> Tensor:
        """Whether these rows of these series belong to the warm-up."""
        done = self.warmup.done_at
        return torch.ones(len(position), dtype=torch.bool) if done is None else position < done

    def fitted(self, series: Tensor) -> Tensor:
        """(N,) whether the model of these series has been fitted."""
        return torch.full(series.shape, self.warmup.done_at is not None)

    def _take(self, rows: pa.RecordBatch) -> Due:
        """Read rows: steps 1 to 3."""
        asks, answers = self.windows.push(rows)
        self.rows += rows.num_rows
        return self._taken(asks, answers)

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
        if self.only is not None:
            held = self.only.rows[answers.position]
            self.scores.scale(answers.y[~held], answers.seasonal[~held], answers.series[~held])
            self.counts.add_held(answers.y[held])
            asks, answers = restrict(asks, answers, self.only)
        issued = self._nothing()
        if len(asks.origin):
            issued = self._issue(asks)
            asks = blurred(self.windows, asks, issued, self._predict)
            self.ledger.add(asks, self.widened(asks, issued))
        self._calibrate(asks, issued, answers)
        due = self.ledger.pop(answers)
        due = due._replace(target=self.windows.spec.learned(due.target))
        self._note(answers)
        fitted = self.fitted(answers.series)
        if self.scoring and not bool(fitted.all()):
            self.scores.scale(answers.y[~fitted], answers.seasonal[~fitted], answers.series[~fitted])
        if self.warmup.done_at is None:
            return due
        if self.scoring:
            self.scores.follow(answers.y[fitted], answers.seasonal[fitted], answers.series[fitted])
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
        """The pairs to keep (R,), but for those whose target was not known at their row, with truths as they are
        learned."""
        assert due.aged is not None
        kept = select(due, keep & ~due.aged)
        return kept._replace(y=self.windows.spec.learned(kept.y, kept.column))

    def _assessed(self, due: Due) -> tuple[Tensor, Tensor, Tensor]:
        """The pairs of models that are fitted, as `by_truth`."""
        return by_truth(self._as_learned(due, self.fitted(due.series)), self.windows.shape.columns)

    def _assess(self, due: Due) -> None:
        """Let the model learn from truths beside the forecasts of them."""
        if not isinstance(self.model, Assesses):
            return
        issued, y, _ = self._assessed(due)
        if len(y):
            with self.clock.measure("update"):
                self.model.assess(self.model.family.from_parameters(issued.to(self.device)), y.to(self.device))

    def _note(self, answers: Answers) -> None:
        """Learn a lower bound of the targets, and say it once."""
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
        kept, shape = (len(self.calibration.probabilities), features(self.calibration)), issued.mean.shape
        return Issued(*(torch.full((count, *shape), torch.nan, dtype=FLOAT) for count in kept))

    def _calibrated(self, asks: Asks, issued: Predictive, answers: Answers) -> Issued:
        """The quantiles of forecasts; those of the warm-up are not known."""
        if self.warmup.done_at is None:
            return self._uncalibrated(issued)
        seen = self.ledger.seen(answers._replace(y=self.windows.spec.learned(answers.y)))
        fair = ~self._warm(answers.series[seen.row], seen.position)
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

    def _learn(self, due: Due) -> Step | None:
        """Step 4; before the end of the warm-up windows are only kept, at its end they are fitted together.

        The warm-up lasts until a window was whole: a model that was never fitted has nothing to forecast from.
        """
        if self.warmup.done_at is not None:
            if not len(due.target):
                return None
            with self.clock.measure("update"):
                issued = self.model.family.from_parameters(due.issued.to(self.device))
                step = self.model.update(due.x.to(self.device), due.target.to(self.device), issued)
            self.counts.add_step(step)
            return step
        self.warmup.add(due.x, due.target)
        kept = self.warmup.windows()
        if self.rows < self.schedule.warmup or kept is None:
            return None
        steps: list[Step] = []
        with self.clock.measure("update"):
            x, y = kept[0].to(self.device), kept[1].to(self.device)
            epochs = self.model.warmup_epochs(len(y))
            for step in self.model.fit(x, y, epochs):
                steps.append(step)
                self.counts.add_step(step)
                if epochs > 1:
                    self.progress(Progress("warm-up", len(steps), epochs, f"loss {number(step.loss)}", "epochs"))
        self.warmup.finish(self.rows)
        return steps[-1] if steps else None

    def predict(self, asks: Asks) -> Tensor:
        """(P, N, T) parameters of the raw predictive, on the CPU; nothing changes."""
        return self._parameters(asks.x)

    def _parameters(self, x: Inputs) -> Tensor:
        return self.model.predict(x.to(self.device)).parameters().cpu()

    def _issue(self, asks: Asks) -> Predictive:
        """The raw predictive of N windows; in a branch, those that an earlier one asked about are not asked again."""
        if not self.branched:
            return self._predict(asks)
        with self.clock.measure("predict"):
            found = self.recalled["issued"].of(asks.x, lambda some: [self._parameters(asks.x.rows(some))], [1])
        return self.model.family.from_parameters(found[0])

    def _predict(self, asks: Asks) -> Predictive:
        """The raw predictive of N windows, back on the CPU; during the warm-up it is the prior."""
        with self.clock.measure("predict"):
            return self.model.family.from_parameters(self._padded(self.model, asks.x))

    def _padded(self, model: Model, x: Inputs) -> Tensor:
        """(P, N, T) of a model, whose windows are padded to a multiple of the micro-batch, so that it meets one fixed
        shape."""
        rows = len(x.future)
        padding = -rows % self.schedule.batch
        padded = Inputs.cat([x, x.rows(torch.full((padding,), rows - 1))])
        return model.predict(padded.to(self.device)).parameters()[:, :rows].cpu()
