"""The periodic and the locally periodic kernel against their definitions and GPyTorch."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgp import choice
from tests.kernels.twins import gpytorch_kernels, made, points, same, theirs
from tests.properties import examples


def test_it_is_gpytorchs_with_the_square_of_our_lengthscale() -> None:
    ours = made("periodic", period=2.0)
    base = gpytorch_kernels.PeriodicKernel(ard_num_dims=3)
    same(ours, theirs(base, ours.outputscale, lengthscale=ours.lengthscale**2, period_length=ours.period))


@examples(30)
@given(st.integers(-1000, 1000), st.floats(0.1, 10), st.floats(0.2, 5))
def test_it_repeats_itself(periods: int, period: float, lengthscale: float) -> None:
    kernel = made("periodic", 1, period=period, lengthscale=lengthscale)
    x = points(5, 0, 1)
    later = x + periods * kernel.period
    torch.testing.assert_close(kernel(x, later), kernel(x, x), rtol=0, atol=1e-9 / lengthscale**2)


def test_near_0_it_is_a_squared_exponential() -> None:
    kernel = made("periodic", 1, period=3.0, lengthscale=0.7)
    x = torch.tensor([[0.0], [1e-3]], dtype=torch.float64)
    reach = kernel.lengthscale * kernel.period / (2 * np.pi)
    drop = 1 - kernel.correlation(x[:1], x[1:]).item()
    np.testing.assert_allclose(drop, (0.5 * (1e-3 / reach) ** 2).item(), rtol=1e-4)


def test_locally_periodic_is_its_definition() -> None:
    ours = made("locally_periodic", period=1.7)
    x, z = points(6, 0), points(5, 1)
    lag = x.numpy()[:, None] - z.numpy()
    p, s, ell = (each.detach().numpy() for each in (ours.period, ours.lengthscale, ours.pattern_lengthscale))
    exponent = 2 * np.sin(np.pi * lag / p) ** 2 / ell**2 + lag**2 / (2 * s**2)
    np.testing.assert_allclose(ours(x, z).detach(), ours.outputscale.item() * np.exp(-exponent.sum(-1)), rtol=1e-12)


def test_locally_periodic_is_gpytorchs_product() -> None:
    ours = made("locally_periodic")
    smooth = gpytorch_kernels.RBFKernel(ard_num_dims=3).double()
    smooth.initialize(lengthscale=ours.lengthscale.detach())
    pattern = gpytorch_kernels.PeriodicKernel(ard_num_dims=3).double()
    pattern.initialize(lengthscale=ours.pattern_lengthscale.detach() ** 2, period_length=ours.period.detach())
    same(ours, theirs(smooth * pattern, ours.outputscale))


def test_tied_is_the_papers_equation() -> None:
    """Xu et al. 2019, equation (20): θ = (l, p), and the outputscale."""
    ours = made("locally_periodic", 1, tied=True)
    assert sorted(name for name, _ in ours.named_parameters()) == ["log_lengthscale", "log_outputscale", "log_period"]
    x, z = points(6, 0, 1), points(5, 1, 1)
    lag = np.abs(x.numpy() - z.numpy().T)
    l, p = ours.lengthscale.item(), ours.period.item()  # noqa: E741
    expected = (
        ours.outputscale.item() * np.exp(-2 * np.sin(np.pi * lag / p) ** 2 / l**2) * np.exp(-(lag**2) / (2 * l**2))
    )
    np.testing.assert_allclose(ours(x, z).detach(), expected, rtol=1e-12)


def test_locally_periodic_is_the_default_product() -> None:
    ours = choice.build("kernels", choice.read("kernels", "locally_periodic"), 3)
    product = choice.build("kernels", choice.read("kernels", "product"), 3)
    x, z = points(6, 0), points(5, 1)
    torch.testing.assert_close(ours(x, z), product(x, z), rtol=1e-13, atol=0)
