"""What a QSGP needs of whatever learns its standardised rows.

Shapes: R rows, W columns of an input, T target columns, B new rows, C rows kept of a stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from streamgp.features.inducing import Inducing
from streamgp.models.qsgp.features import Basis, Candidates
from streamgp.models.qsgp.sites import Sites
from streamgp.online.summing import Summing
from streamgp.regression.block_rows import BlockRows


class TrainingRows:
    """Rows to learn: in the form of the solver, their targets, and their weights.

    Attributes:
        rows: the solver's.
        y: (R, T), NaN = not observed.
        share: (R,), 0 where a row is held out.
    """

    def __init__(self, rows: BlockRows, y: Tensor, share: Tensor) -> None:
        self.rows, self.y, self.share = rows, y, share

    @property
    def x(self) -> Tensor:
        """(R, W)"""
        return self.rows.x

    @property
    def fitted(self) -> Tensor:
        """(R, T) Φμ."""
        return self.rows.fitted

    @property
    def weight(self) -> Tensor:
        """(R, T) share where observed."""
        return self.share[:, None] * torch.isfinite(self.y)


class EngineLook(NamedTuple):
    """Inputs as an engine sees them: computed once, used to forecast and to learn.

    Attributes:
        mean: (N, T) Φμ, without the offset of the likelihood.
        variance: (N, 1) or (N, T) latent.
        phi: (N, k) features of all functions; None where they are computed block by block.
    """

    mean: Tensor
    variance: Tensor
    phi: Tensor | None


class Engine(nn.Module, ABC):
    """Means and one covariance of T columns on a basis. Its buffers are its state, but for the kept rows' inputs.

    Args:
        basis: the features, and the kernel that they are of.
        sites: of the likelihood; its `predictive` takes what `mean` and `variance` return.

    Attributes:
        turn: the block whose turn is next, where they have turns.
        temper: likelihood tempering: rows of a stream enter with weight 1/temper, where it is not in the noise.
    """

    temper: float = 1.0

    def __init__(self, basis: Basis, sites: Sites) -> None:
        super().__init__()
        self.basis, self.sites = basis, sites
        self.turn = 1

    @property
    def kernel(self) -> Candidates:
        """The kernel of the basis."""
        assert isinstance(self.basis.kernel, Candidates)
        return self.basis.kernel

    @property
    @abstractmethod
    def epochs(self) -> int:
        """That a batch takes."""

    @property
    def trial(self) -> int:
        """Epochs that show which of two hyper-parameters is the better one."""
        return 1

    @property
    def apart(self) -> bool:
        """Whether columns have a noise each in what is learned."""
        return False

    @property
    @abstractmethod
    def healthy(self) -> bool:
        """Whether all means are finite."""

    @property
    def converged(self) -> bool:
        """Whether the last epoch left nothing to do, as far as the engine knows."""
        return True

    @property
    def summed(self) -> bool:
        """Whether predictions are made from sums over rows, `accumulate`."""
        return False

    @property
    def outdated(self) -> bool:
        """Whether these sums are of another curvature of the likelihood than that at the present means."""
        sites = self.sites
        varied = not self.converged if sites.newton else sites.varies or not sites.lasting
        return self.summed and varied

    @property
    def whole(self) -> bool:
        """Whether these sums are of all features."""
        return False

    @property
    def averaged(self) -> bool:
        """Whether probabilities of outcomes are averaged over the posterior; else they are those at a point."""
        return self.whole

    @abstractmethod
    def mean(self, z: Tensor) -> Tensor:
        """(N, W) -> (N, T), without the offset of the likelihood, in the dtype of z."""

    @abstractmethod
    def variance(self, z: Tensor) -> Tensor:
        """(N, W) -> (N, 1), or (N, T) of columns with a noise each: latent, in the dtype of z."""

    def covariance(self, z: Tensor) -> Tensor | None:
        """(N, W) -> (1, N, N), or (T, N, N) of columns with a noise each, of the function; None where the engine knows
        no more than its diagonal."""
        return None

    def see(self, z: Tensor) -> EngineLook:
        """Mean and variance of inputs (N, W), and what they were computed from."""
        return EngineLook(self.mean(z), self.variance(z), None)

    def place(self, z: Tensor, weight: Tensor, generator: Generator) -> None:
        """Put functions of the basis on some of these rows, where they stand on rows: what was learned is void.

        Args:
            z: (R, W)
            weight: (R,) rows that each stands for.
            generator: of the draws.
        """
        if isinstance(self.basis.inner, Inducing):
            some = weight.nonzero()[:, 0]
            order = torch.randperm(len(some), generator=generator).to(some.device)
            self.basis.inner.place(z[some[order]])

    @abstractmethod
    def begin(self, noise: Tensor, y: Tensor) -> None:
        """Forget what was learned, under new hyper-parameters.

        Args:
            noise: () σ² by evidence, or (T,) where columns are `apart`.
            y: (N, T) targets to come.
        """

    @abstractmethod
    def training_rows(self, z: Tensor, y: Tensor, share: Tensor) -> TrainingRows:
        """Rows to learn in batch. z: (R, W), y: (R, T), NaN = not observed, share: (R,)."""

    @abstractmethod
    def epoch(self, training: TrainingRows, place: int, of: int) -> None:
        """Learn a batch for the `place`-th of `of` epochs, counted from 0."""

    @abstractmethod
    def refresh_noise(self, training: TrainingRows, least: float) -> None:
        """The noise and what else depends on how well these rows are now explained. least: of the noise."""

    @abstractmethod
    def loss(self, training: TrainingRows) -> float:
        """−ELBO a row and column."""

    @property
    @abstractmethod
    def current(self) -> TrainingRows:
        """The rows that are kept of a stream."""

    @abstractmethod
    def keep(self, z: Tensor, y: Tensor, share: Tensor, places: Tensor, fitted: Tensor | None = None) -> None:
        """Take these for the kept rows at `places`.

        Args:
            z: (B, W), of any dtype.
            y: (B, T), NaN = not observed.
            share: (C,) of all places, 0 where there is none.
            fitted: (B, T) Φμ, for an engine that keeps residuals; computed where it is not given.
        """

    def adopt(self, training: TrainingRows, places: Tensor, share: Tensor) -> None:
        """The rows of a batch as those that are kept, and no others. places: (R,), share: (C,)"""
        rows = training.rows  # all of them: `training` may hold a few
        self.keep(rows.x, torch.where(rows.observed, rows.target, torch.nan), share, places)

    @abstractmethod
    def learn(self, new: int) -> None:
        """Learn from the kept rows, of which `new` are new."""

    def accumulate(self, z: Tensor, y: Tensor, share: Tensor, kept: float, phi: Tensor | None = None) -> None:
        """Add rows to sums over all rows, after scaling those by `kept`.

        Args:
            z: (B, W)
            y: (B, T), NaN = not observed.
            share: (B,)
            kept: part of the sums that is not forgotten.
            phi: (B, k) their features by `see`; computed where they are not given.
        """

    def sum_up(self, z: Tensor, y: Tensor, share: Tensor, summing: Summing) -> None:
        """The sums of these rows and no others, which `summing` makes; arguments as of `accumulate`."""

    @abstractmethod
    def attach(self, z: Tensor) -> None:
        """The inputs of the kept rows, which are no part of the state. z: (C, W)."""
