"""Descent on Theorem 1 as it stands: drawn rows, two drawn blocks, a control variate, AdaGrad on what was drawn.

−2 ELBO in μ is estimated from ñ of n rows and independent blocks i and j of B, weight B (`objectives.quadruple`):

    B²μ_jᵀΦ_ℓjᵀΦ_ℓiμ_i − B y_ℓᵀ(Φ_ℓiμ_i + Φ_ℓjμ_j)          rows weighted by n/ñσ², and symmetric in i and j
    + ½ B (μ_iᵀS_iiμ_i + μ_jᵀS_jjμ_j)                        S diagonal; else B²μ_jᵀS_jiμ_i
    − B²μ_jᵀΦ_pjᵀΦ_piμ_i + aᵀa,  a = Φ_pμ                    on n̄ support rows p (eq. 3, F.1)

The gradient is unbiased. Its noise is that of B Φ_jμ_j, of standard deviation about √(v‖μ‖²/m̃ (1 − m̃/m)), which the
control variate lowers on rows like the support rows, and AdaGrad's falling rate averages out: slowly. With as many rows
as fit in memory the residual-cached heavy ball (`_momentum_descent`) is far better; this one is the paper's, and it is
the one that learns hyper-parameters.

**Hyper-parameters** (`hyper_rate` > 0): Adam on their logarithms and log σ_t² along the gradient of the same draws'
estimate of the whole bound, L_Σ of the best diagonal and L_const included. The support rows' features stay those at
which the running a was started (F.3), and it is restarted every `restart` steps, O(n̄ m_touched). The bound is a
mean-field one: where m is large against what n rows can tell, its optimum in σ² and the lengthscales is not that of the
evidence. A start from the evidence of 1000 rows, and a small rate or none, is the better choice.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.features import Features
from streamgp.objectives import control_variates
from streamgp.objectives.draws import Cells, draw_cells
from streamgp.objectives.quadruple import (
    constant_term,
    diagonal_optimum,
    diagonal_prior_term,
    diagonal_term,
    fit_term,
    log_term,
    prior_term,
)
from streamgp.optim._block_weights import reserved
from streamgp.optim._descent import TINY, Descent, DescentConfig
from streamgp.optim._slow_adam import SlowAdam
from streamgp.optim.adagrad import SparseAdaGrad
from streamgp.optim.block_rows import Rows

SMOOTH = 0.02
"""Weight of a new draw in the running mean of the loss, once 50 were taken."""


class Drawn(NamedTuple):
    """What a step sees: two blocks, a mini-batch, and the features of both on it and on the support rows."""

    cells: Cells
    some: Tensor
    phi: dict[int, Tensor]
    support: dict[int, Tensor]


class SampledRows(Rows):
    """R rows that mini-batches are drawn of. What μ says of them is known on the support rows only.

    Attributes:
        residual: (R, T) NaN: not kept, as it would cost O(R) a step.
        support: (n̄,) places of the support rows.
        fit: (n̄, K) float64 a = Φ_pμ, at the features at which it was started.
    """

    def __init__(self, x: Tensor, y: Tensor, weight: Tensor, dtype: torch.dtype, support: Tensor, columns: int) -> None:
        super().__init__(x, y, weight, dtype)
        self.residual.fill_(torch.nan)
        self.support: Tensor
        self.fit: Tensor
        self.register_buffer("support", support)
        self.register_buffer("fit", torch.zeros(len(support), columns, dtype=FLOAT))

    def changed(self) -> None:
        super().changed()
        self._count: float | None = None

    @property
    def count(self) -> float:
        """Σ_t n_t, summed again only when rows or weights change."""
        if self._count is None:
            self._count = float(self.total().sum())
        return self._count

    @property
    def running(self) -> control_variates.RunningExpectation:
        """The running expectation, whose value is `fit`."""
        running = control_variates.RunningExpectation(self.support, columns=0)
        running.value = self.fit
        return running

    def precision(self, places: Tensor, noise: Tensor, columns: int) -> Tensor:
        """(P, K): rows that each of the places stands for, over σ_t², T columns and then the dense ones'."""
        own = self.weight[places]
        own = (own if own.ndim == 2 else own[:, None]) * self.observed[places]
        means = own * (len(self.target) / max(len(places), 1)) / noise
        return torch.cat((means, means.mean(1, keepdim=True).expand(-1, columns - len(noise))), 1)


