"""The parts of a QSGP, from its Config."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from streamgp.base import Shape
from streamgp.errors import UsageError
from streamgp.likelihoods import Likelihood, gaussian
from streamgp.likelihoods.laplace import Laplace
from streamgp.likelihoods.logistic import Logistic
from streamgp.models.qsgp.blocks import BlockEngine
from streamgp.models.qsgp.config import Config
from streamgp.models.qsgp.covariance import (
    BlocksCovariance,
    ChevronCovariance,
    Covariance,
    DiagonalCovariance,
    HeadCovariance,
    NoCovariance,
)
from streamgp.models.qsgp.engine import Engine
from streamgp.models.qsgp.features import Basis, basis
from streamgp.models.qsgp.head import Head
from streamgp.models.qsgp.kernel import AUTO, candidates
from streamgp.models.qsgp.sites import GaussianSites, LaplaceSites, LogisticSites, WorkingSites
from streamgp.models.qsgp.steps import DescentEngine, LikelihoodSites, SitesEngine
from streamgp.optim.block_solver import BlockSolver

Build: TypeAlias = Callable[[BlockSolver, Basis, Head], Covariance]

FAMILIES: dict[str, Build] = {
    "exact": HeadCovariance,
    "none": NoCovariance,
    "head": HeadCovariance,
    "diagonal": DiagonalCovariance,
    "block": BlocksCovariance,
}


def sites_of(likelihood: Likelihood, temper: float, newton: bool = False) -> WorkingSites:
    """The sites of a likelihood; newton: with Newton's steps where there are any."""
    if isinstance(likelihood, Logistic):
        return LogisticSites(likelihood, newton)
    if isinstance(likelihood, Laplace):
        return LaplaceSites(likelihood)
    return GaussianSites(likelihood.columns, temper)


def covariance_of(config: Config, shape: Shape, solver: BlockSolver, base: Basis, head: Head) -> Covariance:
    """The family that a Config names."""
    name = config.family(shape)
    if name == "chevron":
        return ChevronCovariance(solver, base, head, config.columns)
    return FAMILIES[name](solver, base, head)


def engine_of(config: Config, shape: Shape, width: int, likelihood: Likelihood) -> Engine:
    """The engine for windows of `width` columns.

    Raises:
        UsageError: the features cannot be made of the kernel, the kernel is no function of one distance, or the linear
            part that is wanted is larger than a block.
    """
    offered = AUTO[:1] if shape.lags else AUTO  # few windows of a stream are independent: too few to choose by
    kernel = candidates(offered if config.kernel is None else (config.kernel,), width)
    linear = not config.by_steps if config.linear == "auto" else config.linear
    base = basis(config.basis(shape), kernel, linear)
    if config.linear is True and not base.extra:
        raise UsageError(
            f"linear=true: a window has {width} columns, more than a block of {base.inner.width} functions",
            hint=f"set features.width to {width} or more, or leave out linear",
        )
    temper = config.tempering(shape)
    if config.by_steps:
        if isinstance(config.likelihood, gaussian.Config):
            sites = GaussianSites(shape.columns, temper)
            return DescentEngine(base, shape.columns, sites, config.stochastic, config.reservoir, config.steps)
        general = LikelihoodSites(likelihood)
        return SitesEngine(base, general, config.sites, config.reservoir, config.steps, temper)
    whole = config.family(shape) == "exact"
    solver, head = BlockSolver(base, shape.columns), Head(base, whole)
    covariance = covariance_of(config, shape, solver, base, head)
    own = sites_of(likelihood, temper, newton=whole)
    return BlockEngine(solver, base, head, covariance, own, config.reservoir, temper, config.visits)
