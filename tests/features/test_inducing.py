"""Inducing functions against the exact Gaussian process, and Proposition 4 against its model written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.features.inducing import Config, Inducing, augmentation, build
from streamgp.kernels import Kernel
from tests.kernels.twins import gpytorch, made, points
from tests.properties import examples


def features(rows: Tensor, width: int = 4, capacity: int = 30, kernel: str = "matern") -> Inducing:
    return build(Config(size=capacity, width=width), made(kernel, rows.shape[1])).place(rows)


def squared_norm(made_of: Inducing, x: Tensor) -> Tensor:
    return basis(made_of, x).square().sum(1)


def basis(made_of: Inducing, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([made_of.block(x, block) for block in range(made_of.blocks)], 1)


def precision(made_of: Inducing) -> Tensor:
    order = range(made_of.blocks)
    with torch.no_grad():
        return torch.cat([torch.cat([made_of.precision(i, j) for j in order], 1) for i in order])


def test_features_and_precision_are_the_kernel() -> None:
    z, x = points(10, 0), points(7, 1)
    found = features(z)
    assert (found.size, found.blocks, found.capacity) == (10, 3, 30)
    with torch.no_grad():
        torch.testing.assert_close(basis(found, x), found.kernel(x, z), rtol=1e-12, atol=0)
        torch.testing.assert_close(precision(found), found.kernel(z, z), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(found.prior_variance(x), found.kernel.diagonal(x), rtol=0, atol=0)


def test_with_a_function_on_every_row_the_mean_is_gpytorchs() -> None:
    x, at = points(25, 0), points(8, 1)
    y, noise = (2.0 * x.sum(1)).sin(), 0.1
    ours = features(x, kernel="squared_exponential")
    phi = basis(ours, x)
    mean = torch.linalg.solve(phi.T @ phi + noise * precision(ours), phi.T @ y)
    twin = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3)).double()
    twin.base_kernel.lengthscale, twin.outputscale = ours.kernel.lengthscale.detach(), ours.kernel.outputscale.item()
    with torch.no_grad(), gpytorch.settings.lazily_evaluate_kernels(False):
        gram, cross = twin(x, x).to_dense(), twin(at, x).to_dense()
    exact = cross @ torch.linalg.solve(gram + noise * torch.eye(25, dtype=FLOAT), y)
    torch.testing.assert_close(basis(ours, at) @ mean, exact, rtol=1e-7, atol=1e-7)


def test_a_block_touches_its_rows_only() -> None:
    found = features(points(10, 0))
    before = basis(found, points(3, 1))
    found.points[4:8] = torch.nan
    after = basis(found, points(3, 1))
    assert bool(after[:, 4:8].isnan().all())
    assert torch.equal(after[:, :4], before[:, :4]) and torch.equal(after[:, 8:], before[:, 8:])


def test_rows_are_placed_while_there_is_room_and_anew() -> None:
    rows = points(12, 0)
    found = features(rows, capacity=10)
    assert found.size == 10 and torch.equal(found.points, rows[:10]) and found.most == 3
    found.place(rows[3:7])
    assert (found.size, found.blocks) == (4, 1)
    assert torch.equal(found.points[:4], rows[3:7]) and not bool(found.points[4:].any())
    assert found.reach(2) == slice(8, 10)


def test_before_any_row_there_is_no_block() -> None:
    empty = build(Config(size=4), made("matern"))
    assert (empty.size, empty.blocks, list(empty.spans())) == (0, 0, [])


def test_single_precision_is_rounded_from_double() -> None:
    found, x = features(points(10, 0), kernel="squared_exponential"), points(5, 1)
    single = found.block(x.float(), 0)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), found.block(x, 0), rtol=1e-5, atol=1e-6)


def augmented(kernel: Kernel, x: Tensor, at: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Appendix G written out for every test point: mean-field L_Σ over n + 1 functions is minimised by c_rr² = σ²/A_rr,
    A = ΦᵀΦ + σ²S, Φ = [K k(x*)]. Returns the latent variance of all n + 1 functions and of the first n."""
    every, some = [], []
    for one in at[:, None]:
        both = torch.cat((x, one))
        phi, s = kernel(x, both), kernel(both, both)
        variance = noise / (phi.T @ phi + noise * s).diagonal()
        terms = kernel(one, both)[0].square() * variance
        every.append(terms.sum())
        some.append(terms[:-1].sum())
    return torch.stack(every), torch.stack(some)


@pytest.mark.parametrize("name", ["matern", "squared_exponential", "linear"])
def test_augmentation_is_appendix_g(name: str) -> None:
    x, at = points(15, 0), points(6, 1)
    found = features(x, kernel=name)
    with torch.no_grad():
        every, some = augmented(found.kernel, x, at, 0.3)
        noise = torch.tensor([0.3, 0.9], dtype=FLOAT)
        added = augmentation(found.prior_variance(at), squared_norm(found, at), noise)
        torch.testing.assert_close(some + added[:, 0], every, rtol=1e-12, atol=0)
        torch.testing.assert_close(added[:, 1], torch.sub(*augmented(found.kernel, x, at, 0.9)), rtol=1e-9, atol=1e-12)


positive = st.floats(1e-6, 1e6)


@given(positive, st.floats(0, 1e8), positive)
@examples(100)
def test_remarks_1_and_2(prior: float, norm: float, noise: float) -> None:
    """It never decreases the variance, is never more than the prior, falls in kᵀk, and is the prior at kᵀk = 0."""
    k, n, s = (torch.tensor([value], dtype=FLOAT) for value in (prior, norm, noise))
    added = augmentation(k, n, s).item()
    assert 0.0 < added <= prior * (1 + 1e-12)
    assert augmentation(k, 2 * n + 1e-3, s).item() < added
    assert augmentation(k, 0 * n, s).item() == pytest.approx(prior, rel=1e-12)


def test_figure_2() -> None:
    """n = 20, Φ = S = K; the figure's targets are a noisy sinc, but variances do not depend on them. Between the rows
    both mean-field variances are near each other; beyond them the one without augmentation shrinks to 0, and the
    augmented one grows to the prior, more slowly than the exact one."""
    generator = torch.Generator().manual_seed(0)
    x = 10 * torch.rand(20, 1, dtype=FLOAT, generator=generator) - 5
    noise = 0.01
    found = build(Config(size=20, width=7), made("squared_exponential", 1)).place(x)
    at = torch.linspace(-25, 25, 201, dtype=FLOAT)[:, None]
    with torch.no_grad():
        phi, gram = basis(found, at), precision(found)
        diagonal = noise / (gram @ gram + noise * gram).diagonal()
        plain = phi.square() @ diagonal
        added = augmentation(found.prior_variance(at), squared_norm(found, at), torch.tensor([noise]))[:, 0]
        prior = found.kernel.outputscale.item()
        exact = prior - (phi * torch.linalg.solve(gram + noise * torch.eye(20), phi.T).T).sum(1)
    inside, far = (at[:, 0].abs() < 4), (at[:, 0].abs() > 20)
    assert float(added[inside].max()) < 0.02 * prior
    assert float(plain[far].max()) < 1e-6 * prior
    np.testing.assert_allclose((plain + added)[far], prior, rtol=1e-6)
    np.testing.assert_allclose(exact[far], prior, rtol=1e-6)
    right = (at[:, 0] > x.max()).nonzero()[:, 0]
    assert bool((added[right].diff() > -1e-12).all()), "it grows with the distance"
    assert bool((plain + added <= exact + 0.02 * prior)[right].all()), "not as fast as the exact one"
