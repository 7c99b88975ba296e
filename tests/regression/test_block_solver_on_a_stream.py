"""Rows that come and go, weights and targets that change, features that grow, and going on after a restart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from streamgp.regression.block_rows import BlockRows
from streamgp.regression.block_solver import BlockSolver
from streamgp.state import gather, scatter
from tests.regression.block_toys import Problem, everything, features_of, normal, problem, solution, started


def put(solver: BlockSolver, rows: BlockRows, places: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> None:
    rows.replace(places, x, y, weight, solver.mean(x.to(solver.dtype)))


def test_replaced_rows_are_as_if_they_had_always_been_there() -> None:
    features, p = features_of(), problem("rows")
    solver, rows = started(features, p)
    solver.sweep(rows)
    places = torch.tensor([3, 17, 40])
    x, y, weight = normal(3, 2, seed=8), normal(3, 2, seed=9), torch.tensor([0.5, 0.0, 2.0]).double()
    y[1, 0] = torch.nan
    put(solver, rows, places, x, y, weight)
    assert torch.equal(p.x, normal(50, 2, seed=2))  # the caller's rows are the caller's
    assert p.weight is not None
    now = Problem(
        p.x.index_copy(0, places, x), p.y.index_copy(0, places, y), p.weight.index_copy(0, places, weight), p.noise
    )
    fresh = solver.rows(now.x, now.y, now.weight)
    torch.testing.assert_close(rows.residual, fresh.residual, rtol=0, atol=1e-10)
    assert torch.equal(rows.effective, fresh.effective) and not rows.moves
    for _ in range(100):
        solver.sweep(rows)
    np.testing.assert_allclose(
        solver.mean(now.x).numpy(), everything(features, now.x) @ solution(features, now), atol=1e-8
    )


def test_weights_that_change_and_factors_that_do_not() -> None:
    features, p = features_of(), problem("rows")
    solver, rows = started(features, p)
    solver.sweep(rows)
    kept = rows.factors[0]
    faded = p._replace(weight=0.01 * normal(len(p.x), seed=10).exp())
    assert faded.weight is not None
    rows.reweigh(faded.weight)
    loss = solver.loss(rows)
    assert solver.visit(0, rows) is kept and solver.loss(rows) < loss
    assert not torch.allclose(solver.visit(0, rows, refresh=True), kept, rtol=0.1)
    for _ in range(100):
        solver.sweep(rows)
    np.testing.assert_allclose(solver.mu.numpy(), solution(features, faded), atol=1e-8)


def test_places_without_a_row_are_not_drawn_for_a_gram_matrix() -> None:
    features, p = features_of(), problem(rows=12)
    x, y = torch.zeros(500, 2, dtype=torch.float64), torch.zeros(500, 2, dtype=torch.float64)
    weight = torch.zeros(500, dtype=torch.float64)
    solver = BlockSolver(features, 2, torch.float64, gram_rows=12).begin(p.noise)
    rows = solver.rows(x, y, weight)
    solver.visit(0, rows, refresh=True)
    assert not solver.mu.any()  # nothing to learn from, and nothing that is not finite
    put(solver, rows, torch.arange(488, 500), p.x, p.y, torch.ones(12).double())
    for block in range(features.blocks):
        solver.visit(block, rows, refresh=True)
    other, few = started(features, p)
    for block in range(features.blocks):
        other.visit(block, few)
    torch.testing.assert_close(solver.mu, other.mu, rtol=0, atol=1e-10)


def stream(solver: BlockSolver, rows: BlockRows, step: int) -> None:
    """What a model does with five new rows."""
    places = torch.arange(5) + 5 * (step % 10)
    put(solver, rows, places, normal(5, 2, seed=100 + step), normal(5, 2, seed=200 + step), torch.ones(5).double())
    rows.reweigh(0.95 * rows.weight)
    solver.visit(step % solver.features.blocks, rows, refresh=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_restored_one_goes_on_bit_for_bit(dtype: torch.dtype) -> None:
    config: dict[str, Any] = {"dtype": dtype, "gram_rows": 30}
    p = problem("rows")
    solver, rows = started(features_of(), p, config)
    for step in range(7):
        stream(solver, rows, step)
    tensors, rest = gather({"solver": solver, "rows": rows})
    tensors = {name: value.clone() for name, value in tensors.items()}
    other = BlockSolver(features_of(), 2, **config)
    with torch.no_grad():
        other.features.kernel.log_outputscale.fill_(3.0)
    again = other.begin(9.0).rows(torch.zeros_like(p.x), torch.zeros_like(p.y), p.weight)
    other.sweep(again)  # whatever it had cached
    scatter({"solver": other, "rows": again}, tensors, rest)
    again.attach(rows.x)
    for step in range(7, 12):
        stream(solver, rows, step)
        stream(other, again, step)
    assert torch.equal(solver.mu, other.mu) and torch.equal(rows.residual, again.residual)
    assert torch.equal(solver.mean(p.x), other.mean(p.x)) and solver.loss(rows) == other.loss(again)


def logistic_curvature(f: Tensor) -> Tensor:
    """tanh(f/2)/(2f), of the bound of Jaakkola & Jordan (2000)."""
    f = f.abs().clamp(min=1e-6)
    return torch.tanh(0.5 * f) / (2.0 * f)


def test_row_weights_of_a_majorisation_reach_the_most_probable_weights_of_a_logistic_model() -> None:
    features, p = features_of(), problem()
    labels = (p.y > 0).double()
    solver = BlockSolver(features, 2, torch.float64).begin(1.0)
    rows = solver.rows(p.x, torch.zeros_like(labels), torch.ones_like(labels))
    for _ in range(100):
        curvature = logistic_curvature(rows.fitted)
        before = rows.fitted.clone()
        rows.retarget((labels - 0.5) / curvature, curvature)
        torch.testing.assert_close(rows.fitted, before, rtol=0, atol=1e-12)
        solver.sweep(rows)
    phi = everything(features, p.x)
    for t in range(2):
        sign = 2 * labels[:, t].numpy() - 1

        def energy(w: np.ndarray, sign: np.ndarray = sign) -> tuple[float, np.ndarray]:
            margin = sign * (phi @ w)
            slope = -sign / (1 + np.exp(margin))
            return float(np.logaddexp(0, -margin).sum() + 0.5 * w @ w), phi.T @ slope + w

        found = minimize(energy, np.zeros(26), jac=True, method="BFGS", options={"gtol": 1e-9})
        np.testing.assert_allclose(solver.mu[:, t].numpy(), found.x, atol=1e-6)


def test_other_hyper_parameters_void_what_was_cached() -> None:
    features, p = features_of(), problem()
    solver, rows = started(features, p)
    solver.sweep(rows)
    with torch.no_grad():
        features.kernel.log_lengthscale.fill_(0.3)
    solver.begin(p.noise)
    solver.renew(rows)
    for _ in range(100):
        solver.sweep(rows)
    np.testing.assert_allclose(solver.mu.numpy(), solution(features, p), atol=1e-8)
