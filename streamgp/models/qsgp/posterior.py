"""QSGP's inference: hyper-parameters by evidence, and an engine that learns standardised rows under them.

An update takes the residuals of the new rows that the memory keeps, and visits the first block and others whose turn
it is (`engine`). Forgetting changes nothing but the weights of the kept rows. A rebuild estimates hyper-parameters,
keeps the frequencies, and sweeps over all blocks from zero.

In batch every sweep over all blocks is an epoch. Where windows do not overlap some rows are held out to estimate the
noise, as a large basis leaves too little of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Generator, Tensor

from streamgp import choice
from streamgp.base import FLOAT, Predictive, Shape
from streamgp.errors import NumericalError, UsageError
from streamgp.evidence.initial import Initial
from streamgp.evidence.search import Search, SearchState, thinned
from streamgp.evidence.thinned import FLOOR, noises
from streamgp.likelihoods import Likelihood, gaussian
from streamgp.likelihoods.laplace import Laplace
from streamgp.likelihoods.logistic import Logistic
from streamgp.models._evidence import way_of
from streamgp.models.qsgp.blocks import BlockEngine
from streamgp.models.qsgp.config import MANY, STEPS, Config
from streamgp.models.qsgp.engine import Engine, TrainingRows
from streamgp.models.qsgp.features import AUTO, basis, candidates
from streamgp.models.qsgp.head import Head
from streamgp.models.qsgp.hyper import accept, height, way
from streamgp.models.qsgp.quadruple import quadruple_engine
from streamgp.models.qsgp.sites import ENOUGH, RECENT, GaussianSites, LaplaceSites, LogisticSites, Sites
from streamgp.models.qsgp.steps import StepsEngine
from streamgp.online.inputs import KernelInputs
from streamgp.online.posterior import Arrival, LearnedFunction, Look, Posterior, Rows, Units, tied
from streamgp.online.summing import Summing, running
from streamgp.regression.block_solver import BlockSolver
from streamgp.state import Declared, Nested, Value

SWEEPS = 12
"""Visits to every block at a rebuild, at most: they end when the means are settled."""
NATS = 1e-4
"""Nats a row; a sweep that gains less is the last."""

HELD, MOST = 20, 1000
"""One row in HELD is held out in batch, at most MOST of them."""
LATENT = 200
"""Held-out rows whose latent variance is computed."""


class QsgpPosterior(Declared, Posterior):
    """See the module; built by `streamgp.models.qsgp.build`.

    Args:
        config: of the model.
        shape: of the windows.

    Attributes:
        known: (T,) rows learned, after forgetting.
        objective: () −ELBO a row and column after the last update or epoch.
        epochs: of the batch fit so far.
        stale: whether the memory keeps rows that the engine does not have yet, as after a batch fit.

    Raises:
        UsageError: outcomes are to be learned as a change or a departure, or see `engine_of`.
    """

    STATE = (
        Nested("engine", "known", "objective"),
        SearchState("search"),
        Value("engine.turn", int, key="turn"),
        Value("epochs", int),
        Value("stale", bool),
    )
    NOT_STATE: ClassVar[Mapping[str, str]] = {"_fit": "rows of the fit that is going on, made again"}

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        if config.outcomes and config.target not in ("auto", "level"):
            raise UsageError(
                f"target={config.target} has no meaning for likelihood=logistic: outcomes have no unit",
                hint="leave out --set target: past outcomes are among the lags",
            )
        likelihood: Likelihood = choice.build("likelihoods", config.likelihood, shape.columns)
        self._check = likelihood.check
        inputs = KernelInputs(shape)
        self.config, self.shape = config, shape
        self.engine: Engine = engine_of(config, shape, len(inputs.groups), likelihood)
        self.family = self.engine.sites.family
        self.units = not config.outcomes
        self.robust = not isinstance(config.likelihood, gaussian.Config)
        self.known: Tensor
        self.objective: Tensor
        self.register_buffer("known", torch.zeros(shape.columns, dtype=FLOAT))
        self.register_buffer("objective", torch.full((), math.nan, dtype=FLOAT))
        slowly = bool(shape.lags) and not config.outcomes
        found_by = way_of(config, self.engine.kernel, way(self.engine.kernel, outcomes=config.outcomes, slowly=slowly))
        self.search = Search(inputs.count, config.learn != "rebuild", found_by)
        self.epochs = 0
        self.stale = False
        self._fit: tuple[Rows, TrainingRows] | None = None  # of the fit that is going on

    @property
    def shares_rows(self) -> bool:
        """The Gram matrix of all functions, where there is one: it takes most of the time."""
        return self.engine.whole

    @property
    def size(self) -> int:
        return self.engine.basis.size

    @property
    def weight(self) -> Tensor:
        return self.known

    @property
    def healthy(self) -> bool:
        return self.engine.healthy

    @property
    def signal(self) -> float | None:
        return self.search.signal if self.search.found and self.units else None

    def learned(self, groups: Tensor) -> LearnedFunction:
        """The kernel that the features are drawn from, and the linear part before them."""
        kernel, basis, groups = self.engine.kernel, self.engine.basis, groups.cpu()
        first = torch.stack([(groups == g).nonzero()[0, 0] for g in range(int(groups.max()) + 1)])
        half = 0.5 * torch.bincount(groups).log().to(kernel.log_lengthscale)
        length = kernel.log_lengthscale[first.to(half.device)] - half
        own = tied(kernel.configs[int(kernel.index)], groups, length, kernel.log_outputscale)
        noise, slopes = self.search.hyper.noise.exp(), basis.scale.square() if basis.extra else None
        sites = self.engine.sites
        if self.engine.apart and self.search.found:
            assert isinstance(sites, GaussianSites)
            noise = sites.system / sites.temper
        noise = noise.expand(self.shape.columns)
        return LearnedFunction(own, noise if self.units else torch.zeros_like(noise), slopes=slopes)

    def look(self, z: Tensor) -> Look:
        seen = self.engine.see(z)
        return Look(z, seen.phi, seen.mean, seen.variance, self.engine.sites.level())

    def covariance(self, z: Tensor) -> Tensor | None:
        return self.engine.covariance(z)

    def predictive(self, look: Look) -> Predictive:
        return self.engine.sites.predictive(look.mean, look.latent.expand_as(look.mean))

    def absorb(self, look: Look, arrival: Arrival) -> str:
        """New rows: all into the sums of the head, and those that the memory keeps into the engine's rows."""
        y, sites, self._fit = arrival.y, self.engine.sites, None
        if self.shape.horizon == 1:
            sites.update_noise(y - look.mean - sites.offset, look.latent, math.exp(-len(y) / RECENT))
        self.known.mul_(arrival.kept).add_(torch.isfinite(y).sum(0))
        if self.stale:
            rows = arrival.memory()
            self.engine.keep(rows.z, rows.y, arrival.shares(), rows.places)
            self._sum_up(rows.z, rows.y, rows.weight, running)
            self.stale = False
        else:
            came, fitted = arrival.rows, look.mean[arrival.rows]
            self.engine.accumulate(look.z, y, y.new_ones(len(y)), arrival.kept, look.features)
            self.engine.keep(look.z[came], y[came], arrival.shares(), arrival.places, fitted)
        self.engine.learn(len(y))
        self._refresh(self.engine.current)
        return ""

    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        self._fit = None
        self._begin(rows, units, generator)
        training = self.engine.training_rows(rows.z, rows.y, rows.weight)
        self._sum_up(rows.z, rows.y, rows.weight, running)
        for place in range(SWEEPS):
            self.engine.epoch(training, place, SWEEPS)
            if self.engine.converged:
                break
            if self.engine.outdated and self.engine.sites.varies:
                self._sum_up(rows.z, rows.y, rows.weight, running)
        self._refresh(training)
        share = rows.weight.new_zeros(self.config.reservoir)
        share[rows.places] = rows.weight
        self.engine.adopt(training, rows.places, share)
        self.stale = False
        return ""

    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        if first:
            self._begin(rows, units, generator)
            self.epochs, self.stale = 0, True
            self.objective.fill_(math.inf)
        training = self._training_rows(rows)
        self.engine.epoch(training, self.epochs, self.epochs + left)
        self.epochs += 1
        if self.engine.outdated:
            self._sum_up(rows.z, rows.y, training.share, self.summing)
        before = float(self.objective)
        self._refresh(training)
        noise_by_held_out(self.engine, training)
        more = abs(before - float(self.objective)) >= NATS or not self.engine.converged
        if not more or left == 1:
            self._fit = None
        return more

    def begin_afresh(self) -> None:
        self.search.forget()

    def checked(self, rows: int) -> bool:
        return not self.robust

    def epochs_for(self, rows: int) -> int:
        return self.engine.epochs

    def loss(self) -> float:
        return float(self.objective)

    def check(self, y: Tensor, names: Sequence[str]) -> None:
        self._check(y, tuple(names))

    def start_from(self, initial: Initial) -> None:
        accept(initial, self.config, self.engine.kernel)
        self.search.initial = initial

    def snapshot(self) -> Callable[[], None]:
        """As of every posterior; of very many features only what learning changes is copied, as it changes.

        Raises:
            NumericalError: (the result) there are very many features, and the solver does not say what it changes.
        """
        engine = self.engine
        if engine.basis.inner.capacity <= MANY:
            return super().snapshot()
        if not isinstance(engine, StepsEngine):

            def refuse() -> None:
                raise NumericalError(
                    f"an update failed, and with more than {MANY:,} features it cannot be undone",
                    hint="start again from the last checkpoint, with fewer features",
                )

            return refuse
        weights_back, (tensors, rest) = engine.snapshot(), self.state()
        copies = {name: tensor.clone() for name, tensor in tensors.items() if name != f"engine.{engine.large}"}

        def put_back() -> None:
            weights_back()
            self.restore(self.state()[0] | copies, rest)

        return put_back

    def restored(self) -> None:
        self._fit = None

    def attach(self, z: Tensor, places: Tensor) -> None:
        whole = z.new_zeros(self.config.reservoir, z.shape[1])  # where no row has been, what is computed is that of 0
        whole[places] = z
        self.engine.attach(whole)

    def _training_rows(self, rows: Rows) -> TrainingRows:
        """The rows of a batch fit in the form of the engine; some are held out where they estimate the noise."""
        if self._fit is None or self._fit[0] is not rows:
            sites = self.engine.sites if self.shape.horizon == 1 else None
            share = shares(len(rows.y), sites, self.config.seed).to(rows.y.device)
            training = self.engine.training_rows(rows.z, rows.y, share)
            if not enough(training):
                share = torch.ones_like(share)
                training = self.engine.training_rows(rows.z, rows.y, share)
            if self.engine.summed:
                self._sum_up(rows.z, rows.y, share, self.summing)
            self._fit = rows, training
        return self._fit[1]

    def _refresh(self, training: TrainingRows) -> None:
        """The noise and the objective from the residuals of these rows.

        With one step ahead the noise is at least that by evidence: no tempering guards against overfitting.
        """
        least = float(self.search.hyper.noise.exp()) if self.shape.horizon == 1 else 0.0
        self.engine.refresh_noise(training, least)
        self.objective.fill_(self.engine.loss(training))

    def _sum_up(self, z: Tensor, target: Tensor, share: Tensor, summing: Summing) -> None:
        """The sums of the head; of at most as many rows as the reservoir has, unless the head is the whole basis."""
        if len(z) > self.config.reservoir and not self.engine.whole:
            some = torch.linspace(0, len(z) - 1, self.config.reservoir, device=z.device).round().long()
            z, target, share = z[some], target[some], share[some] * (share.sum() / share[some].sum())
        self.engine.sum_up(z, target, share, summing)

    def _begin(self, rows: Rows, units: Units, generator: Generator) -> None:
        """New hyper-parameters; what was learned is forgotten."""
        kernel, config, again = self.engine.kernel, self.config, self.search.found
        self.known.copy_((rows.weight[:, None] * torch.isfinite(rows.y)).sum(0))
        self.engine.sites.rescale(units.before / units.outputs)
        thin = thinned(len(rows.y), self.shape.horizon, config.thin(config.thinned(self.shape)), rows.z.device)
        y = 2.0 * rows.filled[thin] - 1.0 if config.outcomes else rows.filled[thin]
        hyper = self.search.run(rows.z[thin], y, units.groups, units.inputs, units.outputs, kernel.profile)
        logit = float(kernel.log_outputscale.exp()) if config.outcomes and again else None
        kernel.log_lengthscale.copy_(-units.inverse(hyper.lengthscale).log())
        kernel.log_outputscale.copy_(hyper.outputscale)
        noise = own = hyper.noise.exp()
        if self.engine.apart:
            z, least = rows.z[thin], 0.0 if self.shape.lags else FLOOR
            own = noises(z, y, units.groups, hyper, self.shape.outputs, profile=kernel.profile, least=least)
        if config.outcomes and (config.learn == "rebuild" or not again):
            found = height(self.engine, rows.z, rows.y, rows.weight, noise, logit, late=bool(self.shape.lags))
            kernel.log_outputscale.fill_(found).log_()
        elif logit is not None:
            kernel.log_outputscale.fill_(logit).log_()
        self.engine.place(rows.z, rows.weight, generator)
        self.engine.begin(own, rows.y)


