"""What every model behind an encoder infers: a mean function, an encoder, what stands behind it, and its variance.

Of a standardised target y and a window z the encoder learns the residual

    r = (y − m(z) − c) / s,    m(z) = zᵀβ or 0

where β is a ridge regression on the rows of the last fit, so that far from these a forecast falls back to a linear one,
and c and s are the location and scale of what it leaves.

A fit in epochs (`streamgp.training.fit`) begins again from the weights at hand whenever a young stream has twice the
rows of the last one. After that a rebuild is a refresh: some steps on the newest windows, and what forecasts is made
from these; at once, and with more steps, where the squared errors say that the model has gone stale.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Json, Shape
from streamgp.models.deep.config import DeepConfig
from streamgp.models.deep.staleness import Staleness
from streamgp.online.posterior import Arrival, Look, Posterior, Rows, Units
from streamgp.online.scaling import Standardiser
from streamgp.online.state import Parts, gather, holding, scatter
from streamgp.online.variance import OUTLIER, follow
from streamgp.training.fit import Fit, Learner, Optimiser, Standing, training

CHUNK = 4096
"""Rows whose activations are held at once."""
RIDGE = 1.0
"""Weight of the prior that the linear mean's coefficients are 0, in rows, for inputs of unit spread."""
LEAST = 1e-6
"""Smallest factor on the variance that a stream without errors can lead to."""


