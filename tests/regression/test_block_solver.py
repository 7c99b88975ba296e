"""The block solver against the dense solution of the same system."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgp.regression import block_solver
from tests.properties import examples
from tests.regression.block_toys import (
    EXACT,
    everything,
    features_of,
    normal,
    problem,
    solution,
    started,
    systems,
    weights_of,
)


@pytest.mark.sampled
@pytest.mark.parametrize("weights", ["none", "rows", "columns"])
@pytest.mark.parametrize(("missing", "own_noise"), [(False, False), (True, True)])
def test_sweeps_reach_the_dense_solution(weights: str, missing: bool, own_noise: bool) -> None:
    features, p = features_of(), problem(weights, missing=missing, own_noise=own_noise)
    solver, rows = started(features, p)
    for _ in range(100):
        solver.sweep(rows)
    wanted = everything(features, p.x) @ solution(features, p)
    np.testing.assert_allclose(solver.mean(p.x).numpy(), wanted, atol=1e-8)
    np.testing.assert_allclose(solver.mu.numpy(), solution(features, p), atol=1e-8)
    np.testing.assert_allclose(rows.fitted.numpy(), wanted, atol=1e-8)


def test_a_visit_with_an_exact_factor_solves_its_block() -> None:
    features, p = features_of(), problem("rows")
    solver, rows = started(features, p)
    solver.mu[: features.size] = normal(features.size, 2, seed=7)
    solver.renew(rows)
    solver.visit(1, rows)
    span = features.span(1)
    for t, (matrix, right) in enumerate(systems(features, p)):
        np.testing.assert_allclose((matrix @ solver.mu[: features.size, t].numpy() - right)[span], 0.0, atol=1e-9)


def test_loss_is_its_definition() -> None:
    features, p = features_of(), problem("rows", missing=True, own_noise=True)
    solver, rows = started(features, p)
    solver.sweep(rows)
    mu, noise, weights = solver.mu[: features.size].numpy(), p.noise.numpy(), weights_of(p)
    residual = np.nan_to_num(p.y.numpy()) - everything(features, p.x) @ mu
    fit = (weights * residual**2).sum(0) / noise + (mu**2).sum(0)
    wanted = 0.5 * (fit / weights.sum(0) + np.log(2 * np.pi * noise)).mean()
    assert solver.loss(rows) == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("weights", ["none", "rows"])
def test_a_weight_is_a_repetition(weights: str) -> None:
    features, p = features_of(), problem(weights)
    times = torch.arange(len(p.x)) % 3  # 0: as if it were not there
    weighted = p._replace(weight=times.double())
    repeated = p._replace(x=p.x.repeat_interleave(times, 0), y=p.y.repeat_interleave(times, 0), weight=None)
    (solver, rows), (other, more) = started(features, weighted), started(features, repeated)
    for _ in range(3):
        assert solver.sweep(rows) == pytest.approx(other.sweep(more), rel=1e-12)
    torch.testing.assert_close(solver.mu, other.mu, rtol=0, atol=1e-10)


@examples(30)
@given(seed=st.integers(0, 10_000), spread=st.floats(-3, 3))
def test_no_visit_goes_up_whatever_the_factor(seed: int, spread: float) -> None:
    features, p = features_of(), problem("columns", own_noise=True, missing=True)
    solver, rows = started(features, p)
    loss = solver.loss(rows)
    for step in range(6):
        block = (seed + step) % features.blocks
        width = features.span(block).stop - features.span(block).start
        wild = normal(width, width, seed=seed + step).tril() * np.exp(spread)
        wild.diagonal().abs_().add_(0.1)
        solver.visit(block, rows, factor=wild)
        assert solver.loss(rows) <= loss + 1e-12
        loss = solver.loss(rows)


def test_a_gram_matrix_of_some_rows_has_the_same_fixed_point() -> None:
    features, p = features_of(), problem("rows", rows=80)
    solver, rows = started(features, p, EXACT | {"gram_rows": 30})
    whole, all_rows = started(features, p)
    assert not torch.allclose(solver.factor(0, rows), whole.factor(0, all_rows), rtol=1e-3)
    losses = [solver.sweep(rows) for _ in range(100)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(losses))
    wanted = everything(features, p.x) @ solution(features, p)
    np.testing.assert_allclose(solver.mean(p.x).numpy(), wanted, atol=1e-8)


def test_far_rows_are_always_in_a_gram_matrix_and_the_others_stand_for_all() -> None:
    p = problem("rows", rows=400)
    p.x[[5, 77, 200]] *= 30.0  # nothing that is drawn is like them
    features = features_of()
    _, rows = started(features, p, EXACT | {"gram_rows": 40})
    assert p.weight is not None
    some, weight = rows.some(torch.arange(400), p.weight, 40)
    assert len(some.unique()) == 40 and {5, 77, 200} <= set(some.tolist())
    assert torch.equal(weight[[5, 77, 200]], p.weight[[5, 77, 200]])
    assert float(weight[some].sum()) == pytest.approx(float(p.weight.sum()), rel=1e-12)
    exact = features.block(p.x, 0).detach()
    wanted = exact.mT @ (p.weight[:, None] * exact)
    found = rows.gram(exact, p.weight, 40)
    assert float((found - wanted).tril().norm() / wanted.norm()) < 0.3
    far = features.block(p.x[[5]], 0).detach()[0]
    assert (
        float(far @ torch.linalg.solve(found.tril() + found.tril(-1).mT + 0.1 * torch.eye(10), far)) < 1.0 / p.weight[5]
    )


def test_a_sweep_ends_at_the_minimum_over_the_last_ones() -> None:
    features, p = features_of(), problem("columns", own_noise=True)
    solver, rows = started(features, p, EXACT | {"history": 3})
    for _ in range(5):
        solver.sweep(rows)
    assert len(rows.moves) == 3
    for t, (matrix, right) in enumerate(systems(features, p)):
        ways = np.stack([move.mu[:, t].numpy() for move in rows.moves], 1)
        inner = ways.T @ matrix @ ways
        scale = np.sqrt(np.outer(inner.diagonal(), inner.diagonal()))
        np.testing.assert_allclose(inner / scale, np.eye(3), atol=1e-9)
        left = ways.T @ (right - matrix @ solver.mu[: features.size, t].numpy())
        np.testing.assert_allclose(left / np.sqrt(inner.diagonal() * (right @ right)), 0.0, atol=1e-9)


def test_conjugate_sweeps_need_fewer() -> None:
    features, p = features_of(), problem()
    wanted = everything(features, p.x) @ solution(features, p)
    errors = []
    for history in (0, 8):
        solver, rows = started(features, p, EXACT | {"history": history})
        for _ in range(20):
            solver.sweep(rows)
        errors.append(float(np.abs(solver.mean(p.x).numpy() - wanted).max()))
    assert errors[1] < 0.1 * errors[0]


@pytest.mark.sampled
@pytest.mark.parametrize("history", [3, 30])
def test_sweeps_beyond_convergence_do_no_harm(history: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directions made of rounding errors let mean and residual part by 0.5 and more here, if they are let in."""
    features, p = features_of(), problem("rows", own_noise=True)
    monkeypatch.setattr(block_solver, "REFRESH", 1000)
    solver, rows = started(features, p, EXACT | {"history": history})
    for _ in range(200):
        solver.sweep(rows)
    wanted = everything(features, p.x) @ solution(features, p)
    np.testing.assert_allclose(solver.mean(p.x).numpy(), wanted, atol=1e-10)
    np.testing.assert_allclose(rows.fitted.numpy(), wanted, atol=1e-10)


