"""Stochastic steps on very many weights, whose cost depends neither on their number m nor on that of the rows.

Heavy ball on drawn blocks, with the residual of all rows cached: no noise of the basis in a gradient. It is the control
variate of Evans & Nair (2020, eq. 3) in the limit where the rows of the objective are the support rows: the fresh rows
cancel, and a block's gradient is exact without its neighbours. With a = Φμ, d = Φv on R rows, weights W of sum n,
λ = σ²/n, B blocks and t steps taken, a step is

    b ~ uniform                                                         one of B
    μ_b += v_b ρ(1 − ρ^Δ)/(1 − ρ),  v_b *= ρ^Δ,   Δ = t − last_b        all blocks coast; this one catches up
    g = Φ_bᵀW(a + ρd − y)/n + λ (μ_b + ρ v_b)                           Nesterov's look ahead
    D = −ηB g/(1 + ηBλ)                                                 implicit in the prior: stable at any B
    v_b ← ρ v_b + D,  μ_b += v_b,  d ← ρ d + Φ_bD,  a += d

in O(R m̃ (W + T)). It equals the dense iteration in which D is 0 outside b: catching up is exact, and a and d are
those of the coasting weights. Blocks that were never drawn are 0. η = RATE/λ_max(ΦᵀWΦ/n), by power iterations on a
drawn block, whose BΦ_bΦ_bᵀ stands for ΦΦᵀ.

What a block does not share with the others is noise in that, of relative variance ν = tr(ΦᵀWΦ/n)/(m̃ λ_max) or more,
and momentum sums it up over 1/(1 − ρ) steps. Where the spectrum is flat, as of few rows that are far apart, ρ = 0.97
lets the weights grow without bound. So ρ = min(0.97, 1 − 12 ν); and where 50 steps led upwards all the same, all
velocities are set to 0 and 1/(1 − ρ) is halved (ours).

Nothing here costs O(m) but the memory that is reserved, which an operating system hands out as it is written to, and
the scan of B step counts before a prediction. Variances are mean-field: they grow with m towards the prior's, since a
block does not know what the others have learned.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT
from streamgp.features import Features
from streamgp.optim.block_rows import Rows, thin

MOMENTUM, RATE = 0.97, 0.5
"""ρ at most, and the step size over the inverse of the largest curvature: the best of those tried on kin40k."""
NOISY = 12.0
"""1 − ρ over the relative variance of a block's curvature, at least: what was stable on demand and on made-up rows."""
LAP, RISE = 50, 1.05
"""Steps after which the squared residuals are looked at, and their growth since the last look that is no descent."""
FEW = 512
"""Rows, about, that the log-determinant of the loss is estimated from."""
SQUARES = 2000
"""Rows at most that the squares of features are summed over, each standing for its share."""
POWER_ROWS, POWER_ITERATIONS, RECHECK = 2048, 12, 100
"""Of the curvature: rows, power iterations, steps after which it is measured again."""
LEAST = 1e-30
"""Of a sum of weights and a curvature: a column of which nothing is observed stays at 0."""
TINY = 1e-300
SMOOTH = 0.05
"""Weight of a new draw in the running mean of the loss, once 20 were taken."""
SMALL = 2**22
"""Bytes from which memory is reserved rather than filled."""


class PartialDiagonal(NamedTuple):
    """A diagonal covariance of which only some blocks are known, and the others by their expectation.

    Blocks that were never drawn are all alike: their weights still have the distribution that the optimum in closed
    form gives an average feature. E φ_r² = k(x, x)/m for random features, so that what they add to the variance of f(x)
    is a share of the prior variance k(x, x), and costs nothing.

    Attributes:
        blocks: (P,) int64 numbers of the blocks that are held, ascending.
        deviation: (P, m̃) standard deviations; a shorter last block is filled up with 0.
        rest: () what all other blocks add to the variance, in units of the prior variance of f(x).

    Example:
        >>> from streamgp.features import fourier
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), dims=1)
        >>> features = fourier.build(fourier.Config(size=10_000_000, width=100), kernel)
        >>> prior = PartialDiagonal(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 100), torch.ones(()))
        >>> prior.variance(features, torch.zeros(2, 1)).tolist()
        [1.0, 1.0]
    """

    blocks: Tensor
    deviation: Tensor
    rest: Tensor

    @torch.no_grad()
    def variance(self, features: Features, x: Tensor) -> Tensor:
        """(N, W) -> (N,): the latent variance φᵀΣφ, in the dtype of x; O(N P m̃ W), whatever m is."""
        total = x.new_zeros(len(x))
        for place, block in enumerate(self.blocks.tolist()):
            phi = features.block(x, block)
            total += phi.square() @ self.deviation[place, : phi.shape[1]].square().to(phi.dtype)
        return total + self.rest.to(x.dtype) * features.prior_variance(x) if float(self.rest) > 0 else total


