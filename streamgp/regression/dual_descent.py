"""Stochastic steps on very many weights, whose cost depends neither on their number m nor on that of a table's rows.

A step draws one of B blocks of weights, and moves what it makes of R rows towards their targets: with a = Φμ cached,
nothing of the other blocks is in it. It is the control variate of Evans & Nair (2020, eq. 3) in the limit where the
rows of the objective are the support rows: the fresh rows cancel. The direction is ours. Gradients of the weights,
also with momentum, are slow and noisy where the spectrum is wide, as that of lagged windows is (five powers of ten):
what a block does not share with the others adds up. So the dual α of ridge regression is kept beside a,

    (K + σ²W⁻¹) α = y,  f = Kα,  K = ΦΦᵀ,            μ = Φᵀα

and with W the weights of the rows a step is

    b ~ uniform                                      one of B, K ≈ BΦ_bΦ_bᵀ
    e = W^½ (y − a) − σ²W^−½ α                       what is left
    u = P e,   P = (W^½K̂W^½ + κI)⁻¹,  κ = 20σ²       P as of a pilot: K̂ is K by 500 features
    α += ηW^½u,  μ_b += ηBΦ_bᵀW^½u,  a += ηBΦ_bΦ_bᵀW^½u

in O(R m̃ (W + T) + R q T), q = 500; O(R q²) when rows have changed. P needs no more than to be positive definite: each
step is e ← (I − ηM_bP)e with M_b = BW^½Φ_bΦ_bᵀW^½ + σ²I, so that eᵀPe falls at every step for which η is below
2/λ_max(M_bP). η = 1.5/λ_max by power iterations on a drawn block; where eᵀPe rises all the same, η is halved.

At its end y − a = σ²W⁻¹α, as for ridge regression, and μ_b = Φ_bᵀ times what the steps on b have added up to: on
average μ = Φᵀα. Blocks that were never drawn are 0, and the others have their share, so that f is regular however few
were drawn. What rows taught that were replaced since stays in μ.

Nothing here costs O(m) but the memory that is reserved, which an operating system hands out as it is written to, and
the scan of B step counts before a prediction; a prediction of N rows is O(N W m_touched), the weights of the blocks
that were ever drawn. Variances are mean-field: they grow with m towards the prior's, since a block does not know what
the others have learned. They are nearly alike in all blocks, and so taken from few of them.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT
from streamgp.features import Features
from streamgp.linalg.cholesky import cholesky
from streamgp.regression.block_rows import TINY, BlockRows, thin

RATE = 1.5
"""η over the inverse of the largest curvature; at 2 a step along it would gain nothing."""
FLOOR = 20.0
"""κ/σ², at least: with less the curvature of the pilot's errors grows, with more what is near the noise is learned
slowly."""
PILOT, SHARE = 500, 0.25
"""Features, about, of the pilot, and the part of them that it has eigenvalues beyond κ for: those it has right."""
POWER_ITERATIONS = 8
RISE = 1.05
"""Growth of eᵀPe in one step that is more than rounding."""
ALIKE = 20_000
"""Features, about, whose variances are computed one by one."""
GROUP = 64
"""Blocks whose weights are gathered at a time."""
FEW = 512
"""Rows, about, that the log-determinant of the loss is estimated from."""
SQUARES = 2000
"""Rows at most that the squares of features are summed over, each standing for its share."""
SMOOTH = 0.05
"""Weight of a new draw in the running mean of the loss, once 20 were taken."""
SMALL = 2**22
"""Bytes from which memory is reserved rather than filled."""


class PartialDiagonal(NamedTuple):
    """A diagonal covariance of which only some blocks are known, and the others by their expectation.

    The others are all alike, drawn or not: their weights have the distribution that the optimum in closed form gives an
    average feature. E φ_r² = k(x, x)/m for random features, so that what they add to the variance of f(x) is a share of
    the prior variance k(x, x), and costs nothing.

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


