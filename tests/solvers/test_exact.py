"""The exact solver against GPyTorch, a NumPy twin and autograd through a dense solver."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from streamgp import registry
from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite, UsageError
from streamgp.kernels import matern, squared_exponential
from streamgp.solvers import exact
from streamgp.solvers.exact.draw import ExactDraw
from streamgp.testing.solvers import dense, example_rows
from tests.properties import examples
from tests.solvers.oracles import gaussian_process
from tests.words import naming

with warnings.catch_warnings():  # it still uses torch.jit
    warnings.simplefilter("ignore")
    import gpytorch


def solver(columns: int, dims: int = 2) -> exact.Exact:
    """Lengthscales and noises that all differ."""
    kernel = squared_exponential.build(squared_exponential.Config(outputscale=1.7), dims)
    built = exact.build(exact.Config(noise=0.2), kernel, columns)
    with torch.no_grad():
        kernel.log_lengthscale.copy_(torch.linspace(-0.6, 0.1, dims, dtype=torch.float64))
        built.log_noise.copy_(torch.linspace(-2.5, -1.0, columns, dtype=torch.float64))
    return built


def learned(built: exact.Exact, h: Tensor, y: Tensor) -> exact.DenseRows:
    data = built.data()
    data.add(h, y)
    return data


class Theirs(gpytorch.models.ExactGP):
    """GPyTorch's exact GP with the hyper-parameters of one of our columns."""

    def __init__(self, ours: exact.Exact, h: Tensor, y: Tensor, column: int) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        super().__init__(h, y[:, column], likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=h.shape[1])).double()
        likelihood.noise = ours.noise.detach()[column]
        self.covar_module.outputscale = ours.kernel.outputscale.detach()  # type: ignore[union-attr, operator]
        self.covar_module.base_kernel.lengthscale = ours.kernel.lengthscale.detach()[None]  # type: ignore[index]

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_nlml_moments_and_gradients_are_gpytorchs() -> None:
    h, y = example_rows(60, 2, 3)
    at, _ = example_rows(9, 2, 1, seed=1)
    ours = solver(3)
    data = learned(ours, h, y)
    posterior = ours.condition(data)
    ours.nlml(data).backward()
    value, slopes = 0.0, torch.zeros(3, dtype=torch.float64)
    with warnings.catch_warnings(), gpytorch.settings.fast_computations(False, False, False):
        warnings.simplefilter("ignore")
        for column in range(3):
            theirs = Theirs(ours, h, y, column)
            theirs.train()
            nlml = -theirs.likelihood(theirs(h)).log_prob(y[:, column])
            nlml.backward()
            value += nlml.item()
            raw = theirs.covar_module.raw_outputscale, theirs.covar_module.base_kernel.raw_lengthscale
            # by the chain rule from softplus to log parameters: d log θ = θ / softplus'(raw) d raw
            for at_place, parameter in ((slice(0, 1), raw[0]), (slice(1, 3), raw[1])):
                actual = torch.nn.functional.softplus(parameter.detach()).flatten()
                slopes[at_place] += parameter.grad.flatten() * actual / parameter.detach().flatten().sigmoid()
            with torch.no_grad():
                told = theirs.eval()(at)
            np.testing.assert_allclose(posterior.mean(at)[:, column], told.mean, rtol=0, atol=1e-8)
            np.testing.assert_allclose(posterior.variance(at)[:, column], told.variance, rtol=0, atol=1e-8)
    data_nlml = ours.nlml(data).item()
    assert data_nlml == pytest.approx(value, rel=1e-8)
    got = torch.cat([ours.kernel.log_outputscale.grad[None], ours.kernel.log_lengthscale.grad])  # type: ignore[index, list-item]
    torch.testing.assert_close(got, slopes, rtol=1e-8, atol=1e-8)


