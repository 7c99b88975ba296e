"""The spectral mixture kernel against its definition, GPyTorch and the Fourier transform of its density."""

from __future__ import annotations

import numpy as np
import torch
from scipy.integrate import quad
from scipy.stats import norm

from tests.kernels.twins import gpytorch_kernels, made, points, same


def theirs(ours, components: int, dims: int):  # type: ignore[no-untyped-def]
    twin = gpytorch_kernels.SpectralMixtureKernel(num_mixtures=components, ard_num_dims=dims).double()
    weight, mean, variance = (each.exp().detach() for each in (ours.log_weight, ours.log_mean, ours.log_variance))
    weight = weight ** (1 / dims)  # it weighs every dimension's factor
    twin.initialize(mixture_weights=weight, mixture_means=mean[:, None], mixture_scales=variance.sqrt()[:, None])
    return twin


def test_it_is_gpytorchs_in_one_dimension() -> None:
    ours = made("spectral_mixture", 1, components=3)
    same(ours, theirs(ours, 3, 1), dims=1)


def test_it_is_gpytorchs_with_one_component() -> None:
    """With more components and dimensions GPyTorch multiplies sums, where Wilson & Adams sum products."""
    ours = made("spectral_mixture", components=1)
    same(ours, theirs(ours, 1, 3))


def test_it_is_its_definition() -> None:
    ours = made("spectral_mixture", components=3)
    x, z = points(6, 0), points(5, 1)
    lag = (x.numpy()[:, None] - z.numpy())[:, :, None]  # (6, 5, 1, 3)
    w, mu, v = (each.exp().detach().numpy() for each in (ours.log_weight, ours.log_mean, ours.log_variance))
    factors = np.exp(-2 * np.pi**2 * lag**2 * v) * np.cos(2 * np.pi * lag * mu)
    np.testing.assert_allclose(ours(x, z).detach(), (w * factors.prod(-1)).sum(-1), rtol=1e-11, atol=1e-13)


def test_it_is_the_transform_of_its_spectral_density() -> None:
    ours = made("spectral_mixture", 1, components=2, lengthscale=0.5)
    w, mu, v = (each.exp().detach().numpy().ravel() for each in (ours.log_weight, ours.log_mean, ours.log_variance))
    lag = torch.tensor([[0.37]], dtype=torch.float64)

    def integrand(s: float) -> float:
        return float((w * norm.pdf(s, mu, np.sqrt(v))).sum() * np.cos(2 * np.pi * s * 0.37))

    reach = float((mu + 12 * np.sqrt(v)).max())
    value, _ = quad(integrand, -reach, reach, limit=200, epsabs=1e-12)
    np.testing.assert_allclose(ours(lag, torch.zeros_like(lag)).item(), value, rtol=1e-9)


def test_the_seed_alone_decides_the_start() -> None:
    one, same_seed, other = (made("spectral_mixture", seed=seed).log_mean for seed in (1, 1, 2))
    assert torch.equal(one, same_seed) and not torch.equal(one, other)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    made("spectral_mixture")
    assert torch.equal(before, torch.get_rng_state())


def test_a_grid_has_a_term_a_component() -> None:
    axes = [torch.linspace(0, 1, 4, dtype=torch.float64), torch.linspace(0, 2, 3, dtype=torch.float64)]
    terms = made("spectral_mixture", 2, components=5).grid_terms(axes)
    assert [[len(column) for column in term] for term in terms] == [[4, 3]] * 5
