"""SVDGP by stochastic gradients: for likelihoods without closed forms, and behind an encoder that is trained.

Algorithm 1 of Cheng & Boots 2017, with what a stream needs beside it: a bounded reservoir that is replayed (a batch of
a stream is not a sample of all rows), a stated N, places given to new points when the basis is full, and averaged
iterates for prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor, nn

from streamgp.base import Json, Predictive, Step
from streamgp.encoders import Dropout, Encoder
from streamgp.errors import NumericalError
from streamgp.likelihoods import Likelihood
from streamgp.models.svdgp.config import GradientConfig
from streamgp.models.svdgp.posteriors import Hybrid, Hyper, Prepared, scaled
from streamgp.models.svdgp.replay import Replay
from streamgp.objectives import elbo
from streamgp.optim.adam import RowAdam, schedule

HYPER_RATE, OUTCOME_RATE = 0.02, 0.2
"""Factors on the step size of hyper-parameters; the larger one for outcomes, whose function no scaling has sized."""
POINT_RATE, ENCODER_RATE = 0.2, 0.05
"""Factors on the step size of basis points and of an encoder's weights: coefficients follow them."""
AVERAGE = 0.95
"""Decay of the averaged iterates that predict."""
KL_COLUMNS = 64
"""Columns of the Gram matrix sampled for the KL."""
MOVED = 2.0
"""Latent variance of new rows against replayed ones from which a stream counts as moved."""

__all__ = ["GradientConfig", "GradientPosterior"]


