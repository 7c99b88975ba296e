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
regression without them extrapolates a linear system. Their coefficients are changes of slope: the prior of each
counts for `STIFF` rows of the column that it is made from. Functions are then limited to the range seen, and as much
again at either side.

A function of the posterior is one draw of the weights, w = M + s L⁻ᵀz with A = LLᵀ, z ~ N(0, I): `Linear.functions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Model, Predictive, Shape, Step
from streamgp.linalg.batched import energy, product
from streamgp.model_config import NUMBER, ModelConfig, Simulated
from streamgp.models.linear import conjugate
from streamgp.models.linear.conjugate import A0
from streamgp.models.linear.hinges import KNOTS, Hinges
from streamgp.online.glitches import plausible
from streamgp.online.inputs import epoch, learned, reporting, usable
from streamgp.online.reference import Kind, Reference
from streamgp.online.stacked import Packed, wide
from streamgp.online.variance import random_walk_variance
from streamgp.online.winsorise import SETTLED, Winsoriser
from streamgp.predictives.gaussian import Gaussian
from streamgp.predictives.student_t import StudentT
from streamgp.state import Declared, Parameters, holding

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
        description="winsorise a target of a stream at this many predictive standard deviations; none: never",
    )

    def direct(self, shape: Shape) -> bool:
        """Whether each step ahead is regressed on its references."""
        return shape.context is not None and self.target == "auto" and self.predictive == "gaussian"

    def knows_calendar(self, shape: Shape) -> bool:
        """With seasons."""
        return self.direct(shape)

    def own_units(self, shape: Shape) -> bool:
        """With seasons, and no known input."""
        return self.direct(shape) and shape.context is not None and not shape.context.known

    def steady_units(self, shape: Shape) -> bool:
        """With seasons and known inputs."""
        return self.direct(shape) and shape.context is not None and bool(shape.context.known)

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


SIZES = {
    "feature_centre": "W",
    "target_centre": "T",
    "gram": "UU",
    "cross": "UT",
    "square": "T",
    "count": "T",
    "rows": "",
    "factor": "UU",
    "weights": "UT",
    "noise": "T",
    "size": "T",
    "ridge": "",
    "since": "",
}
"""The state of a model and its axes: W columns of a window, U of these, the intercept and hinges, T targets."""


class WindowLook(NamedTuple):
    """What windows look like to their models. u: (K, N, W + 1) features; lever: (K, N, 1) uᵀA⁻¹u; mean, variance,
    latent: (K, N, T); dof: (K, N, T) of the t distribution."""

    u: Tensor
    lever: Tensor
    mean: Tensor
    variance: Tensor
    latent: Tensor
    dof: Tensor


class Linear(Declared, Model):
    """See the module; `build` makes one."""

    STATE = (Parameters(),)

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.family: type[Predictive] = Gaussian if config.predictive == "gaussian" else StudentT
        self.reference = Reference(config.target, shape, config.decay)
        self.hinges = Hinges(shape) if shape.simulated and shape.lags and shape.horizon == 1 else None
        width, columns = shape.width + 1 + (len(self.hinges.parents) if self.hinges else 0), shape.columns
        self.limit = Winsoriser(shape, config.limit, max(SETTLED, 3.0 * width))
        sizes = {"W": shape.width, "U": width, "T": columns}
        for name, axes in SIZES.items():
            self.register_buffer(name, torch.zeros([sizes[axis] for axis in axes], dtype=FLOAT))
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
        look = self.look(Packed.alone(x), self._held(), x)
        return self.distribution(*(part[0] for part in look[2:]))

    def hyperparameters(self) -> dict[str, Tensor]:
        """ridge (), relative to the variance of standardised columns; noise (T,), standard deviations."""
        if not self.rows:
            return {}
        return {"ridge": self.ridge, "noise": (self.noise / (A0 + self.count / 2 - 1)).sqrt()}

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
        loss, why = self._learned(x, y, guarded=True)
        return reporting(learned(loss, len(self.gram), why), left_out)

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Start over from these windows, in their order; one pass is exact, so that there is never a second."""
        for buffer in self.buffers():
            buffer.zero_()
        x, y, left_out = usable(x, y)
        x, y, glitches = plausible(x, y)
        left_out = "; ".join(part for part in (left_out, glitches) if part)
        if epochs < 1:
            return
        steps = list[tuple[int, Step]]()
        for start in range(0, len(y), CHUNK):
            rows = slice(start, start + CHUNK)
            loss, why = self._learned(x.rows(rows), y[rows])
            steps.append((len(y[rows]), learned(loss, len(self.gram), why, "epoch")))
        yield reporting(epoch(steps, len(self.gram)), left_out)

    def distribution(self, mean: Tensor, variance: Tensor, latent: Tensor, dof: Tensor) -> Predictive:
        """The family's member with these moments, all (N, T); dof may be (T,)."""
        if self.config.predictive == "gaussian":
            return Gaussian(mean, latent, variance - latent)
        return StudentT(mean, (variance * (dof - 2) / dof).sqrt(), dof, latent)

    def _held(self) -> dict[str, Tensor]:
        """The state, as that of one model of several: views of the buffers."""
        limit = {"limit.excess": self.limit.excess, "limit.far": self.limit.far}
        return {name: getattr(self, name)[None] for name in SIZES} | {name: part[None] for name, part in limit.items()}

    def _learned(self, x: Inputs, y: Tensor, guarded: bool = False) -> tuple[float, str]:
        """Add N usable windows; the loss before them, and why they were left out again."""
        put_back = None if self.hinges is None else holding({"hinges": self.hinges})
        views = self._held()
        held = dict(views)
        loss, (why,) = self.learn(Packed.alone(x), held, x, y, guarded)
        if why and put_back is not None:
            put_back()
        for name, part in held.items():
            if part is not views[name]:
                views[name].copy_(part)
        return loss.item(), why

    def _features(self, x: Inputs) -> Tensor:
        """(N, W + 1)"""
        return self.features(x, x.flat()[None], self.feature_centre[None])[0]

    # K models at once: `held` has the buffers of each, with a leading axis K; of `Linear` itself that is 1.

    def features(self, x: Inputs, windows: Tensor, centre: Tensor) -> Tensor:
        """(K, N, W + 1): 1, the centred windows (K, N, W) and the hinges; a lag that is NaN is at its centre."""
        centred = (windows - centre[:, None]).nan_to_num_(nan=0.0)
        more = [] if self.hinges is None else [self.hinges(x)[None]]
        return torch.cat([torch.ones_like(centred[..., :1]), centred, *more], 2)

    def look(self, packed: Packed, held: Mapping[str, Tensor], x: Inputs) -> WindowLook:
        """What each window looks like to its model; before any data the forecasts are those of a random walk."""
        reference, fresh = packed.laid(self.reference(x)), held["rows"] == 0
        new, factor = bool(fresh.any()), held["factor"]
        if new:
            factor = torch.where(fresh[:, None, None], torch.eye(factor.shape[-1]).to(factor), factor)
        u = self.features(x, packed.laid(x.flat()), held["feature_centre"])
        lever = energy(factor, u)
        shape = (A0 + held["count"] / 2)[:, None]  # (K, 1, T)
        noise = held["noise"][:, None] / (shape - 1)
        mean = reference + held["target_centre"][:, None] + product(u, held["weights"])
        latent, variance = noise * lever, noise * (1 + lever)
        if new:
            none, prior = fresh[:, None, None], packed.laid(random_walk_variance(x, self.shape))
            mean = torch.where(none, reference, mean)
            latent, variance = torch.where(none, 0.0, latent), torch.where(none, prior, variance)
        return WindowLook(u, lever, mean, variance, latent, (2 * shape).expand_as(mean))

    def learn(
        self, packed: Packed, held: dict[str, Tensor], x: Inputs, y: Tensor, guarded: bool
    ) -> tuple[Tensor, list[str]]:
        """Add windows to states, which are replaced; (K,) the loss before it, and why a model is left as it was.

        Args:
            packed: the windows.
            held: of each model.
            x: R windows.
            y: (R, T) their truths.
            guarded: truths are limited, and windows weighed; see `Winsoriser`.
        """
        look, old = self.look(packed, held, x), dict(held)
        truth = packed.truths(y)
        issued = self.distribution(*(part.flatten(0, 1) for part in look[2:]))
        loss = -issued.log_prob(truth.flatten(0, 1)).view(len(truth), -1).nanmean(1)
        if guarded:
            forecast, excess = (look.mean, look.variance, truth), held["limit.excess"]
            truth, held["limit.excess"] = self.limit.limited(packed.there, *forecast, held["count"], excess)
        target, u = truth - packed.laid(self.reference(x)), look.u
        known = torch.isfinite(target)
        if not bool((held["rows"] > 0).all()):
            self._begin(packed, held, x, truth, target)
            u = self.features(x, packed.laid(x.flat()), held["feature_centre"])
        target = target - held["target_centre"][:, None]
        completed = target if bool(known.all()) else torch.where(known, target, product(u, held["weights"]))
        weight = packed.there[..., None].to(u)
        if guarded:
            weight, held["limit.far"] = self.limit.weighed(packed.there, look.lever, held["rows"], held["limit.far"])
        if self.hinges is not None:
            other = 1 + self.shape.width + self.hinges.follow(x).nonzero()[:, 0]
            for name in ("gram", "cross"):
                held[name] = held[name].index_fill(1, other, 0.0)
            held["gram"] = held["gram"].index_fill(2, other, 0.0)
            u = self.features(x, packed.laid(x.flat()), held["feature_centre"])
        weighted, total = weight * u, weight.sum((1, 2))
        held["since"] = held["since"] + total
        new = {
            "square": (weight * completed.square()).sum(1),
            "count": (weight * known).sum(1),
            "rows": total,
            "gram": product(u.mT, weighted),
            "cross": product(weighted.mT, completed),
        }
        kept = None
        if self.config.memory is not None:
            kept = total.new_tensor([math.exp(-rows / self.config.memory) for rows in packed.counts.tolist()])
        for name, part in new.items():
            held[name] = (held[name] if kept is None else held[name] * wide(kept, part)) + part
        why = self._solve(held)
        if any(why):
            bad = torch.tensor([bool(text) for text in why], device=u.device)
            for name, part in held.items():
                held[name] = part if name == "limit.excess" else torch.where(wide(bad, part), old[name], part)
        return loss, why

    def _begin(self, packed: Packed, held: dict[str, Tensor], x: Inputs, truth: Tensor, target: Tensor) -> None:
        """Centres and sizes of models without rows, from their first ones: truths and departures (K, N, T)."""
        windows, begun = packed.laid(x.flat()), held["rows"] > 0
        first = {
            "feature_centre": packed.mean(windows, torch.isfinite(windows)),
            "target_centre": packed.mean(target, torch.isfinite(target)),
            "size": packed.mean(truth.abs(), torch.isfinite(truth)),
        }
        for name, value in first.items():
            held[name] = torch.where(begun[:, None], held[name], value)

    def _solve(self, held: dict[str, Tensor]) -> list[str]:
        """The posteriors from the sums; why one has none, or ""."""
        spread = conjugate.spreads(held["gram"], held["rows"])
        # solved in features of unit spread, so that columns of very different size do not spoil the factorisation
        unit = spread.rsqrt()
        unit[:, 0] = held["rows"].rsqrt()
        scaled = held["gram"] * unit[:, :, None] * unit[:, None]
        if self.hinges is not None:
            own = STIFF * spread[:, 1 + self.hinges.parents] / spread[:, -len(self.hinges.parents) :]
            scaled.diagonal(dim1=1, dim2=2)[:, 1 + self.shape.width :] += own
        finite = torch.isfinite(scaled).flatten(1).all(1) & torch.isfinite(held["cross"]).flatten(1).all(1)
        if not bool(finite.all()):
            scaled = torch.where(finite[:, None, None], scaled, torch.eye(scaled.shape[-1]).to(scaled))
        if self.config.ridge is not None:
            held["ridge"] = torch.full_like(held["ridge"], self.config.ridge)
        else:
            due = ((held["since"] >= REVIEW * held["rows"]) & finite).nonzero()[:, 0]
            if len(due):
                cross = held["cross"][due] * unit[due, :, None]
                chosen = conjugate.ridges(scaled[due], cross, held["square"][due], held["rows"][due])
                finite[due] &= torch.isfinite(chosen)
                held["ridge"] = held["ridge"].index_copy(0, due, chosen.nan_to_num(1.0))
                held["since"] = held["since"].index_fill(0, due, 0.0)
        sums = (held[name] for name in ("cross", "square", "rows", "size", "ridge"))
        found = conjugate.solution(scaled, unit, *sums)
        held["factor"], held["weights"], held["noise"] = found[:3]
        healthy = torch.isfinite(found.weights).flatten(1).all(1) & torch.isfinite(found.noise).all(1)
        states = zip(finite.tolist(), found.failed.tolist(), healthy.tolist(), strict=True)
        return [
            OVERFLOW if not whole else INDEFINITE if failed else "" if well else "its numbers are not finite"
            for whole, failed, well in states
        ]
