"""The engines of solver=quadruple: quadruply stochastic steps on all rows of a batch, or on those kept of a stream.

A step's cost depends neither on rows nor on features (`streamgp.papers.qsgp.descent`, and of likelihoods that are not
Gaussian `streamgp.papers.qsgp.site_descent`); on a stream `steps` are taken for 512 new rows. What takes
O(m_touched) is a forecast, and a row that becomes a support row: at most n̄ of those that are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from streamgp.base import FLOAT, Shape
from streamgp.errors import UsageError
from streamgp.models.qsgp.config import QUADRUPLE, Config
from streamgp.models.qsgp.engine import Engine, EngineLook, TrainingRows
from streamgp.models.qsgp.features import Basis
from streamgp.models.qsgp.sites import GaussianSites, LaplaceSites, Sites

if TYPE_CHECKING:
    from streamgp.papers.qsgp.descent import QuadrupleDescent
    from streamgp.papers.qsgp.rows import SampledRows
    from streamgp.papers.qsgp.site_descent import SiteDescent

EPOCHS = 8
"""Over a batch."""
LAST = 0.05
"""Step size of the last step of a batch, relative to the first."""
ROWS = 512
"""New rows of a stream for which an epoch's steps are taken."""
CHUNK = 4096
"""Rows that are forecast at once."""
RATES = {"adagrad": 0.1, "preconditioned": None}
"""Step sizes; the first is the paper's, the second is that of `QuadrupleDescent.rate`."""
SITE_RATES = {"adagrad": 0.1, "preconditioned": 0.5}
"""The same of likelihoods that are not Gaussian."""
SUPPORT = 500
"""Rows whose residuals tell the scale of Laplace noise, and others' where there are no control variates."""
HYPER = 1e-3
"""Step size of the logarithms of hyper-parameters; the paper's 1e-5 is for 10⁵ steps."""
FARTHEST = 3.0
"""What steps may add to a logarithm: the bound is a mean-field one, whose maximum may be far from the evidence's."""
FEWER = 5
"""Steps of AdaGrad for one that is preconditioned: about what it takes longer."""


