"""Heavy ball on drawn blocks, with the residual of all rows cached: no noise of the basis in a gradient.

The control variate of Evans & Nair (2020, eq. 3) in the limit where the rows of the objective are the support rows: the
fresh rows cancel, and a block's gradient is exact without its neighbours. With a = Φμ, d = Φv on R rows, weights W of
sum n, λ = σ²/n, B blocks and t steps taken, a step is

    b ~ uniform                                                         one of B
    μ_b += v_b ρ(1 − ρ^Δ)/(1 − ρ),  v_b *= ρ^Δ,   Δ = t − last_b        all blocks coast; this one catches up
    g = Φ_bᵀW(a + ρd − y)/n + λ s (μ_b + ρ v_b)                         Nesterov's look ahead
    D = −ηB g/(1 + ηBλs)                                                implicit in the prior: stable at any B
    v_b ← ρ v_b + D,  μ_b += v_b,  d ← ρ d + Φ_bD,  a += d

in O(R m̃ (W + K)). It equals the dense iteration in which D is 0 outside b: catching up is exact, and a and d are
those of the coasting weights. Blocks that were never drawn are 0. η = rate/λ_max(ΦᵀWΦ/n), by power iterations on a
drawn block, whose BΦ_bΦ_bᵀ stands for ΦΦᵀ.

ρ is constant while steps are taken; η may change at any of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.features import Features
from streamgp.optim._block_weights import reserved
from streamgp.optim._descent import TINY, Descent, DescentConfig, drawn, per_row
from streamgp.optim.block_rows import Rows, thin

FEW = 512
"""Rows, about, that the log-determinant of the loss is estimated from."""
POWER_ROWS, POWER_ITERATIONS, RECHECK = 2048, 12, 100
LEAST = 1e-30
"""Of a sum of weights and a curvature: a column of which nothing is observed stays at 0."""
SMOOTH = 0.05
"""Weight of a new draw in the running mean of the loss, once 20 were taken."""


class SupportRows(Rows):
    """R rows with the residual of T columns of means and k dense columns, and what their velocities make of them.

    Attributes:
        beside: (R, k) float64 −φ_r − Φu_r, the residual of dense column r.
        drift: (R, K) float64 Φv.
    """

    def __init__(self, x: Tensor, y: Tensor, weight: Tensor, dtype: torch.dtype, heads: Tensor) -> None:
        super().__init__(x, y, weight, dtype)
        self.beside: Tensor
        self.drift: Tensor
        self.register_buffer("beside", -heads.to(FLOAT))
        self.register_buffer("drift", torch.zeros(len(y), y.shape[1] + heads.shape[1], dtype=FLOAT))

    def changed(self) -> None:
        super().changed()
        self._joint: tuple[Tensor, Tensor] | None = None

    @property
    def left(self) -> Tensor:
        """(R, K) residuals of all columns."""
        return torch.cat((self.residual, self.beside), 1)

    def joint(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(R, K) or (R, 1) weights of all columns, and their sums (K,)."""
        if self._joint is None:
            own, count = self.effective, self.drift.shape[1]
            if own.ndim == 1:
                own = own[:, None]
            elif self.beside.shape[1]:
                own = torch.cat((own, self.shared(noise)[:, None].expand(-1, self.beside.shape[1])), 1)
            self._joint = own, own.sum(0).expand(count)
        return self._joint

    def move(self, momentum: float, image: Tensor) -> None:
        """d ← ρd + Φ_bD, and the residuals with it. image: (R, K)."""
        self.drift.mul_(momentum).add_(image)
        self.residual -= self.drift[:, : self.residual.shape[1]]
        self.beside -= self.drift[:, self.residual.shape[1] :]


