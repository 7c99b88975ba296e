"""Block Gauss–Seidel with a cached residual: the mean of a weight-space posterior, one block of features at a time.

    (ΦᵀW_tΦ + σ_t²I) μ_t = ΦᵀW_t y_t,    t = 1 … T,

W_t = diag(w) what each row stands for: 1; a share under forgetting; the curvature of a likelihood at a Newton or
majorisation step. It is the limit n̄ = n of the control variate of Evans & Nair (2020, eq. 3): with the residual
r = y − Φμ of all rows at hand, a block's part of the gradient is exact without its neighbours. A visit to block b is

    g = Φ_bᵀWr − σ²μ_b,   δ = P_b⁻¹g,   μ_b ← μ_b + αδ,   r ← r − αΦ_bδ,   P_b ≈ Φ_bᵀWΦ_b + σ²I

with the best length of every column, α_t = gᵀδ/(‖Φ_bδ‖²_W + σ²δᵀδ), which is 1 where P_b is exact. Φ_bδ is needed
for the residual anyway, so that this costs nothing, and with it every visit goes down whatever P_b is: a factor from a
part of the rows, from older weights, of another column's weights, or in float32. All columns share one factor a block.

Costs of a visit, R rows, |b| ≈ m̃: features O(R m̃ W) unless cached; a new factor O(p m̃² + m̃³) with p rows in its
Gram matrix; the step O(R m̃ T + m̃²T). Nothing depends on m.
Memory: (m + 2R) T numbers, 2 (m + R) T for every direction, one block of features (R m̃), and up to
`MEMORY` bytes of factors (m m̃) and of features of later sweeps (R m).

Where a factor of all features at once is at hand, a sweep is one step on them all, O(R m (W + T) + m² T): with the
rows' own factor it ends at the solution, with one of about the same rows a few sweeps do. `gain` says how near it is.

What is kept from one visit to the next goes in the order of what a byte of it saves: factors, then features.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.features import Features
from streamgp.linalg.cholesky import cholesky
from streamgp.linalg.levels import parted
from streamgp.regression.block_rows import TINY, BlockRows, Move, conjugate, thin

GRAM_ROWS = 4.5
"""Rows of a Gram matrix for each feature of the block: its smallest eigenvalues need some more rows than features."""
HISTORY = 2
"""Sweeps that the next is made conjugate to: one suffices in exact arithmetic, two bear factors of part of the rows."""
REFRESH = 20
"""Sweeps after which the residual is computed from scratch: rounding adds up in float32."""
MEMORY = 4 * 2**30
"""Bytes of factors and features kept from one visit to the next."""


def version(features: Features) -> tuple[int, ...]:
    """Another one after every change of the features' parameters or buffers in place."""
    held = (*features.parameters(), *features.buffers())
    return (features.size, *(tensor._version for tensor in held), *(tensor.data_ptr() for tensor in held))