def sites_of(likelihood: Likelihood, temper: float, newton: bool = False, apart: bool = False) -> Sites:
    """The sites of a likelihood; newton: with Newton's steps where there are any; apart: Gaussian noise of each column
    is its own."""
    if isinstance(likelihood, Logistic):
        return LogisticSites(likelihood, newton)
    if isinstance(likelihood, Laplace):
        return LaplaceSites(likelihood)
    return GaussianSites(likelihood.columns, temper, apart)


def engine_of(config: Config, shape: Shape, width: int, likelihood: Likelihood) -> Engine:
    """The engine for windows of `width` columns.

    Raises:
        UsageError: the features cannot be made of the kernel, the kernel is no function of one distance, or the linear
            part that is wanted is larger than a block.
    """
    offered = AUTO[:1] if shape.lags else AUTO  # few windows of a stream are independent: too few to choose by
    kernel = candidates(offered if config.kernel is None else (config.kernel,), width)
    quadruple = config.solver == "quadruple"
    linear = quadruple or not config.by_steps if config.linear == "auto" else config.linear
    base = basis(config.basis(shape), kernel, linear, config.seed)
    if config.linear is True and not base.extra:
        raise UsageError(
            f"linear=true: a window has {width} columns, more than a block of {base.inner.width} functions",
            hint=f"set features.width to {width} or more, or leave out linear",
        )
    temper = config.tempering(shape)
    if quadruple:
        return quadruple_engine(config, shape, base, sites_of(likelihood, temper))
    if config.by_steps:
        sites = GaussianSites(shape.columns, temper)
        return StepsEngine(base, shape.columns, sites, config.reservoir, config.steps or STEPS, config.seed)
    family = config.family
    apart = shape.outputs > 1 and isinstance(config.likelihood, gaussian.Config)
    solver, head = BlockSolver(base, shape.columns), Head(base, family == "exact", shape.columns if apart else 0)
    own = sites_of(likelihood, temper, head.whole, apart)
    return BlockEngine(solver, base, head, own, config.reservoir, temper, point=family == "none")


def shares(rows: int, sites: Sites | None, seed: int) -> Tensor:
    """(N,) weights: 1, and 0 for rows that are held out; none of them without sites.

    None is held out where the noise does not depend on them: with a likelihood without noise, or with fewer rows than
    `ENOUGH`.
    """
    share, held = torch.ones(rows, dtype=FLOAT), min(rows // HELD, MOST)
    if sites is not None and type(sites).update_noise is not Sites.update_noise and held >= ENOUGH:
        share[torch.randperm(rows, generator=torch.Generator().manual_seed(seed))[:held]] = 0.0
    return share


def enough(training: TrainingRows) -> bool:
    """Whether none is held out, or enough of the rows that the engine uses: some use few."""
    count = int((training.share == 0).sum())
    return not count or count >= ENOUGH


def noise_by_held_out(engine: Engine, training: TrainingRows) -> None:
    """Estimate the noise by the rows that are held out, if any."""
    held = training.share == 0
    if bool(held.any()):
        error = (training.y - training.fitted)[held]
        latent = engine.variance(training.x[held][:LATENT]).mean(0).to(FLOAT)
        engine.sites.update_noise(error, latent.expand(len(error), -1), 0.0)
