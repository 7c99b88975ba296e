"""The coupled methods that a benchmark holds svdgp against, by their dense twins."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.benchmarks.small import BENCHMARKS

N, M = 60, 12


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("_variational")


@pytest.fixture
def rows(own: ModuleType) -> Any:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 2, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(N, generator=generator, dtype=torch.float64)
    y = x[:, 0].sin() + x[:, 1].square() / 3 + noise
    y = (y - y.mean()) / y.std()
    return own.Standard(x, y, x, y)


def hyper(own: ModuleType) -> Any:
    return own.Hyper(*(torch.tensor(value, dtype=torch.float64).log() for value in ([1.3, 0.9], 1.7, 0.05)))


def kernel(a: Tensor, b: Tensor) -> Tensor:
    """That of `hyper`, written out."""
    scale = torch.tensor([1.3, 0.9], dtype=torch.float64)
    return 1.7 * torch.exp(-0.5 * ((a[:, None] - b) / scale).square().sum(2))


def test_the_collapsed_bound_is_titsias(own: ModuleType, rows: Any) -> None:
    points = rows.x[:M]
    gram, cross = kernel(points, points) + 1e-6 * 1.7 * torch.eye(M), kernel(points, rows.x)
    explained = cross.T @ torch.linalg.solve(gram, cross)
    dense = torch.distributions.MultivariateNormal(torch.zeros(N).double(), explained + 0.05 * torch.eye(N))
    wanted = dense.log_prob(rows.y) - (1.7 * N - explained.trace()) / 0.1
    assert own.collapsed(rows.x, rows.y, points, hyper(own)) == pytest.approx(float(wanted), rel=1e-7)


def test_the_best_q_has_the_collapsed_bound(own: ModuleType, rows: Any) -> None:
    points = rows.x[:M]
    found = own.score(own.settled(rows, hyper(own), points), rows.y, N, 0.0)
    assert N * found.bound == pytest.approx(float(own.collapsed(rows.x, rows.y, points, hyper(own))), rel=1e-7)


@pytest.mark.sampled
@pytest.mark.parametrize("mirror", [False, True])
def test_a_whole_step_on_all_rows_is_the_best_q(
    own: ModuleType, rows: Any, mirror: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "NATURAL", 1.0)
    monkeypatch.setattr(own, "ADAM", 0.0)
    model = own.Coupled(hyper(own), 2, M, mirror)
    model.step(rows.x, rows.y, N)
    found, wanted = model.belief(rows.x), own.settled(rows, hyper(own), rows.x[:M])
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.latent, wanted.latent, rtol=1e-5, atol=1e-8)
    assert found.kl == pytest.approx(wanted.kl, rel=1e-8)


def test_new_points_leave_the_process_as_it_is(own: ModuleType, rows: Any) -> None:
    model = own.Coupled(hyper(own), 2, 2 * M, mirror=True)
    model.grow(rows.x[:M])
    for _ in range(3):
        model.step(rows.x[:5], rows.y[:5], N)
    before = model.belief(rows.x)
    model.grow(rows.x[M : M + 4])
    after = model.belief(rows.x)
    torch.testing.assert_close(after.mean, before.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(after.latent, before.latent, rtol=1e-5, atol=1e-6)


def test_the_bound_is_a_gaussians(own: ModuleType) -> None:
    """E log N(y | f, σ²) of f ~ N(m, v) by quadrature."""
    belief = own.Belief(torch.full((2,), 0.3).double(), torch.full((2,), 0.4).double(), 0.2, 1.5)
    truth = torch.tensor([1.0, -0.5]).double()
    grid = torch.linspace(-8, 8, 20001, dtype=torch.float64)
    f = 0.3 + 0.4**0.5 * grid
    weight = torch.exp(-0.5 * grid.square())
    density = torch.distributions.Normal(f, 0.2**0.5).log_prob(truth[:, None])
    wanted = float((weight * density).sum() / (2 * weight.sum())) - 1.5 / 10
    assert own.score(belief, truth, 10, 0.0).bound == pytest.approx(wanted, rel=1e-6)
