"""SVGP as a model: units, references and windows around prior, head and training, on a stream and in batch.

On a stream a batch is learned once, with kernel and inducing inputs as they are: exactly under Gaussian noise, and by
streaming variational Bayes otherwise. Every `rebuild` rows scaling, reference, hyper-parameters and inducing inputs are
taken anew from a bounded, recency-weighted reservoir, trained for some mini-batches, and the reservoir is learned.
Under Gaussian noise a row of the stream is limited before it is learned or kept (`_outliers`). What fails numerically
is undone.

In batch the first epoch starts from the evidence of some rows and learns all windows; every further one first trains by
mini-batches. A fit of the same windows goes on where the last one ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT, Inputs, Json, Model, Predictive, Shape, Step
from streamgp.encoders._base import Encoder, Layout
from streamgp.errors import NumericalError, UsageError
from streamgp.likelihoods._base import Likelihood
from streamgp.models._kernel_inputs import KernelInputs
from streamgp.models._learned_reference import LearnedReference, reference
from streamgp.models._outliers import Limit
from streamgp.models._qsgp_held import fingerprint
from streamgp.models._reservoir import Reservoir, Sample
from streamgp.models._scaling import Standardiser
from streamgp.models._state import Parts as Named
from streamgp.models._state import gather, holding, scatter
from streamgp.models._svgp_config import Config
from streamgp.models._svgp_gaussian import GaussianHead
from streamgp.models._svgp_head import Head, Part, Parts
from streamgp.models._svgp_hyper import Chosen, configs, estimate, heights
from streamgp.models._svgp_prior import SparsePrior
from streamgp.models._svgp_sites import SitesHead
from streamgp.models._svgp_training import Training

CHUNK = 2048
"""Rows whose features are held at once."""
PATIENCE = 0.5
"""Early on a rebuild comes when the stream has grown by this part since the last."""
TRIAL = 4
"""Sweeps over few rows, to learn what a bound is worth."""
SWEEPS = 6
"""Over all rows where q has no closed form and starts from the prior; one where it starts from what it was."""


class OnlineSvgp(Model):
    """See the module; built by `streamgp.models.svgp.build`.

    Raises:
        UsageError: targets without units are to be learned as a change or as a departure, or the encoder runs over a
            past and the windows have none.
    """

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.inputs = KernelInputs(shape)
        self.outputs = Standardiser(shape.columns)
        likelihood: Likelihood = choice.build("likelihoods", config.likelihood, shape.columns)
        if not likelihood.units and config.target not in ("auto", "level"):
            raise UsageError(
                f"target={config.target} has no meaning for likelihood={choice.part_name(config.likelihood)}, whose "
                "targets are no amounts",
                hint="leave out --set target: what the target was stands in the lags",
            )
        self.likelihood = likelihood
        self.reference = reference(config.target if likelihood.units else "level", shape, config.decay)
        layout = Layout(shape.lags, len(shape.past) if shape.lags else 0, shape.horizon, len(shape.future))
        encoder: Encoder = choice.build("encoders", config.encoder, layout)
        groups = torch.arange(encoder.width) if config.encoded else self.inputs.groups
        only = bool(shape.lags) or config.encoded  # few windows of a stream are independent: too few to choose by
        self.kernel = Chosen(configs(config.kernel, only), groups)
        points = config.size(shape)
        self.prior = SparsePrior(self.kernel, encoder, points)
        residual = config.noise == "residual"
        self.head: Head = (
            GaussianHead(points, shape.columns, residual) if config.gaussian else SitesHead(points, likelihood)
        )
        self.family = self.head.family
        self.trainer = Training(self.prior, self.head, config.training)
        self.reservoir = Reservoir(config.reservoir, shape, config.forgetting(shape))
        self.limit = Limit(shape, config.limit if config.gaussian else None)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.rebuilt = 0  # rows seen at the last rebuild
        self.fitted = ""  # the batch that was fitted last

    @property
    def seen(self) -> int:
        """Rows learned."""
        return int(self.reservoir.seen)

    def predict(self, x: Inputs) -> Predictive:
        if len(x.future) > CHUNK:  # whatever the number of rows, the work takes the memory of one chunk
            parts = [self.predict(x.rows(slice(at, at + CHUNK))) for at in range(0, len(x.future), CHUNK)]
            return self.family.from_parameters(torch.cat([part.parameters() for part in parts], 1))
        issued = self.head.predictive(*self.head.moments(*self.prior.features(self.inputs(x))))
        if not self.likelihood.units:
            return issued
        location = self.outputs.location.to(x.future.device)
        return issued.affine(self.outputs.scale.to(x.future.device), location + self.reference(x))

    def update(self, x: Inputs, y: Tensor) -> Step:
        x, y = self._observed(x, y)
        if not len(y):
            return Step(float("nan"), self._size, True, "nothing observed")
        if self.rebuilt:
            y = self.limit(y, self.predict(x), self.head.weight)
        self.fitted = ""
        since = self.seen + len(y) - self.rebuilt
        if not self.rebuilt:
            return self._undoing(lambda: self._rebuild(x, y), "rebuild: first windows")
        if self.config.rebuild and since >= min(self.config.rebuild, PATIENCE * self.rebuilt + len(y)):
            return self._undoing(lambda: self._rebuild(x, y), f"rebuild: {since} rows")
        return self._undoing(lambda: self._learn(x, y), "update")

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """See the module. An epoch that fails numerically is undone and told; the first raises."""
        x, y = self._observed(x, y)
        if epochs < 1 or not len(y):
            return
        batch = fingerprint(x, y)
        first = batch != self.fitted
        if first:
            self.reservoir.offer(x, y, self.generator)
            self._begin(Sample(x, y, y.new_ones(len(y))))
            self.fitted = batch
        z, target = self.inputs(x), self._targets(x, y)
        weight = y.new_full((len(y),), 1.0 / self.config.tempering(self.shape))
        for _ in range(epochs):

            def epoch(first: bool = first) -> Step:
                if not first or self._eager:
                    self.trainer.steps(z, target, weight, self.generator)
                self._relearn(z, target, weight, SWEEPS if first else 1)
                return self._step()

            if first:
                step = epoch()._replace(done="epoch")
                first = False
            else:
                step = self._undoing(epoch, "epoch")
            yield step

    def epochs_for(self, rows: int) -> int:
        return self.config.epochs_for(self.shape, rows)

    @property
    def _size(self) -> int:
        return int(self.prior.count)

    @property
    def _eager(self) -> bool:
        """Whether an epoch without training would be worth little."""
        return self.config.encoded or not self.config.gaussian

    def _step(self) -> Step:
        loss = self.head.loss()
        healthy = math.isfinite(loss) and bool(torch.isfinite(self.head.natural.moment).all())
        return Step(loss, self._size, healthy, "")

    def _observed(self, x: Inputs, y: Tensor) -> tuple[Inputs, Tensor]:
        """The windows of which at least one target is known.

        Raises:
            DataError: the likelihood knows no such value.
        """
        self.likelihood.check(y, self.shape.targets)
        seen = torch.isfinite(y).any(1)
        return x.rows(seen), y[seen]

    def _targets(self, x: Inputs, y: Tensor) -> Tensor:
        """(N, T) standardised where they have units; NaN stays NaN."""
        if not self.likelihood.units:
            return y
        return (y - self.reference(x) - self.outputs.location.to(y.device)) / self.outputs.scale.to(y.device)

    def _undoing(self, work: Callable[[], Step], what: str) -> Step:
        """Do it; where it fails numerically all is put back, and the step tells."""
        rebuilt, put_back = self.rebuilt, holding({k: v for k, v in self._parts().items() if k != "limit"})
        try:
            step = work()
            why = "" if step.healthy else "its numbers are not finite"
        except NumericalError as error:
            why = error.message
        if not why:
            return step._replace(done=what + step.done)
        put_back()
        self.rebuilt = rebuilt
        self._settle()
        return Step(self.head.loss(), self._size, False, f"{what}; undone: {why}")

    def _learn(self, x: Inputs, y: Tensor) -> Step:
        """Rows of the stream, once."""
        memory = self.config.forgetting(self.shape)
        phi, variance = self.prior.features(self.inputs(x))
        weight = y.new_full((len(y),), 1.0 / self.config.tempering(self.shape))
        kept = 1.0 if memory is None else math.exp(-len(y) / memory)
        self.head.absorb(Part(phi, variance, self._targets(x, y), weight), kept)
        self.reservoir.offer(x, y, self.generator)
        return self._step()

    def _rebuild(self, x: Inputs, y: Tensor) -> Step:
        """Start anew from the reservoir, these rows among them."""
        self.reservoir.offer(x, y, self.generator)
        sample = self.reservoir.sample()
        self._begin(sample)
        z, target = self.inputs(sample.x), self._targets(sample.x, sample.y)
        weight = sample.weight / self.config.tempering(self.shape)
        self._relearn(z, target, weight, SWEEPS)
        if steps := self.config.steps(self.shape):
            self.trainer.steps(z, target, weight, self.generator, steps)
            self._relearn(z, target, weight, 2)
        return self._step()

    def _begin(self, sample: Sample) -> None:
        """New scaling, reference, hyper-parameters and inducing inputs; what was learned is forgotten."""
        x, y, weight = sample
        thin = self._thin(len(y))
        filled = y[thin]
        if self.rebuilt and not bool(torch.isfinite(filled).all()):  # the missing as predicted: it teaches nothing new
            filled = torch.where(torch.isfinite(filled), filled, self.predict(x.rows(thin)).mean)
        if isinstance(self.reference, LearnedReference):
            self.reference.fit(x, y, weight)
        self.inputs.scaling.fit(x)
        if self.likelihood.units:
            self.outputs.fit(y - self.reference(x), y)
        z, encoder = self.inputs(x), self.prior.encoder
        if not self.rebuilt:
            encoder.settle(z, 1.0)
        with torch.no_grad():
            latent = encoder(z)
        some = self._targets(x.rows(thin), filled) if self.likelihood.units else 2.0 * filled - 1.0
        before = self._noise if self.rebuilt else None
        log_noise, _ = estimate(
            self.kernel,
            latent[thin],
            torch.nan_to_num(some),
            before,
            outcomes=not self.likelihood.units,
            slowly=bool(self.shape.lags),
        )
        if self.config.gaussian or not self.rebuilt:
            self.head.start(self._targets(x, y), log_noise.exp())
        self.head.clear()
        chosen = torch.randperm(len(y), generator=self.generator)[: len(self.prior.points)]
        self.prior.put(latent[chosen.to(latent.device)])
        if self.config.outcomes and self.kernel.radial:
            self._height(z[thin], y[thin], weight[thin])
        self.trainer.forget()
        self.rebuilt = self.seen

    def _height(self, z: Tensor, y: Tensor, weight: Tensor) -> None:
        """The outputscale of a logit whose bound on few rows is the largest."""
        tried = []
        for _ in heights(self.kernel, first=not self.rebuilt):
            self.head.clear()
            self._relearn(z, y, weight / self.config.tempering(self.shape), TRIAL)
            scale = dict(self.kernel.own.named_parameters())["log_outputscale"]
            tried.append((self.head.loss(), float(scale.detach())))
        with torch.no_grad():
            scale.fill_(min(tried)[1])
        self.head.clear()
        self.prior.settle()

    @property
    def _noise(self) -> Tensor:
        """() σ² that evidence starts from."""
        if isinstance(self.head, GaussianHead):
            return self.head.noise.mean().clamp(min=1e-6)
        return torch.full((), 0.1, dtype=FLOAT)

    def _relearn(self, z: Tensor, target: Tensor, weight: Tensor, sweeps: int) -> None:
        """q of these rows under the prior of now."""
        self.prior.settle()

        def parts() -> Iterator[Part]:
            for start in range(0, len(target), CHUNK):
                at = slice(start, start + CHUNK)
                phi, variance = self.prior.features(z[at])
                yield Part(phi, variance, target[at], weight[at])

        rows: Parts = parts
        self.head.learn(rows, sweeps)

    def _thin(self, rows: int) -> Tensor:
        """Indices of the rows for the evidence, evenly spread: about three a horizon."""
        count = min(max(3 * rows // self.shape.horizon, 60), self.config.thinned(self.shape), rows)
        return torch.linspace(0, rows - 1, count, device=self.inputs.groups.device).round().long()

    def _settle(self) -> None:
        """What is not kept in a state, from what is."""
        if isinstance(self.head, SitesHead):
            self.head.solve()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, parts = gather(self._parts())
        tensors["generator"] = self.generator.get_state()
        return tensors, {"parts": parts, "rebuilt": self.rebuilt, "fitted": self.fitted}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        parts = rest["parts"]
        assert isinstance(parts, dict)
        scatter(self._parts(), tensors, parts)
        self.generator.set_state(tensors["generator"].cpu())
        self.rebuilt, self.fitted = int(str(rest["rebuilt"])), str(rest["fitted"])
        self._settle()

    def _parts(self) -> Named:
        names = ("inputs", "outputs", "prior", "head", "reservoir", "limit")
        parts: dict[str, object] = {name: getattr(self, name) for name in names}
        parts["training"] = self.trainer
        if isinstance(self.reference, LearnedReference):
            parts["reference"] = self.reference
        return parts  # type: ignore[return-value]