class SupportRows(Rows):
    """R rows with their residual, and what the velocities of the weights make of them.

    Attributes:
        drift: (R, T) float64 Φv.
        fit: () squared residuals at the last look, as they would be with the rows of now; inf before there was one.
    """

    def __init__(self, x: Tensor, y: Tensor, weight: Tensor, dtype: torch.dtype) -> None:
        super().__init__(x, y, weight, dtype)
        self.drift: Tensor
        self.fit: Tensor
        self.register_buffer("drift", torch.zeros(y.shape, dtype=FLOAT))
        self.register_buffer("fit", torch.tensor(math.inf, dtype=FLOAT))

    def changed(self) -> None:
        super().changed()
        self._joint: tuple[Tensor, Tensor] | None = None

    def squares(self) -> Tensor:
        """() weighted squared residuals of all columns."""
        return (self.weigh(self.residual) * self.residual).sum()

    def replace(self, places: Tensor, x: Tensor, y: Tensor, weight: Tensor, fitted: Tensor) -> None:
        before = self.squares()
        super().replace(places, x, y, weight, fitted)
        self.fit += self.squares() - before

    def reweigh(self, weight: Tensor) -> None:
        before = self.squares()
        super().reweigh(weight)
        self.fit += self.squares() - before

    def retarget(self, y: Tensor, weight: Tensor) -> None:
        super().retarget(y, weight)
        self.fit.fill_(math.inf)

    def joint(self) -> tuple[Tensor, Tensor]:
        """(R, T) or (R, 1) weights of all columns, and their sums (T,)."""
        if self._joint is None:
            own = self.effective
            own = own[:, None] if own.ndim == 1 else own
            self._joint = own, own.sum(0).expand(self.drift.shape[1])
        return self._joint

    def move(self, image: Tensor, momentum: float) -> None:
        """d ← ρd + Φ_bD, and the residual with it. image: (R, T)."""
        self.drift.mul_(momentum).add_(image)
        self.residual -= self.drift