class GradientPosterior(nn.Module):
    """An SVDGP on standardised rows, learned by Adam on the ELBO.

    The objective of a step is unbiased for the N rows that the posterior stands for, N = min(rows seen, memory) plus
    the new ones: with B new rows and R replayed ones it is Σ_new + (N/R) Σ_replayed − KL.

    The module's parameters are the running mean of the iterates, which predicts (Polyak averaging: in the coefficients
    of a thousand correlated basis functions, Adam's last iterate is mostly noise). The iterates are kept beside them.

    Args:
        config: see GradientConfig.
        width: columns of a row.
        columns: T target columns.
        likelihood: built for T columns; its `family` is what `predictive` returns.
        encoder: built for `width` columns; trained along with the rest, at its own rates of dropout.
        seed: of replay, basis growth and sampled columns.

    Example:
        >>> from streamgp.encoders import identity
        >>> from streamgp.encoders import Layout
        >>> from streamgp.likelihoods import gaussian
        >>> noise, front = gaussian.build(gaussian.Config(), 1), identity.build(identity.Config(), Layout(1, 1))
        >>> model = GradientPosterior(GradientConfig(mean_basis=8, covariance_basis=8, grow=8), 1, 1, noise, front)
        >>> x = torch.linspace(-2, 2, 64, dtype=torch.float64)[:, None]
        >>> for step in model.fit(x, torch.sin(2 * x), epochs=60):
        ...     pass
        >>> step.healthy, bool((model.predictive(x).mean - torch.sin(2 * x)).abs().max() < 0.2)
        (True, True)
    """

    def __init__(
        self, config: GradientConfig, width: int, columns: int, likelihood: Likelihood, encoder: Encoder, seed: int = 0
    ) -> None:
        super().__init__()
        self.config, self.likelihood, self.encoder = config, likelihood, encoder
        self.posterior = Hybrid(config.mean_basis, config.covariance_basis, encoder.width, columns)
        self.log_lengthscale = nn.Parameter(torch.zeros(encoder.width, dtype=torch.float64))
        self.log_rho = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.offset: Tensor | None
        offset = None if likelihood.units else torch.zeros(columns, dtype=torch.float64)
        self.register_buffer("offset", offset)  # (T,) of the function, where targets were not centred
        self.replay = Replay(config.reservoir, width, columns)
        self.generator = torch.Generator().manual_seed(seed)
        self.taken = 0
        self.adam = RowAdam(dict(self.named_parameters()), self._rates())
        self.iterate = {name: p.detach().clone() for name, p in self.named_parameters()}

    def _rates(self) -> dict[str, float]:
        hyper = HYPER_RATE if self.likelihood.units else OUTCOME_RATE
        rates: dict[str, float] = {"log_lengthscale": hyper, "log_rho": hyper}
        for name, _ in self.named_parameters():
            if name.startswith("encoder."):
                rates[name] = ENCODER_RATE
            elif name.startswith("likelihood."):
                rates[name] = hyper
            elif name.endswith(".points"):
                rates[name] = POINT_RATE
        return rates

    @property
    def hyper(self) -> Hyper:
        """The hyper-parameters as they are."""
        return Hyper(self.log_lengthscale.exp(), self.log_rho.exp())

    def predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, width) -> mean (N, T), latent variance (N, T); the prior before the first row."""
        with torch.no_grad():
            mean, variance = self._moments(x, self.hyper)[:2]
        return mean, variance[:, None].expand_as(mean)

    def predictive(self, x: Tensor) -> Predictive:
        """(N, width) -> the distribution of the targets, in the standardised units of y."""
        with torch.no_grad():
            return self.likelihood.predictive(*self.predict(x))

    def _moments(self, x: Tensor, hyper: Hyper, dropout: Dropout | None = None) -> tuple[Tensor, Tensor, Prepared]:
        prepared = self.posterior.prepare(hyper)
        mean, variance = self.posterior.moments(self.encoder(x, dropout), hyper, prepared)
        if self.offset is not None:
            mean = mean + self.offset
        return mean, variance.clamp(min=1e-12), prepared

    def start(self, x: Tensor, y: Tensor) -> None:
        """Hyper-parameters by the median trick (appendix C.2). x: (N, width), y: (N, T).

        ρ = 1. Departures: s is 0.1 √d of the median distance in d >= 8 dimensions (at the median itself the Gram matrix
        of thousands of points in few dimensions is so ill-conditioned that gradients crawl; windows of a hundred
        columns want more; behind a trained encoder, which stretches its space as it needs, it is the median), and the
        noise is a fraction of the targets' variance.
        """
        with torch.no_grad():
            latent = self.encoder(x[:1024])
            distance = torch.pdist(latent) if latent.shape[0] > 1 else torch.ones(1, dtype=torch.float64)
            trained = any(True for _ in self.encoder.parameters())
            part = 1.0 if trained else 0.1 * math.sqrt(max(latent.shape[1], 8))
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
            fit = self.likelihood.expected_log_prob(y, mean, variance[:, None])
            index = torch.randperm(self.posterior.alpha.size, generator=self.generator)[:KL_COLUMNS]
            kl = self.posterior.kl(hyper, prepared, index.to(x.device))
            loss = (kl - elbo.scaled(fit, weights)) / total
            value = float(loss.detach())
            if not math.isfinite(value):
                raise NumericalError("the ELBO is not finite", hint="lower the step size (rate)")
            named = dict(self.named_parameters())
            slopes = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
            used = {name: slope for name, slope in zip(named, slopes, strict=True) if slope is not None}
            self.adam.step(used, schedule(self.config.rate, self.taken))
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
                self._begin(self.posterior.add(self.encoder(x[chosen])))

    def _renew(self, x: Tensor, replayed: Tensor) -> bool:
        """Replace basis points when the basis is full and the stream has moved.

        It has when the latent variance of the new rows is over twice that of replayed ones. The least known of the
        new rows take the places.
        """
        if self.posterior.alpha.room or self.posterior.beta.room or not len(replayed):
            return False
        hyper = self.hyper
        with torch.no_grad():
            unknown = self._moments(x, hyper)[1]
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
                basis.observe(scaled(latent, basis.active, scale), decay=0.95)

    def update(self, x: Tensor, y: Tensor) -> Step:
        """Learn new rows of a stream, with replayed ones beside them. x: (N, width), y: (N, T), NaN = not observed.

        Numerical failures are not raised but reported (`healthy` is false), and the step that met it is not taken.
        """
        config, basis = self.config, self.posterior.alpha.size + self.posterior.beta.size
        if not bool(torch.isfinite(x).all()):
            return Step(math.nan, basis, False, "update: rows with NaN or infinite inputs; nothing learned")
        if not int(self.replay.seen):
            self.start(x, y)
        replayed = min(int(self.replay.count), config.batch)
        loss, healthy, done = math.nan, True, "update"
        try:
            if self._renew(x, self.replay.draw(replayed, self.generator)[0]):
                done = "update: basis points replaced"
            self._grow(x)
            past = min(int(self.replay.seen), config.memory or int(self.replay.seen))
            for _ in range(max(1, round(config.steps * x.shape[0] / 512))):
                old_x, old_y = self.replay.draw(replayed, self.generator)
                old = torch.full((old_x.shape[0],), past / max(old_x.shape[0], 1), dtype=x.dtype, device=x.device)
                weights = torch.cat((torch.ones(x.shape[0], dtype=x.dtype, device=x.device), old))
                loss = -self.ascend(torch.cat((x, old_x)), torch.cat((y, old_y)), weights)
            self._observe(x)
        except NumericalError as error:
            healthy, done = False, f"update: {error.message}"
        self.replay.offer(x, y, config.memory, self.generator)
        return Step(loss, self.posterior.alpha.size + self.posterior.beta.size, healthy, done)

    def fit(self, x: Tensor, y: Tensor, epochs: int) -> Iterator[Step]:
        """Learn a bounded set of rows, a Step an epoch; N is its number of rows. x: (N, width), y: (N, T)."""
        rows = x.shape[0]
        if not int(self.replay.seen):
            first = torch.randperm(rows, generator=self.generator)[:1024].to(x.device)
            self.start(x[first], y[first])
            self.replay.offer(x, y, self.config.memory, self.generator)
        for _ in range(epochs):
            order = torch.randperm(rows, generator=self.generator).to(x.device)
            total, healthy, done = 0.0, True, "epoch"
            for chosen in order.split(self.config.batch):
                try:
                    self._grow(x[chosen])
                    weights = torch.full((chosen.numel(),), rows / chosen.numel(), dtype=x.dtype, device=x.device)
                    total -= self.ascend(x[chosen], y[chosen], weights) * chosen.numel()
                except NumericalError as error:
                    healthy, done = False, f"epoch: {error.message}"
            self._observe(x[order[: self.config.batch]])
            yield Step(total / rows, self.posterior.alpha.size + self.posterior.beta.size, healthy, done)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        """Parameters, reservoir, counts, Adam and the random state; of fixed shapes."""
        tensors = {name: value.detach().clone() for name, value in self.state_dict().items()}
        adam, _ = self.adam.state()
        tensors |= {f"adam.{name}": value for name, value in adam.items()}
        tensors |= {f"iterate.{name}": value.clone() for name, value in self.iterate.items()}
        tensors["generator"] = self.generator.get_state().clone()
        return tensors, {"taken": self.taken}

    def restore(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        """The inverse of `state`, on a posterior built from the same arguments."""
        own = self.state_dict()
        self.load_state_dict({name: tensors[name] for name in own})
        self.adam.restore({n.removeprefix("adam."): t for n, t in tensors.items() if n.startswith("adam.")}, {})
        for name, value in self.iterate.items():
            value.copy_(tensors[f"iterate.{name}"])
        self.generator.set_state(tensors["generator"].cpu())
        self.taken = int(str(rest["taken"]))
