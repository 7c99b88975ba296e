"""SVGP on a stream and in batch: prior, q and training.

Between rebuilds new rows are learned once, with kernel and inducing inputs as they are: exactly under Gaussian noise,
and by streaming variational Bayes otherwise. A rebuild estimates hyper-parameters by the evidence of thinned rows,
chooses inducing inputs among the rows, trains for some mini-batches, and learns the rows.

In batch the first epoch does the same with all rows; every further one first trains by mini-batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import torch
from torch import Generator, Tensor

from streamgp import choice
from streamgp.base import FLOAT, Predictive, Shape
from streamgp.encoders import Encoder, Layout
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial
from streamgp.evidence.search import thinned
from streamgp.likelihoods import Likelihood
from streamgp.models.svgp.config import Config
from streamgp.models.svgp.gaussian import GaussianHead
from streamgp.models.svgp.head import Part, VariationalHead
from streamgp.models.svgp.hyper import Chosen, configs, estimate, given, heights
from streamgp.models.svgp.prior import SparsePrior
from streamgp.models.svgp.sites import SitesHead
from streamgp.models.svgp.training import Training
from streamgp.online.posterior import Arrival, LearnedFunction, Look, Posterior, Rows, Units
from streamgp.online.summing import OnFeatures, Summing, running
from streamgp.state import Declared, Nested, Parts, Value
from streamgp.training.natural_gradient import Site

CHUNK = 2048
"""Rows whose features are held at once."""
SWEEPS, AGAIN = 6, 2
"""Over all rows where q has no closed form and starts from the prior; after training. Half as many follow
each time that the noise's scale is set."""
FITS = 3
"""How often it is set at first."""
FEW, CHECKED = 200, 5
"""Rows from which on a fit of more epochs than that is not checked by rows left out."""
TRIAL = 3
"""Sweeps over few rows, to compare bounds."""


