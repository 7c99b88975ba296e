"""Batch training: epochs over the rows of the table that are not held out, then one pass that scores the held-out ones.

Held-out rows teach nothing: while windows are collected their targets are missing, so that no window has them as
truth or as lag. In the scoring pass the table is a stream again: a forecast sees all rows up to its origin, and is
scored where its truth is held out; the bands are calibrated on those, and on nothing that the model has learned.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import polars as pl
import torch

from streamgp.base import Due, Inputs, Model, Progress, Tracker
from streamgp.errors import DataError, UsageError
from streamgp.online.model import StreamModel
from streamgp.online.posterior import Posterior
from streamgp.online.summing import Summing, in_blocks
from streamgp.training.shared_gradients import Sharing, here
from streamgp_data.numbers import number
from streamgp_pipelines.learning.collect import collect, stretches
from streamgp_pipelines.learning.heldout import HeldOut, asked, beside, held_out
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.newest import NewestScored
from streamgp_pipelines.learning.predictions import Predictions, frame
from streamgp_pipelines.learning.sampled import Sampled, UnsampledWindows, WithRest, sample
from streamgp_pipelines.learning.session import Session
from streamgp_pipelines.learning.whole import advice
from streamgp_pipelines.training.summary import overall_metrics

CURVE_POINTS = 50
"""Points that the curve of the scores over the held-out rows has at most."""


class SharedRows(Summing, Protocol):
    """Workers that share the rows of a batch, block by block.

    Attributes:
        lost: how often a worker was lost, and its rows were given to another.
    """

    lost: int

    @property
    def gradients(self) -> Sharing:
        """The same for the gradient of a mini-batch."""

    def close(self) -> None:
        """Let go of processes."""


def check_shares(model: Model, name: str) -> None:
    """See that workers that share the rows of a batch make its training faster.

    Raises:
        UsageError: they do not.
    """
    posterior = _posterior(model)
    if posterior is None or not posterior.shares_rows:
        raise UsageError(
            f"--engine ray: workers that share the rows of {name} would gain nothing, or take longer than one process",
            hint="leave out --engine, or use --model svdgp (pays from 100,000 rows on), gp_lstm, gp_gru, gp_rnn or "
            "gp_narx with --set solver=kiss, or qsgp with at most 4096 features (from 20,000 rows on)",
        )


def check_samples(model: Model, name: str) -> None:
    """See that a model learns all rows of a batch as sums, so that a sample of them suffices for all else.

    Raises:
        UsageError: it does not.
    """
    posterior = _posterior(model)
    if posterior is None or not posterior.sums_rows:
        raise UsageError(
            f"--sample: {name} does not learn a batch by sums over its rows, so that it needs them all in memory",
            hint="leave out --sample, or use --model svdgp, svgp (with a Gaussian likelihood), rvm or finite_rkhs",
        )


@contextmanager
def shared(session: Session, rows: SharedRows | None, rest: UnsampledWindows | None) -> Iterator[None]:
    """Within this context workers compute the sums over rows, or the rows that are not in memory are summed too."""
    model = session.learner.model
    posterior = _posterior(model)
    if (rows is None and rest is None) or posterior is None:
        yield
        return
    if rows is not None:
        posterior.summing, posterior.sharing = rows, rows.gradients
    if rest is not None:
        assert isinstance(model, StreamModel)
        posterior.summing = WithRest(session.source, rest, lambda: model.standardised)
    try:
        yield
    finally:
        posterior.summing, posterior.sharing = in_blocks, here
        if rows is not None and rows.lost:
            session.warnings.append(f"workers were lost {rows.lost} times, and their rows given to others")


@contextmanager
def checking(model: Model, wanted: bool) -> Iterator[None]:
    """Within this context fits of few rows are checked by rows left out, or none is."""
    parts = [part for part in model.modules() if isinstance(part, StreamModel)]
    for part in parts:
        part.checks = wanted
    try:
        yield
    finally:
        for part in parts:
            part.checks = True


def _posterior(model: Model) -> Posterior | None:
    """Of a model, or of the net on what a regression leaves."""
    from streamgp.models.deep.on_regression import OnRegression  # with SciPy, which a pass over a stream can do without

    own = model.net if isinstance(model, OnRegression) else model
    return own.posterior if isinstance(own, StreamModel) else None


class BatchRun:
    """Collect, fit, score.

    Args:
        session: opened, and restored where there was a checkpoint.
        tracker: of the run.
        predictions: where scored forecasts go; None when nobody asked for them.
        progress: called with how far the run is.
        sums: workers that share the rows; None is this process alone.
    """

    def __init__(
        self,
        session: Session,
        tracker: Tracker,
        predictions: Predictions | None,
        progress: Callable[[Progress], None],
        sums: SharedRows | None = None,
    ) -> None:
        self.session = session
        self.sums = sums
        self.tracker = tracker
        self.predictions = predictions
        self.progress = progress
        self.recent: Due | None = None
        """The newest scored forecasts, but for the very last."""
        self.rows = min(session.table.readable, session.config.max_rows or session.table.readable)
        assert session.survey is not None
        self.survey = session.survey
        self.held_out = held_out(session.config, self.survey, self.rows)  # (rows,) bool
        session.warnings += beside(self.survey, session.learner.windows.spec, self.held_out)

    def run(self) -> tuple[Learner, list[pl.DataFrame]]:
        """The learner with its scores, and the last scored forecasts beside their truths."""
        self.session.learner.begin()
        self.session.offset = {}  # while it is fitted, the windows have seen no row
        if not (self.session.fitted or self._spent()):
            x, y, rest = self._collect()
            wanted = self._epochs(len(y))
            with shared(self.session, self.sums, rest):
                checked = rest is None and self.session.config.time_budget is None
                with checking(self.session.learner.model, checked):
                    self._fit(x, y, wanted)
        return self._score()

    def _epochs(self, windows: int) -> int:
        """Epochs in all, restarts included: those of `--epochs`, or as many as the model asks for."""
        config = self.session.config
        if config.epochs is None and config.time_budget is not None:
            return sys.maxsize
        return config.epochs or self.session.learner.model.epochs_for(windows)

    def _spent(self) -> bool:
        budget = self.session.config.time_budget
        return budget is not None and self.session.learner.clock.update >= budget

    def _collect(self) -> tuple[Inputs, torch.Tensor, UnsampledWindows | None]:
        """Every complete window of the rows that are not held out, x, and y (N, T); or a sample of them, and the rest.

        Memory is N · (L·D + H·F + T) numbers.
        """
        session, size = self.session, self.session.config.sample
        spec = session.learner.windows.spec
        progress = lambda read: self.progress(Progress("read", read, self.rows))  # noqa: E731
        if size is None:
            found = collect(session.source, spec, self.held_out, progress=progress)
            if found is not None:
                return *found, None
        else:
            some = sample(session.source, spec, self.held_out, size, session.config.seed, progress)
            if some is not None:
                session.warnings += of_sample(some)
                return some.x, some.y, some.rest
        raise DataError(
            f"no window of the {self.rows} rows is whole, so there is nothing to learn",
            hint=advice(self.survey, spec),
        )

    def _fit(self, x: Inputs, y: torch.Tensor, wanted: int) -> None:
        """Each epoch is followed by its metrics and a checkpoint; a model may need fewer epochs than it is given."""
        session, learner = self.session, self.session.learner
        clock = learner.clock
        epochs = max(wanted - clock.updates, 0)
        if not epochs:
            return
        mark = time.perf_counter()
        for step in learner.model.fit(x.to(learner.device), y.to(learner.device), epochs):
            learner.counts.add_step(step)
            clock.took("update", time.perf_counter() - mark)
            self.tracker.metrics({"loss": step.loss, "basis": float(step.basis)}, step=clock.updates * len(y))
            self.tracker.flush()
            session.save(rows=self.rows)
            total = None if wanted == sys.maxsize else wanted
            self.progress(Progress("train", clock.updates, total, f"loss {number(step.loss)}", "epochs"))
            epochs -= 1
            if self._spent():
                break
            mark = time.perf_counter()
        else:
            session.fitted = epochs > 0

    def _score(self) -> tuple[Learner, list[pl.DataFrame]]:
        """Forecast every held-out row from the rows before it, score, calibrate; the model learns nothing."""
        session, learner, predictions = self.session, self.session.learner, self.predictions
        learner.only = HeldOut(self.held_out, asked(self.survey, learner.windows.spec, self.held_out))
        learner.warmup.finish(0)
        again = learner.clock.predict > 0  # a finished run only repeats its scores, not its times
        clock = learner.clock.state()
        lap = -(-self.rows // CURVE_POINTS)
        session.newest = NewestScored(learner.windows.shape, learner.calibration)
        if predictions is not None:
            predictions.resume(0)
        for rows, _, after in stretches(session.source, self.rows, session.config.batch):
            due = learner.observe(rows)
            self.recent = due if len(due.y) else self.recent
            session.offset = after
            session.newest.add(due)
            if predictions is not None:
                predictions.add(due, learner.windows.names)
            if learner.rows // lap > (learner.rows - rows.num_rows) // lap and learner.rows < self.rows:
                self.tracker.metrics(overall_metrics(learner.scores.overall()), step=learner.rows)
            self.progress(Progress("score", learner.rows, self.rows))
        if again:
            learner.clock.restore(*clock)
        learner.clock.total = learner.clock.update + learner.clock.predict
        if predictions is not None:
            predictions.write_part(learner.rows)
        session.save(rows=self.rows)
        ahead, last = learner.preview(None)
        return ahead, [frame(due, ahead.windows.names, session.naming, ahead.windows.shape) for due in last]


def of_sample(some: Sampled) -> list[str]:
    """What to know of a run that held a sample."""
    found = []
    if some.rest is not None:
        found.append(
            f"{len(some.y)} of {some.windows} windows are the sample that scales, hyper-parameters and functions come "
            "from; all windows are learned"
        )
    if some.partly:
        found.append(f"{some.partly} windows that lack some of their truths were not learned, because of --sample")
    return found