def test_parts_of_a_sweep() -> None:
    features, p = features_of(), problem()
    (solver, rows), (other, same) = (started(features, p, EXACT | {"history": 0}) for _ in range(2))
    solver.sweep(rows, [0])
    assert solver.mu[10:].abs().max() == 0.0
    solver.sweep(rows, range(1, 3))
    other.sweep(same)
    assert torch.equal(solver.mu, other.mu)


def test_memory_decides_about_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    features, p = features_of(), problem("rows")
    one_block = 8 * len(p.x) * features.width
    results = []
    for memory in (0, 8 * features.size * features.width + one_block, 2**30):
        monkeypatch.setattr(block_solver, "MEMORY", memory)
        solver, rows = started(features, p, EXACT | {"history": 0})
        for _ in range(3):
            solver.sweep(rows)
        results.append((solver.mu.clone(), len(rows.factors), len(rows.phi)))
    assert [found[1:] for found in results] == [(0, 0), (3, 1), (3, 2)]  # the last one is still in use
    assert torch.equal(results[0][0], results[2][0]) and torch.equal(results[1][0], results[2][0])


def test_float32_features_against_float64() -> None:
    features, p = features_of(), problem("rows")
    means = []
    for dtype in (torch.float32, torch.float64):
        solver, rows = started(features, p, EXACT | {"dtype": dtype})
        for _ in range(100):
            solver.sweep(rows)
        means.append(solver.mean(p.x))
        assert solver.mu.dtype == rows.residual.dtype == torch.float64 and means[-1].dtype == torch.float64
    assert 0.0 < float((means[0] - means[1]).abs().max()) < 2e-5


def test_the_residual_is_computed_from_scratch_every_few_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    features, p = features_of(), problem()
    monkeypatch.setattr(block_solver, "REFRESH", 3)
    solver, rows = started(features, p, EXACT)
    solver.sweep(rows)
    rows.residual += 1.0  # as drift would
    solver.sweep(rows)
    assert float((rows.fitted - solver.mean(p.x)).abs().max()) > 0.5
    solver.sweep(rows)
    torch.testing.assert_close(rows.fitted, solver.mean(p.x), rtol=0, atol=1e-12)
