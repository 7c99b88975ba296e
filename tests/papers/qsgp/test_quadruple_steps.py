"""The parts together: sparse steps on cells find the posterior mean and the best dense columns."""

from __future__ import annotations

import pytest
import torch

from streamgp.papers.qsgp import control_variates as cv
from streamgp.papers.qsgp import quadruple as q
from streamgp.papers.qsgp.adagrad import SparseAdaGrad, decay
from streamgp.papers.qsgp.draws import draw_cells
from tests.papers.qsgp import oracles_qsgp as oracle

N, M, WIDTH, DENSE, T = 60, 24, 6, 2, 2


@pytest.mark.slow
def test_sparse_steps_find_the_closed_forms() -> None:
    """Measured: within 0.013 of the mean and 0.002 of the columns, whose largest entries are above 0.5.

    Every row is a support row and in the batch, so that the fit is without noise and what is left is the prior's.

    A step reads and writes two cells, their running expectations, and nothing else.
    """
    phi, y = oracle.normal(N, M, seed=0) / M**0.5, oracle.normal(N, T, seed=1)
    noise, s = torch.tensor([0.4, 0.4]).double(), 0.5 + oracle.normal(M, seed=2).square()
    precision = q.precisions(y, noise, 1.0)
    matrix = phi.T @ phi / 0.4 + torch.diag(s)
    mu, dense = torch.zeros(M, T, dtype=torch.float64), torch.zeros(M, DENSE, dtype=torch.float64)
    dense.diagonal().copy_(matrix.diagonal()[:DENSE].rsqrt())
    a, b = cv.RunningExpectation(torch.arange(N), T), cv.RunningExpectation(torch.arange(N), DENSE)
    b.start(b.rows, phi @ dense)
    optimiser = SparseAdaGrad({"mu": mu, "dense": dense}, {"dense": 0.1})
    generator = torch.Generator().manual_seed(0)
    for step in range(1500):
        draw = draw_cells(M // WIDTH, generator)
        span = {c: slice(c * WIDTH, (c + 1) * WIDTH) for c in draw.touched}
        block = {c: phi[:, span[c]] for c in draw.touched}
        before = {c: (mu[span[c]].clone(), dense[span[c]].clone()) for c in draw.touched}
        leaf = {c: mu[span[c]].clone().requires_grad_() for c in draw.touched}
        column = {c: dense[span[c]].clone().requires_grad_() for c in draw.touched}
        image, spread = ({c: block[c] @ v[c] for c in draw.touched} for v in (leaf, column))
        f_i, f_j, c_i = image[draw.i], image[draw.j], column[draw.i]
        here = cv.attach(a.value, torch.stack(list(image.values())).sum(0), draw.scale)
        value = q.fit_term(f_i, f_j, y, precision, draw.weight)
        value = value + cv.quadratic(f_i, f_j, here, precision, draw.weight)
        value = value + cv.linear((precision * y * f_i).sum(0), (precision * y * here).sum(0), draw.weight)
        value = value + q.diagonal_prior_term(leaf[draw.i], s[span[draw.i]], draw.weight)
        total = precision.sum(1, keepdim=True)
        there = cv.attach(b.value, torch.stack(list(spread.values())).sum(0), draw.scale)
        value = value + draw.weight**2 * (total * spread[draw.i] * spread[draw.j]).sum()
        value = value + cv.quadratic(spread[draw.i], spread[draw.j], there, total, draw.weight)
        value = value + T * q.diagonal_prior_term(c_i, s[span[draw.i]], draw.weight)
        if draw.i == 0:  # the first cell holds the diagonal entries of the dense columns
            value = value + q.log_term(c_i.diagonal(), T, draw.weight)
        value.backward()
        rate = decay(0.3, step, 300.0)
        for c in draw.touched:
            upper, g, h = c * WIDTH, leaf[c].grad, column[c].grad
            assert g is not None and h is not None
            optimiser.step({"mu": (span[c], g), "dense": (span[c], h.tril(diagonal=upper))}, rate)
            a.move(block[c], mu[span[c]] - before[c][0])
            b.move(block[c], dense[span[c]] - before[c][1])
    torch.testing.assert_close(a.value, phi @ mu, rtol=1e-9, atol=1e-9)
    exact = torch.linalg.solve(matrix, phi.T @ y / 0.4)
    print("mean", (mu - exact).abs().max(), "columns", (dense - q.dense_optimum(matrix, DENSE)).abs().max())
    assert exact.abs().max() > 0.5 and q.dense_optimum(matrix, DENSE)[2:].abs().max() > 0.1
    torch.testing.assert_close(mu, exact, rtol=0, atol=0.02)
    torch.testing.assert_close(dense, q.dense_optimum(matrix, DENSE), rtol=0, atol=0.02)
