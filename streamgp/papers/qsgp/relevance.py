"""QSRVM: precisions by the quadruply stochastic bound, from sampled rows and sampled functions.

The bound −½ (L_μ + L_Σ + L_const) of q(w) = N(μ, CCᵀ), C a chevron, with S = diag(s) (Evans & Nair 2020, appendix I.3),
is sampled as `streamgp.papers.qsgp.quadruple` does, with control variates on support rows for the mean and for the
dense columns. A step costs the same whatever rows and functions there are. Ours, and why:

- Steps of μ and of the dense columns are gradients times the inverse of (n/n̄) Φ_{p,b}ᵀΦ_{p,b}/σ² + S_bb, the curvature
  of a cell b on the support rows, shrunk towards its diagonal over all rows: unshrunk, few support rows diverge.
  AdaGrad does not get anywhere, as functions on neighbouring rows are nearly the same.
- s_j goes a part of the way to 1/(mean μ_jt² + (CCᵀ)_jj), the maximum of the bound for it; the gradient of log s_j is
  small where s_j is far too small, and leaves all 500 functions of the paper's example in the model.
- Functions with s_j ≥ `FINITE` leave at once, so that steps get cheaper. The dense columns then begin again.
- Diagonal columns of C take their optimum (Prop. 1) in every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Generator, Tensor

from streamgp.linalg.cholesky import cholesky
from streamgp.papers.qsgp import control_variates as cv
from streamgp.papers.qsgp import quadruple as q
from streamgp.papers.qsgp.adagrad import SparseAdaGrad, decay
from streamgp.papers.qsgp.draws import CellPair, draw_cells
from streamgp.regression.relevance import FINITE, Selection

Feature: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Rows (N,) and places (k,) -> (N, k) values of those functions at those rows."""

TOWARDS = 0.1
"""Part of the way that log s goes in a step."""
PRUNE = 50
"""Steps from one pruning to the next."""


class Draws(NamedTuple):
    """What a step draws, and how many steps there are.

    Attributes:
        steps: in all.
        rows: ñ, of the mini-batch.
        support: n̄, rows of the control variates.
        functions: m̃, in a cell.
        dense: k, dense columns of the chevron.
        rate: γ of the first step, 1 for a whole Newton step in a cell; it falls to a tenth.
    """

    steps: int = 1000
    rows: int = 100
    support: int = 250
    functions: int = 200
    dense: int = 10
    rate: float = 0.2


