"""A finite-dimensional GP on a stream and in batch: features that are trained, and an exact regression on them.

Between rebuilds every row is learned exactly by the regression, with the features as they are. A rebuild takes a new
scaling, new hyper-parameters and some epochs of training from a bounded, recency-weighted sample of the stream, and
the regression anew from that sample: statistics of old features are worth nothing to new ones. A row of the stream is
limited before it is learned or kept (`online.winsorise`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Json, Model, Predictive, Shape, Step
from streamgp.evidence.initial import Initial
from streamgp.evidence.thinned import Hyper
from streamgp.models.finite_rkhs.config import Config
from streamgp.models.finite_rkhs.fit import FiniteFit
from streamgp.models.finite_rkhs.learner import CHUNK, FiniteLearner
from streamgp.online.inputs import KernelInputs
from streamgp.online.reference import LearnedReference, reference
from streamgp.online.reservoir import Reservoir, Sample
from streamgp.online.scaling import Standardiser
from streamgp.online.state import Parts, gather, holding, scatter
from streamgp.online.training import OUTLIER, attempt
from streamgp.online.variance import random_walk_variance
from streamgp.online.winsorise import Limit
from streamgp.predictives.gaussian import Gaussian
from streamgp.predictives.student_t import StudentT
from streamgp.regression.recursive import A0

PATIENCE = 0.5
"""Early on a rebuild comes when the stream has grown by this part since the last."""
STEPS, FURTHER = 60, 30
"""Of Adam on the hyper-parameters, at first and from others."""
LEAST, MOST = 0.25, 4.0
"""Factors on the variance that a stream's errors can lead to."""