class SampledDescent(Descent[SampledRows]):
    """Theorem 1 with a control variate and AdaGrad.

    Attributes:
        sums: (capacity, K) float32 of squared gradients.
    """

    def __init__(self, features: Features, columns: int, config: DescentConfig) -> None:
        super().__init__(features, columns, config)
        self.sums: Tensor
        self.register_buffer("sums", reserved(self.weights.shape, torch.float32))
        self.optimiser = SparseAdaGrad({}, {})
        self.started = copy.deepcopy(features) if config.hyper_rate else None
        self.adam = SlowAdam([*features.parameters(), self.noise]) if config.hyper_rate else None

    def forget(self) -> None:
        for block in self.touched():
            self.sums[self.features.span(block)] = 0.0
        if self.started is not None and self.adam is not None:
            self.started.load_state_dict(self.features.state_dict())
            self.adam.forget()
        super().forget()

    def current(self, block: int) -> Tensor:
        return self.weights[self.features.span(block)].clone()

    @property
    def held_features(self) -> Features:
        """Those at which the running expectation was started."""
        return self.features if self.started is None else self.started

    @torch.no_grad()
    def rows(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> SampledRows:
        own = y.new_ones(len(y)) if weight is None else weight
        generator = self.generator()
        support = torch.randperm(len(y), generator=generator)[: self.config.support].to(x.device)
        self.keep(generator)
        rows = SampledRows(x, y, own, self.dtype, support, self.weights.shape[1])
        self.renew(rows)
        return rows

    @torch.no_grad()
    def put(self, rows: SampledRows, places: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> None:
        rows.replace(places, x, y, weight, torch.full_like(y, torch.nan))
        moved = torch.isin(rows.support, places)
        rows.fit[moved] = self._image(rows.x[rows.support[moved]]).to(FLOAT)

    @torch.no_grad()
    def renew(self, rows: SampledRows) -> None:
        if self.started is not None:
            self.started.load_state_dict(self.features.state_dict())
        rows.fit.copy_(self._image(rows.x[rows.support]))

    def _image(self, x: Tensor) -> Tensor:
        """(N, K) Φ times the weights, at the features of the running expectation."""
        total = x.new_zeros(len(x), self.weights.shape[1])
        for block in self.touched():
            total.addmm_(self.held_features.block(x, block), self.current(block).to(x.dtype))
        return total

    def step(self, rows: SampledRows, decay: float = 1.0) -> None:
        learning, steps = self.adam is not None, int(self.steps)
        if learning and steps and steps % self.config.restart == 0:
            self.renew(rows)
        generator = self.generator()
        cells = draw_cells(self.features.blocks, generator)
        some = torch.randint(len(rows.target), (self.config.batch,), generator=generator).to(rows.x.device)
        self.keep(generator)
        theta = list(self.features.parameters()) if learning else []
        for parameter in theta:
            parameter.requires_grad_(True)
        log_noise = self.noise.log().requires_grad_(learning)
        mu = {b: self.current(b).requires_grad_(True) for b in cells.touched}
        drawn = self.see(rows, cells, some, learning)
        means, columns = self.mean_part(rows, drawn, mu, log_noise.exp())
        with torch.set_grad_enabled(learning):
            rest = self.rest(rows, drawn, log_noise.exp())
        wanted = [*mu.values(), *theta, *([log_noise] if learning else [])]
        gradients = torch.autograd.grad(means + columns + rest, wanted)
        self._note(means.detach() + rest.detach())
        self.steps += 1
        for (block, before), gradient in zip(mu.items(), gradients, strict=False):
            self._descend(rows, drawn, block, before.detach(), gradient, decay)
        if self.adam is not None:
            with torch.no_grad():
                slopes = [gradient / rows.count for gradient in gradients[len(mu) :]]
                self.adam.step(wanted[len(mu) :], slopes, decay * self.config.hyper_rate)
                self.noise.copy_(log_noise.exp())
            for parameter in theta:
                parameter.requires_grad_(False)

    def see(self, rows: SampledRows, cells: Cells, some: Tensor, learning: bool = False) -> Drawn:
        """The features of a draw, with a graph for their hyper-parameters if asked for. some: (ñ,) places of rows."""
        x, held = rows.x[some], rows.x[rows.support]
        with torch.set_grad_enabled(learning):
            if self.started is None:
                joined = {b: self.features.block(torch.cat((x, held)), b) for b in cells.touched}
                phi, support = (
                    {b: f[part] for b, f in joined.items()} for part in (slice(len(x)), slice(len(x), None))
                )
            else:
                phi = {b: self.features.block(x, b) for b in cells.touched}
                with torch.no_grad():
                    support = {b: self.started.block(held, b) for b in cells.touched}
        return Drawn(cells, some, phi, support)

    def mean_part(self, rows: SampledRows, drawn: Drawn, mu: dict[int, Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
        """The estimates of L_μ, with its control variate, and of its likes for the dense columns; () both.

        Args:
            mu: block -> (|b|, K), of both blocks.
            noise: (T,) σ_t².
        """
        cells, weight, total = drawn.cells, drawn.cells.weight, self.weights.shape[1]
        i, j = cells.i, cells.j
        y = torch.cat((rows.target[drawn.some], -self.heads(rows.x[drawn.some]).to(FLOAT)), 1)
        precision, held = (rows.precision(places, noise, total) for places in (drawn.some, rows.support))
        image, seen = ({b: (f @ mu[b]).to(FLOAT) for b, f in part.items()} for part in (drawn.phi, drawn.support))
        union = seen[i] if i == j else seen[i] + seen[j]

        def part(columns: slice) -> Tensor:
            image_i, image_j, own = image[i][:, columns], image[j][:, columns], precision[:, columns]
            mu_i, mu_j = (mu[b][:, columns].to(FLOAT) for b in (i, j))
            value = 0.5 * fit_term(image_i, image_j, y[:, columns], own, weight)
            value = value + 0.5 * fit_term(image_j, image_i, y[:, columns], own, weight)
            if self.features.diagonal_precision:
                value = value + 0.5 * diagonal_prior_term(mu_i, self.prior(i), weight)
                value = value + 0.5 * diagonal_prior_term(mu_j, self.prior(j), weight)
            else:
                value = value + prior_term(mu_i, mu_j, self.features.precision(j, i), weight)
            if len(rows.support):
                fit = control_variates.attach(rows.fit[:, columns], union[:, columns], cells.scale)
                pair = seen[i][:, columns], seen[j][:, columns]
                value = value + control_variates.quadratic(*pair, fit, held[:, columns], weight)
            return value

        return part(slice(self.columns)), part(slice(self.columns, None))

    def rest(self, rows: SampledRows, drawn: Drawn, noise: Tensor) -> Tensor:
        """L_Σ at the best diagonal, whose entries are held fixed (they are optimal), and L_const."""
        i, weight, some, count = drawn.cells.i, drawn.cells.weight, drawn.some, len(noise)
        precision, prior = rows.precision(some, noise, count), self.prior(i)
        with torch.no_grad():
            base, places = (drawn.support[i], rows.support) if len(rows.support) else (drawn.phi[i], some)
            squares = rows.precision(places, noise, count).mean(1).to(base.dtype) @ base.square()
            c = diagonal_optimum(squares.to(FLOAT), prior, 1.0)
        phi = drawn.phi[i]
        c_i, s_i, own = (part.to(phi.dtype) for part in (c, prior, precision))
        value = diagonal_term(phi, c_i, s_i, own, weight).to(FLOAT) + log_term(c, count, weight)
        target = torch.where(rows.observed[some], rows.target[some], torch.nan)
        counts = rows.weight[some] * (len(rows.target) / len(some))
        for t in range(count):
            stands = counts if counts.ndim == 1 else counts[:, t]
            here = slice(t, t + 1)
            value = value + constant_term(target[:, here], noise[here], stands, prior, self.features.size, weight)
        return value

    @torch.no_grad()
    def _descend(
        self, rows: SampledRows, drawn: Drawn, block: int, before: Tensor, gradient: Tensor, decay: float
    ) -> None:
        """AdaGrad on one block, every weight with a rate of its own, and the running expectation after it."""
        span, gradient = self.features.span(block), self.freeze(block, gradient)
        names = [str(column) for column in range(self.weights.shape[1])]
        self.optimiser.parameters = dict(zip(names, self.weights.unbind(1), strict=True))
        self.optimiser.sums = dict(zip(names, self.sums.unbind(1), strict=True))
        self.optimiser.rates = dict.fromkeys(names, 1.0)
        slopes = {name: (span, column) for name, column in zip(names, gradient.unbind(1), strict=True)}
        self.optimiser.step(slopes, decay * self.config.adagrad_rate)
        self.last[block] = self.steps
        rows.running.move(drawn.support[block], self.weights[span] - before)

    def _note(self, value: Tensor) -> None:
        """−2 ELBO of this draw into the running mean."""
        self.beyond.lerp_((value / self.columns).expand(self.columns), max(SMOOTH, 1.0 / (int(self.steps) + 1)))

    @torch.no_grad()
    def loss(self, rows: SampledRows) -> float:
        return float(0.5 * self.beyond.sum() / max(rows.count, TINY))

    def columns_fit(self, rows: SampledRows) -> Tensor:
        places = rows.support
        residual = self.heads(rows.x[places]).to(FLOAT) + rows.fit[:, self.columns :]
        return (rows.shared(self.noise)[places] * (len(rows.target) / len(places))) @ residual.square()