def test_row_and_pair_gradients_are_autograds() -> None:
    h, y = example_rows(50, 3, 2)
    ours = solver(2, dims=3)
    weight = torch.linspace(0.3, 2.0, 50, dtype=torch.float64)
    for w in (torch.ones(50, dtype=torch.float64), weight):
        free = h.clone().requires_grad_()
        wanted = torch.autograd.grad(dense(ours, free, y, w, h[:1]).nlml, free)[0]
        got = ours.row_gradients(h, y, w)
        assert (got - wanted).norm() <= 1e-9 * wanted.norm()
        joint = torch.autograd.grad(ours.nlml_at(free, y, w), free)[0]
        assert (joint - wanted).norm() <= 1e-9 * wanted.norm()
    # through the matrix itself
    data = learned(ours, h, y)
    data.forget(0.6)
    gram = ours.kernel(h, h).detach().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for noise, column in zip(ours.noise.detach(), y.unbind(1), strict=True):
        own = gram + noise / 0.6 * torch.eye(50, dtype=torch.float64)
        total = total + 0.5 * (column @ torch.linalg.solve(own, column) + torch.linalg.slogdet(own).logabsdet)
    torch.testing.assert_close(ours.pair_gradient(data), torch.autograd.grad(total, gram)[0], rtol=1e-9, atol=1e-10)


def test_it_is_the_numpy_twin_with_weights() -> None:
    h, y = example_rows(40, 2, 1)
    at, _ = example_rows(5, 2, 1, seed=1)
    ours = solver(1)
    data = learned(ours, h[:25], y[:25])
    data.forget(0.2)
    data.add(h[25:], y[25:])
    weight = np.r_[np.full(25, 0.2), np.ones(15)]
    with torch.no_grad():
        grams = (ours.kernel(h, h).numpy(), ours.kernel(h, at).numpy(), ours.kernel.diagonal(at).numpy())
        nlml, posterior = ours.nlml(data), ours.condition(data)
    twin = gaussian_process(*grams, y[:, 0].numpy(), weight, ours.noise.item())
    assert data.count == pytest.approx(20.0) and nlml.item() == pytest.approx(twin.nlml, rel=1e-11)
    np.testing.assert_allclose(posterior.mean(at)[:, 0], twin.mean, atol=1e-10)
    np.testing.assert_allclose(posterior.variance(at)[:, 0], twin.variance, atol=1e-10)