class Pilot(NamedTuple):
    """P = (Φ_qΦ_qᵀ + κI)⁻¹ in the space of rows, by a factor in that of q features.

    Attributes:
        phi: (R, q) float64 √(m/q) W^½Φ_q.
        factor: (q, q) chol(Φ_qᵀΦ_q + κI).
        floor: κ.

    Example:
        >>> phi = torch.tensor([[1.0], [2.0], [0.0]], dtype=torch.float64)
        >>> pilot = Pilot(phi, torch.tensor([[6.0]], dtype=torch.float64).sqrt(), 1.0)
        >>> pilot(6.0 * phi).T.round(decimals=6).tolist()  # (I + φφᵀ)⁻¹φ = φ/6
        [[1.0, 2.0, 0.0]]
    """

    phi: Tensor
    factor: Tensor
    floor: float

    def __call__(self, error: Tensor) -> Tensor:
        """(R, T) -> (R, T)"""
        inner = torch.cholesky_solve(thin(self.phi.mT, error), self.factor)
        return (error - thin(self.phi, inner)) / self.floor


class SupportRows(BlockRows):
    """R rows with their residual and their dual weights.

    Steps look at the first `count` of them, so that places which nothing was put in yet cost nothing.

    Attributes:
        dual: (R, T) float64 α.
        count: rows up to the last one that is observed.
        pilot: P of the rows as they are; None before a step made it.
        curvature: (T,) λ_max(M_bP), with the pilot.
        energy: (T,) eᵀPe before the last step, inf before there was one.
    """

    def __init__(self, x: Tensor, y: Tensor, weight: Tensor, dtype: torch.dtype) -> None:
        super().__init__(x, y, weight, dtype)
        self.dual: Tensor
        self.register_buffer("dual", torch.zeros(y.shape, dtype=FLOAT))

    def changed(self) -> None:
        super().changed()
        self._roots: Tensor | None = None
        self._in_scratch = -1
        places = self.observed.any(1).nonzero()
        self.count = int(places[-1]) + 1 if len(places) else 0
        self.pilot: Pilot | None = None
        columns = self.target.shape[1]
        self.curvature = self.target.new_ones(columns)
        self.energy = self.target.new_full((columns,), math.inf)

    @property
    def inputs(self) -> Tensor:
        """(count, W)"""
        return self.x[: self.count]

    def replace(self, places: Tensor, x: Tensor, y: Tensor, weight: Tensor, fitted: Tensor) -> None:
        self.dual[places] = 0.0
        super().replace(places, x, y, weight, fitted)

    def roots(self) -> Tensor:
        """(count, T) or (count, 1) W^½."""
        if self._roots is None:
            own = self.effective[: self.count].sqrt()
            self._roots = own[:, None] if own.ndim == 1 else own
        return self._roots

    def error(self, noise: Tensor) -> Tensor:
        """(count, T) e, 0 where a row has no weight. noise: (T,) σ_t²."""
        half, residual, dual = self.roots(), self.residual[: self.count], self.dual[: self.count]
        return torch.where(half > 0, half * residual - noise * dual / half.clamp(min=TINY), 0.0)

    def move(self, image: Tensor, dual: Tensor) -> None:
        """a and α, by (count, T) both."""
        self.residual[: self.count] -= image
        self.dual[: self.count] += dual


