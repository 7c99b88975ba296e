"""Weights of experts, learned online: one weight an expert and output column, on the simplex.

For column t (a target, h steps ahead) the weights minimise

    wᵀ S̃_t w + λ_t ‖w − w₀‖²,      S̃_t = Σ_h' ρ^|h−h'| S_h' / τ_t,      λ_t = λ + κ H / n_t

where S_t are forgetting second moments of the experts' errors, pooled over the neighbouring steps of the same target. A
row has weight 1/max(|error of the mix|, s_t), s_t the running mean of that error, so that the quadratic stands for a
Huber loss (iteratively reweighted least squares). τ_t is the second moment of the best expert, so that λ is a share of
it: of experts that are equally good it takes the mean, and it gives nothing to those that are not. Errors of windows
that overlap are not independent: of n_t rows n_t/H are, and the weights w₀, taken before anything is known,
count for κ of those.

An error counts as at most `FAR` times the present scale: one glitch does not decide the weights of weeks.

Nor would a new regime: a row counts for most where the mix is right, and weeks in which an expert was wrong outweigh
those in which it alone is right. Hence R_t, the mean moments of the last rows, with a memory of `LATELY` rows and the
weight 1/max(min_k |e_k|, s_t)² for each: a row in which all are wrong does not say who is right. Where, in units of s_t
and at most of the neighbouring steps,

    √(wᵀ R_t w) > `ASTRAY`   and   > `BETTER` √(min_k R_kk),      R_t pooled as S_t,

these usual weights w are astray, until √(wᵀ R_t w) is at most `AGAIN` √(min_k R_kk). While they are, weights by R_t
take their place, of experts with √R_kk up to `BETTER` √(min_k R_kk), and rows count in S_t by the error that the usual
mix would have. Not in a panel, whose last rows are those of some of its series.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Shape
from streamgp.mixing.simplex import minimise
from streamgp.state import Declared, Tensors

RIDGE = 0.01
"""λ: towards equal weights, as a share of the best expert's second moment."""
YOUNG = 5.0
"""κ: independent errors that the first weights count for."""
POOL = 0.7
"""ρ: weight of the errors of a neighbouring step."""
NEAR = 1.0
"""Running mean errors below which an error has no more weight for being smaller."""
FAR = 10.0
"""Running mean errors that an error counts for at most."""
WILD, STRAY = 50.0, 12.0
"""Running mean errors beyond which a forecast is none: from the median of the experts; and from that and from the
median by their weights, so that one expert that is right is not outvoted by many that are not."""
WORST = 4.0
"""Times the best expert's root mean square error from which on an expert has no weight."""
SCALE_ROWS = 2000.0
"""Rows after which an error counts 1/e in the running mean error and the variance."""
LATELY = 12.0
"""Rows after which an error counts 1/e in what is known of the last rows."""
ASTRAY, BETTER = 4.0, 2.0
"""From which root mean square error over the last rows on the usual mix is astray: in running mean errors, and times
that of the best expert. In a new regime, experts that are `BETTER` times worse than the best have no weight."""
AGAIN = 1.5
"""Times that of the best expert at which it no longer is."""
LATENT = 0.5
"""Share of the variance, at most and on average, that is the experts' disagreement."""

OUTVOTED = "outvoted"
"""Name of the part of a mean that comes of medians in the place of forecasts that are none."""


