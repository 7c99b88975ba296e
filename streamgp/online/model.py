"""The life of a model on a stream, whatever infers inside.

A window is standardised, a target is learned as its departure from a reference, and a forecast is moved back into the
units of the columns. With a batch of rows that arrive:

1. rows without a truth are left out, and so are windows beyond the range of float64 and those with a glitch (beyond
   10,000 standard deviations, unless that lasts), which would void every scaling to come; a forecast takes the value
   next to the glitch in its place;
2. truths are winsorised by the forecast of the rows (`winsorise`): a glitch is not learned at its word;
3. when a rebuild is due, scaling, reference and hyper-parameters are estimated from a bounded memory of the stream, and
   the posterior learns that memory from the beginning; otherwise it learns the new rows. Once the memory has no room
   for every row, a posterior that is carried through (`Posterior.transfer`) keeps scaling and reference, takes
   hyper-parameters and basis from the memory, and learns the new rows.

A batch of few rows for its hyper-parameters is forecast too narrowly: where there are no lags, variances are widened by
what rows left out of the fit say (`held_out`), until the next rebuild or transfer; with rebuild=0 until rows enough
are learned.

What fails numerically changes nothing and is reported in the `Step`; so does what is finite and absurd, an update
after which the posterior describes its own rows by more than 100 spreads of the target. After a rebuild that failed the
new rows are learned as usual, and the next rebuild waits its turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Json, Model, Predictive, Shape, Step
from streamgp.errors import NumericalError
from streamgp.evidence.initial import Initial
from streamgp.online.blown import NOT_FINITE, absurd, blown, some_of
from streamgp.online.column_kernel import ColumnKernel
from streamgp.online.glitches import plausible
from streamgp.online.held_out import doubtful, widening
from streamgp.online.inputs import KernelInputs, learned, reporting, usable
from streamgp.online.options import KernelOptions, OnlineOptions, StreamOptions
from streamgp.online.posterior import Arrival, DrawsFunctions, Look, Posterior, Rows, Units, no_rows
from streamgp.online.recent import RecentWindows
from streamgp.online.reference import LearnedReference, reference
from streamgp.online.reservoir import Reservoir, Sample
from streamgp.online.scaling import Standardiser
from streamgp.online.standardised import Standardised
from streamgp.online.variance import random_walk_variance
from streamgp.online.winsorise import Winsoriser, far_off
from streamgp.predictives.gaussian import Gaussian
from streamgp.recalled import Recalls
from streamgp.state import Declared, Nested, Parts, RandomState, Value, fingerprint, holding

CHUNK = 4096
"""Windows that are forecast at once: the work takes the memory of one chunk, whatever the number of windows."""
PATIENCE = 0.5
"""Early on a rebuild comes when the stream has grown by this part since the last."""
HASTE = 64
"""Rows at least from one rebuild to the next where the forecasts say that it should not wait for its turn."""
WEAK = 0.01
"""Ratio of signal to noise variance below which a run is warned."""


class StreamModel(Recalls, Declared, Model):
    """See the module.

    Args:
        posterior: the family's inference, before any data.
        options: what every family can be set to.
        shape: of the windows.
        memory: of the stream; with `StreamOptions` by default a reservoir of `options.reservoir` windows.
        inputs: what the posterior sees of a window; by default all of it.
        settled: rows to learn before winsorising begins; by default as many as `winsorise.SETTLED`.

    Attributes:
        widening: (T,) factors on the variance of forecasts, 1 but after a fit of few rows without lags.
        checks: whether a fit of few rows finds them; not where its rows are a sample, or its time is limited.
    """

    context = False
    checks: bool = True
    STATE = (
        Nested(
            *("inputs", "outputs", "reference", "memory", "winsorise", "posterior", "widening"),
            under="parts",
            optional=("reference",),
        ),
        RandomState("generator"),
        Value("rebuilt", int),
        Value("tried", int),
        Value("fitted", str),
        Value("converged", bool),
    )

    def __init__(
        self,
        posterior: Posterior,
        options: OnlineOptions,
        shape: Shape,
        memory: Reservoir | RecentWindows | None = None,
        settled: float | None = None,
        inputs: KernelInputs | None = None,
    ) -> None:
        super().__init__()
        self.options, self.shape, self.posterior = options, shape, posterior
        self.family = posterior.family
        self.inputs = KernelInputs(shape) if inputs is None else inputs
        self.outputs = Standardiser(shape.columns)
        self.reference = reference(options.target if posterior.units else "level", shape, options.decay)
        if memory is None:
            assert isinstance(options, StreamOptions)
            memory = Reservoir(options.reservoir, shape, options.forgetting(shape))
        self.memory = memory
        limit = options.limit if posterior.units and not posterior.robust else None
        extra = {} if settled is None else {"settled": settled}
        self.winsorise = Winsoriser(shape, limit, **extra)
        self.widening: Tensor
        self.register_buffer("widening", torch.ones(shape.columns, dtype=FLOAT))
        self.generator = torch.Generator().manual_seed(options.seed)
        self.rebuilt = 0  # rows seen at the last rebuild
        self.tried = 0  # rows seen when one was last tried
        self.fitted = ""  # fingerprint of the batch that was fitted last
        self.converged = False  # whether another epoch of it would change nothing

    @property
    def seen(self) -> int:
        """Rows learned."""
        return int(self.memory.seen)

    @property
    def kernel(self) -> ColumnKernel | None:
        """The prior covariance of the function in the units of the columns; None where the family has none."""
        learned = self.posterior.learned(self.inputs.groups)
        if learned is None:
            return None
        noise = self._issued_noise() if self.posterior.units else None
        return ColumnKernel(learned, self.inputs, self._target_scale(), noise)

    @torch.no_grad()
    def _issued_noise(self) -> Tensor:
        """(T,) variance of an observation in forecasts, standardised, at the mean window."""
        look = self.posterior.glance(self.inputs.scale.new_zeros(1, len(self.inputs.groups)))
        if self.family is Gaussian:
            return look.noise.expand(1, self.shape.columns)[0] * self.widening
        issued = self.posterior.predictive(look)  # of Laplace and Student-t noise `look` has the scale
        return (issued.variance - issued.latent_variance)[0] * self.widening

    def hyperparameters(self) -> dict[str, Tensor]:
        """Those of the kernel, and the noise (T,) of forecasts as standard deviations, in the units of the columns."""
        kernel = self.kernel
        if kernel is None:
            return {}
        return {
            name: torch.from_numpy(value) for name, value in (kernel.hyperparameters | {"noise": kernel.noise}).items()
        }

    def inducing_points(self) -> Tensor | None:
        """(M, F) in the units of the columns of a flattened window; behind an encoder, (M, d) of what it makes."""
        learned = self.posterior.learned(self.inputs.groups)
        if learned is None or learned.points is None or learned.encode is not None:
            return None if learned is None else learned.points
        return self.inputs.in_units(learned.points)

    def window_columns(self) -> tuple[str, ...]:
        """(F,) the names of these columns: y[t-1], y[t], u[t+1], or those of the inputs where there are no lags."""
        return self.inputs.names(self.shape)

    def _target_scale(self) -> Tensor:
        """(T,) of what is learned of the targets, in their units."""
        return self.outputs.scale if self.posterior.units else torch.ones(self.shape.columns, dtype=FLOAT)

    def predict(self, x: Inputs) -> Predictive:
        """The forecast; before anything is learned N(r(x), random-walk variance), or the prior of outcomes."""
        if len(x.future) > CHUNK:
            parts = [self.forecast(x.rows(slice(at, at + CHUNK))) for at in range(0, len(x.future), CHUNK)]
            return self.family.from_parameters(torch.cat([part.parameters() for part in parts], 1))
        return self.forecast(x)

    def forecast(self, x: Inputs) -> Predictive:
        """`predict` of all windows (..., N, L, D) at once."""
        x, z = self._bridged(x)
        return self._issue(x, self.posterior.look(z), self._shift(x))

    def cautious(self, x: Inputs, issued: Predictive) -> Tensor:
        """(N, T) r⁰ + min(1, u²√H/v) (m − r⁰), of what `predict` issued: nearer to the plain reference r⁰ where the
        function is less sure than that.

        m is the mean and v the variance of the function before it is widened, u² that of the departures from the
        reference which were learned, and √H how much updates are tempered by default. A linear part, or a reference
        that was learned of a few windows, has no bounds; far from what was learned its variance says so.
        """
        if not self.rebuilt or not self.posterior.units:
            return issued.mean
        mean = issued.mean
        usual = self.shape.horizon**0.5 * self.outputs.scale.to(mean).square() * self.widening
        part = (usual / issued.latent_variance.clamp(min=1e-300)).clamp(max=1.0)
        if bool((part == 1.0).all()):
            return mean
        of = self.reference
        plain: Tensor = (of.base if isinstance(of, LearnedReference) else of)(self._bridged(x)[0])
        found: Tensor = plain + part * (mean - plain)
        return found

    def _bridged(self, x: Inputs) -> tuple[Inputs, Tensor]:
        """Windows without what is taken for a glitch, and (..., N, W) of them standardised."""
        z = self.inputs(x)
        beyond = self.winsorise.doubts(z, self.posterior.weight)
        if beyond is None:
            return x, z
        x = self.inputs.bridged(x, beyond)
        return x, self.inputs(x)

    @torch.no_grad()
    def covariance(self, x: Inputs) -> Tensor | None:
        """(T, N, N): covariance of the observations that are forecast for N windows together, the noise of each on the
        diagonal, which is the variance of `predict`; None where it is not Gaussian or has no closed form."""
        issued = self.predict(x)
        if not isinstance(issued, Gaussian) or not self.rebuilt:
            return None
        latent = self.posterior.covariance(self._bridged(x)[1])
        if latent is None:
            return None
        scale = self.outputs.scale.to(latent).square() if self.posterior.units else torch.ones_like(self.widening)
        found = latent * (scale * self.widening)[:, None, None]
        return found + torch.diag_embed((issued.variance - issued.latent_variance).T)

    def glitches(self, x: Inputs) -> Tensor:
        """(N,) which windows have a value that `predict` takes for a glitch, and replaces."""
        z: Tensor = self.inputs(x)
        beyond = self.winsorise.doubts(z, self.posterior.weight)
        return (z.abs() > (torch.inf if beyond is None else beyond)).any(1)

    def warnings(self) -> list[str]:
        """What a user of the forecasts should know of the model as it is now."""
        signal = self.posterior.signal
        if not self.rebuilt or signal is None or signal >= WEAK:
            return []
        return [f"the model finds almost no signal: its variance is {signal:.1e} of the noise variance"]

    def check_fit(self, rows: int) -> None:
        self.posterior.check_batch(rows)

    def initialise(self, initial: Initial) -> None:
        """See `evidence.initial.TakesInitial`: the first estimate starts there, or with learn=once is that."""
        initial.check(self.shape, self.options.target, self.options.decay)
        self.posterior.start_from(initial)

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        x, y, left_out = self._usable(x, y)
        return reporting(self._update(x, y) if len(y) else self._step("nothing observed"), left_out)

    def _update(self, x: Inputs, y: Tensor) -> Step:
        """Learn windows that are usable."""
        self.fitted = ""
        if not self.rebuilt:
            x, y, glitches = plausible(x, y)
            step = self._rebuild(x, y, "rebuild: first windows") if len(y) else self._step("nothing observed")
            return reporting(step, glitches)
        z = self.inputs(x)
        near = self.winsorise.admits(z, torch.isfinite(y).any(1), self.posterior.weight)
        if not bool(near.all()):
            some = self._learned(x.rows(near), y[near], z[near]) if bool(near.any()) else self._step("update")
            return reporting(some, far_off(int((~near).sum())))
        return self._learned(x, y, z)

    def _learned(self, x: Inputs, y: Tensor, z: Tensor) -> Step:
        """Learn windows, z when standardised, or rebuild with them."""
        since = self.seen + len(y) - self.tried
        due = since, len(y), self.tried
        if self.recalled is not None and self.posterior.waits(len(y)) and not self.due(*due):
            return Step(math.nan, self.posterior.size, True, "rows wait")
        look, shift, y = self.limited(x, y, z)
        if not self.due(*due):
            (step,) = self.learn(x, y, look, shift, "update")
            if not self.options.rebuild and not doubtful(self.seen, len(self.inputs.scale)):
                self.widening = torch.ones_like(self.widening)
            return step
        if self.posterior.carries and self.seen + len(y) > self.memory.capacity:
            step = self._transfer(f"transfer: {since} rows")
            if step.healthy:
                (moved,) = self.learn(x, y, self.posterior.glance(z), shift, step.done)
                self.tried = self.seen
                return moved
        else:
            step = self._rebuild(x, y, f"rebuild: {since} rows")
            if step.healthy:
                return step
        learned = self.learn(x, y, look, shift, "update")[0]
        self.tried = self.seen
        return learned._replace(healthy=False, done=f"{step.done}; {learned.done}")

    def limited(self, x: Inputs, y: Tensor, z: Tensor) -> tuple[Look, Tensor, Tensor]:
        """How windows that are not learned yet look, their reference, and their truths, winsorised.

        Args:
            x: (..., N, L, D) windows.
            y: (..., N, T) truths, NaN = not observed.
            z: (..., N, W) the windows, standardised.
        """
        look, shift = self.posterior.glance(z), self._shift(x)
        self.posterior.scored(look, self._standardised(y, shift))
        look = self.posterior.measured(look, self.winsorise.reaches(y, self._issue(x, look, shift)))
        return look, shift, self.winsorise(y, self._issue(x, look, shift), self.posterior.weight)

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Learn all windows, equally weighted, an epoch at a time; a fit of the same windows goes on where the last one
        ended. An epoch that fails numerically is undone and reported; the first raises."""
        x, y, left_out = self._usable(x, y)
        if epochs < 1 or not len(y):
            return
        self.check_fit(len(y))
        x, y, glitches = plausible(x, y)
        left_out = _joined(left_out, glitches)
        batch = fingerprint(x, y)
        first = batch != self.fitted
        if first:
            self.fitted = ""  # where the first epoch fails, nothing that was fitted is left
            self.memory.offer(x, y, self.generator)
        elif self.converged:
            return
        rows, units = self._rows(Sample(x, y, y.new_ones(len(y)), no_rows(y)), rescale=first, fill=False)
        if first:
            self._check_width(rows, units, epochs)
        self.rebuilt = self.tried = self.seen
        for left in range(epochs, 0, -1):
            put_back, why, more = None if first else self.posterior.snapshot(), "", True
            try:
                more = self.posterior.epoch(rows, units, first, self.generator, left)
                if (off := float(self._off(rows.z, rows.y))) > 1.0:
                    hint = "options of the model that are not its defaults are the first suspects"
                    raise NumericalError(absurd(off), hint=hint)
            except NumericalError as error:
                if put_back is None:
                    raise
                put_back()
                self._attach()
                self.posterior.failed()
                why = error.message
            self.fitted, self.converged, first = batch, not more, False
            units = units._replace(before=units.outputs)  # the next epoch has the scaling of this one
            yield reporting(self._step(_joined("epoch", why and f"undone: {why}"), healthy=not why), left_out)
            if not more:
                return

    def _check_width(self, rows: Rows, units: Units, epochs: int) -> None:
        """Set `widening` for a fit of these rows."""
        self.widening = torch.ones_like(self.widening)
        count = len(rows.y)
        wanted = self.checks and isinstance(self.options, KernelOptions) and self.options.widen
        if wanted and not self.shape.lags and self.posterior.checked(count) and doubtful(count, len(units.inputs)):
            epochs = min(epochs, self.posterior.epochs_for(count))
            self.widening = widening(self.posterior, rows, units, epochs, self.options.seed)

    def epochs_for(self, rows: int) -> int:
        return self.posterior.epochs_for(rows)

    def warmup_epochs(self, rows: int) -> int:
        return self.posterior.warmup_epochs(rows)

    def _usable(self, x: Inputs, y: Tensor) -> tuple[Inputs, Tensor, str]:
        """The windows that can be learned, and what is left out.

        Raises:
            DataError: the likelihood knows no such value.
        """
        self.posterior.check(y, self.shape.targets)
        return usable(x, y)

    def due(self, since: Any, rows: Any, tried: Any) -> Any:
        """Whether a rebuild is due; numbers, or (K,) of many models.

        Args:
            since: rows after the last try.
            rows: those among them that are learned now.
            tried: rows at the last try.
        """
        if self.posterior.overdue and since >= HASTE:
            return True
        usual = self.posterior.interval(self.options.rebuild, tried)
        return bool(self.options.rebuild) & ((since >= usual) | (since >= PATIENCE * tried + rows))

    def _shift(self, x: Inputs) -> Tensor:
        """(..., N, T) the reference, of which targets are departures; where they have no units, nothing."""
        if not self.posterior.units:
            return x.future.new_zeros(())
        found: Tensor = self.reference(x)
        return found

    def _issue(self, x: Inputs, look: Look, shift: Tensor) -> Predictive:
        """The forecast in the units of the columns. shift: of `_shift`."""
        issued = self.posterior.predictive(look)
        if not self.posterior.units:
            return issued
        if not self.rebuilt:
            before = random_walk_variance(self.inputs.seen(x), self.shape)
            return issued.affine((before / issued.variance).sqrt(), shift)
        if bool((self.widening != 1.0).any()):
            wider = self.widening.sqrt()
            issued = issued.affine(wider, (1.0 - wider) * issued.mean)
        location, scale = (part.to(shift).unsqueeze(-2) for part in (self.outputs.location, self.outputs.scale))
        return issued.affine(scale, location + shift)

    def targets(self, x: Inputs, y: Tensor) -> Tensor:
        """(N, T) standardised where they have units; NaN stays NaN."""
        return self._standardised(y, self._shift(x))

    @property
    def standardised(self) -> Standardised:
        """What standardises, where targets have units."""
        return Standardised(self.inputs, self.reference, self.outputs)

    def _standardised(self, y: Tensor, shift: Tensor) -> Tensor:
        return self.standardised.truths(y, shift) if self.posterior.units else y

    def learn(self, x: Inputs, y: Tensor, look: Look, shift: Tensor, done: str) -> list[Step]:
        """Learn rows under the hyper-parameters of now, and offer them to the memory: a step of each model. Arguments
        as `limited` has them."""
        put_back, offered = self.posterior.snapshot(), self.memory.offer(x, y, self.generator)
        learned, time = self._standardised(y, shift), self.options.forgetting(self.shape)
        arrival = Arrival(
            learned,
            1.0 if time is None else math.exp(-y.shape[-2] / time),
            offered.rows,
            offered.places,
            self.memory.shares,
            lambda: self._rows(self.memory.sample(), rescale=False)[0],
            lambda rows: self._older(rows, offered.places),
        )

        def back() -> None:
            put_back()
            offered.put_back()
            self._attach()

        def work() -> tuple[str, Tensor]:
            event = self.posterior.absorb(look, arrival)
            return event, self._off(look.z, learned, look)

        return self._attempt(work, back, done, len(y) if self.posterior.many else 1)

    def begin(self, sample: Sample, done: str, fill: bool) -> list[Step]:
        """Let many models learn windows (K, N, ...) from the beginning; a step of each, `done`. fill: of `_rows`."""
        return self._attempt(lambda: self._begun(sample, True, fill), lambda: None, done, len(sample.y))

    def _begun(self, sample: Sample, rescale: bool, fill: bool = True) -> tuple[str, Tensor]:
        """Learn windows from the beginning; what happened, and `_off`."""
        rows, units = self._rows(sample, rescale, fill)
        event = self.posterior.rebuild(rows, units, self.generator)
        return event, self._off(rows.z, rows.y)

    def _rebuild(self, x: Inputs, y: Tensor, done: str) -> Step:
        """Offer rows to the memory, and learn the memory from the beginning."""
        rebuilt, tried, wider = self.rebuilt, self.tried, self.widening
        put_back, offered = self.posterior.snapshot(), self.memory.offer(x, y, self.generator)
        units_back = holding(self._units())

        def back() -> None:
            put_back()
            units_back()
            offered.put_back()
            self.rebuilt, self.tried, self.widening = rebuilt, tried, wider
            self._attach()

        def work() -> tuple[str, Tensor]:
            sample = self.memory.sample()
            found = self._begun(sample, rescale=not self.rebuilt or self.posterior.rescales(len(sample.y)))
            self.rebuilt = self.tried = self.seen
            self.widening = torch.ones_like(self.widening)
            return found

        (step,) = self._attempt(work, back, done)
        return step

    def _transfer(self, done: str) -> Step:
        """Move hyper-parameters and basis by the memory, and carry the posterior through."""
        put_back, rebuilt, tried, wider = self.posterior.snapshot(), self.rebuilt, self.tried, self.widening

        def back() -> None:
            put_back()
            self.rebuilt, self.tried, self.widening = rebuilt, tried, wider
            self._attach()

        def work() -> tuple[str, Tensor]:
            rows, units = self._rows(self.memory.sample(), rescale=False)
            event = self.posterior.transfer(rows, units, self.generator)
            self.rebuilt = self.tried = self.seen
            self.widening = torch.ones_like(self.widening)
            return event, self._off(rows.z, rows.y)

        (step,) = self._attempt(work, back, done)
        return step

    def _attempt(
        self, work: Callable[[], tuple[str, Tensor]], back: Callable[[], None], done: str, models: int = 1
    ) -> list[Step]:
        """Do it, which returns what happened and `_off`. Where it fails numerically the step says why, and all of one
        model is put back; of many, who holds their states keeps those from before."""
        try:
            event, off = work()
            found = [
                (loss, absurd(far) if far > 1.0 else "" if well and math.isfinite(loss) else NOT_FINITE)
                for (loss, well), far in zip(self.posterior.judged(), off.tolist(), strict=True)
            ]
        except NumericalError as error:
            event, found = "", [(math.nan, error.message)] * models
        if found[0][1] and not self.posterior.many:
            back()
            return [self._step(_joined(done, f"undone: {found[0][1]}"), healthy=False)]
        size, done = self.posterior.size, _joined(done, event)
        return [learned(loss, size, why, done) for loss, why in found]

    def _off(self, z: Tensor, y: Tensor, before: Look | None = None) -> Tensor:
        """(1,) or (K,) how far a posterior is from rows that it has just learned, as `blown` says; O(1) of the rows.

        Args:
            z: (..., N, W) standardised windows.
            y: (..., N, T) standardised targets, NaN = not observed.
            before: how they looked before; where its mean was as far off, learning is how it comes back.
        """
        if not self.posterior.units or not y.shape[-2]:
            return y.new_zeros(1)
        some, then = some_of(y.shape[-2]), None if before is None else before.mean
        mean = self.posterior.glance(z[..., some, :]).mean if before is None else self.posterior.means(before, some)
        there = torch.isfinite(y[..., some, :]).any(-1, keepdim=True)
        return blown(torch.where(there, mean, 0.0), y, then).reshape(-1)

    def _rows(self, sample: Sample, rescale: bool, fill: bool = True) -> tuple[Rows, Units]:
        """A sample in standardised units; `rescale`: of reference and scaling that are estimated from it; `fill`: what
        is missing is predicted, which differs from one epoch of a fit to the next."""
        x, y, weight, places = sample
        filled, seen = y, torch.isfinite(y)
        missing = seen.any(-1, keepdim=True) & ~seen
        if fill and self.rebuilt and self.posterior.units and bool(missing.any()):
            many = self.posterior.many
            issued = self._issue(x, self.posterior.glance(self.inputs(x)), self._shift(x)) if many else self.predict(x)
            filled = torch.where(missing, issued.mean, y)
        before = self.outputs.scale
        if rescale and self.posterior.units:
            self.standardised.fit(x, filled, weight)
        elif rescale:
            self.inputs.scaling.fit(x)
        inputs, shift = self.inputs, self._shift(x)
        units = Units(inputs.scale, self.outputs.scale, before, inputs.inverse, inputs.groups, inputs)
        learned = self._standardised(y, shift)
        known = learned if filled is y else self._standardised(filled, shift)
        return Rows(self.inputs(x), learned, weight, known, places, x), units

    def _older(self, rows: int, new: Tensor) -> Rows:
        """So many rows of the memory at random, none of those at the places `new`; they stand for all of the others."""
        places = self.memory.places()
        places = places[~torch.isin(places, new)]
        some = places[torch.randperm(len(places), generator=self.generator)[:rows].to(places.device)]
        weight = self.memory.shares()[some] * (len(places) / max(len(some), 1))
        x = Inputs(self.memory.past[some], self.memory.future[some])
        return self._rows(Sample(x, self.memory.y[some], weight, some), rescale=False)[0]

    def _attach(self) -> None:
        """Hand the posterior the windows of the memory again."""
        places = self.memory.places()
        self.posterior.attach(self.inputs(Inputs(self.memory.past[places], self.memory.future[places])), places)

    def _step(self, done: str, healthy: bool = True) -> Step:
        return Step(self.posterior.loss(), self.posterior.size, healthy and self.posterior.healthy, done)

    def _units(self) -> Parts:
        """What standardises, and is estimated."""
        learned = {"reference": self.reference} if isinstance(self.reference, LearnedReference) else {}
        return {"inputs": self.inputs, "outputs": self.outputs, **learned}

    def check_state(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        found = tensors["widening"]
        if not bool(((found >= 1.0) & found.isfinite()).all()):
            raise ValueError(f"widening is {found.tolist()}, not of finite factors from 1 on")

    def restored(self) -> None:
        self._attach()


class SimulatedStreamModel(StreamModel):
    """A StreamModel whose posterior draws whole functions, so that it can be run on its own output."""

    def functions(self, paths: int, generator: Generator) -> Callable[[Inputs], Tensor]:
        """See `streamgp.base.Simulates`: one function a path and column, and noise at every step."""
        assert isinstance(self.posterior, DrawsFunctions)
        draw = self.posterior.draw(paths, generator) if self.rebuilt else None

        def observe(x: Inputs) -> Tensor:
            reference: Tensor = self.reference(x)
            if draw is None:
                noise = torch.randn(reference.shape, generator=generator, dtype=FLOAT, device=generator.device)
                return reference + random_walk_variance(self.inputs.seen(x), self.shape).sqrt() * noise.to(reference)
            z = self.inputs(x)
            value = draw(z)
            if bool((self.widening != 1.0).any()):
                mean = self.posterior.look(z).mean
                value = mean + self.widening.sqrt() * (value - mean)
            return reference + self.outputs.location.to(value) + self.outputs.scale.to(value) * value

        return observe


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