class BlockSolver(nn.Module):
    """The means of T columns; its buffers and those of the features are the state.

    Whoever changes the features' hyper-parameters calls `begin`, or `renew` to go on from the old μ. A batch takes its
    rows again in every fit. A stream keeps one `BlockRows`, replaces some of them in place, and asks every visit for a
    factor of the rows as they are (`refresh`), or brings one: kept factors are not part of the state.

    Args:
        features: Φ.
        columns: T.
        dtype: of features, factors and their products; means, residuals and factorisations are float64.
        gram_rows: rows that a block's Gram matrix is made of: `GRAM_ROWS` for each feature; 0: all.
        history: sweeps that the next is made conjugate to.

    Attributes:
        mu: (capacity, T) float64, those of features in use first.
        noise: (T,) σ_t², what multiplies I. Columns may differ; factors then take 1/σ² = mean_t 1/σ_t².
        gain: (T,) Σ gᵀδ α/σ_t² of the last sweep. Where P is exact it is ‖μ − μ*‖² before the sweep in the precision of
            the posterior, so that no mean was farther than √gain of its posterior's standard deviations from its own.

    Example:
        >>> from streamgp.features import fourier
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), dims=1)
        >>> solver = BlockSolver(fourier.build(fourier.Config(size=40, width=20), kernel), columns=1)
        >>> x = torch.linspace(-2, 2, 50).double()[:, None]
        >>> rows = solver.begin(0.01).rows(x, x.sin())
        >>> losses = [solver.sweep(rows) for _ in range(4)]
        >>> losses == sorted(losses, reverse=True), bool((solver.mean(x) - x.sin()).abs().max() < 0.05)
        (True, True)
    """

    NOT_STATE: ClassVar[Mapping[str, str]] = {"gain": "of the last sweep; who looks at it has swept before"}

    def __init__(
        self,
        features: Features,
        columns: int,
        dtype: torch.dtype = torch.float32,
        gram_rows: int | None = None,
        history: int = HISTORY,
    ) -> None:
        super().__init__()
        self.features, self.dtype, self.gram_rows, self.history = features, dtype, gram_rows, history
        self.mu: Tensor
        self.noise: Tensor
        self.register_buffer("mu", torch.zeros(features.capacity, columns, dtype=FLOAT))
        self.register_buffer("noise", torch.ones(columns, dtype=FLOAT))
        self.gain = torch.zeros(columns, dtype=FLOAT)

    @property
    def variance(self) -> Tensor:
        """() σ² = 1/mean_t(1/σ_t²), that of factors and covariances."""
        return 1.0 / (1.0 / self.noise).mean()

    @torch.no_grad()
    def begin(self, noise: Tensor | float) -> BlockSolver:
        """μ = 0 under a new σ², (T,) or one number, and whatever the features' hyper-parameters now are."""
        self.noise.copy_(torch.as_tensor(noise, dtype=FLOAT))
        self.mu.zero_()
        return self

    @torch.no_grad()
    def rows(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> BlockRows:
        """Take up rows; O(R m (W + T)), or O(R T) at μ = 0.

        Args:
            x: (R, W)
            y: (R, T), NaN = not observed.
            weight: (R,) or (R, T); 1 where not given.
        """
        rows = BlockRows(x, y, y.new_ones(len(y)) if weight is None else weight, self.dtype)
        rows.residual.sub_(self.mean(rows.x))
        return rows

    @torch.no_grad()
    def mean(self, x: Tensor) -> Tensor:
        """(N, W) -> (N, T): Φμ, computed in the dtype of x; O(N m (W + T)) and one block at a time."""
        total = x.new_zeros(len(x), self.mu.shape[1])
        if bool(self.mu.any()):
            for b, span in enumerate(self.features.spans()):
                total.addmm_(self.features.block(x, b), self.mu[span].to(x.dtype))
        return total

    @torch.no_grad()
    def visit(self, block: int, rows: BlockRows, *, factor: Tensor | None = None, refresh: bool = False) -> Tensor:
        """One step on a block, for all columns.

        Args:
            factor: (|b|, |b|) lower triangular, of any P_b, or one a level as of `sweep`. Without it a kept
                one is taken, or one is made.
            refresh: make one, of the rows and weights as they are.

        Returns:
            the factor, in the dtype of the features.

        Raises:
            NotPositiveDefinite: features or weights are not finite.
        """
        if factor is None:
            factor = self.factor(block, rows, refresh=refresh)
        self._step(block, rows, factor)
        return factor

    @torch.no_grad()
    def sweep(self, rows: BlockRows, blocks: Iterable[int] | None = None, *, whole: Tensor | None = None) -> float:
        """Visit these blocks, all of them by default, then minimise over what this and the last sweeps did.

        The parts of a sweep may be calls of their own, so that a time limit can end between them.

        Args:
            whole: (m, m) lower triangular, of any P of all features: a step on all of them in place of visits; or
                (L, m, m), one a level of the noise, as `linalg.levels` has them.

        Returns:
            the `loss` afterwards, which is at most the one before but for rounding.
        """
        done = self._nothing(rows) if self.history else None
        self.gain = torch.zeros_like(self.noise)
        if whole is not None:
            leap(self, rows, whole, done)
        else:
            for block in range(self.features.blocks) if blocks is None else blocks:
                self._step(block, rows, self.factor(block, rows), done)
        if done is not None:
            self._descend(rows, done, self.history)
        rows.sweeps += 1
        if rows.sweeps >= REFRESH:
            self.renew(rows)
        return self.loss(rows)

    @torch.no_grad()
    def loss(self, rows: BlockRows) -> float:
        """½ mean_t [(rᵀWr/σ_t² + μᵀμ)/n_t + log 2πσ_t²], n_t = Σw: −ELBO a row without what Σ adds, O((R + m) T)."""
        each = self.energy(rows) / (self.noise * rows.total()).clamp(min=TINY) + (2.0 * torch.pi * self.noise).log()
        return float(0.5 * each.mean())

    @torch.no_grad()
    def renew(self, rows: BlockRows) -> None:
        """The residual from scratch, against drift, or after μ, the features or inputs were changed."""
        fitted = torch.zeros_like(rows.target, dtype=self.dtype)
        for b, span in enumerate(self.features.spans()):
            fitted.addmm_(self.features_of(rows, b), self.mu[span].to(self.dtype))
        rows.residual.copy_(rows.target - fitted)
        rows.sweeps = 0

    @torch.no_grad()
    def features_of(self, rows: BlockRows, block: int, *, keep: bool = False) -> Tensor:
        """(R, |b|) Φ_b, from memory where it is there; keep: for certain, or as the plan has it."""
        rows.follow(version(self.features))
        return rows.features(self.features, block, self._room(rows)[1], keep=keep)

    @torch.no_grad()
    def factor(self, block: int, rows: BlockRows, *, refresh: bool = False) -> Tensor:
        """(|b|, |b|) chol(Φ_bᵀWΦ_b + σ²I) in the dtype of the features.

        A kept one is taken, unless `refresh`.
        """
        rows.follow(version(self.features))
        kept = rows.factors.get(block)
        if kept is not None and not refresh:
            return kept
        phi = self.features_of(rows, block)
        limit = round(GRAM_ROWS * phi.shape[1]) if self.gram_rows is None else self.gram_rows
        matrix = rows.gram(phi, rows.shared(self.noise), limit or len(phi))
        matrix.diagonal().add_(self.variance)
        made = cholesky(matrix, first=0.0).lower.to(phi.dtype)
        if self._room(rows)[0]:
            rows.factors[block] = made
        return made

    @torch.no_grad()
    def energy(self, rows: BlockRows) -> Tensor:
        """(T,) rᵀWr + σ²μᵀμ, which is minimised."""
        used = self.mu[: self.features.size]
        return (rows.weigh(rows.residual) * rows.residual).sum(0) + self.noise * used.square().sum(0)

    def _step(self, block: int, rows: BlockRows, factor: Tensor, done: Move | None = None) -> None:
        """A visit, which is added to what was `done`."""
        span, noise, phi = self.features.span(block), self.noise, self.features_of(rows, block)
        slope = thin(phi.mT, rows.weigh(rows.residual).to(phi.dtype)).to(FLOAT) - noise * self.mu[span]
        step = divided(self.noise, slope.to(factor.dtype), factor).to(phi.dtype)
        image = thin(phi, step).to(FLOAT)
        step = step.to(FLOAT)  # after it was rounded: the image is that of what μ takes
        curvature = (rows.weigh(image) * image).sum(0) + noise * step.square().sum(0)
        length = (step * slope).sum(0) / curvature.clamp(min=TINY)
        step, image = step * length, image * length
        self.gain += (step * slope).sum(0) / noise
        self.mu[span] += step
        rows.residual -= image
        if done is not None:
            done.mu[span] += step
            done.image.add_(image)

    def _nothing(self, rows: BlockRows) -> Move:
        """A move of length 0, to be added to."""
        zero, image = torch.zeros_like(self.mu[: self.features.size]), torch.zeros_like(rows.residual)
        return Move(zero, image, image)

    def _descend(self, rows: BlockRows, done: Move, history: int) -> None:
        """Minimise over the move and those kept, which A-orthogonality makes one line after another."""
        move = Move(done.mu, done.image, rows.weigh(done.image))
        rows.moves = [*rows.moves, conjugate(move, rows.moves, self.noise, self.dtype)][-history:]
        used = slice(0, self.features.size)
        for way in rows.moves:
            length = way.slope(rows.residual, self.mu[used], self.noise) / way.square.clamp(min=TINY)
            self.mu[used] += length * way.mu
            rows.residual -= length * way.image

    def _room(self, rows: BlockRows) -> tuple[bool, int]:
        """Whether all blocks' factors are kept, m m̃ numbers that took O(p m̃²) a block, and of how many blocks the
        features are, R m̃ numbers each that took O(R m̃ W)."""
        width, left = self.features.width, MEMORY // self.dtype.itemsize
        factors = self.features.size * width
        kept = factors <= left
        return kept, (left - factors * kept) // max(len(rows.target) * width, 1)


def divided(noise: Tensor, right: Tensor, factor: Tensor) -> Tensor:
    """(m, T) -> (m, T): P⁻¹ right. noise: (T,); factor: (m, m), or (L, m, m) of its levels."""
    if factor.dim() == 2:
        return torch.cholesky_solve(right, factor)
    found = torch.empty_like(right)
    for _, columns, own in parted(noise, factor):
        found[:, columns] = torch.cholesky_solve(right[:, columns], own)
    return found


@torch.no_grad()
def leap(solver: BlockSolver, rows: BlockRows, factor: Tensor, done: Move | None) -> None:
    """A step on all features, of the best length, added to `done`. factor: of `sweep`."""
    used, spans = slice(0, solver.features.size), list(solver.features.spans())
    keep = len(rows.target) * solver.features.size * solver.dtype.itemsize <= MEMORY
    pull = rows.weigh(rows.residual).to(solver.dtype)
    pulls = [thin(solver.features_of(rows, b, keep=keep).mT, pull) for b in range(len(spans))]
    slope = torch.cat(pulls).to(FLOAT) - solver.noise * solver.mu[used]
    step = divided(solver.noise, slope.to(factor.dtype), factor).to(solver.dtype)
    image = torch.zeros_like(rows.residual)
    for b, span in enumerate(spans):
        image += thin(solver.features_of(rows, b, keep=keep), step[span])
    step = step.to(FLOAT)
    curvature = (rows.weigh(image) * image).sum(0) + solver.noise * step.square().sum(0)
    length = (step * slope).sum(0) / curvature.clamp(min=TINY)
    step, image = step * length, image * length
    solver.gain += (step * slope).sum(0) / solver.noise
    solver.mu[used] += step
    rows.residual -= image
    if done is not None:
        done.mu.add_(step)
        done.image.add_(image)
