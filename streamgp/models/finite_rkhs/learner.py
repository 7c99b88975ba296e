"""Features, the head that trains them, and the exact regression that predicts from them, on standardised rows.

z: (N, W) standardised windows, r: (N, T) standardised residuals, NaN = not observed. What is trained is trained on rows
that are whole; the regression learns all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Generator, Tensor, nn

from streamgp import choice
from streamgp.base import Shape
from streamgp.encoders import Layout
from streamgp.errors import NumericalError, UsageError
from streamgp.evidence.initial import Initial
from streamgp.evidence.thinned import LogHyper, Profile
from streamgp.kernels import Stationary, radial
from streamgp.models.finite_rkhs.config import Config
from streamgp.models.finite_rkhs.features import FiniteFeatures
from streamgp.models.finite_rkhs.training import descent
from streamgp.objectives.finite_evidence import ridge
from streamgp.online.summing import OnFeatures, Summing, in_blocks
from streamgp.regression.precision_mixture import STRONGER, PrecisionMixture
from streamgp.regression.recursive import RecursiveRegression
from streamgp.state import Parts, holding
from streamgp.training.finite_head import FiniteHead
from streamgp.training.fit import Optimiser, Standing, Trainable, training

CHUNK = 4096
"""Rows whose features are held at once."""
SAMPLE = 2048
"""Rows of an epoch that trains frequencies on a stream."""


class Served(NamedTuple):
    """What forecasts are made with, as long as nothing is learned.

    Attributes:
        version: of the regression and of the mixture.
        weights: (d, T)
        unit: (T,) latent variance over the leverage.
        noise: (T,) variance of an observation around the function.
    """

    version: tuple[int, float]
    weights: Tensor
    unit: Tensor
    noise: Tensor


class FiniteLearner(nn.Module, Trainable):
    """See the module.

    Args:
        config: of the model.
        shape: of the windows.

    Attributes:
        features: φ, `width` of them.
        head: w and σ², what training steps on beside φ.
        regression: of all rows learned, on φ as it is.
        steady: whether no step of the last epoch was left out, since its gradient was not finite.
        summing: how all rows of a batch are summed.

    Raises:
        UsageError: encoder, kernel and windows do not go together, or with `training.method` or `evidence`.
    """

    NOT_STATE: ClassVar[Mapping[str, str]] = {"_served": "made again when it is asked for"}

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        layout = Layout(shape.lags, len(shape.past) if shape.lags else 0, shape.horizon, len(shape.future))
        encoder = choice.build("encoders", config.net, layout)
        linear, fourier = config.straight(layout.width), config.fourier
        self.features = FiniteFeatures(
            encoder, config.on_latents, fourier.size, fourier.seed, linear, fourier.frequencies == "learned"
        )
        self.features.eval()  # as after training
        self.width = self.features.width + (layout.width + 1 if linear else 0)
        kernel = self.features.kernel
        self.radial = config.plain and radial(kernel)
        if self.radial or (self.features.straight and not config.plain):
            kernel.requires_grad_(False)  # estimated otherwise, or said twice by the encoder's last layer
        if config.training.method != "auto" and not any(p.requires_grad for p in self.features.parameters()):
            raise UsageError(
                f"training.method={config.training.method} has nothing to train: the frequencies are drawn",
                hint="use fourier.frequencies=learned or encoder=mlp",
            )
        if config.evidence == "scgd" and not self.radial:
            raise UsageError(
                "evidence=scgd estimates a radial kernel of the window itself, and this one has "
                f"encoder={choice.part_name(config.encoder)}, kernel={choice.part_name(config.on_latents)}",
                hint="use training.method=scgd, or encoder=identity with kernel=squared_exponential or matern",
            )
        memory = config.forgetting(shape)
        forgetting = 1.0 if memory is None else math.exp(-1.0 / memory)
        self.head = FiniteHead(self.width, shape.columns, config.noise, config.floor)
        self.regression = RecursiveRegression(self.width, shape.columns, config.form, forgetting)
        self.mixture = PrecisionMixture(shape.columns, config.mixed(shape))
        self.steady = True
        self.summing: Summing = in_blocks
        self._served: Served | None = None

    def learns(self, rows: int) -> bool:
        """Whether features have anything to train, and rows enough to train it on."""
        few = self.config.plain and rows < self.config.settled
        return not few and any(p.requires_grad for p in self.features.parameters())

    @property
    def trained(self) -> dict[str, nn.Module]:
        """What training moves."""
        return {"features": self.features, "head": self.head}

    def parts(self) -> Parts:
        """Everything that a checkpoint holds."""
        return {**self.trained, "regression": self.regression, "mixture": self.mixture}

    @property
    def profile(self) -> Profile:
        """Of a radial kernel."""
        kernel = self.features.kernel
        assert isinstance(kernel, Stationary)
        return kernel.profile

    @torch.no_grad()
    def settle(self, hyper: LogHyper, inverse: Tensor) -> None:
        """Give the kernel and the noise these values. inverse: (W,) 1/ℓ of each column of z."""
        kernel = self.features.kernel
        assert isinstance(kernel, Stationary)
        kernel.log_lengthscale.copy_(-inverse.log())
        kernel.log_outputscale.copy_(hyper.outputscale)
        self._expect(hyper.noise.exp())

    def _expect(self, noise: Tensor) -> None:
        """Give the head this noise, () or (T,)."""
        self.head.log_noise.copy_((noise - self.head.floor).clamp(min=0.1 * self.head.floor).log())

    def refresh(self, z: Tensor, r: Tensor, epochs: int, generator: Generator) -> bool:
        """Train again from the features at hand, on the rows of a stream, with the weights that they now have.

        Frequencies see other `SAMPLE` rows each epoch, which learns as much a step as all rows and costs a quarter:
        with the noise scaled by the part of the rows that is drawn, the loss is an estimate of that of all. The noise
        is that of rows that overlap, which stand for fewer.

        Returns:
            whether no step was left out, since its gradient was not finite.

        Raises:
            NotPositiveDefinite: a factorisation failed.
        """
        steps = descent(self.features, self.head, self.config.refreshing, epochs, alone=self.config.plain)
        with torch.no_grad():
            self.head.weights.copy_(self.regression.posterior.weights)
        if not self.config.plain:
            return min(self._epoch(steps, z, r, generator) for _ in range(epochs))
        noise, part = self.head.noise.detach().clone(), min(SAMPLE / len(z), 1.0)
        with torch.no_grad():
            self._expect(noise * self.config.tempering(self.shape) * part)
        steady = True
        for _ in range(epochs):
            drawn = torch.randperm(len(z), generator=generator)[:SAMPLE].to(z.device)
            steady &= self._epoch(steps, z[drawn], r[drawn], generator)
        with torch.no_grad():
            self._expect(noise)
        return steady

    def descend(self, optimiser: Optimiser, z: Tensor, r: Tensor, generator: Generator) -> float:
        """One epoch of training on the rows that are whole; `score` is what it is judged by."""
        self.steady = self._epoch(optimiser, z, r, generator)
        return math.nan

    def _epoch(self, steps: Optimiser, z: Tensor, r: Tensor, generator: Generator) -> bool:
        """Returns whether no step was left out."""
        whole = torch.isfinite(r).all(1)
        if not bool(whole.all()):
            z, r = z[whole], r[whole]
        if len(r):
            with training(self.features):
                steps.epoch(z, r, generator)
        return steps.healthy

    @torch.no_grad()
    def serve(self, z: Tensor, r: Tensor, weight: Tensor | None = None) -> None:
        """The regression again, from these rows and with features and noise as they are.

        κ of the regression is that of training, exp(mean_t log σ_t²), so that weights are N(0, I) where σ_t² is; in a
        mixture three times that.
        """
        noise, temper = self.head.noise, self.config.tempering(self.shape)
        kappa = float(ridge(noise))
        self.features.slope.fill_((kappa * temper) ** 0.5)  # a linear coefficient's prior counts for one row
        self.regression.begin(kappa * (STRONGER if len(self.mixture.times) > 1 else 1.0), noise=noise)
        self.learn(z, r, weight, together=True)

    def complete(self, z: Tensor, r: Tensor) -> None:
        self.learn(z, r, together=True)
        self.check()

    def served(self) -> Callable[[], None]:
        return holding({"regression": self.regression})

    def score(self) -> float:
        """Exact NLML a row learned, of a regression that is finite."""
        self.check()
        return self.nlml()

    @torch.no_grad()
    def add(self, phi: Tensor, r: Tensor) -> None:
        """Add rows of a stream to the regression, in the order of their arrival. phi: (N, d) their features."""
        self.regression.add(phi, r, r.new_ones(len(r)) / self.config.tempering(self.shape))

    @torch.no_grad()
    def learn(self, z: Tensor, r: Tensor, weight: Tensor | None = None, *, together: bool = False) -> None:
        """Add rows to the regression; see `RecursiveRegression.add`."""
        share = (r.new_ones(len(r)) if weight is None else weight) / self.config.tempering(self.shape)
        seen = torch.isfinite(r)
        apart = bool((seen.any(1) & ~seen.all(1)).any())  # then rows are learned in the light of those before
        if together and weight is None and not apart and self.config.form == "gram" and not self.regression.rows:
            self.summing(OnFeatures(self.features, self.regression), _absorb, (z, r, share), CHUNK)
            return
        for at in range(0, len(z), CHUNK):
            rows = slice(at, at + CHUNK)
            self.regression.add(self.features(z[rows]), r[rows], share[rows], together=together)

    @torch.no_grad()
    def compare(self, phi: Tensor, r: Tensor) -> None:
        """Take note of rows that are not learned yet: which prior forecasts best. phi: (N, d) their features."""
        if len(self.mixture.times) > 1:
            self.mixture.score(self.regression, phi, r)

    @property
    def forecasting(self) -> Served:
        """What forecasts are made with.

        Under one prior both variances are in proportion to s², which is unknown. Under a mixture a column's prior is no
        longer in proportion to its noise: the latent variance then is that of the kernel as it was trained, and the
        noise the mean of what the precisions find.
        """
        regression, shares = self.regression, self.mixture.shares
        version = (regression.version, float(self.mixture.rows))
        if self._served is None or self._served.version != version:
            noise = unit = regression.noise
            if len(shares) > 1:
                parts = [
                    share * regression.under(m).residual for m, share in zip(self.mixture.times, shares, strict=True)
                ]
                noise = (2.0 * regression.rate + torch.stack(parts).sum(0)) / (regression.freedom - 2.0)
                unit = self.head.noise.detach()
            self._served = Served(version, self.mixture.weights(regression), unit, noise)
        return self._served

    @torch.no_grad()
    def standing(self, z: Tensor) -> Standing:
        """What is forecast of some rows."""
        served = self.forecasting
        parts = [(phi @ served.weights, self.regression.leverage(phi)) for phi in map(self.features, z.split(CHUNK))]
        mean, leverage = (torch.cat(part) for part in zip(*parts, strict=True))
        return Standing(mean, leverage[:, None] * served.unit, served.noise)

    def nlml(self) -> float:
        """Exact negative log marginal likelihood a row learned, in nats, summed over columns, in standardised units."""
        rows = float(self.regression.rows)
        with torch.no_grad():
            return self.regression.nlml(self.head.noise) / rows if rows else float("nan")

    @property
    def finite(self) -> bool:
        """Whether all parameters are, and all that is predicted from them."""
        posterior = self.regression.posterior
        values = (*self.features.parameters(), *self.head.parameters(), posterior.weights, posterior.residual)
        return self.steady and all(bool(torch.isfinite(value).all()) for value in values)

    def check(self) -> None:
        """See that the rows learned can be predicted from.

        Raises:
            NumericalError: a factorisation failed, or something is not finite.
        """
        posterior = self.regression.posterior
        if not bool(torch.isfinite(posterior.weights).all() and torch.isfinite(posterior.residual).all()):
            raise NumericalError(
                "the regression on the features is not finite",
                hint="look for huge values in the inputs, or lower training.rate",
            )

    def takes(self, initial: Initial) -> None:
        """See that the kernel can start from these hyper-parameters.

        Raises:
            UsageError: it is another one, or not on the window itself.
        """
        kernel = self.config.on_latents
        if not self.radial:
            raise UsageError(
                "finite_rkhs takes hyper-parameters for Fourier features of the window itself, and this one has "
                f"encoder={choice.part_name(self.config.encoder)}, kernel={choice.part_name(kernel)}",
                hint="use encoder=identity with kernel=squared_exponential or matern, or leave out --init",
            )
        initial.radial("finite_rkhs", choice.part_name(kernel))


@torch.no_grad()
def _absorb(own: OnFeatures[FiniteFeatures, RecursiveRegression], z: Tensor, y: Tensor, weight: Tensor) -> None:
    """Standardised windows (N, W), targets (N, T) and weights (N,) into the sums."""
    own.regression.add(own.features(z), y, weight, together=True)
