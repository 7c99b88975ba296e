"""The radial kernels and their separable forms against their definitions, GPyTorch and the general Matérn formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import gamma, kv
from torch import Tensor

from streamgp import choice
from streamgp.errors import UsageError
from tests.kernels.twins import gpytorch_kernels, made, points, same, theirs
from tests.words import naming

RADIAL = [
    *(("matern", {"nu": nu}) for nu in (0.5, 1.5, 2.5)),
    ("rational_quadratic", {}),
    *(("gamma_exponential", {"gamma": gamma}) for gamma in (0.5, 1.3, 2.0)),
]


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_is_gpytorchs(nu: float) -> None:
    ours = made("matern", nu=nu)
    base = gpytorch_kernels.MaternKernel(nu=nu, ard_num_dims=3)
    same(ours, theirs(base, ours.outputscale, lengthscale=ours.lengthscale))


@pytest.mark.parametrize("dims", [1, 20])
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_is_the_bessel_function(nu: float, dims: int) -> None:
    """Rasmussen & Williams 2006, equation 4.14; 20 columns take the matrix product, but not for ν = ½."""
    ours = made("matern", dims, nu=nu, lengthscale=2.0)
    x, z = points(6, 0, dims), points(5, 1, dims)
    difference = (x.numpy()[:, None] - z.numpy()) / ours.lengthscale.detach().numpy()
    t = np.sqrt(2 * nu) * np.sqrt((difference**2).sum(-1))
    expected = ours.outputscale.item() * 2 ** (1 - nu) / gamma(nu) * t**nu * kv(nu, t)
    np.testing.assert_allclose(ours(x, z).detach(), expected, rtol=1e-11)


def test_rational_quadratic_is_gpytorchs() -> None:
    ours = made("rational_quadratic", alpha=0.6)
    base = gpytorch_kernels.RQKernel(ard_num_dims=3)
    same(ours, theirs(base, ours.outputscale, lengthscale=ours.lengthscale, alpha=ours.alpha))


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("dims", [1, 20])
@pytest.mark.parametrize("gamma", [0.5, 1.3, 2.0])
def test_gamma_exponential_is_its_definition(gamma: float, dims: int, separable: bool) -> None:
    """Rasmussen & Williams 2006, equation 4.18."""
    ours = made("gamma_exponential", dims, gamma=gamma, lengthscale=3.0, separable=separable)
    x, z = points(6, 0, dims), points(5, 1, dims)
    apart = np.abs(x.numpy()[:, None] - z.numpy()) / ours.lengthscale.detach().numpy()
    power = (apart**gamma).sum(-1) if separable else (apart**2).sum(-1) ** (gamma / 2)
    np.testing.assert_allclose(ours(x, z).detach(), ours.outputscale.item() * np.exp(-power), rtol=1e-13)


@pytest.mark.parametrize(
    ("gamma", "name", "longer"), [(1.0, "matern", 1.0), (2.0, "squared_exponential", 2.0**0.5)], ids=["1", "2"]
)
def test_gamma_exponential_lies_between_two_kernels(gamma: float, name: str, longer: float) -> None:
    """ν = ½ at one end; at the other exp(−r²) is the squared exponential of a lengthscale √2 shorter."""
    ours = made("gamma_exponential", gamma=gamma)
    other = made(name, **({"nu": 0.5} if name == "matern" else {}))
    with torch.no_grad():
        other.log_outputscale.copy_(ours.log_outputscale)
        other.log_lengthscale.copy_(ours.log_lengthscale - np.log(longer))
    x, z = points(6, 0), points(5, 1)
    torch.testing.assert_close(ours(x, z), other(x, z), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 1.7, 2.0])
def test_its_frequencies_are_stable(gamma: float) -> None:
    """E cos(ωr) = exp(−r^γ) at lags from near to far, each draw a cosine of variance at most 1."""
    kernel = made("gamma_exponential", 1, gamma=gamma)
    normals = points(40_000, 3, kernel.normals)
    rate = kernel.frequencies(normals, torch.arange(len(normals))).rate.detach()
    lag = kernel.lengthscale.detach() * torch.tensor([0.01, 0.3, 1.0, 3.0], dtype=torch.float64)
    expected = torch.exp(-((lag / kernel.lengthscale.detach()) ** gamma))
    torch.testing.assert_close((rate * lag).cos().mean(0), expected, rtol=0, atol=5 * len(normals) ** -0.5)


@pytest.mark.parametrize("gamma", [0.5, 1.7, 2.0])
def test_no_normal_gives_an_infinite_frequency(gamma: float) -> None:
    """Not even in single precision, which has an infinity from 3e38 on."""
    kernel = choice.build("kernels", choice.read("kernels", {"name": "gamma_exponential", "gamma": gamma}), 1)
    far = torch.cartesian_prod(*[torch.tensor([-6.0, 1e-5, 6.0], dtype=torch.float64)] * kernel.normals)
    assert bool(torch.isfinite(kernel.frequencies(far, torch.arange(len(far))).rate.float()).all())


@pytest.mark.parametrize(("name", "options"), RADIAL)
def test_the_separable_one_is_the_product_of_one_dimensional_ones(name: str, options: dict[str, float]) -> None:
    ours = made(name, separable=True, **options)
    x, z = points(6, 0), points(5, 1)
    product = ours.outputscale
    for d in range(3):
        single = made(name, 1, **options)  # radial, which is the same thing in one dimension
        with torch.no_grad():
            single.log_lengthscale.copy_(ours.log_lengthscale[d : d + 1])
            single.log_outputscale.zero_()
            if name == "rational_quadratic":
                single.log_alpha.copy_(ours.log_alpha)
        product = product * single(x[:, d : d + 1], z[:, d : d + 1])
    torch.testing.assert_close(ours(x, z), product, rtol=1e-13, atol=0)


@pytest.mark.parametrize(("name", "options"), RADIAL)
def test_only_the_separable_one_has_a_grid(name: str, options: dict[str, float]) -> None:
    axes = [torch.linspace(-1, 1, 4, dtype=torch.float64)] * 2
    with pytest.raises(UsageError) as refused:
        made(name, 2, **options).grid_terms(axes)
    assert "separable=true" in refused.value.hint
    assert len(made(name, 2, separable=True, **options).grid_terms(axes)) == 1
    assert len(made(name, 1, **options).grid_terms(axes[:1])) == 1


def test_nu_is_one_of_three() -> None:
    with pytest.raises(ValueError, match=naming("0.5 1.5 2.5")):
        choice.read("kernels", {"name": "matern", "nu": 2.0})


@pytest.mark.parametrize("dims", [1, 3, 20])
@pytest.mark.parametrize(("name", "options"), RADIAL)
@pytest.mark.parametrize("separable", [False, True])
def test_coincident_inputs(name: str, options: dict[str, float], separable: bool, dims: int) -> None:
    """The diagonal is exact, a row alone gives its row, and what a row's own copy teaches about it is 0, not NaN."""
    ours = made(name, dims, separable=separable, **options)
    x = (3.0 * points(4, 2, dims) + 10.0).requires_grad_()
    z = x.detach().clone()
    gram = ours(x, z)
    precision = 1e-15 if name == "gamma_exponential" or options.get("nu") == 0.5 else 1e-12  # by differences
    torch.testing.assert_close(gram.diagonal(), ours.diagonal(z), rtol=precision, atol=0)
    torch.testing.assert_close(ours(x[1:2], z), gram[1:2], rtol=1e-12, atol=1e-14)
    gradients = torch.autograd.grad(gram.diagonal().sum(), (x, *ours.parameters()))
    assert all(bool(torch.isfinite(each).all()) for each in gradients)
    torch.testing.assert_close(gradients[0], torch.zeros_like(x), rtol=0, atol=1e-10)


def test_the_matrix_product_has_the_gradients_of_the_differences() -> None:
    x, z = points(5, 3, 20), points(4, 4, 20)
    ours = made("matern", 20, nu=1.5, lengthscale=3.0)

    def definition(x: Tensor, z: Tensor) -> Tensor:
        t = 3**0.5 * ((x[:, None] - z) / ours.lengthscale).square().sum(-1).sqrt()
        return ours.outputscale * (1 + t) * torch.exp(-t)

    weights = points(5, 5, 4)
    for function in (ours, definition):
        left, right = x.clone().requires_grad_(), z.clone().requires_grad_()
        found = torch.autograd.grad((weights * function(left, right)).sum(), (left, right, *ours.parameters()))
        if function is ours:
            expected = found
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
