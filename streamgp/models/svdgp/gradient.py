"""SVDGP by stochastic gradients: for likelihoods without closed forms, and on an encoder that is trained.

Algorithm 1 of Cheng & Boots 2017, with what a stream needs beside it: older rows are replayed (a batch of a stream is
not a sample of all rows), a stated N, places given to new points when the basis is full, and averaged iterates for
prediction. Rebuilds are those of every model on a stream: new units, and a start from a memory of the stream.

A start by the median trick, with a tenth of the targets' variance for the noise, is far from where a stream of a few
thousand rows can be learned to by Adam, at one step for some dozens of new rows: hyper-parameters go a few per cent of
the way, so that bands stay as wide as the guess. `gradient.start=evidence` begins at the hyper-parameters with the best
marginal likelihood of thinned rows, and with q at its optimum for X̃ (`Hybrid.settle`); the gradients go on from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import torch
from torch import Generator, Tensor, nn

from streamgp import choice
from streamgp.base import FLOAT, Predictive, Shape
from streamgp.encoders import Dropout, Encoder, Layout, identity
from streamgp.errors import NumericalError, UsageError
from streamgp.evidence.search import Search, SearchState, thinned
from streamgp.kernels import squared_exponential
from streamgp.likelihoods import Likelihood, gaussian
from streamgp.models.svdgp.config import Config
from streamgp.objectives import elbo
from streamgp.online.posterior import Arrival, LearnedFunction, Look, Posterior, Rows, Units, tied
from streamgp.state import Declared, Members, Nested, Parameters, RandomState, Value
from streamgp.training.adam import RowAdam, schedule
from streamgp.training.decoupled import GrowingBasis, Hyper, Orthogonal, Parametrisation, Prepared, SettledRows

if TYPE_CHECKING:
    from streamgp.papers.svdgp.transfer import Streaming

HYPER_RATE, OUTCOME_RATE = 0.02, 0.2
"""Factors on the step size of hyper-parameters; the larger one for outcomes, whose function no scaling has sized."""
POINT_RATE, ENCODER_RATE, STEP = 0.2, 0.05, 0.1
"""Factors on the step size of basis points, and on a step size of 0.1 of an encoder's weights, whatever it is for the
rest: coefficients follow them."""
AVERAGE = 0.95
"""Decay of the averaged iterates that predict."""
BEGIN, GO_ON = (0.7, 8), (0.5, 2)
"""Size and number of the natural-gradient steps of q at a start, on all rows, and on a stream, on new and older."""
ONCE = (1.0, 12)
"""The same where rows are learned once, and q has to have all that they say."""
FITS, FITTED = 3, 4096
"""How often the scale of noise with tails is set as q begins, and the rows at most that it is set by."""
OLDER = 2048
"""Older rows, at most, of a natural-gradient step on a stream."""
STANDARD_NOISE = 0.1
"""`likelihood.noise` where it is not set: the fraction of what `Likelihood.start` is given that it starts at."""
KL_COLUMNS = 64
"""Columns of the Gram matrix sampled for the KL."""
MOVED = 2.0
"""Latent variance of new rows against replayed ones from which a stream counts as moved."""
ROWS = 512
"""New rows for which `steps` are taken."""
FIT = 1000
"""Mini-batches of a fit from scratch where Adam has to find q."""


class GradientPosterior(Declared, Posterior):
    """An SVDGP on standardised rows, learned by Adam on the ELBO; built by `streamgp.models.svdgp.build`.

    The objective of a step is unbiased for the rows that the forgetting stream stands for: with B new rows and R older
    ones that are drawn from the memory, each with its weight w, it is (Σ_new + Σ_drawn w)/temper − KL.

    The module's parameters are the running mean of the iterates, which predicts (Polyak averaging: in the coefficients
    of a thousand correlated basis functions, Adam's last iterate is mostly noise). The iterates are kept beside them.

    Args:
        config: of the model.
        shape: of the windows.
        groups: G, of window columns that share a lengthscale at the start (`KernelInputs`).

    Raises:
        UsageError: the encoder runs over a past, and the windows have none; targets without units are to be learned
            as a change or as a departure.
    """

    STATE = (
        Parameters(),
        Nested("adam", bare=True),
        Members("iterate"),
        RandomState("generator"),
        SearchState("search"),
        Value("taken", int),
        Value("last", float, none=math.nan),
    )

    def __init__(self, config: Config, shape: Shape, groups: int) -> None:
        super().__init__()
        self.config, self.shape = config.gradient, shape
        self.likelihood: Likelihood = choice.build("likelihoods", config.likelihood, shape.columns)
        self.family, self.units = self.likelihood.family, self.likelihood.units
        self.robust = not isinstance(config.likelihood, gaussian.Config)
        if not self.units and config.target not in ("auto", "level"):
            raise UsageError(
                f"target={config.target} has no meaning for likelihood={choice.part_name(config.likelihood)}, whose "
                "targets are no amounts",
                hint="leave out --set target: what the target was stands in the lags",
            )
        layout = Layout(shape.lags, len(shape.past) if shape.lags else 0, shape.horizon, len(shape.future))
        self.encoder: Encoder = choice.build("encoders", config.encoder, layout)
        self.posterior = parametrisation(config, self.encoder.width, shape.columns)
        self.log_lengthscale = nn.Parameter(torch.zeros(self.encoder.width, dtype=FLOAT))
        self.log_rho = nn.Parameter(torch.zeros((), dtype=FLOAT))
        self.offset: Tensor | None
        self.count: Tensor
        # (T,) of the function, where targets were not centred
        self.register_buffer("offset", None if self.units else torch.zeros(shape.columns, dtype=FLOAT))
        self.register_buffer("count", torch.zeros((), dtype=FLOAT))  # rows learned, after forgetting
        self.share = 1.0 / config.tempering(shape)
        self.rate = self.posterior.rate if self.config.rate == "auto" else float(self.config.rate)
        self.plain = isinstance(config.encoder, identity.Config)
        self.groups, self.once = groups if self.plain else self.encoder.width, config.learn == "once"
        self.search = Search(self.groups, self.once)
        self.evidence_rows, self.carries = config.evidence_rows, config.online == "transfer"
        self.generator = torch.Generator().manual_seed(config.seed)
        self.taken, self.last = 0, math.nan
        self.adam = RowAdam(dict(self.named_parameters()), self._rates())
        self.iterate = {name: p.detach().clone() for name, p in self.named_parameters()}
        self.blank = {name: value.clone() for name, value in self.state_dict().items()}

    def _rates(self) -> dict[str, float]:
        hyper = HYPER_RATE if self.units else OUTCOME_RATE
        scale = STEP / self.rate
        rates: dict[str, float] = {"log_lengthscale": hyper, "log_rho": hyper}
        for name, _ in self.named_parameters():
            if name.startswith("encoder."):
                rates[name] = ENCODER_RATE * scale
            elif name.startswith("likelihood."):
                rates[name] = hyper
            elif ".alpha." in f".{name}" or ".beta." in f".{name}":
                rates[name] = POINT_RATE
        return rates

    @property
    def hyper(self) -> Hyper:
        """The hyper-parameters as they are."""
        return Hyper(self.log_lengthscale.exp(), self.log_rho.exp(), self.likelihood.scale.log().mean().exp())

    @property
    def size(self) -> int:
        return self.posterior.alpha.size + self.posterior.beta.size

    @property
    def weight(self) -> Tensor:
        return self.count

    @property
    def healthy(self) -> bool:
        return self.posterior.healthy

    @torch.no_grad()
    def look(self, z: Tensor) -> Look:
        mean, variance, _ = self._moments(z, self.hyper)
        return Look(z, None, mean, variance, self.likelihood.scale.detach().square())

    def learned(self, groups: Tensor) -> LearnedFunction:
        """The kernel as it is, on the latents of an encoder where there is one; the basis points of both bases."""
        width, bases = len(self.log_lengthscale), (self.posterior.alpha, self.posterior.beta)
        kernel = tied(squared_exponential.Config(), torch.arange(width), self.log_lengthscale, self.log_rho)
        noise = self.likelihood.scale.detach().square() if self.units else torch.zeros(self.shape.columns, dtype=FLOAT)
        points = torch.cat([one.points[: one.size].detach() for one in bases if type(one) is GrowingBasis])
        return LearnedFunction(kernel, noise.expand(self.shape.columns), points, None if self.plain else self.encoder)

    @torch.no_grad()
    def predictive(self, look: Look) -> Predictive:
        return self.likelihood.predictive(look.mean, look.latent.expand_as(look.mean))

    def check(self, y: Tensor, names: Sequence[str]) -> None:
        self.likelihood.check(y, names)

    def loss(self) -> float:
        """−ELBO a row, of the last step or epoch."""
        return self.last

    def _moments(self, x: Tensor, hyper: Hyper, dropout: Dropout | None = None) -> tuple[Tensor, Tensor, Prepared]:
        prepared = self.posterior.prepare(hyper)
        mean, variance = self.posterior.moments(self.encoder(x, dropout), hyper, prepared)
        if self.offset is not None:
            mean = mean + self.offset
        return mean, variance.clamp(min=1e-12), prepared

    def start(self, x: Tensor, y: Tensor, kept: Mapping[str, Tensor] | None = None) -> None:
        """Forget what was learned; hyper-parameters by the median trick (appendix C.2). x: (N, width), y: (N, T), kept:
        name -> what is not forgotten.

        ρ = 1. Departures: s is 0.1 √d of the median distance in d >= 8 dimensions (at the median itself the Gram matrix
        of thousands of points in few dimensions is so ill-conditioned that gradients crawl; windows of a hundred
        columns want more; on a trained encoder, which stretches its space as it needs, it is the median), and the
        noise is a fraction of the targets' variance.
        """
        self.load_state_dict({**self.blank, **(kept or {})})
        self.adam, self.taken = RowAdam(dict(self.named_parameters()), self._rates()), 0
        with torch.no_grad():
            latent = self.encoder(x[:1024])
            distance = torch.pdist(latent) if latent.shape[0] > 1 else torch.ones(1, dtype=torch.float64)
            part = 1.0 if self.trained else 0.1 * math.sqrt(max(latent.shape[1], 8))
            start = self.config.lengthscale * part * float(distance.median())
            self.log_lengthscale.fill_(math.log(max(start, 1e-3)))
            seen = ~y.isnan()
            count = seen.sum(0).clamp(min=1)
            filled = torch.where(seen, y, 0.0)
            mean = filled.sum(0) / count
            self.likelihood.start((torch.where(seen, y - mean, 0.0).square().sum(0) / count).clamp(min=1e-6))
            if self.offset is not None:
                self.offset.copy_(self.likelihood.origin(y))
            for name, p in self.named_parameters():
                self.iterate[name].copy_(p)

    @contextmanager
    def _iterating(self) -> Iterator[None]:
        """Inside, the parameters are the iterate; on leaving, they are the average again, one step further."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, p in self.named_parameters():
            p.data, self.iterate[name] = self.iterate[name], p.data

    def _begin(self, fresh: Mapping[str, Tensor]) -> None:
        """Rows of the posterior's parameters that were set from outside: Adam and the iterate begin there again."""
        own = dict(self.posterior.named_parameters())
        for name, rows in fresh.items():
            self.adam.forget(f"posterior.{name}", rows)
            self.iterate[f"posterior.{name}"][rows] = own[name].data[rows]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.iterate = {name: fn(value) for name, value in self.iterate.items()}
        self.blank = {name: fn(value) for name, value in self.blank.items()}
        self.adam.move(dict(self.named_parameters()), fn)
        return self

    def ascend(self, x: Tensor, y: Tensor, weights: Tensor) -> float:
        """One step of Adam on the ELBO. weights: (N,) rows that each row stands for. Returns the ELBO a row.

        Raises:
            NumericalError: the ELBO is not finite, or a Gram matrix cannot be factorised; nothing was changed.
        """
        total = float(weights.sum())
        with self._iterating():
            hyper = self.hyper
            mean, variance, prepared = self._moments(x, hyper, Dropout(self.generator))
            fit = self.likelihood.expected_log_prob(y, mean, variance)
            index = torch.randperm(self.posterior.alpha.size, generator=self.generator)[:KL_COLUMNS]
            kl = self.posterior.kl(hyper, prepared, index.to(x.device))
            loss = (kl - self.share * elbo.scaled(fit, weights)) / total
            value = float(loss.detach())
            if not math.isfinite(value):
                raise NumericalError("the ELBO is not finite", hint="lower the step size (rate)")
            named = dict(self.named_parameters())
            slopes = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
            used = {name: slope for name, slope in zip(named, slopes, strict=True) if slope is not None}
            self.adam.step(used, schedule(self.rate, self.taken))
        self.taken += 1
        keep = min(AVERAGE, 1.0 - 1.0 / self.taken)
        for name, p in self.named_parameters():
            p.data.lerp_(self.iterate[name], 1.0 - keep)
        return -value

    def _grow(self, x: Tensor) -> None:
        """`add_basis` of algorithm 1: random rows of the batch, while there is room."""
        if self.posterior.alpha.room or self.posterior.beta.room:
            chosen = torch.randperm(x.shape[0], generator=self.generator)[: self.config.grow].to(x.device)
            with torch.no_grad():
                self._begin(self.posterior.add(self.encoder(x[chosen]), self.hyper))

    def _renew(self, x: Tensor, arrival: Arrival) -> bool:
        """Replace basis points when the basis is full and the stream has moved.

        It has when the latent variance of the new rows is over twice that of replayed ones. The least known of the
        new rows take the places.
        """
        if self.posterior.alpha.room or self.posterior.beta.room:
            return False
        replayed = arrival.older(self.config.batch).z
        hyper = self.hyper
        with torch.no_grad():
            unknown = self._moments(x, hyper)[1].mean(1)
            if unknown.mean() < MOVED * self._moments(replayed, hyper)[1].mean():
                return False
            chosen = torch.argsort(unknown, descending=True, stable=True)[: self.config.grow]
            self._begin(self.posterior.replace(self.encoder(x[chosen]), hyper))
        return True

    def _observe(self, x: Tensor) -> None:
        """Which basis points the learned rows make use of."""
        with torch.no_grad():
            latent, scale = self.encoder(x), self.hyper.lengthscale
            for basis in (self.posterior.alpha, self.posterior.beta):
                basis.observe(latent, scale, decay=0.95)

    def absorb(self, look: Look, arrival: Arrival) -> str:
        """Some steps on the new rows and on older ones, other ones at each step; with online=transfer on the new rows
        and on what q was before."""
        self.count.mul_(arrival.kept).add_(len(arrival.y))
        moved = self._renew(look.z, arrival)
        size = self.posterior.beta.size
        self._grow(look.z)
        grown = self.posterior.beta.size > size
        if self.streaming is not None:
            self._stream(self.streaming, SettledRows(look.z, arrival.y, look.z.new_ones(len(look.z))), arrival.kept)
            return "basis points replaced" if moved else ""
        for _ in range(self._steps(len(look.z))):
            rows = self._with_older(look.z, arrival, self.config.batch)
            self.last = -self.ascend(rows.x, rows.y, rows.weight)
        if self.posterior.natural or grown:
            self._settle(self._with_older(look.z, arrival, OLDER), *GO_ON)
        self._observe(look.z)
        return "basis points replaced" if moved else ""

    @property
    def streaming(self) -> Streaming | None:
        """q, where it is carried from batch to batch."""
        from streamgp.papers.svdgp.transfer import Streaming

        return self.posterior if isinstance(self.posterior, Streaming) else None

    def _stream(self, q: Streaming, rows: SettledRows, kept: float) -> None:
        """Learn rows once: the steps of Adam and then those of q are on them and on what q says before, which is what
        `kept` leaves of it."""
        q.carry(self.hyper, kept)
        try:
            for _ in range(self._steps(len(rows.x))):
                self.last = -self.ascend(*rows)
            self._settle(rows, *ONCE)
        finally:
            q.release()
        self._observe(rows.x)

    def transfer(self, rows: Rows, units: Units, generator: Generator) -> str:
        """New hyper-parameters by evidence, where targets have units, and a new basis that q is carried to."""
        q = self.streaming
        assert q is not None
        q.carry(self.hyper)
        try:
            if self.units and self.config.start == "evidence":
                self._by_evidence(rows, units)
            with torch.no_grad():
                stay, new = q.move(self.encoder(rows.z), self.hyper, self.generator)
        finally:
            q.release()
        self.adam, self.taken = RowAdam(dict(self.named_parameters()), self._rates()), 0
        for name, p in self.named_parameters():
            self.iterate[name].copy_(p.detach())
        return f"{stay} basis points kept, {new} new"

    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        """Start on these rows, and as many steps as they would have had as new ones."""
        self._start_on(rows, units, again=bool(self.count > 0))
        for _ in range(self._steps(len(rows.y))):
            chosen = self._some(rows)[: 2 * self.config.batch]
            self.last = self._learn(rows, chosen)
        if self.posterior.natural:
            self._settle(SettledRows(rows.z, rows.y, rows.weight), *BEGIN)
        self._observe(rows.z[chosen])
        return ""

    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        """A pass over the rows in mini-batches. Where an encoder has moved the rows away from the points, q settles on
        new points among them."""
        if first:
            self._start_on(rows, units)
        order = self._some(rows)
        parts = order.split(self.config.batch)
        self.last = sum(self._learn(rows, part) * len(part) for part in parts) / len(order)
        if self.posterior.natural:
            if self.trained:
                self._follow(rows)
            self._settle(SettledRows(rows.z, rows.y, rows.weight), *BEGIN)
        self._observe(rows.z[parts[0]])
        return True

    def checked(self, rows: int) -> bool:
        return False  # a fit is a thousand mini-batches

    def epochs_for(self, rows: int) -> int:
        """One where natural gradients have settled q; else `FIT` mini-batches."""
        started = isinstance(self.posterior, Orthogonal) and self.plain and self.config.start == "evidence"
        if self.posterior.natural or started:
            return 1
        return math.ceil(FIT / math.ceil(max(rows, 1) / self.config.batch))

    def warmup_epochs(self, rows: int) -> int:
        """One: every batch after it brings steps of its own."""
        return 1

    @property
    def trained(self) -> bool:
        """Whether the encoder has weights."""
        return any(True for _ in self.encoder.parameters())

    @torch.no_grad()
    def _follow(self, rows: Rows) -> None:
        """Put all points at the latents of random rows, as the encoder has them now."""
        some = self._some(rows)[: self.posterior.beta.capacity]
        self._begin(self.posterior.replace(self.encoder(rows.z[some]), self.hyper))

    def failed(self) -> None:
        """The next epoch takes the rows in another order."""
        torch.randperm(2, generator=self.generator)

    def _steps(self, rows: int) -> int:
        return max(1, round(self.config.steps * rows / ROWS))

    def _some(self, rows: Rows) -> Tensor:
        """All rows in random order."""
        return torch.randperm(len(rows.y), generator=self.generator).to(rows.z.device)

    def _learn(self, rows: Rows, chosen: Tensor) -> float:
        """A step on the chosen rows, which stand for all; returns −ELBO a row."""
        self._grow(rows.z[chosen])
        return -self.ascend(rows.z[chosen], rows.y[chosen], rows.weight[chosen] * (len(rows.y) / len(chosen)))

    def _start_on(self, rows: Rows, units: Units, again: bool = False) -> None:
        """Start from some of the rows. again: as before, with the encoder as it was trained until now."""
        trained = {f"encoder.{name}": value.clone() for name, value in self.encoder.state_dict().items()}
        some = self._some(rows)[:1024]
        self.start(rows.z[some], rows.y[some], trained if again else {})
        self.count.copy_(rows.weight.sum())
        if self.config.start == "median":
            return
        if not again:
            self.search = Search(self.groups, self.once)
            self.encoder.settle(rows.z, 1.0)
        if self.units:
            self._by_evidence(rows, units)
        with torch.no_grad():
            first = self._some(rows)[: self.posterior.beta.capacity]
            self._begin(self.posterior.add(self.encoder(rows.z[first]), self.hyper))
        self._settle(SettledRows(rows.z, rows.y, rows.weight), *BEGIN)
        for _ in range(FITS if self.units and self.robust else 0):
            self._fit_noise(rows)
            self._settle(SettledRows(rows.z, rows.y, rows.weight), *BEGIN)

    @torch.no_grad()
    def _fit_noise(self, rows: Rows) -> None:
        """Set the noise's scale by some of the rows, at the q of now: that of Gaussian noise has the outliers in it."""
        some = self._some(rows)[:FITTED]
        mean, variance, _ = self._moments(rows.z[some], self.hyper)
        self.likelihood.fit(rows.y[some], mean, variance, rows.weight[some])
        for name, p in self.likelihood.named_parameters():
            self.adam.forget(f"likelihood.{name}", slice(None))
            self.iterate[f"likelihood.{name}"].copy_(p)

    def _by_evidence(self, rows: Rows, units: Units) -> None:
        """Hyper-parameters with the best marginal likelihood of thinned rows, under Gaussian noise; `likelihood.noise`
        and `gradient.lengthscale` still are factors on what is found, the noise until `_fit_noise`."""
        thin = thinned(len(rows.y), self.shape.horizon, self.evidence_rows, rows.z.device)
        with torch.no_grad():
            latent = self.encoder(rows.z[thin])
            ones = latent.new_ones(latent.shape[1])
            groups, scale = (units.groups, units.inputs) if self.plain else (torch.arange(len(ones)), ones)
            found = self.search.run(latent, rows.filled[thin], groups.to(latent.device), scale, units.outputs)
            inverse = units.inverse(found.lengthscale) if self.plain else torch.exp(-found.lengthscale)
            self.log_lengthscale.copy_(math.log(self.config.lengthscale) - inverse.log())
            self.log_rho.copy_(0.5 * found.outputscale)
            whole = torch.full((len(rows.y[0]),), 1.0 / STANDARD_NOISE, dtype=FLOAT, device=latent.device)
            self.likelihood.start(found.noise.exp() * whole)
            for name, p in self.named_parameters():
                self.iterate[name].copy_(p)

    def _with_older(self, z: Tensor, arrival: Arrival, count: int) -> SettledRows:
        """New rows z (N, W), and older ones that stand for all older ones."""
        older = arrival.older(count)
        weights = torch.cat((older.weight.new_ones(len(z)), older.weight))
        return SettledRows(torch.cat((z, older.z)), torch.cat((arrival.y, older.y)), weights)

    def _settle(self, rows: SettledRows, size: float, steps: int) -> None:
        """Natural-gradient steps of q on standardised windows."""
        with torch.no_grad():
            seen = SettledRows(self.encoder(rows.x), rows.y, rows.weight * self.share)
        self._begin(self.posterior.settle(seen, self.hyper, self.likelihood, self.offset, size, steps))


def parametrisation(config: Config, width: int, columns: int) -> Parametrisation:
    """q of `columns` targets on latents of `width`, before any data."""
    means, covariances = config.gradient.mean_basis, config.gradient.covariance_basis
    kind = GrowingBasis
    if config.online == "transfer":
        from streamgp.papers.svdgp.transfer import Streaming

        return Streaming(kind(0, width), kind(covariances, width), columns)
    if config.basis_kernel == "generalised":
        from streamgp.papers.svdgp.generalised import GeneralisedBasis as kind
    beta = kind(covariances, width)
    if config.parametrisation == "orthogonal":
        return Orthogonal(kind(means, width), beta, columns)
    if config.parametrisation == "hybrid":
        from streamgp.papers.svdgp.hybrid import Hybrid

        return Hybrid(kind(means, width), beta, columns)
    from streamgp.papers.svdgp.decoupled import Decoupled
    from streamgp.papers.svdgp.partly_shared import PartlyShared

    shared = config.parametrisation == "shared"
    alpha = PartlyShared(kind(means - covariances, width), beta) if shared else kind(means, width)
    return Decoupled(alpha, beta, columns, config.preconditioner)