class DualDescent(nn.Module):
    """μ of T columns under σ_t², by steps on drawn blocks. The buffers, the features' included, are the state.

    Args:
        features: Φ.
        columns: T.
        seed: of all draws.
        dtype: of the weights, and of features while learning.

    Attributes:
        weights: (capacity, T) μ.
        last: (blocks,) int64, 1 + the number of the step that was the last on each block; 0: never stepped.
        steps: () int64, steps taken.
        stream: state of the generator that all draws come from.
        noise: (T,) σ_t².
        beyond: (T,) running mean of the stochastic part of −2 ELBO.

    Example:
        >>> from streamgp.features import fourier
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), dims=1)
        >>> features = fourier.build(fourier.Config(size=10_000_000, width=100), kernel)
        >>> x = torch.linspace(-2, 2, 50).double()[:, None]
        >>> engine = DualDescent(features, columns=1).begin(0.01)
        >>> rows = engine.rows(x, x.sin())
        >>> for _ in range(100):
        ...     engine.step(rows)
        >>> bool((engine.mean(x) - x.sin()).abs().max() < 0.05)
        True
        >>> variance = engine.covariance(rows).variance(features, x)  # nearly the prior's 1: 50 rows, 10⁷ features
        >>> bool(((variance > 0.9) & (variance < 1.0)).all())
        True
    """

    def __init__(self, features: Features, columns: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.features, self.columns, self.dtype, self.seed = features, columns, dtype, seed
        self._journals: dict[str, dict[int, Tensor]] = {}
        self.weights: Tensor
        self.last: Tensor
        self.steps: Tensor
        self.stream: Tensor
        self.noise: Tensor
        self.beyond: Tensor
        blocks = -(-features.capacity // features.width)
        self.register_buffer("weights", reserved((features.capacity, columns), dtype))
        self.register_buffer("last", torch.zeros(blocks, dtype=torch.int64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("stream", Generator().manual_seed(seed).get_state())
        self.register_buffer("noise", torch.ones(columns, dtype=FLOAT))
        self.register_buffer("beyond", torch.zeros(columns, dtype=FLOAT))

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
            self._store(block, 0.0)
        for buffer in (self.last, self.steps, self.beyond):
            buffer.zero_()
        self.stream.copy_(Generator().manual_seed(self.seed).get_state())
        self.noise.copy_(torch.as_tensor(noise))
        return self

    @torch.no_grad()
    def mean(self, x: Tensor) -> Tensor:
        """(N, W) -> (N, T): Φμ, in the dtype of x; of touched blocks, since the others are 0."""
        touched, total = self.last.nonzero()[:, 0], x.new_zeros(len(x), self.columns)
        for some in touched.split(GROUP) if len(touched) else ():
            total += self.features.image(x, some.tolist(), self._stored(some))
        return total

    def _stored(self, blocks: Tensor) -> Tensor:
        """(P,) ascending -> (P, m̃, T) μ of these blocks, a shorter last one filled up with 0."""
        width = self.features.width
        whole = self.features.capacity // width
        inner = blocks[blocks < whole]
        parts = [self.weights[: whole * width].unflatten(0, (-1, width))[inner]] if len(inner) else []
        if len(inner) < len(blocks):
            last = self.weights.new_zeros(1, width, self.columns)
            last[0, : len(self.weights) - whole * width] = self.weights[whole * width :]
            parts.append(last)
        return torch.cat(parts)

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
        rows.residual.sub_(self.mean(x))
        return rows

    @torch.no_grad()
    def put(
        self, rows: SupportRows, places: Tensor, x: Tensor, y: Tensor, weight: Tensor, fitted: Tensor | None = None
    ) -> None:
        """Replace rows in place; O(|places| m_touched), unless it is known what they are forecast as.

        Args:
            places: (P,) which.
            x, y: (P, W), (P, T), NaN = not observed.
            weight: (P,) or (P, T), as the rows have it.
            fitted: (P, T) Φμ of x.
        """
        x = x.to(self.dtype)
        rows.replace(places, x, y, weight, self.mean(x) if fitted is None else fitted)

    @torch.no_grad()
    def step(self, rows: SupportRows) -> None:
        """One step, with what it needs to know of rows that have changed."""
        generator, blocks = Generator(), self.features.blocks
        generator.set_state(self.stream.cpu())
        block = int(torch.randint(blocks, (1,), generator=generator))
        half = rows.roots()
        if not bool((half > 0).any()):
            return  # nothing to learn from yet
        phi = rows.features(self.features, block, cached=0)
        if rows.pilot is None:
            rows.pilot = self._pilot(rows)
            start = torch.randn(len(phi), self.columns, generator=generator).to(rows.target)
            rows.curvature = self._curvature(rows, phi, start)
        self.stream.copy_(generator.get_state())
        error = rows.error(self.noise)
        pull = rows.pilot(error)
        energy = (error * pull).sum(0)
        rows.curvature = torch.where(energy > RISE * rows.energy, 2.0 * rows.curvature, rows.curvature)
        rows.energy = energy
        dual = half * pull * (RATE / rows.curvature)
        change = blocks * thin(phi.mT, dual.to(phi.dtype))
        mu = self.weights[self.features.span(block)]
        self._estimate(rows, phi, mu)
        self._store(block, mu + change)
        self.steps += 1
        self.last[block] = self.steps
        rows.move(thin(phi, change).to(FLOAT), dual)

    def _pilot(self, rows: SupportRows) -> Pilot:
        """P of rows, by some of the features of the first blocks; O(R q²)."""
        blocks = range(min(self.features.blocks, -(-PILOT // self.features.width)))
        phi = torch.cat([self.features.block(rows.inputs, block) for block in blocks], 1)
        phi = phi[:, :: max(1, phi.shape[1] // PILOT)].to(FLOAT)
        weight = rows.shared(self.noise)[: rows.count] * (self.features.size / phi.shape[1])
        phi *= weight.sqrt()[:, None]
        matrix = phi.mT @ phi
        values = torch.linalg.eigvalsh(matrix)  # ascending
        within = float(values[-max(1, int(SHARE * len(values)))]) if phi.shape[1] < self.features.size else 0.0
        floor = max(FLOOR * float(self.variance), within)
        matrix.diagonal().add_(floor)
        return Pilot(phi, cholesky(matrix, first=0.0).lower, floor)

    def _curvature(self, rows: SupportRows, phi: Tensor, start: Tensor) -> Tensor:
        """(T,) λ_max(M_bP), column by column, by power iterations. phi: (count, |b|), start: (count, T)."""
        assert rows.pilot is not None
        half = rows.roots()
        size: Tensor = start.norm(dim=0)
        for _ in range(POWER_ITERATIONS):
            pull = rows.pilot(start / size.clamp(min=TINY))
            inner = thin(phi.mT, (half * pull).to(phi.dtype))
            start = half * self.features.blocks * thin(phi, inner).to(FLOAT) + self.noise * pull
            size = start.norm(dim=0)
        return size.clamp(min=TINY)

    def watch(self, name: str) -> Callable[[float], None]:
        """Keep the weights of every block that changes from now on, until the next watch of this name: memory of what
        steps touch, and not of m. The result takes the part of these changes that is to stay, 0 for none; all other
        buffers are the caller's."""
        before: dict[int, Tensor] = {}
        self._journals[name] = before

        def keep(part: float) -> None:
            for block, mu in before.items():
                now = self.weights[self.features.span(block)]
                self._store(block, torch.lerp(mu, now, part) if part else mu)

        return keep

    def forget(self, name: str) -> None:
        """End a watch."""
        self._journals.pop(name, None)

    def _store(self, block: int, mu: Tensor | float) -> None:
        """Write μ_b."""
        span = self.features.span(block)
        for before in self._journals.values():
            if block not in before:
                before[block] = self.weights[span].clone()
        self.weights[span] = mu

    def _estimate(self, rows: SupportRows, phi: Tensor, mu: Tensor) -> None:
        """μᵀμ + log|I + ΦᵀWΦ/σ²| (of its diagonal) from the drawn block, into the running mean."""
        some = slice(None, None, max(1, len(phi) // FEW))
        shared = rows.shared(self.noise)[: len(phi)]
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

        Of at most 20,000 features, whatever m is; all other blocks enter by E φ_r² = k(x, x)/m.
        """
        touched = self.last.nonzero()[:, 0]
        held = touched[:: -(-len(touched) // distinct(self.features)) or 1].tolist()
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


def distinct(features: Features) -> int:
    """Blocks, at most, whose variances are computed one by one.

    Example:
        >>> from streamgp.features import fourier
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), dims=1)
        >>> distinct(fourier.build(fourier.Config(size=10_000_000), kernel))
        20
    """
    return min(-(-features.capacity // features.width), max(1, ALIKE // features.width))


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


def drawn(of: int, count: int) -> Tensor:
    """(min(of, count),) numbers below `of`, ascending, always the same ones.

    Example:
        >>> drawn(3, 5), len(drawn(5, 3))
        (tensor([0, 1, 2]), 3)
    """
    if count >= of:
        return torch.arange(of)
    return torch.randperm(of, generator=torch.Generator().manual_seed(of))[:count].sort().values
