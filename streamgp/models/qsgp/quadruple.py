"""The engine of solver=quadruple: quadruply stochastic steps on all rows of a batch, or on those kept of a stream.

A step's cost depends neither on rows nor on features (`streamgp.papers.qsgp.descent`); on a stream so many steps are
taken for every new row. What takes O(m_touched) is a forecast, and a row that becomes a support row of the control
variates: at most n̄ of those that are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from streamgp.base import FLOAT, Shape
from streamgp.likelihoods import Likelihood
from streamgp.models.qsgp.config import QUADRUPLE, Config
from streamgp.models.qsgp.engine import Engine, Seen, TrainingRows
from streamgp.models.qsgp.features import Basis
from streamgp.models.qsgp.sites import GaussianSites

if TYPE_CHECKING:
    from streamgp.papers.qsgp.rows import SampledRows
    from streamgp.papers.qsgp.steps import Steps

EPOCHS = 8
"""Over a batch."""
LAST = 0.05
"""Step size of the last step of a batch, relative to the first."""
ROWS = 512
"""New rows of a stream for which an epoch's steps are taken."""
CHUNK = 4096
"""Rows that are forecast at once."""
RATES = {"adagrad": 0.1, "preconditioned": 0.2}
"""Step sizes; the first is the paper's."""
HYPER = 1e-3
"""Step size of the logarithms of hyper-parameters; the paper's 1e-5 is for 10⁵ steps."""
FARTHEST = 3.0
"""What steps may add to a logarithm: the bound is a mean-field one, whose maximum may be far from the evidence's."""
FEWER = 5
"""Steps of AdaGrad for one that is preconditioned: about what it takes longer."""


class QuadrupleEngine(Engine):
    """Gaussian noise.

    Args:
        capacity: C, rows kept of a stream.
        steps: of an epoch, and for 512 new rows of a stream.
        options: of every step.
        seed: of the draws.

    Attributes:
        base: (1 + P,) log σ² and the hyper-parameters as they were estimated.
        shift: (1 + P,) what steps have added to them since the first estimate (learn=elbo).
    """

    def __init__(
        self, basis: Basis, columns: int, sites: GaussianSites, capacity: int, steps: int, options: Steps, seed: int
    ) -> None:
        from streamgp.papers.qsgp.descent import QuadrupleDescent

        super().__init__(basis, sites)
        self.steps = steps
        self.descent = QuadrupleDescent(basis, columns, options, seed)
        self.base: Tensor
        self.shift: Tensor
        self.register_buffer("base", self._logs())
        self.register_buffer("shift", torch.zeros_like(self.base))
        blank = torch.zeros(capacity, columns, dtype=FLOAT)
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

    def see(self, z: Tensor) -> Seen:
        found = self.descent.image(z)
        return Seen(found.mean, found.variance, None)

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

    def training_rows(self, z: Tensor, y: Tensor, share: Tensor) -> TrainingRows:
        return TrainingRows(self.descent.rows(z, y, share), y, share)

    def epoch(self, training: TrainingRows, place: int, of: int) -> None:
        rows = cast("SampledRows", training.rows)
        for step in range(place * self.steps, (place + 1) * self.steps):
            self.descent.step(rows, LAST ** (step / (of * self.steps)))
        self._moved()
        out = (training.share == 0).nonzero()[:, 0]  # whose residuals estimate the noise
        for part in out.split(CHUNK):
            rows.residual[part] = rows.target[part] - self.mean(rows.x[part]).to(FLOAT)

    def learn(self, new: int) -> None:
        for _ in range(max(1, round(self.steps * new / ROWS))):
            self.descent.step(self.kept)
        self._moved()

    def _moved(self) -> None:
        """Note how far steps have moved the hyper-parameters."""
        if self.descent.options.hyper:
            self.shift.copy_((self._logs() - self.base).clamp(-FARTHEST, FARTHEST))

    def refresh_noise(self, training: TrainingRows, least: float) -> None:
        """By the residuals of the support rows: those of others are not known."""
        rows = cast("SampledRows", training.rows)
        places = rows.held
        error = torch.nan_to_num(training.y[places] - rows.known[:, : self.descent.columns])
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


def quadruple_engine(config: Config, shape: Shape, basis: Basis, likelihood: Likelihood) -> Engine:
    """The engine of solver=quadruple."""
    from streamgp.papers.qsgp.steps import Steps

    options = Steps(
        optimiser=config.optimiser,
        rate=config.rate or RATES[config.optimiser],
        batch=config.batch,
        support=config.control_variates,
        columns=config.columns if config.covariance == "chevron" else 0,
        hyper=HYPER if config.learn == "elbo" else 0.0,
    )
    sites = GaussianSites(shape.columns, config.tempering(shape))
    named = config.steps or QUADRUPLE
    steps = named if config.optimiser == "adagrad" else max(named // FEWER, 1)
    return QuadrupleEngine(basis, shape.columns, sites, config.reservoir, steps, options, config.seed)