class QuadrupleRelevance:
    """The state of one selection; `run` makes it.

    Args:
        feature: the functions.
        squares: (m,) φ_jᵀφ_j over weighted rows.
        y: (n, T)
        weight: (n,) of the rows.
        noise: σ² at the start; it is learned.
        draws: sizes.
        generator: of everything drawn.

    Attributes:
        places: (m',) int64, functions still in the model, in random order.
        mean: (m', T) μ.
        dense: (m', k) the dense columns of C.
        log_precision: (m',) log s.
        log_noise: (1,) log σ².
    """

    def __init__(
        self,
        feature: Feature,
        squares: Tensor,
        y: Tensor,
        weight: Tensor,
        noise: float,
        draws: Draws,
        generator: Generator,
    ) -> None:
        self.feature, self.squares, self.y, self.weight, self.draws = feature, squares, y, weight, draws
        self.generator = generator
        self.places = torch.randperm(len(squares), generator=generator).to(y.device)
        support = torch.randperm(len(y), generator=generator)[: draws.support].to(y.device)
        self.mean = y.new_zeros(len(squares), y.shape[1])
        self.log_precision = y.new_zeros(len(squares))
        self.log_noise = y.new_full((1,), math.log(noise))
        self.noises = SparseAdaGrad({"noise": self.log_noise}, {})
        self.fit = cv.RunningExpectation(support, y.shape[1])
        self.fit.start(support, y.new_zeros(len(support), y.shape[1]))
        self.spread = cv.RunningExpectation(support, 0)
        self._begin_dense()

    def run(self) -> Selection:
        """All steps. The precisions are those of the bound, whose covariance is no exact one: settle them.

        Raises:
            NotPositiveDefinite: the sums are not finite.
        """
        step = 0
        for step in range(1, self.draws.steps + 1):
            self.step(decay(self.draws.rate, step - 1, self.draws.steps / math.log2(10.0)))
            if step % PRUNE == 0:
                self.prune()
                if not len(self.places):
                    break
        self.prune()
        order = torch.argsort(self.places)
        return Selection(self.places[order], self.log_precision.exp()[order], float(self.log_noise.exp()), step)

    @property
    def cells(self) -> int:
        """B, cells of the functions that are left."""
        return -(-len(self.places) // self.draws.functions)

    def step(self, rate: float) -> None:
        """One draw of rows and functions, and a step of all that it concerns."""
        draw = draw_cells(self.cells, self.generator)
        rows = torch.randint(len(self.y), (self.draws.rows,), generator=self.generator).to(self.y.device)
        spans = {c: self._span(c) for c in draw.touched}
        here = {c: self.feature(rows, self.places[spans[c]]) for c in draw.touched}
        there = {c: self.feature(self.fit.rows, self.places[spans[c]]) for c in draw.touched}
        leaves = {c: self._leaf(spans[c]) for c in draw.touched}
        log_noise = self.log_noise.clone().requires_grad_()
        self.loss(draw, rows, here, there, leaves, log_noise).backward()
        for c in draw.touched:
            self._move(spans[c], there[c], leaves[c], rate / (draw.scale * len(draw.touched)))
        assert log_noise.grad is not None
        self.noises.step({"noise": (slice(0, 1), log_noise.grad)}, rate)

    def loss(
        self,
        draw: CellPair,
        rows: Tensor,
        here: dict[int, Tensor],
        there: dict[int, Tensor],
        leaves: dict[int, Tensor],
        log_noise: Tensor,
    ) -> Tensor:
        """An estimate of L_μ + L_Σ + L_const, as a function of the leaves and of the noise.

        Args:
            draw: the cells i and j.
            rows: (ñ,)
            here, there: cell -> features (ñ, |b|) at the rows and (n̄, |b|) at the support rows.
            leaves: cell -> (|b|, T + k), means beside dense columns.
            log_noise: (1,)
        """
        columns, support = self.y.shape[1], self.fit.rows
        noise = log_noise.exp().expand(columns)
        count = self.weight[rows] * (len(self.y) / len(rows))
        y, precision = self.y[rows], q.precisions(self.y[rows], noise, count)
        beside = self.y[support]
        known = q.precisions(beside, noise, self.weight[support] * (len(self.y) / len(support)))
        total, known_total = precision.sum(1, keepdim=True), known.sum(1, keepdim=True)
        images = {c: here[c] @ leaf for c, leaf in leaves.items()}
        supports = {c: there[c] @ leaf for c, leaf in leaves.items()}
        union = torch.stack(list(supports.values())).sum(0)
        fit = cv.attach(self.fit.value, union[:, :columns], draw.scale)
        spread = cv.attach(self.spread.value, union[:, columns:], draw.scale)
        (f_i, c_i), (f_j, c_j) = (_parts(images[c], columns) for c in (draw.i, draw.j))
        (a_i, b_i), (a_j, b_j) = (_parts(supports[c], columns) for c in (draw.i, draw.j))
        weight, span = draw.weight, self._span(draw.i)
        s = self.log_precision[span].exp()
        mean, dense = _parts(leaves[draw.i], columns)
        own = self._diagonal(span, float(log_noise.detach().exp()))
        value = q.fit_term(f_i, f_j, y, precision, weight) + cv.quadratic(a_i, a_j, fit, known, weight)
        value = value + cv.linear((known * beside * a_i).sum(0), (known * beside * fit).sum(0), weight)
        value = value + weight**2 * (total * c_i * c_j).sum() + cv.quadratic(b_i, b_j, spread, known_total, weight)
        value = value + q.diagonal_prior_term(mean, s, weight) + columns * q.diagonal_prior_term(dense, s, weight)
        value = value + q.diagonal_term(here[draw.i], own, s, precision, weight)
        value = value + q.constant_term(y, noise, count, s, len(self.places), weight)
        if draw.i == 0:  # whose first functions are those of the dense columns
            value = value + q.log_term(dense.diagonal(), columns, weight)
        return value

    def prune(self) -> None:
        """Leave out what is not finite."""
        stays = self.log_precision < math.log(FINITE)
        if bool(stays.all()):
            return
        gone = self.places[~stays]
        self.fit.move(self.feature(self.fit.rows, gone), -self.mean[~stays])
        self.places, self.mean = self.places[stays], self.mean[stays]
        self.log_precision = self.log_precision[stays]
        self._begin_dense()

    def _begin_dense(self) -> None:
        """Dense columns that are those of mean field."""
        columns = min(self.draws.dense, self.draws.functions, len(self.places))
        self.dense = self.mean.new_zeros(len(self.places), columns)
        first = slice(0, columns)
        noise, s = float(self.log_noise.exp()), self.log_precision[first].exp()
        self.dense.diagonal().copy_(q.diagonal_optimum(self.squares[self.places[first]], s, 1.0 / noise))
        image = self.feature(self.fit.rows, self.places[first]) @ self.dense[first]
        self.spread.start(self.fit.rows, image)

    def _span(self, cell: int) -> slice:
        width = self.draws.functions
        return slice(cell * width, min((cell + 1) * width, len(self.places)))

    def _chevron(self, values: Tensor, span: slice) -> Tensor:
        """(|b|, T + k) with zeros above the diagonal of the dense columns."""
        mean, dense = _parts(values, self.mean.shape[1])
        return torch.cat((mean, dense.tril(span.start)), 1)

    def _leaf(self, span: slice) -> Tensor:
        return torch.cat((self.mean[span], self.dense[span]), 1).requires_grad_()

    def _diagonal(self, span: slice, noise: float) -> Tensor:
        """(|b|,) C_rr of the diagonal columns (Prop. 1), 0 for those that are dense."""
        best = q.diagonal_optimum(self.squares[self.places[span]], self.log_precision[span].exp(), 1.0 / noise)
        place = torch.arange(span.start, span.stop, device=best.device)
        return torch.where(place < self.dense.shape[1], 0.0, best)

    @torch.no_grad()
    def _move(self, span: slice, there: Tensor, leaf: Tensor, rate: float) -> None:
        """Means, dense columns and precisions of one cell, and what they change at the support rows."""
        assert leaf.grad is not None
        columns, noise = self.mean.shape[1], float(self.log_noise.exp())
        count = self.weight[self.fit.rows] * (len(self.y) / len(there))
        s = self.log_precision[span].exp()
        part = len(s) / (len(s) + len(there))  # n̄ rows are uncertain of |b| directions, the diagonal is not
        curvature = (1.0 - part) * (there.T @ (there * (count / noise)[:, None]))
        curvature.diagonal().add_(part * self.squares[self.places[span]] / noise + s)
        upper = cholesky(curvature.flip(0, 1)).lower.flip(0, 1)  # UUᵀ: that of rows ≥ r is U's block of rows ≥ r
        before, gradient = leaf.detach(), leaf.grad.clone()
        gradient[:, columns:] /= columns
        half = self._chevron(torch.linalg.solve_triangular(upper, self._chevron(gradient, span), upper=True), span)
        change = -0.5 * rate * torch.linalg.solve_triangular(upper.mT, half, upper=False)
        if span.start == 0:  # no standard deviation changes by more than a half: its logarithm is steep near 0
            first = before[:, columns:].diagonal()
            change[:, columns:] *= (0.5 * first / change[:, columns:].diagonal().abs().clamp(min=1e-300)).clamp(max=1.0)
        after = before + change
        self.mean[span], self.dense[span] = after[:, :columns], after[:, columns:]
        moved = there @ change
        self.fit.value += moved[:, :columns]
        self.spread.value += moved[:, columns:]
        variance = self._diagonal(span, noise).square() + self.dense[span].square().sum(1)
        wanted = -(self.mean[span].square().mean(1) + variance).log()
        self.log_precision[span] += TOWARDS * (wanted - self.log_precision[span])


def _parts(values: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Those of the means and those of the dense columns."""
    return values[:, :columns], values[:, columns:]
