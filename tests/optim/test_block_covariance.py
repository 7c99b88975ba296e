"""Covariances by blocks: against the dense posterior, and against the bound that they are to maximise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.features import fourier
from streamgp.kernels import squared_exponential
from streamgp.linalg.chevron import Chevron
from streamgp.optim.block_covariance import (
    BlockCovariance,
    block_covariance,
    chevron_covariance,
    chevron_variance,
    diagonal_covariance,
    negative_elbo,
)
from tests.objectives.oracles_qsgp import Toy, bound
from tests.optim.block_toys import EXACT, KINDS, Problem, everything, features_of, normal, precision, problem, started
from tests.optim.block_toys import weights_of as weights


def dense_precision(kind: str, p: Problem) -> np.ndarray:
    """A = mean_t ΦᵀW_tΦ/σ_t² + S."""
    features = features_of(kind)
    phi, w = everything(features, p.x), (weights(p) / p.noise.numpy()).mean(1)
    return (phi * w[:, None]).T @ phi + precision(features)


def root_of(covariance: Chevron | BlockCovariance, widths: list[int]) -> Tensor:
    """(m, m) lower triangular, Σ = CCᵀ."""
    if isinstance(covariance, Chevron):
        return covariance.matrix()
    blocks = [(lower[:w, :w] @ lower[:w, :w].T).inverse() for lower, w in zip(covariance.factors, widths, strict=True)]
    return torch.linalg.cholesky(torch.block_diag(*blocks))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kinds_of_weight", ["none", "rows", "columns"])
def test_each_is_its_part_of_the_dense_precision(kind: str, kinds_of_weight: str) -> None:
    features, p = features_of(kind), problem(kinds_of_weight, own_noise=True, missing=True)
    solver, rows = started(features, p)
    a, x = dense_precision(kind, p), normal(7, 2, seed=30)
    phi = everything(features, x)
    diagonal = phi**2 @ (1 / a.diagonal())
    np.testing.assert_allclose(chevron_variance(diagonal_covariance(solver, rows), features, x).numpy(), diagonal)
    blocks = sum(np.einsum("ni,ij,nj->n", phi[:, s], np.linalg.inv(a[s, s]), phi[:, s]) for s in features.spans())
    np.testing.assert_allclose(block_covariance(solver, rows).variance(features, x).numpy(), blocks, rtol=1e-8)
    exact = np.einsum("ni,ij,nj->n", phi, np.linalg.inv(a), phi)
    whole = chevron_covariance(solver, rows, features.size)
    np.testing.assert_allclose(chevron_variance(whole, features, x).numpy(), exact, rtol=1e-6)
    # k = 0 is proposition 1
    none = chevron_covariance(solver, rows, 0)
    np.testing.assert_allclose(none.diagonal.numpy(), diagonal_covariance(solver, rows).diagonal.numpy())


def test_a_basis_of_one_block_has_a_chevron_too() -> None:
    kernel = squared_exponential.build(squared_exponential.Config(), 2)
    features, p = fourier.build(fourier.Config(size=8, width=10, seed=1), kernel), problem("none")
    solver, rows = started(features, p)
    phi = everything(features, p.x)
    exact = np.linalg.inv((phi.T @ phi) * (1 / p.noise.numpy()).mean() + np.eye(8))
    whole = chevron_covariance(solver, rows, 8).matrix()
    np.testing.assert_allclose((whole @ whole.mT).numpy(), exact, rtol=1e-6, atol=1e-12)


def toy(kind: str, p: Problem, mu: Tensor, root: Tensor) -> Toy:
    features = features_of(kind)
    phi = torch.from_numpy(everything(features, p.x))
    return Toy(phi, p.y, p.noise, torch.from_numpy(precision(features)), mu, root, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["diagonal", "block", "chevron"])
def test_each_maximises_the_bound_in_its_family(kind: str, family: str) -> None:
    """The bound by its definition, E log p(y | w) − KL, from SciPy, falls whichever way the family's members differ."""
    features, p = features_of(kind), problem(own_noise=True, rows=30)
    solver, rows = started(features, p)
    solver.sweep(rows)
    covariance: Chevron | BlockCovariance = {
        "diagonal": lambda: diagonal_covariance(solver, rows),
        "block": lambda: block_covariance(solver, rows),
        "chevron": lambda: chevron_covariance(solver, rows, 3),
    }[family]()
    widths = [span.stop - span.start for span in features.spans()]
    root, mu = root_of(covariance, widths), solver.mu[: features.size]
    best = bound(toy(kind, p, mu, root))
    shape = torch.block_diag(*(torch.ones(w, w) for w in widths)).tril() if family == "block" else (root != 0).double()
    for seed in range(20):
        away = 0.05 * normal(features.size, features.size, seed=seed) * shape
        change = root.abs().mean() * away + root * away.diagonal()  # columns scaled, and moved
        assert bound(toy(kind, p, mu, root + change * shape)) < best
        slope = bound(toy(kind, p, mu, root + 1e-4 * change * shape)) - bound(
            toy(kind, p, mu, root - 1e-4 * change * shape)
        )
        assert abs(slope) < 1e-6 * abs(best)
    assert negative_elbo(solver, rows, covariance) == pytest.approx(-best / (2 * 30), rel=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_wider_families_have_higher_bounds(kind: str) -> None:
    solver, rows = started(features_of(kind), problem("rows"))
    for _ in range(30):
        solver.sweep(rows)
    diagonal, blocks = diagonal_covariance(solver, rows), block_covariance(solver, rows)
    few, all_of_them = (chevron_covariance(solver, rows, k) for k in (2, solver.features.size))
    values = [negative_elbo(solver, rows, c) for c in (diagonal, few, all_of_them)]
    assert values == sorted(values, reverse=True)
    assert values[0] > negative_elbo(solver, rows, blocks) > values[2]


def test_they_follow_weights_and_noise_that_changed() -> None:
    features, p = features_of("fourier"), problem("rows")
    solver, rows = started(features, p)
    solver.sweep(rows)
    assert p.weight is not None
    rows.reweigh(0.5 * p.weight)
    solver.noise.fill_(0.3)
    rows.changed()
    solver.sweep(rows)  # with the factors of before
    now = p._replace(weight=0.5 * p.weight, noise=torch.full((2,), 0.3, dtype=torch.float64))
    fresh, same = started(features_of("fourier"), now)
    torch.testing.assert_close(
        block_covariance(solver, rows).factors, block_covariance(fresh, same).factors, rtol=0, atol=1e-10
    )


def test_a_part_of_the_rows_gives_a_somewhat_larger_variance() -> None:
    features, p = features_of("fourier"), problem(rows=4000)
    x = normal(50, 2, seed=31)
    exact, few, more = (
        block_covariance(*started(features, p, EXACT.model_copy(update={"gram_rows": count}))).variance(features, x)
        for count in (0, 60, 1000)
    )
    assert 1.0 < float((few / exact).mean()) < 1.4  # 60/(60 − 10) = 1.2 for Gaussian features
    assert abs(float((more / exact).mean()) - 1.0) < 0.03


def test_what_a_checkpoint_keeps() -> None:
    solver, rows = started(features_of("fourier"), problem())
    assert block_covariance(solver, rows).factors.shape == (3, 10, 10)
    assert diagonal_covariance(solver, rows).dense.shape == (26, 0)
    assert chevron_covariance(solver, rows, 4).dense.shape == (26, 4)
    last = block_covariance(solver, rows).factors[2]
    assert torch.equal(last[6:, 6:], torch.eye(4, dtype=torch.float64)) and not last[6:, :6].any()
