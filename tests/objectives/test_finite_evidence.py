"""Sums over rows against the dense Gaussian, closed forms against autograd, the paper's identities as corrected."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite
from streamgp.objectives import finite_evidence as fe
from tests.training.finite_toys import loss, nlml

CASES = [(40, 6, 1), (40, 6, 3), (5, 9, 2)]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=FLOAT, generator=torch.Generator().manual_seed(seed))


def problem(rows: int, width: int, columns: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Z, y, w, σ²."""
    z, w = normal(rows, width, seed=0), normal(width, columns, seed=1)
    return z, z @ w + 0.3 * normal(rows, columns, seed=2), w + 0.1, 0.1 + normal(columns, seed=3).square()


def dense(z: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """NLML of y_t ~ N(0, σ_t²(ZZᵀ/κ + I)), a determinant and a solve of N × N."""
    kappa, total = noise.log().mean().exp(), torch.zeros((), dtype=FLOAT)
    for target, variance in zip(y.T, noise, strict=True):
        c = variance * (z @ z.T / kappa + torch.eye(len(z), dtype=FLOAT))
        total = total + 0.5 * (
            target @ torch.linalg.solve(c, target) + torch.logdet(c) + len(z) * math.log(2 * torch.pi)
        )
    return total


@pytest.mark.parametrize(("rows", "width", "columns"), CASES)
def test_nlml_is_that_of_the_dense_gaussian_with_its_gradients(rows: int, width: int, columns: int) -> None:
    z, y, _, noise = problem(rows, width, columns)
    ours, theirs = (t.clone().requires_grad_() for t in (z, z))
    a, b = (noise.clone().requires_grad_() for _ in range(2))
    found, expected = nlml(fe.statistics([(ours, y)]), a), dense(theirs, y, b)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
    mine, other = torch.autograd.grad(found, [ours, a]), torch.autograd.grad(expected, [theirs, b])
    torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9 * float(other[0].abs().max()))


@pytest.mark.parametrize(("rows", "width", "columns"), CASES)
def test_at_the_best_weights_l_is_twice_the_nlml(rows: int, width: int, columns: int) -> None:
    z, y, w, noise = problem(rows, width, columns)
    data = fe.statistics([(z[:2], y[:2]), (z[2:], y[2:])])
    best = fe.best_weights(data, noise)
    twice = 2 * nlml(data, noise) - columns * rows * math.log(2 * math.pi)
    torch.testing.assert_close(loss(data, best, noise), twice, rtol=1e-10, atol=1e-9)
    assert loss(data, w, noise) > twice and loss(data, best + 1e-3, noise) > twice


def test_for_one_column_l_is_the_papers() -> None:
    z, y, w, noise = problem(30, 4, 1)
    f = z.T @ z + noise * torch.eye(4, dtype=FLOAT)
    paper = (z @ w - y).square().sum() / noise + w.square().sum() + torch.logdet(f) + (30 - 4) * noise.log()
    torch.testing.assert_close(loss(fe.statistics([(z, y)]), w, noise), paper[0], rtol=1e-12, atol=0)


def test_theorem_b1_holds_with_the_residual_squared_and_not_as_printed() -> None:
    v, b, _, noise = problem(12, 3, 1)
    b = 10 * normal(12, 1, seed=6)
    w = fe.best_weights(fe.statistics([(v, b)]), noise)
    left = (b.T @ torch.linalg.solve(v @ v.T + noise * torch.eye(12, dtype=FLOAT), b))[0, 0]
    torch.testing.assert_close((v @ w - b).square().sum() / noise[0] + w.square().sum(), left, rtol=1e-10, atol=0)

    at_most = (v @ w - b).norm() / noise[0] + w.square().sum()  # the printed form's minimum is no larger than this
    assert float(at_most) < 0.9 * float(left)


@pytest.mark.parametrize(("rows", "width", "columns"), CASES)
def test_closed_gradients_are_those_of_l_at_the_true_determinant(rows: int, width: int, columns: int) -> None:
    z, y, w, noise = problem(rows, width, columns)
    leaf, weights, log_noise = (t.clone().requires_grad_() for t in (z, w, noise.log()))
    value = loss(fe.statistics([(leaf, y)]), weights, log_noise.exp()) / rows
    expected = torch.autograd.grad(value, [leaf, weights, log_noise])
    f = fe.regularised(z.T @ z, fe.ridge(noise))
    held = fe.Determinant(torch.logdet(f), torch.linalg.solve(f, z.T).T, torch.linalg.inv(f).trace())
    found = fe.gradients(z, y, w, noise, held, rows)
    torch.testing.assert_close(found.value, value.detach(), rtol=1e-10, atol=1e-12)
    for ours, theirs in zip((found.phi, found.weights, found.log_noise), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9 * float(theirs.abs().max()))


def test_gradients_of_batches_average_to_those_of_all_rows() -> None:
    z, y, w, noise = problem(24, 5, 2)
    matrix = normal(5, 5, seed=8)

    def at(rows: Tensor) -> fe.Gradients:
        part = fe.Determinant(torch.zeros(()), z[rows] @ (matrix + matrix.T), matrix.trace())
        return fe.gradients(z[rows], y[rows], w, noise, part, 24)

    whole, parts = at(torch.arange(24)), torch.randperm(24, generator=torch.Generator().manual_seed(0)).split(6)
    for name in ("value", "weights", "log_noise"):
        mean = torch.stack([getattr(at(rows), name) for rows in parts]).mean(0)
        torch.testing.assert_close(mean, getattr(whole, name), rtol=1e-11, atol=1e-12)
    phi = torch.zeros_like(z)
    for rows in parts:
        phi[rows] = at(rows).phi / len(parts)
    torch.testing.assert_close(phi, whole.phi, rtol=1e-11, atol=1e-13)


def test_float32_features_have_float32_gradients_and_a_float64_head() -> None:
    z, y, w, noise = problem(24, 5, 2)
    part = fe.Determinant(torch.zeros((), dtype=FLOAT), z.float(), torch.ones((), dtype=FLOAT))
    found = fe.gradients(z.float(), y.float(), w, noise, part, 24)
    assert (found.phi.dtype, found.weights.dtype, found.log_noise.dtype) == (torch.float32, FLOAT, FLOAT)
    exact = fe.gradients(z, y, w, noise, part._replace(rows=z), 24)
    torch.testing.assert_close(found.weights, exact.weights, rtol=1e-4, atol=1e-4)


def test_rounding_is_met_by_jitter_and_nonsense_by_an_error() -> None:
    thin = normal(6, 2, seed=0)
    lower = fe.factorised(thin @ thin.T)
    torch.testing.assert_close(lower @ lower.T, thin @ thin.T, rtol=0, atol=1e-5)
    with pytest.raises(NotPositiveDefinite):
        fe.factorised(-torch.eye(3, dtype=FLOAT))
