"""Recursive Bayesian linear regression on the flattened window, all T columns in one solve.

With u = (1, window − centre), ỹ = y − r(x) − centre, and row weights λ^age,

    G = Σ u uᵀ,  C = Σ u ỹᵀ,  q = Σ ỹ²,  n = Σ 1          kept without the prior, so that only data is forgotten
    A = G + κ D,  M = A⁻¹ C,  a = a₀ + n/2,  b = b₀ + ½ (q − diag(CᵀM))
    y_* ~ t_{2a}( r + centre + Mᵀu, (b/a) (1 + uᵀA⁻¹u) )

the conjugate normal-inverse-gamma posterior of w | s² ~ N(0, s² (κD)⁻¹), s² ~ IG(a₀, b₀) (Bishop 2006, exercise
3.12; Murphy 2012, section 7.6.3). D holds the running variance of each feature, so that the ridge κ is a number
of rows whatever the units; b₀ = (a₀ − 1) times the running variance of ỹ. By default κ minimises the mean over columns
of log GCV(κ) = log ‖ỹ − ŷ‖²/n − 2 log(1 − p(κ)/n), p the trace of the hat matrix (Golub, Heath & Wahba 1979), all from
the sums; κ is chosen again when the rows have grown by `REVIEW`.

A row of a stream is limited, once the model is settled (`online.winsorise`): its truth to 5 standard deviations of its
own forecast, and its weight to v = 1/max(1, uᵀA⁻¹u), so that a window with a glitch among its lags says no more of its
direction than all rows before it. `fit` is exact.

Where simulations are planned (`Shape.simulated`) u has `hinges` of the newest values too: run on its own output, a
regression without them goes on as if the system were linear. Their coefficients are changes of slope: the prior of each
counts for `STIFF` rows of the column that it is made from. Functions are then limited to the range seen, and as much
again at either side.

A function of the posterior is one draw of the weights, w = M + s L⁻ᵀz with A = LLᵀ, z ~ N(0, I): `Linear.functions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Json, Model, Predictive, Shape, Step
from streamgp.errors import NotPositiveDefinite
from streamgp.model_config import NUMBER, ModelConfig, Simulated
from streamgp.models.linear import conjugate
from streamgp.models.linear.conjugate import A0
from streamgp.models.linear.hinges import KNOTS, Hinges
from streamgp.online.inputs import plausible, reporting, usable
from streamgp.online.reference import Kind, Reference
from streamgp.online.variance import random_walk_variance
from streamgp.online.winsorise import SETTLED, Winsoriser
from streamgp.predictives.gaussian import Gaussian
from streamgp.predictives.student_t import StudentT
from streamgp.state import holding

CHUNK = 4096
"""Rows between two solves of `fit`."""
STIFF = 10.0
"""Rows that the prior of a hinge counts for, in the spread of the column that it is made from."""
REVIEW = 0.25
"""Share of the rows that came since κ was chosen, from which on it is chosen again."""


OVERFLOW = "the linear model's sums overflow"
INDEFINITE = "the linear model's Gram matrix is not positive definite"


class Config(ModelConfig):
    """Options of the linear model."""

    simulates: ClassVar[Simulated] = "trained"

    target: Kind = Field(
        "auto",
        description="what is learned: level, change (from the last value), season (departure from the season), "
        "or auto: season where there is one, else change where there are lags, else level",
    )
    decay: float = Field(
        0.9, ge=0, le=1, description="part of the present departure from the season left after 4 rows (target=season)"
    )
    ridge: float | None = Field(
        None,
        gt=0,
        le=1e12,
        description="weight of the prior that all coefficients are 0, rows; none: chosen by generalised "
        "cross-validation. With seasons: a factor on the ridges of all memories, 1 if none",
    )
    memory: float | None = Field(None, gt=0, description="rows after which a row counts 1/e; none never forgets")
    predictive: Literal["gaussian", "student_t"] = Field(
        "gaussian", description="student_t: the posterior predictive; gaussian: a Gaussian with its mean and variance"
    )
    limit: float | None = Field(
        5.0,
        gt=0,
        description="standard deviations of its own forecast that a row of a stream counts for at most; none: any",
    )

    def direct(self, shape: Shape) -> bool:
        """Whether each step ahead is regressed on its references."""
        return shape.context is not None and self.target == "auto" and self.predictive == "gaussian"

    def functions(self, shape: Shape) -> int:
        """Columns of a window, and hinges."""
        return shape.width + 1 + (KNOTS * len(shape.past) if shape.simulated else 0)

    def bytes_of(self, shape: Shape) -> int:
        """Of the direct regression: a matrix for each group of steps and phase of the day, solved in copies."""
        if not self.direct(shape) or shape.context is None:
            return super().bytes_of(shape)
        columns = 100 + 30 * len(shape.context.known) + 6 * shape.outputs + 3 * len(shape.context.inputs)
        groups = 8 * min(shape.columns, 20 * shape.outputs) + 4 * 24 * shape.outputs
        return groups * columns**2 * NUMBER


class Linear(Model):
    """See the module; `build` makes one."""

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.family: type[Predictive] = Gaussian if config.predictive == "gaussian" else StudentT
        self.reference = Reference(config.target, shape, config.decay)
        self.hinges = Hinges(shape) if shape.simulated and shape.lags and shape.horizon == 1 else None
        width, columns = shape.width + 1 + (len(self.hinges.parents) if self.hinges else 0), shape.columns
        self.limit = Winsoriser(shape, config.limit, max(SETTLED, 3.0 * width))
        for name, size in {
            "feature_centre": (shape.width,),
            "target_centre": (columns,),
            "gram": (width, width),
            "cross": (width, columns),
            "square": (columns,),
            "count": (columns,),
            "rows": (),
            "factor": (width, width),
            "weights": (width, columns),
            "noise": (columns,),
            "size": (columns,),
            "ridge": (),
            "since": (),
        }.items():
            self.register_buffer(name, torch.zeros(size, dtype=FLOAT))
        self.feature_centre: Tensor  # (W,)
        self.target_centre: Tensor  # (T,)
        self.gram: Tensor  # (W + 1, W + 1)
        self.cross: Tensor  # (W + 1, T)
        self.square: Tensor  # (T,)
        self.count: Tensor  # (T,) weight of the rows whose truth was seen
        self.rows: Tensor  # () weight of all rows
        self.factor: Tensor  # (W + 1, W + 1) lower Cholesky factor of A
        self.weights: Tensor  # (W + 1, T) M
        self.noise: Tensor  # (T,) b
        self.size: Tensor  # (T,) of the truths of the first batch, which the prior of one that never varied has
        self.ridge: Tensor  # () κ
        self.since: Tensor  # () rows since it was chosen

    def predict(self, x: Inputs) -> Predictive:
        """The posterior predictive; before any data N(r(x), random-walk variance) or the t with these moments."""
        reference = self.reference(x)
        if not self.rows:
            variance, latent = random_walk_variance(x, self.shape), torch.zeros_like(reference)
            return self.distribution(reference, variance, latent, torch.full_like(self.noise, 2 * A0))
        u = self._features(x)
        leverage = self._leverage(u)
        shape = A0 + self.count / 2
        noise = self.noise / (shape - 1)
        return self.distribution(
            reference + self.target_centre + u @ self.weights, noise * (1 + leverage), noise * leverage, 2 * shape
        )

    def mean(self, x: Inputs) -> Tensor:
        """(N, T) that of `predict`, at the cost of one product; differentiable in x."""
        reference: Tensor = self.reference(x)
        return reference + self.target_centre + self._features(x) @ self.weights if self.rows else reference

    def functions(self, paths: int, generator: Generator) -> Callable[[Inputs], Tensor]:
        """One weight vector w ~ N(M, s² A⁻¹) a path and column, and noise of variance s² a step (base.Simulates).

        s² is the posterior mean b/(a − 1) with predictive=gaussian and one draw of IG(a, b) a path with student_t, so
        that one step ahead an observation has the distribution of `predict`. Before any data the weights are 0.
        """
        device, shape, size = self.noise.device, A0 + self.count.cpu() / 2, (paths, *self.weights.shape)
        z = torch.randn(size, generator=generator, dtype=FLOAT, device=generator.device).to(device)  # (P, W + 1, T)
        unit = torch.ones(paths, self.shape.columns, dtype=FLOAT)  # (P, T) s² over its mean
        if self.config.predictive == "student_t":  # torch draws no gamma from a generator
            seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
            gamma = np.random.default_rng(seed).gamma(shape.numpy(), size=(paths, self.shape.columns))
            unit = (shape - 1) / torch.from_numpy(gamma)
        known, weights, root = bool(self.rows), self.weights, unit.sqrt().to(device)
        if known:
            root *= (self.noise / (shape.to(device) - 1)).sqrt()  # (P, T) s
            weights = weights + root[:, None] * torch.linalg.solve_triangular(self.factor.T, z, upper=True)

        def draw(x: Inputs) -> Tensor:
            reference: Tensor = self.reference(x)  # (P · S, T)
            noise = torch.randn(reference.shape, generator=generator, dtype=FLOAT, device=generator.device).to(device)
            noise *= root.repeat_interleave(len(reference) // paths, 0)
            if not known:
                return reference + random_walk_variance(x, self.shape).sqrt() * noise
            u = self._features(x).unflatten(0, (paths, -1))  # (P, S, W + 1)
            own: Tensor = (u @ weights).flatten(0, 1)
            drawn = reference + self.target_centre + own + noise
            return drawn if self.hinges is None else self.hinges.limited(drawn, noise)

        return draw

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        """Learn N windows; a numerical failure is undone and reported.

        A row with some of its T truths missing is completed by the model's own mean.

        That leaves the missing columns' coefficients as they were; their shared uᵀA⁻¹u shrinks as if the truth had
        been seen (a departure: T separate Gram matrices would avoid it), but not their noise.
        """
        x, y, left_out = usable(x, y)
        if not len(y):
            return reporting(Step(float("nan"), len(self.gram), True, "nothing observed"), left_out)
        issued = self.predict(x)
        loss = -torch.nanmean(issued.log_prob(y)).item()
        y = self.limit(y, issued, self.count)
        put_back, why = holding(dict(self.named_buffers())), ""
        try:
            self._learn(x, y, guarded=True)
            why = "" if self._healthy() else "its numbers are not finite"
        except NotPositiveDefinite as error:
            why = error.message
        if why:
            put_back()
        step = Step(loss, len(self.gram), not why, f"update; undone: {why}" if why else "update")
        return reporting(step, left_out)

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Start over from these windows, in their order; one pass is exact, so that there is never a second."""
        for buffer in self.buffers():
            buffer.zero_()
        x, y, left_out = usable(x, y)
        x, y, glitches = plausible(x, y)
        left_out = "; ".join(part for part in (left_out, glitches) if part)
        if epochs < 1:
            return
        total, chunks = 0.0, range(0, len(y), CHUNK)
        for start in chunks:
            rows = slice(start, start + CHUNK)
            total -= torch.nanmean(self.predict(x.rows(rows)).log_prob(y[rows])).item()
            self._learn(x.rows(rows), y[rows])
        loss = total / max(len(chunks), 1)
        yield reporting(Step(loss, len(self.gram), self._healthy(), "epoch"), left_out)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return dict(self.named_buffers()), {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        for name, buffer in self.named_buffers():
            buffer.copy_(tensors[name])

    def distribution(self, mean: Tensor, variance: Tensor, latent: Tensor, dof: Tensor) -> Predictive:
        """The family's member with these moments, all (N, T); dof may be (T,)."""
        if self.config.predictive == "gaussian":
            return Gaussian(mean, latent, variance - latent)
        return StudentT(mean, (variance * (dof - 2) / dof).sqrt(), dof, latent)

    def _features(self, x: Inputs) -> Tensor:
        """(N, W + 1): 1, the centred window and the hinges; a lag that is NaN is at its centre."""
        flat = torch.cat([x.past.flatten(1), x.future.flatten(1)], 1)
        centred = torch.nan_to_num(flat - self.feature_centre, nan=0.0)
        more = [] if self.hinges is None else [self.hinges(x)]
        return torch.cat([torch.ones_like(centred[:, :1]), centred, *more], 1)

    def _learn(self, x: Inputs, y: Tensor, guarded: bool = False) -> None:
        """Add N rows; `guarded`: each with its weight v, see `Winsoriser.weights`."""
        seen = torch.isfinite(y).any(1)
        x, y = x.rows(seen), y[seen]
        if not len(y):
            return
        target = y - self.reference(x)  # (N, T)
        if not self.rows:
            flat = torch.cat([x.past.flatten(1), x.future.flatten(1)], 1)
            self.feature_centre.copy_(torch.nanmean(flat, 0).nan_to_num(0.0))
            self.target_centre.copy_(torch.nanmean(target, 0).nan_to_num(0.0))
            self.size.copy_(torch.nanmean(y.abs(), 0).nan_to_num(0.0))
        u, target = self._features(x), target - self.target_centre
        known = torch.isfinite(target)
        kept = 1.0 if self.config.memory is None else math.exp(-len(y) / self.config.memory)
        own = u @ self.weights
        completed = torch.where(known, target, own)
        weight = u.new_ones(len(u), 1)
        if guarded and self.rows:
            weight = self.limit.weights(self._leverage(u)[:, 0], self.rows)[:, None]
        if self.hinges is not None:
            other = 1 + self.shape.width + self.hinges.follow(x).nonzero()[:, 0]
            self.gram[other], self.gram[:, other], self.cross[other] = 0.0, 0.0, 0.0
            u = self._features(x)
        weighted = weight * u
        self.square.mul_(kept).add_((weight * completed.square()).sum(0))
        self.count.mul_(kept).add_((weight * known).sum(0))
        self.rows.mul_(kept).add_(weight.sum())
        self.since.add_(weight.sum())
        self.gram.mul_(kept).add_(u.T @ weighted)
        self.cross.mul_(kept).add_(weighted.T @ completed)
        self._solve()

    def _leverage(self, u: Tensor) -> Tensor:
        """(N, 1) uᵀA⁻¹u"""
        return conjugate.leverage(self.factor, u)

    def _solve(self) -> None:
        spread = conjugate.spreads(self.gram, self.rows)
        # solved in features of unit spread, so that columns of very different size do not spoil the factorisation
        unit = spread.rsqrt()
        unit[0] = self.rows.rsqrt()
        scaled = self.gram * unit[:, None] * unit
        if self.hinges is not None:
            scaled.diagonal()[1 + self.shape.width :] += (
                STIFF * spread[1 + self.hinges.parents] / spread[-len(self.hinges.parents) :]
            )
        if self.config.ridge is not None:
            self.ridge.fill_(self.config.ridge)
        elif self.since >= REVIEW * self.rows:
            try:
                self.ridge.copy_(conjugate.ridge(scaled, self.cross * unit[:, None], self.square, self.rows))
            except RuntimeError:  # torch.linalg.LinAlgError
                raise NotPositiveDefinite(OVERFLOW, hint="scale the columns") from None
            self.since.zero_()
        found = conjugate.solution(scaled, unit, self.cross, self.square, self.rows, self.size, self.ridge)
        if found.failed:
            raise NotPositiveDefinite(INDEFINITE, hint="raise ridge")
        self.factor.copy_(found.factor)
        self.weights.copy_(found.weights)
        self.noise.copy_(found.noise)

    def _healthy(self) -> bool:
        return bool(torch.isfinite(self.weights).all() and torch.isfinite(self.noise).all())
