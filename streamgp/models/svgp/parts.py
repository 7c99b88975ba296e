"""The parts of an SVGP as a model: units and reference around prior and head, and where all of them begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

import torch
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT, Inputs, Json, Model, Predictive, Shape
from streamgp.encoders._base import Encoder, Layout
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial
from streamgp.likelihoods._base import Likelihood
from streamgp.models.svgp.config import Config
from streamgp.models.svgp.gaussian import GaussianHead
from streamgp.models.svgp.head import Head, Part, Parts
from streamgp.models.svgp.hyper import Chosen, configs, estimate, given, heights
from streamgp.models.svgp.prior import SparsePrior
from streamgp.models.svgp.sites import SitesHead
from streamgp.models.svgp.training import Training
from streamgp.online.inputs import KernelInputs
from streamgp.online.reference import LearnedReference, reference
from streamgp.online.reservoir import Reservoir, Sample
from streamgp.online.scaling import Standardiser
from streamgp.online.state import Parts as Named
from streamgp.online.state import gather, scatter
from streamgp.online.winsorise import Limit

CHUNK = 2048
"""Rows whose features are held at once."""
TRIAL = 3
"""Sweeps over few rows, to learn what a bound is worth."""


class SvgpParts(Model):
    """What an SVGP is made of, what it predicts and what it starts from. Subclasses say how it learns.

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
        self.initial: Initial | None = None
        self.rebuilt = 0  # rows seen at the last rebuild
        self.fitted = ""  # the batch that was fitted last

    @property
    def seen(self) -> int:
        """Rows learned."""
        return int(self.reservoir.seen)

    def initialise(self, initial: Initial) -> None:
        """See `evidence.initial.TakesInitial`: the first estimate starts there, or with learn=once is that.

        Raises:
            UsageError: windows, targets or kernel are others, there is an encoder, or targets are outcomes.
        """
        if not self.likelihood.units:
            raise UsageError(
                f"hyper-parameters of amounts say nothing of likelihood={choice.part_name(self.config.likelihood)}, "
                "whose function is a logit",
                hint="leave out --init",
            )
        if self.config.encoded:
            raise UsageError(
                "svgp with an encoder has a kernel of latents, which no hyper-parameters of windows fit",
                hint="leave out --set encoder, or --init",
            )
        initial.check(self.shape, self.config.target, self.config.decay)
        self.kernel.take(initial)
        self.initial = initial

    def predict(self, x: Inputs) -> Predictive:
        if len(x.future) > CHUNK:  # whatever the number of rows, the work takes the memory of one chunk
            parts = [self.predict(x.rows(slice(at, at + CHUNK))) for at in range(0, len(x.future), CHUNK)]
            return self.family.from_parameters(torch.cat([part.parameters() for part in parts], 1))
        issued = self.head.predictive(*self.head.moments(*self.prior.features(self.inputs(x))))
        if not self.likelihood.units:
            return issued
        location = self.outputs.location.to(x.future.device)
        return issued.affine(self.outputs.scale.to(x.future.device), location + self.reference(x))

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

    def _begin(self, sample: Sample) -> None:
        """New scaling, reference, hyper-parameters and inducing inputs; what was learned is forgotten."""
        x, y, weight, _ = sample
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
        log_noise = self._hyper(latent[thin], torch.nan_to_num(some))
        if self.config.gaussian or not self.rebuilt:
            self.head.start(self._targets(x, y), log_noise.exp())
        self.head.clear()
        chosen = torch.randperm(len(y), generator=self.generator)[: len(self.prior.points)]
        self.prior.put(latent[chosen.to(latent.device)])
        if not self.likelihood.units and self.kernel.radial and not self.trainer.frozen:
            self._height(z[thin], y[thin], weight[thin])
        self.trainer.forget()
        self.rebuilt = self.seen

    def _hyper(self, x: Tensor, y: Tensor) -> Tensor:
        """The kernel's hyper-parameters from rows (n, W) and targets (n, T), none missing; returns () log σ²."""
        log_noise = self._noise.log() if self.rebuilt else None
        if self.initial is not None and (not self.rebuilt or self.config.learn == "once"):
            log_noise = given(self.kernel, self.initial, self.inputs.scale, self.outputs.scale)
        self.trainer.frozen = self.config.learn == "once" and log_noise is not None
        if log_noise is not None and self.trainer.frozen:
            return log_noise
        noise = None if log_noise is None else log_noise.exp()
        outcomes, fixed = not self.likelihood.units, self.initial is not None
        return estimate(self.kernel, x, y, noise, outcomes=outcomes, slowly=bool(self.shape.lags), fixed=fixed)[0]

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

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Adam's moments to where the parameters are: it is no module, which PyTorch would move."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.trainer.move(fn)
        return self

    def _parts(self) -> Named:
        names = ("inputs", "outputs", "prior", "head", "reservoir", "limit")
        parts: dict[str, object] = {name: getattr(self, name) for name in names}
        parts["training"] = self.trainer
        if isinstance(self.reference, LearnedReference):
            parts["reference"] = self.reference
        return parts  # type: ignore[return-value]