class SvgpPosterior(Declared, Posterior):
    """See the module; built by `streamgp.models.svgp.build`.

    Args:
        config: of the model.
        shape: of the windows.
        groups: (W,) the group of each column, of `KernelInputs`.

    Attributes:
        likelihood: of T columns.
        kernel: of standardised windows or latents.
        prior: encoder, kernel and inducing inputs.
        head: q and the noise.
        trainer: of mini-batches.
        found: whether hyper-parameters were estimated.

    Raises:
        UsageError: targets without units are to be learned as a change or as a departure, or the encoder runs over a
            past and the windows have none.
    """

    STATE = (Nested(of="_parts", under="parts"), Value("found", bool))

    def __init__(self, config: Config, shape: Shape, groups: Tensor) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.likelihood: Likelihood = choice.build("likelihoods", config.likelihood, shape.columns)
        self.units, self.robust = self.likelihood.units, not config.gaussian
        if not self.units and config.target not in ("auto", "level"):
            raise UsageError(
                f"target={config.target} has no meaning for likelihood={choice.part_name(config.likelihood)}, whose "
                "targets are outcomes",
                hint="leave out --set target: the present value is among the lags",
            )
        layout = Layout(shape.lags, len(shape.past) if shape.lags else 0, shape.horizon, len(shape.future))
        encoder: Encoder = choice.build("encoders", config.encoder, layout)
        own = torch.arange(encoder.width) if config.encoded else groups
        only = bool(shape.lags) or config.encoded  # few windows of a stream are independent: too few to choose by
        self.kernel = Chosen(configs(config.kernel, only), own)
        points = config.size(shape)
        self.prior = SparsePrior(self.kernel, encoder, points)
        self.head: VariationalHead = (
            GaussianHead(points, shape.columns) if config.gaussian else SitesHead(points, self.likelihood)
        )
        self.family = self.head.family
        self.trainer = Training(self.prior, self.head, config.training)
        self.initial: Initial | None = None
        self.found = False

    @property
    def sums_rows(self) -> bool:
        return isinstance(self.head, GaussianHead)

    @property
    def size(self) -> int:
        return int(self.prior.count)

    @property
    def weight(self) -> Tensor:
        return self.head.weight

    @property
    def healthy(self) -> bool:
        return bool(torch.isfinite(self.head.natural.moment).all())

    @property
    def signal(self) -> float | None:
        if not self.found or not self.units:
            return None
        noise = self.head.noise if isinstance(self.head, GaussianHead) else self.likelihood.scale.detach().square()
        return float(self.kernel.diagonal(self.prior.used.detach()).detach().mean() / noise.mean())

    def learned(self, groups: Tensor) -> LearnedFunction:
        """The kernel in use; inducing points are its inputs, the latents of an encoder where there is one."""
        noise = self.head.noise if isinstance(self.head, GaussianHead) else self.likelihood.scale.detach().square()
        encode = self.prior.encoder if self.config.encoded else None
        noise = noise.expand(self.shape.columns) if self.units else torch.zeros(self.shape.columns, dtype=FLOAT)
        return LearnedFunction(self.kernel.own, noise, self.prior.used.detach(), encode)

    def look(self, z: Tensor) -> Look:
        features = self.prior.features(z)
        mean, latent = self.head.moments(*features)
        noise = self.head.served if isinstance(self.head, GaussianHead) else self.likelihood.scale.detach().square()
        return Look(z, features, mean, latent, noise)

    def covariance(self, z: Tensor) -> Tensor | None:
        if not isinstance(self.head, GaussianHead):
            return None
        latent = self.prior.encoder(z)
        known = self.prior.features(z)[0] @ self.head.vectors
        found: Tensor = self.prior.kernel(latent, latent) + (known * self.head.shrink.T[:, None]) @ known.T
        return found

    def predictive(self, look: Look) -> Predictive:
        return self.head.predictive(look.mean, look.latent)

    def absorb(self, look: Look, arrival: Arrival) -> str:
        weight = arrival.y.new_full((len(arrival.y),), 1.0 / self.config.tempering(self.shape))
        phi, variance = look.features
        self.head.absorb(Part(phi, variance, arrival.y, weight), arrival.kept)
        return ""

    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        y = rows.filled if self.config.gaussian else rows.y
        weight = rows.weight / self.config.tempering(self.shape)
        event = self._begin(rows, units, generator)
        self._relearn(rows.z, y, weight, SWEEPS, running)
        if steps := self.config.steps(self.shape):
            held = self._held(rows.z, y, weight)
            self.trainer.steps(rows.z, y, weight, generator, steps)
            self._relearn(rows.z, y, weight, AGAIN, running, held)
        return event

    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        weight = rows.weight / self.config.tempering(self.shape)
        if first:
            self._begin(rows, units, generator)
        held = () if first else self._held(rows.z, rows.y, weight)
        if not first or self._eager:
            self.trainer.steps(rows.z, rows.y, weight, generator)
        self._relearn(rows.z, rows.y, weight, SWEEPS if first else AGAIN, self.summing, held)
        return True

    def begin_afresh(self) -> None:
        self.found = False

    def checked(self, rows: int) -> bool:
        """Not one of many epochs where rows are not few, which takes minutes, and none with an encoder: that would stay
        as the rows left out have trained it."""
        quick = rows < FEW or self.epochs_for(rows) <= CHECKED
        return self.config.gaussian and not self.config.encoded and quick

    def epochs_for(self, rows: int) -> int:
        return self.config.epochs_for(self.shape, rows)

    def loss(self) -> float:
        return self.head.loss() if self.found else math.nan

    def check(self, y: Tensor, names: Sequence[str]) -> None:
        self.likelihood.check(y, names)

    def start_from(self, initial: Initial) -> None:
        if not self.units:
            raise UsageError(
                "--init was tuned for a continuous target, and the function of "
                f"likelihood={choice.part_name(self.config.likelihood)} is a logit",
                hint="leave out --init",
            )
        if self.config.encoded:
            raise UsageError(
                "svgp with an encoder has a kernel of latents, which no hyper-parameters of windows fit",
                hint="leave out --set encoder, or --init",
            )
        self.kernel.take(initial)
        self.initial = initial

    @property
    def _eager(self) -> bool:
        """Whether an epoch without training would be worth little."""
        return self.config.encoded or not self.config.gaussian

    def _begin(self, rows: Rows, units: Units, generator: Generator) -> str:
        """New hyper-parameters and inducing inputs; forgets what was learned."""
        encoder, first = self.prior.encoder, not self.found
        if first:
            encoder.settle(rows.z, 1.0)
        with torch.no_grad():
            latent = encoder(rows.z)
        thin = thinned(len(rows.y), self.shape.horizon, self.config.thinned(self.shape), rows.z.device)
        some = rows.filled[thin] if self.units else 2.0 * rows.y[thin] - 1.0
        log_noise, event = self._estimate(latent[thin], torch.nan_to_num(some), units)
        if self.config.gaussian or first:
            self.head.start(rows.y, log_noise.exp())
        self.head.clear()
        chosen = torch.randperm(len(rows.y), generator=generator)[: len(self.prior.points)]
        self.prior.put(latent[chosen.to(latent.device)])
        if not self.units and self.kernel.radial and not self.trainer.frozen:
            self._height(rows.z[thin], rows.y[thin], rows.weight[thin])
        self.trainer.forget()
        self.found = True
        return event

    def _estimate(self, z: Tensor, y: Tensor, units: Units) -> tuple[Tensor, str]:
        """The kernel's hyper-parameters from rows (n, W) and targets (n, T), none missing; returns () log σ² and what
        went wrong on the way."""
        log_noise = self._noise.log() if self.found else None
        if self.initial is not None and (not self.found or self.config.learn == "once"):
            log_noise = given(self.kernel, self.initial, units.inputs, units.outputs)
        self.trainer.frozen = self.config.learn == "once" and log_noise is not None
        if log_noise is not None and self.trainer.frozen:
            return log_noise, ""
        return estimate(
            self.kernel,
            z,
            y,
            None if log_noise is None else log_noise.exp(),
            outcomes=not self.units,
            slowly=bool(self.shape.lags),
            fixed=self.initial is not None,
            again=self.found,
        )

    def _height(self, z: Tensor, y: Tensor, weight: Tensor) -> None:
        """The outputscale of a logit whose bound on few rows is the largest."""
        tried = []
        scale = dict(self.kernel.own.named_parameters())["log_outputscale"]
        for _ in heights(self.kernel, first=not self.found):
            self.head.clear()
            self._relearn(z, y, weight / self.config.tempering(self.shape), TRIAL, running)
            tried.append((self.head.loss(), float(scale.detach())))
        with torch.no_grad():
            scale.fill_(min(tried)[1])
        self.head.clear()
        self.prior.refresh()

    @property
    def _noise(self) -> Tensor:
        """() σ² that evidence starts from."""
        if isinstance(self.head, GaussianHead):
            return self.head.noise.mean().clamp(min=1e-6)
        return torch.full((), 0.1, dtype=FLOAT)

    def _held(self, z: Tensor, y: Tensor, weight: Tensor) -> Sequence[Site]:
        """What the rows say before training moves the prior, where q has no closed form."""
        return self.head.hold(self._parts_of(z, y, weight)) if isinstance(self.head, SitesHead) else ()

    def _relearn(
        self, z: Tensor, y: Tensor, weight: Tensor, sweeps: int, summing: Summing, held: Sequence[Site] = ()
    ) -> None:
        """q of these rows under the prior of now. held: of `_held`."""
        self.prior.refresh()
        if isinstance(self.head, GaussianHead):
            summing(OnFeatures(self.prior, self.head), _absorb, (z, y, weight), CHUNK)
            self.head.settle()
            return
        assert isinstance(self.head, SitesHead)
        parts = self._parts_of(z, y, weight)
        self.head.learn(parts, sweeps, held)
        for _ in range((1 if held else FITS) if self.units else 0):
            self.head.fit_noise(parts)
            self.head.learn(parts, max(sweeps // 2, 1))

    def _parts_of(self, z: Tensor, y: Tensor, weight: Tensor) -> Callable[[], Iterator[Part]]:
        def parts() -> Iterator[Part]:
            for start in range(0, len(y), CHUNK):
                at = slice(start, start + CHUNK)
                phi, variance = self.prior.features(z[at])
                yield Part(phi, variance, y[at], weight[at])

        return parts

    def restored(self) -> None:
        if isinstance(self.head, SitesHead):
            self.head.solve()

    def _parts(self) -> Parts:
        return {"prior": self.prior, "head": self.head, "training": self.trainer}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Adam's moments to where the parameters are: it is no module, which PyTorch would move."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.trainer.move(fn)
        return self


def _absorb(own: OnFeatures[SparsePrior, GaussianHead], z: Tensor, y: Tensor, weight: Tensor) -> None:
    """Standardised windows (N, W), targets (N, T) and weights (N,) into the sums."""
    phi, variance = own.features.features(z)
    own.regression.add(Part(phi, variance, y, weight))