class DeepPosterior(Posterior, Learner):
    """See the module. A subclass says what stands behind the encoder.

    Args:
        config: of the model.
        shape: of the windows.
        width: W, columns of a window that is seen.

    Attributes:
        slope: (W, T) β.
        residual: c and s.
        factor: (T,) on the variance, by validation rows and by the stream's errors.
        count: () rows learned, at most those that are kept.
        fit: the fit that is going on, if one is.
    """

    slope: Tensor
    factor: Tensor
    count: Tensor

    def __init__(self, config: DeepConfig, shape: Shape, width: int) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.linear = config.linear(shape)
        self.residual = Standardiser(shape.columns)
        self.staleness = Staleness(config.online.stale)
        self.register_buffer("slope", torch.zeros(width, shape.columns, dtype=FLOAT))
        self.register_buffer("factor", torch.ones(shape.columns, dtype=FLOAT))
        self.register_buffer("count", torch.zeros((), dtype=FLOAT))
        self.fit: Fit | None = None
        self.fitted_on = 0  # rows of the last fit
        self.since = 0  # rows since encoder and kernel were trained
        self.last = 0.0  # loss

    @abstractmethod
    def parts(self) -> Parts:
        """What stands behind the encoder, and the optimiser of refreshes, as far as they are not `trained`."""

    @abstractmethod
    def optimiser(self) -> Optimiser:
        """Of a fit, without a past."""

    @abstractmethod
    def start(self, z: Tensor, r: Tensor, generator: Generator) -> None:
        """What a fit begins with."""

    @abstractmethod
    def refresh(self, z: Tensor, r: Tensor, steps: int, generator: Generator) -> bool:
        """So many steps on the kept rows, of which the last `since` are new, and what forecasts is made again; returns
        whether no step was left out."""

    @abstractmethod
    def moments(self, z: Tensor) -> Standing:
        """`standing` of few rows."""

    @property
    def weight(self) -> Tensor:
        return self.count

    @property
    def healthy(self) -> bool:
        values = [p.sum() for module in self.trained.values() for p in module.parameters()]
        return bool(torch.stack([*values, self.factor.sum()]).isfinite().all())

    @torch.no_grad()
    def standing(self, z: Tensor) -> Standing:
        """A chunk of rows at a time."""
        parts = [self.moments(part) for part in z.split(CHUNK)]
        mean, latent = (torch.cat([part[place] for part in parts]) for place in (0, 1))
        return Standing(mean, latent, parts[0].noise)

    def look(self, z: Tensor) -> Look:
        own, scale = self.standing(z), self.residual.scale.to(z)
        variance = scale.square() * self.factor
        return Look(z, None, own.mean * scale + self.mean(z), own.latent * variance, own.noise * variance)

    def mean(self, z: Tensor) -> Tensor:
        """(N, T) m(z) + c."""
        location = self.residual.location.to(z)
        return location + z @ self.slope if self.linear else location

    def residuals(self, z: Tensor, y: Tensor) -> Tensor:
        """(N, T) r"""
        return (y - self.mean(z)) / self.residual.scale.to(y)

    def scored(self, look: Look, y: Tensor) -> None:
        """The stream's errors go into the factor on the variance, and say whether the model is stale."""
        self.since += len(y)
        variance = (look.latent + look.noise).expand_as(y)
        squares = ((y - look.mean).square() / variance).clamp(max=OUTLIER)
        self.last = 0.5 * torch.nanmean(squares + torch.log(2 * torch.pi * variance)).item()
        self.staleness.add(squares)
        if self.config.online.variance is not None:
            follow(self.factor, squares, self.config.online.variance, LEAST)

    @property
    def overdue(self) -> bool:
        return self.staleness.stale or self.rescales(int(self.count))

    def rescales(self, rows: int) -> bool:
        """When rows have doubled since the last fit. A fit on more than half of a full window is the last."""
        return rows >= 2 * self.fitted_on

    def absorb(self, look: Look, arrival: Arrival) -> str:
        self.fit = None
        self.count.add_(len(arrival.y)).clamp_(max=len(arrival.shares))
        self.learn(look.z, self.residuals(look.z, torch.where(arrival.y.isnan(), look.mean, arrival.y)), arrival)
        return ""

    def learn(self, z: Tensor, r: Tensor, arrival: Arrival) -> None:
        """New rows of a stream, without a step on the encoder; r: (N, T), finite."""

    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        """A fit where rows have doubled, else a refresh, in which a value that is missing is as predicted."""
        self.fit, stale = None, self.staleness.stale
        self.count.fill_(len(rows.y))
        if self.rescales(len(rows.y)):
            epochs = self.config.online.epochs
            for left in range(epochs, 0, -1):
                self.epoch(rows, units, left == epochs, generator, left)
            assert self.fit is not None
            self.last, self.fit, event = self.fit.loss, None, f"fit of {len(rows.y)} rows"
        else:
            steps = self.config.online.stale_steps if stale else self.config.online.steps
            r = self.residuals(rows.z, rows.filled)
            steady = self.refresh(rows.z, r, steps, generator)
            event = ("stale, " if stale else "") + f"{steps} steps"
            event += "" if steady else "; steps without a finite gradient were left out"
        self.since = 0
        if stale:
            self.staleness.calm()
        return event

    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        """Rows with a missing value are left out; where all are, the mean stands for it."""
        whole = torch.isfinite(rows.y).all(1)
        z, y = (rows.z[whole], rows.y[whole]) if bool(whole.any()) else (rows.z, rows.y.nan_to_num())
        held = self.config.held_out(len(y)).to(y.device)
        if first:
            self.fitted_on, self.since = len(rows.y), 0
            self.count.fill_(len(rows.y))
            self._centre(z[~held], y[~held])
            self.factor.fill_(1.0)
            self.start(z[~held], self.residuals(z[~held], y[~held]), generator)
            self.fit = Fit(self.config, self, self.optimiser())
        if self.fit is None or self.fit.finished:
            return False
        self.fit.epoch(z, self.residuals(z, y), held, self.factor, generator, left)
        if self.fit.finished or left == 1:
            self.unroll(z, y, held, generator)
        return not self.fit.finished

    def unroll(self, z: Tensor, y: Tensor, held: Tensor, generator: Generator) -> None:
        """At the end of a fit: train for simulations, where they are planned."""

    def _centre(self, z: Tensor, y: Tensor) -> None:
        """Mean function and scale of the residuals; fitted to held rows it would flatter them. O(N W² + W³)"""
        if self.linear:
            self.slope.copy_(ridge(z, y))
            y = y - z @ self.slope
        self.residual.fit(y)

    def descend(self, optimiser: Optimiser, z: Tensor, r: Tensor, generator: Generator) -> float:
        with training(self.trained["encoder"]):
            return optimiser.epoch(z, r, generator)

    def failed(self) -> None:
        if self.fit is not None:
            self.fit.failed()

    def loss(self) -> float:
        """In a fit as it says; on a stream the NLPD a value of the newest rows, before they were learned, each squared
        error at most 25 times its variance."""
        return self.last if self.fit is None else self.fit.loss

    def snapshot(self) -> Callable[[], None]:
        served, back = self.served(), holding(self._all())
        held = {name: getattr(self, name) for name in ("fit", "refresher", "fitted_on", "since", "last")}

        def put_back() -> None:
            served()
            back()
            for name, value in held.items():
                setattr(self, name, value)

        return put_back

    def put(self) -> None:
        """Tensors were put back: what is computed from them has to be again."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, parts = gather(self._all())
        last = self.last if math.isfinite(self.last) else None
        return tensors, {"parts": parts, "fitted_on": self.fitted_on, "since": self.since, "last": last}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        parts = rest["parts"]
        assert isinstance(parts, dict)
        self.fit = Fit(self.config, self, self.optimiser()) if "fit" in parts else None
        scatter(self._all(), tensors, parts)
        self.fitted_on, self.since = int(str(rest["fitted_on"])), int(str(rest["since"]))
        self.last = math.nan if rest["last"] is None else float(str(rest["last"]))
        self.put()

    def _all(self) -> Parts:
        own = {name: getattr(self, name) for name in ("slope", "residual", "factor", "count", "staleness")}
        return {**own, **self.trained, **self.parts(), **({} if self.fit is None else {"fit": self.fit})}


def ridge(z: Tensor, r: Tensor) -> Tensor:
    """(ZᵀZ + κI)⁻¹ Zᵀ(r − r̄), z centred: (N, W), (N, T) -> (W, T)."""
    z, r = z - z.mean(0), r - r.mean(0)
    gram = z.T @ z
    gram.diagonal().add_(RIDGE)
    found: Tensor = torch.linalg.solve(gram, z.T @ r)
    return found