class MomentumDescent(Descent[SupportRows]):
    """The residual-cached heavy ball.

    Raises:
        UsageError: S is not diagonal: a step would need all of Sμ.

    Attributes:
        velocity: (capacity, K) v.
        curvature: (K,) λ_max, 0 before it was looked at.
    """

    def __init__(self, features: Features, columns: int, config: DescentConfig) -> None:
        if not features.diagonal_precision:
            raise UsageError(
                "optimiser=momentum needs features with independent weights",
                hint="use optimiser=adagrad, the block solver, or random features",
            )
        super().__init__(features, columns, config)
        self.velocity: Tensor
        self.curvature: Tensor
        self.register_buffer("velocity", reserved(self.weights.shape, self.dtype))
        self.register_buffer("curvature", torch.zeros(self.weights.shape[1], dtype=FLOAT))

    def forget(self) -> None:
        for block in self.touched():
            self.velocity[self.features.span(block)] = 0.0
        self.curvature.zero_()
        super().forget()

    def moving(self, block: int) -> tuple[Tensor, Tensor]:
        """μ_b and v_b as they are now, (|b|, K) both: coasted since the block's last step."""
        span, rho = self.features.span(block), self.config.momentum
        mu, velocity = self.weights[span], self.velocity[span]
        gap = int(self.steps) - int(self.last[block])
        if not gap or not int(self.last[block]):
            return mu.clone(), velocity.clone()
        return mu + velocity * (rho * (1.0 - rho**gap) / (1.0 - rho)), velocity * rho**gap

    def current(self, block: int) -> Tensor:
        return self.moving(block)[0]

    @torch.no_grad()
    def rows(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> SupportRows:
        x = x.to(self.dtype)
        rows = SupportRows(x, y, y.new_ones(len(y)) if weight is None else weight, self.dtype, self.heads(x))
        self._take(rows, *self.images(x))
        return rows

    def _take(self, rows: SupportRows, image: Tensor, drift: Tensor) -> None:
        rows.residual.sub_(image[:, : self.columns])
        rows.beside.sub_(image[:, self.columns :])
        rows.drift.copy_(drift)

    @torch.no_grad()
    def images(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, W) -> Φμ and Φv, (N, K) both, of touched blocks."""
        image, drift = (x.new_zeros(len(x), self.weights.shape[1]) for _ in range(2))
        for block in self.touched():
            phi = self.features.block(x, block)
            mu, velocity = self.moving(block)
            image.addmm_(phi, mu.to(phi.dtype))
            drift.addmm_(phi, velocity.to(phi.dtype))
        return image, drift

    @torch.no_grad()
    def put(self, rows: SupportRows, places: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> None:
        x = x.to(self.dtype)
        image, drift = self.images(x)
        rows.replace(places, x, y, weight, image[:, : self.columns])
        rows.beside[places] = -(self.heads(x) + image[:, self.columns :]).to(FLOAT)
        rows.drift[places] = drift.to(FLOAT)

    @torch.no_grad()
    def renew(self, rows: SupportRows) -> None:
        rows.follow(())
        rows.residual.copy_(rows.target)
        rows.beside.copy_(-self.heads(rows.x))
        self._take(rows, *self.images(rows.x))

    @torch.no_grad()
    def step(self, rows: SupportRows, decay: float = 1.0) -> None:
        generator, blocks = self.generator(), self.features.blocks
        block = int(torch.randint(blocks, (1,), generator=generator))
        weight, total = rows.joint(self.noise)
        if not bool((total > 0).any()):
            return  # nothing to learn from yet
        total = total.clamp(min=LEAST)
        phi, rho = rows.features(self.features, block, cached=0), self.config.momentum
        steps = int(self.steps)
        if steps % RECHECK == 0 or steps & (steps - 1) == 0 or not bool(self.curvature.all()):
            start = torch.randn(phi.shape[1], self.weights.shape[1], generator=generator).to(phi)
            self.curvature.copy_(self._curvature(rows, phi, start))
        self.keep(generator)
        mu, velocity = self.moving(block)
        self._estimate(block, rows, phi, mu)

        prior, ridge = self.prior(block)[:, None], self.noises / total
        ahead = (weight * (rows.left - rho * rows.drift) / total).to(phi.dtype)
        slope = thin(phi.mT, ahead).to(FLOAT) - ridge * prior * (mu + rho * velocity).to(FLOAT)
        rate = decay * blocks * self.config.rate / self.curvature.clamp(min=LEAST)
        change = self.freeze(block, rate * slope / (1.0 + rate * ridge * prior)).to(self.dtype)

        span = self.features.span(block)
        velocity = rho * velocity + change
        self.weights[span], self.velocity[span] = mu + velocity, velocity
        self.steps += 1
        self.last[block] = self.steps
        rows.move(rho, thin(phi, change).to(FLOAT))

    def _curvature(self, rows: SupportRows, phi: Tensor, start: Tensor) -> Tensor:
        """(K,) the largest eigenvalue of BΦ_bᵀWΦ_b/n, column by column. start: (|b|, K)."""
        weight, _ = rows.joint(self.noise)
        some = drawn(len(phi), POWER_ROWS)
        weight, phi = weight[some].to(phi.dtype), phi[some]
        weight = weight * (self.features.blocks / weight.sum(0).clamp(min=LEAST))
        size: Tensor = start.norm(dim=0)
        for _ in range(POWER_ITERATIONS):
            start = phi.mT @ (weight * (phi @ (start / size.clamp(min=LEAST))))
            size = start.norm(dim=0)
        return size.to(FLOAT)

    def _estimate(self, block: int, rows: SupportRows, phi: Tensor, mu: Tensor) -> None:
        """μᵀSμ + log|I + S⁻¹ΦᵀWΦ/σ²| (of its diagonal) from the drawn block, into the running mean."""
        some = slice(None, None, max(1, len(phi) // FEW))
        shared = rows.shared(self.noise)
        scale = float(shared.sum() / shared[some].sum().clamp(min=TINY))
        squares = (shared[some].to(phi.dtype) @ phi[some].square()).to(FLOAT) * scale
        prior = self.prior(block)
        energy = (prior[:, None] * mu[:, : self.columns].to(FLOAT).square()).sum(0)
        value = self.features.blocks * (energy + torch.log1p(squares / (self.variance * prior)).sum())
        self.beyond.lerp_(value, max(SMOOTH, 1.0 / (int(self.steps) + 1)))

    @torch.no_grad()
    def loss(self, rows: SupportRows) -> float:
        fit = (rows.weigh(rows.residual) * rows.residual).sum(0)
        return per_row(fit, self.beyond, self.noise, rows.total())

    def columns_fit(self, rows: SupportRows) -> Tensor:
        return rows.shared(self.noise) @ rows.beside.square()