class FiniteRkhs(FiniteFit, Model):
    """See the module; built by `build`."""

    factor: Tensor  # (T,) on the variance, by validation rows and by the stream's errors

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.family: type[Predictive] = Gaussian if config.predictive == "gaussian" else StudentT
        self.inputs = KernelInputs(shape)
        self.reference = reference(config.target, shape, config.decay)
        self.outputs = Standardiser(shape.columns)
        self.learner = FiniteLearner(config, shape, self.inputs)
        self.reservoir = Reservoir(config.online.reservoir, shape, config.forgetting(shape))
        self.limit = Limit(shape, config.limit)
        self.hyper = Hyper.start(self.inputs.count)
        self.initial: Initial | None = None
        self.generator = torch.Generator().manual_seed(config.seed)
        self.register_buffer("factor", torch.ones(shape.columns, dtype=FLOAT))
        self.rebuilt = 0  # rows seen at the last rebuild
        self._restart()

    @property
    def seen(self) -> int:
        """Rows learned."""
        return int(self.reservoir.seen)

    def initialise(self, initial: Initial) -> None:
        """See `evidence.initial.TakesInitial`: the first estimate starts there, or with learn=once is that.

        Raises:
            UsageError: the windows or the kernel do not fit, or the kernel is not on the window itself.
        """
        initial.check(self.shape, self.config.target, self.config.decay)
        self.learner.takes(initial)
        self.initial = initial

    def predict(self, x: Inputs) -> Predictive:
        if not self.rebuilt:
            mean = self.reference(x)
            variance = random_walk_variance(x, self.shape)
            return self._distribution(mean, torch.zeros_like(mean), variance, torch.full_like(mean, 2 * A0))
        if len(x.future) > CHUNK:  # whatever the number of rows, the work takes the memory of one chunk
            parts = [self.predict(x.rows(slice(at, at + CHUNK))) for at in range(0, len(x.future), CHUNK)]
            return self.family.from_parameters(torch.cat([part.parameters() for part in parts], 1))
        mean, latent, noise = self.learner.standing(self.inputs(x))
        scale = self.outputs.scale.to(mean.device)
        variance = self.factor * scale.square()
        mean = mean * scale + self.outputs.location.to(mean.device) + self.reference(x)
        return self._distribution(mean, latent * variance, noise * variance, self.learner.regression.freedom)

    def functions(self, paths: int, generator: Generator) -> Callable[[Inputs], Tensor]:
        """See `streamgp.base.Simulates`: one draw of the weights a path and column, and noise at every step.

        s² is the posterior mean with predictive=gaussian, and one draw a path with student_t.
        """
        regression, known = self.learner.regression, bool(self.rebuilt)
        if known:
            exact = self.config.predictive == "student_t"
            weights, variance = regression.draw(paths, generator, noise=None if exact else regression.noise)
            unit = (weights - regression.posterior.weights) / variance.sqrt()[:, None]  # (P, d, T)
            served, relative = self.learner.served, variance / regression.noise * self.factor  # (P, T)
            weights = served.weights + (relative * served.unit).sqrt()[:, None] * unit
            spread = (relative * served.noise).sqrt()

        def draw(x: Inputs) -> Tensor:
            found: Tensor = self.reference(x)  # (P · S, T)
            noise = torch.randn(found.shape, generator=generator, dtype=FLOAT, device=generator.device).to(found)
            if not known:
                return found + random_walk_variance(x, self.shape).sqrt() * noise
            with torch.no_grad():
                phi = self.learner.features(self.inputs(x)).unflatten(0, (paths, -1))  # (P, S, d)
            own = phi @ weights + spread[:, None] * noise.unflatten(0, (paths, -1))
            scale, location = self.outputs.scale.to(found), self.outputs.location.to(found)
            out: Tensor = found + location + scale * own.flatten(0, 1)
            return out

        return draw

    def update(self, x: Inputs, y: Tensor) -> Step:
        seen = torch.isfinite(y).any(1)
        x, y = x.rows(seen), y[seen]
        if not len(y):
            return self._step("nothing observed")
        self._restart()
        since, rebuild = self.seen + len(y) - self.rebuilt, self.config.online.rebuild
        if not self.rebuilt:
            return self._rebuild(x, y, "first windows")
        y = self._score(x, y)
        if rebuild and since >= min(rebuild, PATIENCE * self.rebuilt + len(y)):
            return self._rebuild(x, y, f"{since} rows")
        held = holding({"regression": self.learner.regression})
        why = attempt(lambda: self._learn(x, y), held)
        if not why:
            self.reservoir.offer(x, y, self.generator)
        return self._step("update", why)

    def _learn(self, x: Inputs, y: Tensor) -> None:
        """Add the rows; whether they can be predicted from is known now and not at the next forecast."""
        self.learner.learn(self.inputs(x), self._targets(x, y))
        self.learner.check()
        self.learner.steady = True

    def _score(self, x: Inputs, y: Tensor) -> Tensor:
        """Truths as they are learned, (N, T); their errors go into the factor on the variance."""
        issued = self.predict(x)
        squares, memory = (y - issued.mean).square() / issued.variance, self.config.online.variance
        if memory is not None:
            seen = torch.isfinite(squares)
            rows = seen.sum(0)
            kept = torch.exp(-rows.to(FLOAT) / memory)
            mean = torch.where(seen, squares, 0.0).clamp(max=OUTLIER).sum(0) / rows.clamp(min=1)
            self.factor.mul_(kept + (1 - kept) * mean).clamp_(LEAST, MOST)
        learned: Tensor = self.limit(y, issued, self.learner.regression.count)
        self.learner.score(self.inputs(x), self._targets(x, learned))
        return learned

    def _rebuild(self, x: Inputs, y: Tensor, why: str) -> Step:
        """Keep the new rows, and start anew from all that are kept."""
        young = not self.config.plain and self.seen + len(y) < self.config.online.rebuild
        epochs = self.config.online.first if young else self.config.online.epochs
        hyper, rebuilt = self.hyper, self.rebuilt
        held = holding({**self._held(), "reservoir": self.reservoir})

        def put_back() -> None:
            held()
            self.hyper, self.rebuilt = hyper, rebuilt

        def anew() -> None:
            self.reservoir.offer(x, y, self.generator)
            self._learn_anew(self.reservoir.sample(), epochs)

        failed = attempt(anew, put_back)
        return self._step(f"rebuild: {why}", failed)

    def _learn_anew(self, sample: Sample, epochs: int) -> None:
        """New units, hyper-parameters and features, and the regression of the sample with them."""
        x, y, weight, _ = sample
        if self.rebuilt and not bool(torch.isfinite(y).all()):  # the missing as predicted: it teaches nothing new
            y = torch.where(torch.isfinite(y), y, self.predict(x).mean)
        self._units(x, y, weight)
        z, r = self.inputs(x), self._targets(x, y)
        self._hyperparameters(z, r, self.config.evidence_rows)
        self.learner.serve(z, r, weight)
        if epochs and self.learner.learns(self.seen):
            self.learner.refresh(z, r, epochs, self.generator)
            self.learner.serve(z, r, weight)
        self.learner.check()
        self.rebuilt = self.seen

    def _units(self, x: Inputs, y: Tensor, weight: Tensor) -> None:
        """The reference and the units of these rows."""
        if isinstance(self.reference, LearnedReference):
            self.reference.fit(x, y, weight)
        self.inputs.scaling.fit(x)
        self.outputs.fit(y - self.reference(x), y)

    def _hyperparameters(self, z: Tensor, r: Tensor, most: int) -> None:
        """By the evidence of at most so many rows, evenly spread, about three a horizon; where the kernel has one."""
        if not self.learner.radial:
            return
        once, found = self.config.learn == "once", bool(self.rebuilt)
        if self.initial is not None and (once or not found):
            self.hyper, found = self.initial.hyper(self.inputs.scale, self.outputs.scale), True
        if not (once and found):
            count = min(max(3 * len(z) // self.shape.horizon, 60), most, len(z))
            thin = torch.linspace(0, len(z) - 1, count, device=z.device).round().long()
            some = torch.nan_to_num(r[thin])
            self.hyper = self.learner.estimate(z[thin], some, self.hyper, FURTHER if found else STEPS)
        self.learner.settle(self.hyper, self.inputs.inverse(self.hyper.lengthscale))

    def _targets(self, x: Inputs, y: Tensor) -> Tensor:
        """(N, T) standardised; NaN stays NaN."""
        return (y - self.reference(x) - self.outputs.location.to(y)) / self.outputs.scale.to(y)

    def _distribution(self, mean: Tensor, latent: Tensor, noise: Tensor, freedom: Tensor) -> Predictive:
        """The family's member with these moments."""
        if self.config.predictive == "gaussian":
            return Gaussian(mean, latent, noise)
        variance = latent + noise
        return StudentT(mean, (variance * (freedom - 2) / freedom).sqrt(), freedom, latent)

    def _step(self, done: str, failed: str = "") -> Step:
        """The evidence a row, in standardised units; what failed is told, and unhealthy."""
        told = f"{done}; undone: {failed}" if failed else done
        return Step(self.learner.nlml(), self.learner.width, not failed and self.learner.finite, told)

    def _held(self) -> Parts:
        """What learning changes, beside hyper-parameters, counts and the reservoir."""
        learned = {"reference": self.reference} if isinstance(self.reference, LearnedReference) else {}
        units: Parts = {"inputs": self.inputs, "outputs": self.outputs, "factor": self.factor}
        return {**units, **learned, **self.learner.parts()}

    def _parts(self) -> Parts:
        return {**self._held(), "reservoir": self.reservoir, "limit": self.limit, "early": self.early}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, parts = gather(self._parts())
        tensors |= {"hyper": self.hyper.pack(), "generator": self.generator.get_state()}
        tensors |= {f"iterate.{key}": value for key, value in self.iterate.items()}
        counts: dict[str, Json] = {"rebuilt": self.rebuilt, "trained": self.trained, "steady": self.learner.steady}
        return tensors, {"parts": parts, "fitted": self.fitted, **counts}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        parts = rest["parts"]
        assert isinstance(parts, dict)
        scatter(self._parts(), tensors, parts)
        self.hyper = Hyper.unpack(tensors["hyper"].clone())
        self.generator.set_state(tensors["generator"].cpu())
        self.iterate = {key[8:]: value.clone() for key, value in tensors.items() if key.startswith("iterate.")}
        self.rebuilt, self.trained = int(str(rest["rebuilt"])), int(str(rest["trained"]))
        self.fitted, self.learner.steady = str(rest["fitted"]), bool(rest["steady"])