class DrawnEngine(Engine):
    """Steps on drawn rows and blocks.

    Args:
        basis: the features, and the kernel that they are of.
        sites: of the likelihood.
        descent: the steps.
        capacity: C, rows kept of a stream.
        steps: of an epoch, and for 512 new rows of a stream.
    """

    def __init__(
        self, basis: Basis, sites: Sites, descent: QuadrupleDescent | SiteDescent, capacity: int, steps: int
    ) -> None:
        super().__init__(basis, sites)
        self.steps, self.descent = steps, descent
        blank = torch.zeros(capacity, descent.columns, dtype=FLOAT)
        self.kept = self.descent.rows(torch.zeros(capacity, basis.kernel.dims, dtype=FLOAT), blank, blank[:, 0])

    @property
    def epochs(self) -> int:
        return EPOCHS

    @property
    def healthy(self) -> bool:
        return self.descent.healthy

    @property
    def current(self) -> TrainingRows:
        rows = self.kept
        return TrainingRows(rows, torch.where(rows.observed, rows.target, torch.nan), rows.weight)

    def mean(self, z: Tensor) -> Tensor:
        return self.see(z).mean

    def variance(self, z: Tensor) -> Tensor:
        return self.see(z).variance

    def see(self, z: Tensor) -> EngineLook:
        found = self.descent.image(z)
        return EngineLook(found.mean, found.variance[:, None], None)

    def training_rows(self, z: Tensor, y: Tensor, share: Tensor) -> TrainingRows:
        return TrainingRows(self.descent.rows(z, y, share), y, share)

    def epoch(self, training: TrainingRows, place: int, of: int) -> None:
        rows = cast("SampledRows", training.rows)
        for step in range(place * self.steps, (place + 1) * self.steps):
            self.descent.step(rows, LAST ** (step / (of * self.steps)))
        self.moved()
        out = (training.share == 0).nonzero()[:, 0]  # whose residuals estimate the noise
        for part in out.split(CHUNK):
            rows.residual[part] = rows.target[part] - self.mean(rows.x[part]).to(FLOAT)

    def learn(self, new: int) -> None:
        for _ in range(max(1, round(self.steps * new / ROWS))):
            self.descent.step(self.kept)
        self.moved()

    def moved(self) -> None:
        """Steps were taken."""

    def refresh_noise(self, training: TrainingRows, least: float) -> None:
        """By the residuals of the support rows: those of others are not known. Without any, by those of some rows."""
        rows = cast("SampledRows", training.rows)
        places = rows.held
        if len(places):
            known = rows.known[:, : self.descent.columns]
        elif type(self.sites).refresh_noise is Sites.refresh_noise or not len(rows.places()):
            return
        else:
            places = rows.places()[:: -(-len(rows.places()) // SUPPORT)]
            known = self.mean(rows.x[places]).to(FLOAT)
        error = torch.nan_to_num(training.y[places] - known)
        self.sites.refresh_noise(error, training.weight[places], least)

    def loss(self, training: TrainingRows) -> float:
        return self.descent.loss

    def keep(self, z: Tensor, y: Tensor, share: Tensor, places: Tensor, fitted: Tensor | None = None) -> None:
        self.descent.put(self.kept, places, z, y, share[places])
        self.kept.reweigh(share)

    def adopt(self, training: TrainingRows, places: Tensor, share: Tensor) -> None:
        rows = cast("SampledRows", training.rows)
        y = torch.where(rows.observed, rows.target, torch.nan)
        self.kept.replace(places, rows.x, y, share[places], torch.full_like(y, torch.nan))
        self.kept.reweigh(share)
        held = rows.support >= 0  # whose a is known
        self.kept.support.fill_(-1)
        self.kept.support[held] = places[rows.support[held]]
        self.kept.fit.copy_(rows.fit)

    def attach(self, z: Tensor) -> None:
        self.kept.attach(z)


class QuadrupleEngine(DrawnEngine):
    """Gaussian noise; arguments as of `DrawnEngine`.

    Attributes:
        base: (1 + P,) log σ² and the hyper-parameters as they were estimated.
        shift: (1 + P,) what steps have added to them since the first estimate (learn=elbo).
    """

    descent: QuadrupleDescent

    def __init__(self, basis: Basis, sites: Sites, descent: QuadrupleDescent, capacity: int, steps: int) -> None:
        super().__init__(basis, sites, descent, capacity, steps)
        self.base: Tensor
        self.shift: Tensor
        self.register_buffer("base", self._logs())
        self.register_buffer("shift", torch.zeros_like(self.base))

    def begin(self, noise: Tensor, y: Tensor) -> None:
        if self.descent.options.hyper:
            noise = self._shifted(noise)
        system = self.sites.begin(noise, y)
        self.base[:1] += (system / noise).log()  # tempering is no part of what is learned
        self.basis.scale.copy_(system.sqrt())
        self.descent.begin(system)

    def _logs(self) -> Tensor:
        """(1 + P,) log σ² of the system, and the hyper-parameters, which are logarithms."""
        noise = self.descent.noise.log().mean().reshape(1)
        return torch.cat((noise, *(p.detach().flatten() for p in self.descent.features.parameters())))

    def _shifted(self, noise: Tensor) -> Tensor:
        """Move hyper-parameters that were estimated by what steps have learned since; returns σ² as moved. noise: ()"""
        flat = torch.cat([p.detach().flatten() for p in self.descent.features.parameters()])
        self.base.copy_(torch.cat((noise.log().reshape(1), flat)))
        moved = (flat + self.shift[1:]).split([p.numel() for p in self.descent.features.parameters()])
        for parameter, value in zip(self.descent.features.parameters(), moved, strict=True):
            parameter.copy_(value.view_as(parameter))
        return noise * self.shift[0].exp()

    def moved(self) -> None:
        """Note how far steps have moved the hyper-parameters."""
        if self.descent.options.hyper:
            self.shift.copy_((self._logs() - self.base).clamp(-FARTHEST, FARTHEST))


class SiteEngine(DrawnEngine):
    """Another log-concave likelihood; arguments as of `DrawnEngine`, and its tempering."""

    descent: SiteDescent

    def __init__(
        self, basis: Basis, sites: Sites, descent: SiteDescent, capacity: int, steps: int, temper: float
    ) -> None:
        super().__init__(basis, sites, descent, capacity, steps)
        self.temper = temper

    @property
    def averaged(self) -> bool:
        return True

    def begin(self, noise: Tensor, y: Tensor) -> None:
        self.basis.scale.copy_(self.sites.begin(noise, y).sqrt())
        self.descent.begin()


def quadruple_engine(config: Config, shape: Shape, basis: Basis, sites: Sites) -> Engine:
    """The engine of solver=quadruple.

    Raises:
        UsageError: there are more dense columns than functions.
    """
    from streamgp.papers.qsgp.steps import SiteSteps, StepOptions

    gaussian = isinstance(sites, GaussianSites)
    optimiser = config.optimiser
    if optimiser == "auto":
        optimiser = "adagrad" if config.learn == "elbo" else "preconditioned"
    named = config.steps or QUADRUPLE
    steps = named if optimiser == "adagrad" else max(named // FEWER, 1)
    columns = config.columns if config.covariance == "chevron" else 0
    if columns > basis.size:
        raise UsageError(f"columns={columns} is more than the {basis.size} functions", hint="lower columns")
    if gaussian:
        from streamgp.papers.qsgp.descent import QuadrupleDescent

        hyper = HYPER if config.learn == "elbo" else 0.0
        rate, support = config.rate or RATES[optimiser], config.control_variates
        options = StepOptions(optimiser, rate, config.batch, support, columns, hyper, augment=config.augment)
        dtype = FLOAT if config.placed else torch.float32  # S of smooth kernels is nearly singular
        descent = QuadrupleDescent(basis, shape.columns, options, config.seed, dtype)
        return QuadrupleEngine(basis, sites, descent, config.reservoir, steps)
    from streamgp.papers.qsgp.site_descent import SiteDescent

    temper = config.tempering(shape)
    own = SiteSteps(
        optimiser,
        config.rate or SITE_RATES[optimiser],
        config.batch,
        config.cells,
        columns,
        config.form,
        support=SUPPORT if isinstance(sites, LaplaceSites) else 0,
        temper=temper,
    )
    made = SiteDescent(basis, shape.columns, expectation(sites), own, config.seed)
    return SiteEngine(basis, sites, made, config.reservoir, steps, temper)


def expectation(sites: Sites) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """E log p(y | f) of a likelihood that is not Gaussian, as `streamgp.papers.qsgp.site_descent` takes it."""
    from streamgp.papers.qsgp import site_bounds

    if isinstance(sites, LaplaceSites):
        return lambda y, mean, variance: site_bounds.laplace(y, mean, variance, sites.level())
    return lambda y, mean, variance: site_bounds.logistic(y, mean + sites.offset, variance)