class Mixer(Declared, nn.Module):
    """See the module; Stateful by its buffers.

    Args:
        experts: K.
        shape: of the windows: T columns of O targets and H steps.
        memory: rows after which an error counts 1/e in the weights.
        first: (K,) w₀; equal weights where None.

    Attributes:
        weights: (T, K) on the simplex; w₀ before any error is known.
        usual: (T, K) those of the long memory, which are the weights but for a new regime.

    Example:
        >>> shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
        >>> mixer = Mixer(2, shape, memory=500.0)
        >>> y = torch.randn(400, 1, generator=torch.Generator().manual_seed(0)).double()
        >>> mixer.learn(torch.stack([y + 0.1, y - 0.3]), y)
        >>> [round(value, 2) for value in mixer.weights[0].tolist()]
        [0.75, 0.25]
    """

    STATE = (Tensors("moments", "rows", "scale", "square", "apart", "count", "lately", "usual", "weights"),)

    def __init__(self, experts: int, shape: Shape, memory: float, first: Tensor | None = None) -> None:
        super().__init__()
        self.experts, self.shape, self.memory = experts, shape, memory
        columns, steps = shape.columns, torch.arange(shape.horizon, dtype=FLOAT)
        for name, size in {
            "moments": (columns, experts, experts),
            "rows": (columns,),
            "scale": (columns,),
            "square": (columns,),
            "apart": (columns,),
            "count": (columns,),
            "lately": (columns, experts, experts),
        }.items():
            self.register_buffer(name, torch.zeros(size, dtype=FLOAT))
        first = torch.full((experts,), 1.0 / experts, dtype=FLOAT) if first is None else first
        self.register_buffer("first", first.to(FLOAT), persistent=False)
        self.register_buffer("usual", first.to(FLOAT).repeat(columns, 1))
        self.register_buffer("weights", first.to(FLOAT).repeat(columns, 1))
        near = POOL ** (steps[:, None] - steps).abs()
        self.register_buffer("near", near / near.sum(1, keepdim=True), persistent=False)
        self.moments: Tensor  # (T, K, K) S
        self.rows: Tensor  # (T,) n, rows so far
        self.scale: Tensor  # (T,) s, the running mean of |error of the mix|
        self.square: Tensor  # (T,) sum of squared errors of the mix
        self.apart: Tensor  # (T,) sum of the experts' weighted variance around the mix
        self.count: Tensor  # (T,) rows in `scale` and these sums, after forgetting
        self.lately: Tensor  # (T, K, K) R; it begins at 0
        self.usual: Tensor
        self.weights: Tensor
        self.first: Tensor  # (K,) w₀
        self.near: Tensor  # (H, H) ρ^|h−h'|, each row over its sum

    def mean(self, means: Tensor) -> Tensor:
        """(K, N, T) the experts' forecasts -> (N, T) the mix."""
        return self._mix(self._plausible(means))

    def _mix(self, values: Tensor) -> Tensor:
        """(K, N, T) -> (N, T) their weighted mean."""
        return torch.einsum("knt,tk->nt", values, self.weights)

    def outvoted(self, means: Tensor) -> Tensor:
        """(K, N, T) where the median takes the place of a forecast."""
        return (self._plausible(means) != means) & means.isfinite()

    def with_outvoted(self, terms: dict[str, Tensor], means: Tensor) -> dict[str, Tensor]:
        """Terms (N, T) of a mix, and what medians add to them where a forecast is outvoted, if one is."""
        where = self.outvoted(means).any(0)
        if not bool(where.any()):
            return terms
        return terms | {OUTVOTED: torch.where(where, self.mean(means) - torch.stack(list(terms.values())).sum(0), 0.0)}

    def _plausible(self, means: Tensor) -> Tensor:
        """Forecasts beyond `WILD` mean errors from the median of all, or beyond `STRAY` from it and from the median by
        weight, are that median: a glitch among the inputs of one expert, or a level that it does not follow, is no
        forecast. Two experts have no majority."""
        within = means.amax(0) - means.amin(0) <= STRAY * self.scale  # then none is far from the median
        if self.experts < 3 or bool((within | (self.scale == 0)).all()):
            return means
        middle = means.median(0).values
        ordered, order = means.sort(0)
        weight = self.weights.T[:, None].expand_as(means).gather(0, order).cumsum(0)
        heavy = ordered.gather(0, (weight < 0.5).sum(0, keepdim=True).clamp(max=self.experts - 1))
        away = (means - middle).abs()
        stray = torch.minimum(away, (means - heavy).abs()) > STRAY * self.scale
        return torch.where(((away > WILD * self.scale) | stray) & (self.scale > 0), middle, means)

    def variances(self, means: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """The variance around the mix: the part in which the experts disagree, and the rest.

        Together they are the running mean of the squared errors, where the experts disagree as they use to.

        Args:
            means: (K, N, T) the experts' forecasts.
            prior: (N, T) the variance before any error is known; it counts for one row.

        Returns:
            latent variance and noise, (N, T) each.
        """
        return self.issue(means, prior)[1:]

    def issue(self, means: Tensor, prior: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`mean` and `variances`, (N, T) each, in one go."""
        share = (LATENT * self.square / self.apart.clamp(min=torch.finfo(FLOAT).tiny)).clamp(max=1.0)
        noise = (self.square - share * self.apart + prior) / (self.count + 1.0)
        plausible = self._plausible(means)
        mix = self._mix(plausible)
        around = mix if plausible is means else self.mean(plausible)
        return mix, share * self._mix((plausible - around).square()), noise

    def _apart(self, means: Tensor) -> Tensor:
        """(K, N, T) -> (N, T) the weighted variance of the experts around the mix."""
        return self._mix((means - self.mean(means)).square())

    def learn(self, means: Tensor, y: Tensor) -> None:
        """Learn from what the experts forecast.

        Args:
            means: (K, N, T) what each had issued, before it knew the truth.
            y: (N, T) the truths, NaN = not observed.
        """
        error = y - means
        known = error.isfinite().all(0)  # (N, T)
        seen = known.sum(0).to(FLOAT)  # (T,)
        if not bool(known.any()):
            return
        error = torch.where(known, error, 0.0)
        mixed = torch.einsum("knt,tk->nt", error, self.weights).abs()
        self._rescale(mixed, known, seen)
        scale = self.scale.clamp(min=torch.finfo(FLOAT).tiny)
        self._spread(means, mixed, known, seen, scale)
        by_usual = torch.einsum("knt,tk->nt", error, self.usual).abs()
        share = known / (by_usual / scale).clamp(min=NEAR, max=FAR)
        error = (error / scale).clamp(-FAR, FAR)
        kept = torch.exp(-seen / self.memory)
        new = torch.einsum("knt,nt,lnt->tkl", error, share, error)
        self.moments.mul_(kept[:, None, None]).add_(new)
        self.rows.add_(seen)
        if not self.shape.panel:
            self._remember(error, known, seen)
        self.solve()

    @property
    def astray(self) -> Tensor:
        """(T,) whether other weights than the usual ones are in their place."""
        return (self.weights != self.usual).any(1)

    def _remember(self, error: Tensor, known: Tensor, seen: Tensor) -> None:
        """R of the last rows, with the errors (K, N, T) in units of the scale; O(N T K²)."""
        later = known.flip(0).cumsum(0).flip(0) - known.to(FLOAT)  # (N, T) rows known after this one
        share = known * torch.exp(-later / LATELY) * -math.expm1(-1.0 / LATELY)
        share = share / error.abs().amin(0).clamp(min=NEAR).square()
        new = torch.einsum("knt,nt,lnt->tkl", error, share, error)
        self.lately.mul_(torch.exp(-seen / LATELY)[:, None, None]).add_(new)

    def _rescale(self, mixed: Tensor, known: Tensor, seen: Tensor) -> None:
        """The running mean of |error of the mix|; it begins at the median, which no glitch moves."""
        median = torch.where(known, mixed, torch.nan).nanmedian(0).values.nan_to_num(0.0)
        begun = torch.where(median > 0, median, (mixed * known).sum(0) / seen.clamp(min=1.0))
        self.scale.copy_(torch.where(self.scale > 0, self.scale, begun))
        limited = torch.minimum(mixed, FAR * self.scale)
        kept = torch.exp(-seen / SCALE_ROWS)
        total = kept * self.count * self.scale + (limited * known).sum(0)
        self.scale.copy_(torch.where(seen > 0, total / (kept * self.count + seen).clamp(min=1.0), self.scale))

    def _spread(self, means: Tensor, mixed: Tensor, known: Tensor, seen: Tensor, scale: Tensor) -> None:
        """The sums of the variance."""
        kept = torch.exp(-seen / SCALE_ROWS)
        self.square.mul_(kept).add_((torch.minimum(mixed, FAR * scale).square() * known).sum(0))
        apart = torch.minimum(self._apart(means), (FAR * scale).square())
        self.apart.mul_(kept).add_(torch.where(known, apart, 0.0).sum(0))
        self.count.mul_(kept).add_(seen)

    def weaken(self, part: float) -> None:
        """Let what was learned count for this part of its rows, and weights depart by this part from the first."""
        for sums in (self.moments, self.rows, self.square, self.apart, self.count, self.lately):
            sums.mul_(part)
        for weights in (self.usual, self.weights):
            weights.copy_(self.first + part * (weights - self.first))

    def solve(self) -> None:
        """The weights of the present moments; they stay where a column has no error at all."""
        before = self.astray
        ridge = RIDGE + YOUNG * self.shape.horizon / self.rows.clamp(min=1.0)  # (T,)
        self.usual.copy_(self._solved(self._pooled(self.moments), ridge, self.usual))
        lately = self._pooled(self.lately)
        own = torch.einsum("tk,tkl,tl->t", self.usual, lately, self.usual)
        best = lately.diagonal(dim1=1, dim2=2).amin(1)
        astray = torch.where(before, own > AGAIN**2 * best, (own > ASTRAY**2) & (own > BETTER**2 * best))
        astray = self._pooled(astray.to(FLOAT)) > 0.5  # at most of the neighbouring steps
        if bool(astray.any()):
            by_lately = self._solved(lately, torch.full_like(ridge, RIDGE + YOUNG / LATELY), self.weights, BETTER)
            self.weights.copy_(torch.where(astray[:, None], by_lately, self.usual))
        else:
            self.weights.copy_(self.usual)

    def _pooled(self, values: Tensor) -> Tensor:
        """(T, ...) -> (T, ...) their mean over the neighbouring steps of the same target, by ρ."""
        by_step = values.reshape(self.shape.outputs, self.shape.horizon, -1)
        return torch.einsum("hg,ogx->ohx", self.near, by_step).reshape(values.shape)

    def _solved(self, moments: Tensor, ridge: Tensor, start: Tensor, worst: float = WORST) -> Tensor:
        """(T, K) the weights that minimise the quadratic of the moments (T, K, K), from `start` on, of experts whose
        root mean square error is at most `worst` times the best."""
        size = moments.diagonal(dim1=1, dim2=2)  # (T, K)
        best = size.amin(1)
        some = size.amax(1) > 0
        best = torch.maximum(best, 1e-12 * size.amax(1)).clamp(min=torch.finfo(FLOAT).tiny)
        a = torch.where(some[:, None, None], moments / best[:, None, None], 0.0)
        a += ridge[:, None, None] * torch.eye(self.experts, dtype=FLOAT, device=a.device)
        allowed = size <= worst**2 * best[:, None]
        found = minimise(a, start, allowed, ridge[:, None] * self.first)
        return torch.where(some[:, None], found, start)


def forgetting(shape: Shape) -> float:
    """Rows after which an error counts 1/e by default: three of the longest season, and never fewer than 300.

    Example:
        >>> round(forgetting(Shape(targets=("y",), horizon=1, lags=1, past=("y", "season(y)"), future=(), season=336)))
        1008
    """
    return max(3.0 * shape.season, 300.0)