class MomentumDescent(nn.Module):
    """μ of T columns under σ_t², by the residual-cached heavy ball. The buffers, the features' included, are the state.

    Args:
        features: Φ.
        columns: T.
        seed: of all draws.
        dtype: of the weights, and of features while learning.

    Attributes:
        weights, velocity: (capacity, T) μ and v as they are stored: a block's may be behind, `moving` is what they are.
        last: (blocks,) int64, 1 + the number of the step that was the last on each block; 0: never stepped.
        steps: () int64, steps taken.
        stream: state of the generator that all draws come from.
        noise: (T,) σ_t².
        beyond: (T,) running mean of the stochastic part of −2 ELBO.
        curvature: (T,) λ_max, 0 before it was measured.

    Example:
        >>> from streamgp.features import fourier
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), dims=1)
        >>> features = fourier.build(fourier.Config(size=10_000_000, width=100), kernel)
        >>> x = torch.linspace(-2, 2, 50).double()[:, None]
        >>> engine = MomentumDescent(features, columns=1).begin(0.01)
        >>> rows = engine.rows(x, x.sin())
        >>> for step in range(300):
        ...     engine.step(rows, decay(step, 300))
        >>> bool((engine.mean(x) - x.sin()).abs().max() < 0.05)
        True
        >>> variance = engine.covariance(rows).variance(features, x)  # nearly the prior's 1: 50 rows, 10⁷ features
        >>> bool(((variance > 0.9) & (variance < 1.0)).all())
        True
    """

    def __init__(self, features: Features, columns: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.features, self.columns, self.dtype, self.seed = features, columns, dtype, seed
        self.weights: Tensor
        self.velocity: Tensor
        self.last: Tensor
        self.steps: Tensor
        self.stream: Tensor
        self.noise: Tensor
        self.beyond: Tensor
        self.curvature: Tensor
        self.momentum: Tensor
        blocks = -(-features.capacity // features.width)
        self.register_buffer("weights", reserved((features.capacity, columns), dtype))
        self.register_buffer("velocity", reserved((features.capacity, columns), dtype))
        self.register_buffer("last", torch.zeros(blocks, dtype=torch.int64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("stream", Generator().manual_seed(seed).get_state())
        self.register_buffer("noise", torch.ones(columns, dtype=FLOAT))
        self.register_buffer("beyond", torch.zeros(columns, dtype=FLOAT))
        self.register_buffer("curvature", torch.zeros(columns, dtype=FLOAT))
        self.register_buffer("momentum", torch.tensor(MOMENTUM, dtype=FLOAT))

    @property
    def variance(self) -> Tensor:
        """() σ² = 1/mean_t(1/σ_t²), that of the covariance."""
        return 1.0 / (1.0 / self.noise).mean()

    @property
    def healthy(self) -> bool:
        """Whether all that steps have seen is finite."""
        return bool(torch.isfinite(self.beyond).all())

    def touched(self) -> list[int]:
        """Blocks that were ever stepped; O(B)."""
        found: list[int] = self.last.nonzero()[:, 0].tolist()
        return found

    @torch.no_grad()
    def begin(self, noise: Tensor | float) -> Self:
        """μ = 0 under a new σ², (T,) or one number, and whatever the features' hyper-parameters now are; O(touched)."""
        for block in self.touched():
            span = self.features.span(block)
            self.weights[span], self.velocity[span] = 0.0, 0.0
        for buffer in (self.last, self.steps, self.curvature, self.beyond):
            buffer.zero_()
        self.momentum.fill_(MOMENTUM)
        self.stream.copy_(Generator().manual_seed(self.seed).get_state())
        self.noise.copy_(torch.as_tensor(noise))
        return self

    def moving(self, block: int) -> tuple[Tensor, Tensor]:
        """μ_b and v_b as they are now, (|b|, T) both: coasted since the block's last step."""
        span = self.features.span(block)
        mu, velocity = self.weights[span], self.velocity[span]
        gap = int(self.steps) - int(self.last[block])
        if not gap or not int(self.last[block]):
            return mu.clone(), velocity.clone()
        rho = float(self.momentum)
        power = rho**gap
        return mu + velocity * (rho * (1.0 - power) / (1.0 - rho)), velocity * power

    @torch.no_grad()
    def images(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, W) -> Φμ and Φv, (N, T) both, of touched blocks."""
        image, drift = (x.new_zeros(len(x), self.columns) for _ in range(2))
        for block in self.touched():
            phi = self.features.block(x, block)
            mu, velocity = self.moving(block)
            image.addmm_(phi, mu.to(phi.dtype))
            drift.addmm_(phi, velocity.to(phi.dtype))
        return image, drift

    @torch.no_grad()
    def mean(self, x: Tensor) -> Tensor:
        """(N, W) -> (N, T): Φμ, in the dtype of x. Touched blocks only, since the others are 0."""
        total = x.new_zeros(len(x), self.columns)
        for block in self.touched():
            total.addmm_(self.features.block(x, block), self.moving(block)[0].to(x.dtype))
        return total

    @torch.no_grad()
    def rows(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> SupportRows:
        """Take up rows; O(R) before the first step, O(R m_touched) after.

        Args:
            x: (R, W)
            y: (R, T), NaN = not observed.
            weight: (R,) or (R, T) rows that each stands for: N/R each where R of N rows are given; 1 if left out.
        """
        x = x.to(self.dtype)
        rows = SupportRows(x, y, y.new_ones(len(y)) if weight is None else weight, self.dtype)
        self._take(rows, *self.images(x))
        return rows

    @torch.no_grad()
    def put(self, rows: SupportRows, places: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> None:
        """Replace rows in place; O(|places| m_touched).

        Args:
            places: (P,) which.
            x, y: (P, W), (P, T), NaN = not observed.
            weight: (P,) or (P, T), as the rows have it.
        """
        x = x.to(self.dtype)
        image, drift = self.images(x)
        rows.replace(places, x, y, weight, image)
        rows.drift[places] = drift.to(FLOAT)

    def _take(self, rows: SupportRows, image: Tensor, drift: Tensor) -> None:
        rows.residual.sub_(image)
        rows.drift.copy_(drift)

    @torch.no_grad()
    def step(self, rows: SupportRows, decay: float = 1.0) -> None:
        """One step. decay: factor on the step size (`decay`)."""
        generator, blocks = Generator(), self.features.blocks
        generator.set_state(self.stream.cpu())
        block = int(torch.randint(blocks, (1,), generator=generator))
        weight, total = rows.joint()
        if not bool((total > 0).any()):
            return  # nothing to learn from yet
        if int(self.steps) % LAP == 0:
            self._calm(rows)
        total = total.clamp(min=LEAST)
        phi = rows.features(self.features, block, cached=0)
        steps = int(self.steps)
        if steps % RECHECK == 0 or steps & (steps - 1) == 0 or not bool(self.curvature.all()):
            start = torch.randn(phi.shape[1], self.columns, generator=generator).to(phi)
            self.curvature.copy_(self._curvature(rows, phi, start))
            if not steps:
                self.momentum.copy_(self._momentum(rows, phi))
        self.stream.copy_(generator.get_state())
        rho = float(self.momentum)
        mu, velocity = self.moving(block)
        self._estimate(rows, phi, mu)
        ridge = self.noise / total
        ahead = (weight * (rows.residual - rho * rows.drift) / total).to(phi.dtype)
        slope = thin(phi.mT, ahead).to(FLOAT) - ridge * (mu + rho * velocity).to(FLOAT)
        rate = decay * blocks * RATE / self.curvature.clamp(min=LEAST)
        change = (rate * slope / (1.0 + rate * ridge)).to(self.dtype)

        span = self.features.span(block)
        velocity = rho * velocity + change
        self.weights[span], self.velocity[span] = mu + velocity, velocity
        self.steps += 1
        self.last[block] = self.steps
        rows.move(thin(phi, change).to(FLOAT), rho)

    def _calm(self, rows: SupportRows) -> None:
        """Where the last lap led upwards, stop every block where it is and halve the span 1/(1 − ρ) of the momentum.

        Without momentum a step of at most 1/λ never leads upwards. O(R T), and O(m_touched) where it stops them.
        """
        fit = rows.squares()
        if bool(fit > RISE * rows.fit):
            for block in self.touched():
                span = self.features.span(block)
                self.weights[span], self.velocity[span] = self.moving(block)[0], 0.0
                self.last[block] = self.steps
            rows.drift.zero_()
            self.momentum.copy_((2.0 * self.momentum - 1.0).clamp(min=0.0))
        rows.fit.copy_(fit)

    def _curvature(self, rows: SupportRows, phi: Tensor, start: Tensor) -> Tensor:
        """(T,) the largest eigenvalue of BΦ_bᵀWΦ_b/n, column by column. start: (|b|, T)."""
        weight, _ = rows.joint()
        some = drawn(len(phi), POWER_ROWS)
        weight, phi = weight[some].to(phi.dtype), phi[some]
        weight = weight * (self.features.blocks / weight.sum(0).clamp(min=LEAST))
        size: Tensor = start.norm(dim=0)
        for _ in range(POWER_ITERATIONS):
            start = phi.mT @ (weight * (phi @ (start / size.clamp(min=LEAST))))
            size = start.norm(dim=0)
        return size.to(FLOAT)

    def _momentum(self, rows: SupportRows, phi: Tensor) -> Tensor:
        """() ρ that the noise of a block allows. phi: (R, |b|) of a drawn block."""
        weight, total = rows.joint()
        trace = (weight * phi.square().sum(1, keepdim=True).to(FLOAT)).sum(0) * self.features.blocks / total
        seen = self.curvature > LEAST
        noise = (trace / (phi.shape[1] * self.curvature.clamp(min=LEAST)))[seen]
        return (1.0 - NOISY * noise).clamp(0.0, MOMENTUM).min() if len(noise) else self.momentum

    def _estimate(self, rows: SupportRows, phi: Tensor, mu: Tensor) -> None:
        """μᵀμ + log|I + ΦᵀWΦ/σ²| (of its diagonal) from the drawn block, into the running mean."""
        some = slice(None, None, max(1, len(phi) // FEW))
        shared = rows.shared(self.noise)
        scale = float(shared.sum() / shared[some].sum().clamp(min=TINY))
        squares = (shared[some].to(phi.dtype) @ phi[some].square()).to(FLOAT) * scale
        value = self.features.blocks * (mu.to(FLOAT).square().sum(0) + torch.log1p(squares / self.variance).sum())
        self.beyond.lerp_(value, max(SMOOTH, 1.0 / (int(self.steps) + 1)))

    @torch.no_grad()
    def loss(self, rows: SupportRows) -> float:
        """−ELBO, a row and column, at the best diagonal covariance: an estimate that a few draws back go into.

        With m much larger than what n rows can tell, means that predict well are far from the bound's maximum, and its
        value says little of their quality: select by rows that are kept out.
        """
        fit = (rows.weigh(rows.residual) * rows.residual).sum(0)
        each = (fit / self.noise + self.beyond) / rows.total().clamp(min=TINY) + (2.0 * math.pi * self.noise).log()
        return float(0.5 * each.mean())

    @torch.no_grad()
    def covariance(self, rows: SupportRows) -> PartialDiagonal:
        """The best diagonal Σ, c_rr = (Σ_ℓ w_ℓ φ_ℓr²/σ² + 1)^−½ (proposition 1), from at most 2000 of the rows.

        O(q m_touched). Blocks that were not stepped enter by E φ_r² = k(x, x)/m.
        """
        held = self.touched()
        deviation = self.weights.new_zeros(len(held), self.features.width)
        some = drawn(len(rows.target), SQUARES)
        shared = rows.shared(self.noise)
        weight = shared[some] * (shared.sum() / shared[some].sum().clamp(min=TINY))
        precision, used = 1.0 / float(self.variance), 0
        for place, block in enumerate(held):
            squares = (weight.to(self.dtype) @ self.features.block(rows.x[some], block).square()).to(FLOAT)
            deviation[place, : len(squares)] = torch.rsqrt(squares * precision + 1.0).to(self.dtype)
            used += len(squares)
        share = 1.0 - used / max(self.features.size, 1)
        rest = 0.0
        if share > 0.0:
            typical = (weight @ self.features.prior_variance(rows.x[some]).to(FLOAT)) * precision / self.features.size
            rest = share / (1.0 + float(typical))
        return PartialDiagonal(torch.tensor(held, dtype=torch.int64), deviation, torch.tensor(rest, dtype=FLOAT))


def reserved(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros of this shape, whose memory is taken page by page as it is written to.

    `torch.zeros` writes them all. NumPy's asks for pages of 2 MB, of which a few hundred random blocks are in all.

    Example:
        >>> reserved((10, 2), torch.float32).sum().item()
        0.0
    """
    size = math.prod(shape) * dtype.itemsize
    if size < SMALL or not hasattr(mmap, "MAP_PRIVATE"):
        return torch.zeros(*shape, dtype=dtype)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=dtype).view(*shape)


def decay(step: int, steps: int) -> float:
    """Factor on the step size: 1 over the first half of the steps, then linearly to 0.

    Example:
        >>> decay(0, 100), decay(50, 100), decay(75, 100)
        (1.0, 1.0, 0.5)
    """
    return min(1.0, 2.0 * (1.0 - step / steps))


def drawn(of: int, count: int) -> Tensor:
    """(min(of, count),) numbers below `of`, ascending, always the same ones.

    Example:
        >>> drawn(3, 5), len(drawn(5, 3))
        (tensor([0, 1, 2]), 3)
    """
    if count >= of:
        return torch.arange(of)
    return torch.randperm(of, generator=torch.Generator().manual_seed(of))[:count].sort().values