@examples(20)
@given(st.lists(st.integers(1, 4), min_size=6, max_size=6))
def test_a_row_of_weight_w_is_w_equal_rows(weights: list[int]) -> None:
    h, y = example_rows(6, 2, 2)
    ours, times = solver(2), torch.tensor(weights)
    repeated = learned(ours, h.repeat_interleave(times, 0), y.repeat_interleave(times, 0))
    weighted = learned(ours, h, y)
    weighted.weight = times.double()
    one, other = ours.nlml(weighted), ours.nlml(repeated)
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    slopes = [torch.autograd.grad(value, list(ours.parameters())) for value in (one, other)]
    for got, wanted in zip(*slopes, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-8)
    a, b = ours.condition(weighted), ours.condition(repeated)
    torch.testing.assert_close(a.mean(h), b.mean(h), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(a.variance(h), b.variance(h), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(a.divergence(), b.divergence(), rtol=1e-9, atol=1e-9)


def test_the_divergence_is_its_definition() -> None:
    h, y = example_rows(30, 2, 2)
    ours = solver(2)
    posterior = ours.condition(learned(ours, h, y))
    k0, eye = ours.kernel(h, h).detach(), torch.eye(30, dtype=torch.float64)
    for noise, column, got in zip(ours.noise.detach(), y.unbind(1), posterior.divergence(), strict=True):
        own = k0 + noise * eye
        alpha = torch.linalg.solve(own, column)
        trace = torch.linalg.solve(own, k0).trace()
        wanted = 0.5 * (alpha @ k0 @ alpha - trace + torch.linalg.slogdet(eye + k0 / noise).logabsdet)
        assert got.item() == pytest.approx(wanted.item(), rel=1e-10)


def test_the_majoriser_lies_above_and_touches() -> None:
    h, y = example_rows(30, 2, 2)
    ours = solver(2)
    posterior = ours.condition(learned(ours, h, y))
    constant = 15 * (2 * math.pi * posterior.noise).log().sum() + posterior.divergence().sum()
    generator = Generator().manual_seed(0)
    for size in (0.0, 1e-3, 0.1, 1.0):
        moved = h + size * torch.randn(h.shape, dtype=torch.float64, generator=generator)
        e = ((y - posterior.mean(moved)).square() + posterior.variance(moved)) / (2 * posterior.noise)
        gap = (e.sum() + constant - ours.nlml_at(moved, y)).item()
        assert gap >= -1e-9 and (size > 0 or abs(gap) < 1e-9)


def test_columns_in_chunks_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    h, y = example_rows(20, 2, 4)
    at, _ = example_rows(11, 2, 1, seed=1)
    ours = solver(4)
    data = learned(ours, h, y)
    whole = (ours.nlml(data).detach(), ours.condition(data).variance(at), ours.row_gradients(h, y))
    monkeypatch.setattr(exact, "_BYTES", 2 * 20 * 20 * 8)
    monkeypatch.setattr(exact, "_ENTRIES", 4 * 20 * 3)
    parts = (ours.nlml(data).detach(), ours.condition(data).variance(at), ours.row_gradients(h, y))
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


def test_equal_rows_and_vanishing_weights_do_no_harm() -> None:
    ours = solver(1)
    data = learned(ours, torch.zeros(30, 2, dtype=torch.float64), torch.ones(30, 1, dtype=torch.float64))
    data.forget(1e-300)
    data.add(torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    posterior = ours.condition(data)
    scale = ours.kernel.outputscale.item()  # type: ignore[union-attr, operator]
    assert posterior.mean(data.h[:1]).item() == pytest.approx(scale / (scale + ours.noise.item()))
    assert torch.isfinite(ours.nlml(data))


@pytest.mark.parametrize("name", sorted(set(registry.names("kernels")) - {"sum", "product"}))
def test_draws_of_every_kernel_have_the_moments_of_the_posterior(name: str) -> None:
    module = registry.load("kernels", name)
    ours = exact.build(exact.Config(), module.build(module.Config(), 2), 2)
    h, y = example_rows(12, 2, 2)
    posterior = ours.condition(learned(ours, h, y))
    paths, x = 400, torch.linspace(-1, 1, 8, dtype=FLOAT).reshape(4, 2)
    drawn = posterior.draw(paths, Generator().manual_seed(0))(x.expand(paths, 4, 2))
    variance = posterior.variance(x) + 1e-6
    assert ((drawn.mean(0) - posterior.mean(x)).abs() < 6 * (variance / paths).sqrt()).all()
    assert ((drawn.var(0) / variance - 1).abs() < 6 * (2 / paths) ** 0.5).all()


def test_a_long_draw_stays_one_function() -> None:
    kernel = matern.build(matern.Config(), 1)
    ours = exact.build(exact.Config(), kernel, 1)
    h, y = example_rows(10, 1, 1)
    draw = ours.condition(learned(ours, h, y)).draw(2, Generator().manual_seed(0))
    line = torch.linspace(-1, 1, 60, dtype=torch.float64)[:, None]
    walked = torch.cat([draw(place.expand(2, 1, 1)) for place in line], 1)
    again = draw(line.flip(0).expand(2, 60, 1)).flip(1)
    assert (walked - again).abs().max() < 2e-3
    assert (walked[0] - walked[1]).abs().max() > 0.05


def test_the_generators_later_use_changes_no_function() -> None:
    ours = solver(1)
    h, y = example_rows(10, 2, 1)
    posterior, values = ours.condition(learned(ours, h, y)), []
    for use in (False, True):
        generator = Generator().manual_seed(3)
        draw = posterior.draw(2, generator)
        first = draw(h[:2].expand(2, 2, 2))
        if use:
            torch.rand(5, generator=generator)
        values.append(torch.cat([first, draw(h[5:].expand(2, 5, 2))], 1))
    assert torch.equal(*values)


class Indefinite(squared_exponential.SquaredExponential):
    """−k, which is no covariance."""

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return -super().forward(x, z)


def test_a_draw_of_points_that_depend_on_each_other_is_refused() -> None:
    kernel = Indefinite(1, 1.0, 1.0)

    def nothing(h: Tensor) -> Tensor:
        return h.new_zeros(len(h), 1)

    draw = ExactDraw(kernel, nothing, lambda h: h.new_zeros(1, 1, len(h)), 1, 1, Generator().manual_seed(0))
    with pytest.raises(NotPositiveDefinite):
        draw(torch.arange(2.0, dtype=FLOAT)[None, :, None])


def test_more_rows_than_the_limit_are_refused() -> None:
    solver = exact.build(exact.Config(limit=3), squared_exponential.build(squared_exponential.Config(), 1), 1)
    data = solver.data()
    data.add(torch.zeros(2, 1, dtype=FLOAT), torch.zeros(2, 1, dtype=FLOAT))
    with pytest.raises(UsageError, match=naming("4 3")) as refused:
        data.add(torch.zeros(2, 1, dtype=FLOAT), torch.zeros(2, 1, dtype=FLOAT))
    assert "solver=kiss" in refused.value.hint
