"""Every distribution against SciPy, numeric integration and its own samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from torch import Tensor

from streamgp.base import Predictive
from streamgp.predictives.gaussian import Gaussian
from streamgp.predictives.laplace_noise import LaplaceNoise
from streamgp.predictives.mixed import Mixed
from streamgp.predictives.mixture import Mixture
from streamgp.predictives.student_t import StudentT, t_cdf, t_log_pdf, t_quantile
from streamgp.predictives.student_t_noise import StudentTNoise, precisions

torch.set_default_dtype(torch.float32)  # the classes must not lean on a default


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def gaussian() -> tuple[Gaussian, list[object]]:
    p = Gaussian(column(0.3, -2.0), column(0.5, 4.0), column(0.25, 1.0))
    return p, [scipy.stats.norm(0.3, 0.75**0.5), scipy.stats.norm(-2.0, 5.0**0.5)]


def student() -> tuple[StudentT, list[object]]:
    p = StudentT(column(0.3, -2.0, 1.0), column(0.5, 4.0, 2.0), column(3.0, 7.5, 400.0), column(0.1, 0.2, 0.3))
    return p, [scipy.stats.t(3.0, 0.3, 0.5), scipy.stats.t(7.5, -2.0, 4.0), scipy.stats.t(400.0, 1.0, 2.0)]


class TwoGaussians:
    """Dense twin of a mixture of two Gaussians."""

    def __init__(self, w: float, a: tuple[float, float], b: tuple[float, float]) -> None:
        self.w, self.a, self.b = w, scipy.stats.norm(a[0], a[1] ** 0.5), scipy.stats.norm(b[0], b[1] ** 0.5)

    def pdf(self, x: float) -> float:
        return float(self.w * self.a.pdf(x) + (1 - self.w) * self.b.pdf(x))

    def cdf(self, x: float) -> float:
        return float(self.w * self.a.cdf(x) + (1 - self.w) * self.b.cdf(x))

    def logpdf(self, x: float) -> float:
        return float(np.log(self.pdf(x)))

    def ppf(self, p: float) -> float:
        return float(scipy.optimize.brentq(lambda x: self.cdf(x) - p, -100, 100, xtol=1e-13))

    def mean(self) -> float:
        return float(self.w * self.a.mean() + (1 - self.w) * self.b.mean())

    def var(self) -> float:
        second = self.w * (self.a.var() + self.a.mean() ** 2) + (1 - self.w) * (self.b.var() + self.b.mean() ** 2)
        return float(second - self.mean() ** 2)


def mixture() -> tuple[Mixture, list[object]]:
    weights = torch.tensor([[0.3, 0.8], [0.7, 0.2]], dtype=torch.float64)[..., None]
    means = torch.tensor([[-1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)[..., None]
    variances = torch.tensor([[0.04, 1.0], [1.0, 30.0]], dtype=torch.float64)[..., None]
    p = Mixture(weights, means, variances, column(0.01, 0.02))
    return p, [TwoGaussians(0.3, (-1.0, 0.04), (2.0, 1.0)), TwoGaussians(0.8, (0.0, 1.0), (0.0, 30.0))]


class NoisyValue:
    """Dense twin of a Gaussian value under noise: the convolution, by Gauss–Legendre panels that end where y = f."""

    def __init__(self, mean: float, latent: float, noise: Any) -> None:
        self.m, self.v, self.noise = mean, latent, noise
        self.rule = np.polynomial.legendre.leggauss(20)

    def expect(self, function: Callable[[Any], Any], x: float) -> float:
        """E function(x − f)."""
        kink = np.clip((x - self.m) / self.v**0.5, -9, 9)
        edges = np.concatenate([np.linspace(-9, kink, 31), np.linspace(kink, 9, 31)[1:]])
        half = np.diff(edges)[:, None] / 2
        f = (edges[:-1, None] + half * (1 + self.rule[0])).ravel()
        weights = (half * self.rule[1]).ravel() * scipy.stats.norm.pdf(f)
        return float(weights @ function(x - self.m - self.v**0.5 * f))

    def pdf(self, x: float) -> float:
        return self.expect(self.noise.pdf, x)

    def logpdf(self, x: float) -> float:
        return float(np.log(self.pdf(x)))

    def cdf(self, x: float) -> float:
        return self.expect(self.noise.cdf, x)

    def ppf(self, p: float) -> float:
        return float(scipy.optimize.brentq(lambda x: self.cdf(x) - p, -1e3, 1e3, xtol=1e-12))

    def mean(self) -> float:
        return self.m

    def var(self) -> float:
        return float(self.v + self.noise.var())


def noisy() -> tuple[StudentTNoise, list[object]]:
    p = StudentTNoise(column(0.5, -1.0), column(0.3, 2.0), column(0.4, 0.2), column(5.0, 12.0))
    t = scipy.stats.t
    return p, [NoisyValue(0.5, 0.3, t(5.0, scale=0.4)), NoisyValue(-1.0, 2.0, t(12.0, scale=0.2))]


def normal_laplace() -> tuple[LaplaceNoise, list[object]]:
    p = LaplaceNoise(column(0.5, -1.0, 0.1), column(0.3, 2.0, 0.01), column(0.4, 0.2, 1.5))
    triples = ((0.5, 0.3, 0.4), (-1.0, 2.0, 0.2), (0.1, 0.01, 1.5))
    return p, [NoisyValue(mean, latent, scipy.stats.laplace(scale=b)) for mean, latent, b in triples]


def mixed() -> tuple[Mixed, list[object]]:
    experts = torch.stack([column(0.1, -2.5), column(0.5, -1.0), column(9.0, 7.0)])
    p = Mixed(column(0.3, -2.0), column(0.5, 4.0), column(0.25, 1.0), experts)
    return p, [scipy.stats.norm(0.3, 0.75**0.5), scipy.stats.norm(-2.0, 5.0**0.5)]


CASES: dict[str, Callable[[], tuple[Predictive, list[object]]]] = {
    "gaussian": gaussian,
    "student_t": student,
    "mixture": mixture,
    "student_t_noise": noisy,
    "laplace_noise": normal_laplace,
    "mixed": mixed,
}
PRECISION = {"student_t_noise": 1e-5}  # its mixture is a quadrature


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_moments_density_and_quantiles_are_scipys(name: str) -> None:
    p, twins = CASES[name]()
    levels = torch.tensor([1e-4, 0.025, 0.1, 0.5, 0.9, 0.999], dtype=torch.float64)
    quantiles = p.quantile(levels)
    for row, twin in enumerate(twins):
        assert p.mean[row, 0].item() == pytest.approx(twin.mean(), abs=1e-12)
        assert p.variance[row, 0].item() == pytest.approx(twin.var(), rel=1e-12)
        for y in (-7.0, 0.1, 2.5):
            at = torch.full_like(p.mean, y)
            assert p.log_prob(at)[row, 0].item() == pytest.approx(twin.logpdf(y), rel=PRECISION.get(name, 1e-10))
        for level, q in zip(levels, quantiles[:, row, 0], strict=True):
            assert q.item() == pytest.approx(twin.ppf(level.item()), rel=PRECISION.get(name, 1e-8), abs=1e-9)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_crps_is_the_integral_of_the_squared_distance_of_distribution_functions(name: str) -> None:
    p, twins = CASES[name]()
    for row, twin in enumerate(twins):
        for y in (-3.0, 0.4, 6.0):
            below, _ = scipy.integrate.quad(lambda x, d=twin: d.cdf(x) ** 2, -np.inf, y, limit=400)
            above, _ = scipy.integrate.quad(lambda x, d=twin: (1 - d.cdf(x)) ** 2, y, np.inf, limit=400)
            got = p.crps(torch.full_like(p.mean, y))[row, 0].item()
            assert got == pytest.approx(below + above, rel=PRECISION.get(name, 1e-6))


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_samples_have_the_distribution(name: str) -> None:
    p, twins = CASES[name]()
    draws = p.sample(1000, torch.Generator().manual_seed(3))
    assert draws.shape == (1000, *p.mean.shape)
    for row, twin in enumerate(twins):
        result = scipy.stats.kstest(draws[:, row, 0].numpy(), np.vectorize(twin.cdf))
        assert result.pvalue > 1e-6
    again = p.sample(1000, torch.Generator().manual_seed(3))
    assert torch.equal(draws, again)


@pytest.mark.parametrize("name", CASES)
def test_affine_moves_the_distribution(name: str) -> None:
    p, _ = CASES[name]()
    scale, shift = torch.tensor([3.0], dtype=torch.float64), torch.tensor([-1.5], dtype=torch.float64)
    moved = p.affine(scale, shift)
    levels = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    torch.testing.assert_close(moved.mean, p.mean * 3 - 1.5)
    torch.testing.assert_close(moved.variance, p.variance * 9)
    torch.testing.assert_close(moved.latent_variance, p.latent_variance * 9)
    torch.testing.assert_close(moved.quantile(levels), p.quantile(levels) * 3 - 1.5)
    y = torch.full_like(p.mean, 0.7)
    torch.testing.assert_close(moved.crps(y * 3 - 1.5), p.crps(y) * 3)
    torch.testing.assert_close(moved.log_prob(y * 3 - 1.5), p.log_prob(y) - np.log(3.0))


@pytest.mark.parametrize("name", CASES)
def test_parameters_go_round_for_any_trailing_shape(name: str) -> None:
    p, _ = CASES[name]()
    flat = p.parameters()
    assert flat.dtype == torch.float64 and flat.shape[1:] == p.mean.shape
    back = type(p).from_parameters(flat)
    assert torch.equal(back.parameters(), flat)
    thin = type(p).from_parameters(flat[..., 0])
    torch.testing.assert_close(thin.quantile(torch.tensor([0.3])), p.quantile(torch.tensor([0.3]))[..., 0])


@pytest.mark.parametrize("name", CASES)
def test_nan_is_not_observed(name: str) -> None:
    p, _ = CASES[name]()
    y = torch.zeros_like(p.mean)
    y[0] = torch.nan
    for score in (p.log_prob(y), p.crps(y)):
        assert score[0].isnan().all() and score[1:].isfinite().all()


@pytest.mark.parametrize("dof", [0.7, 1.0, 2.0, 4.3, 30.0, 1e4, 1e7, 1e11])
def test_t_functions_match_scipy(dof: float) -> None:
    nu = torch.tensor(dof, dtype=torch.float64)
    z = torch.tensor([-1e3, -40.0, -3.0, -1e-3, 0.0, 0.5, 8.0, 300.0], dtype=torch.float64)
    twin = scipy.stats.t(dof) if dof < 1e9 else scipy.stats.norm()  # SciPy itself loses digits up there
    near = slice(1, 7) if dof < 1e9 else slice(2, 6)
    np.testing.assert_allclose(t_log_pdf(z, nu)[near], twin.logpdf(z[near]), rtol=1e-8)
    np.testing.assert_allclose(t_cdf(z, nu), twin.cdf(z), atol=2e-10)
    p = torch.tensor([1e-5, 0.02, 0.5, 0.7, 0.9999], dtype=torch.float64)
    np.testing.assert_allclose(t_quantile(p, nu[None])[:, 0], twin.ppf(p), rtol=1e-6, atol=1e-9)
    assert t_quantile(torch.tensor([0.0, 1.0]).to(nu), nu[None])[:, 0].abs().isinf().all()


def test_t_says_where_its_moments_do_not_exist() -> None:
    t = StudentT(column(0.0, 0.0), column(1.0, 1.0), column(1.0, 2.0), column(0.0, 0.0))
    assert t.mean[0].isnan() and t.mean[1] == 0
    assert t.variance.isinf().all()
    assert t.crps(column(0.5, 0.5))[0].isinf() and t.crps(column(0.5, 0.5))[1].isfinite()


@pytest.mark.parametrize(("dof", "tolerance"), [(2.1, 2e-3), (4.0, 1e-4), (10.0, 1e-5), (300.0, 1e-6)])
def test_outliers_keep_their_density_under_the_scale_mixture(dof: float, tolerance: float) -> None:
    p = StudentTNoise(column(0.0), column(1e-12), column(1.0), column(dof))
    t = scipy.stats.t(dof)
    for y in (0.0, 3.0, 6.0, t.ppf(1 - 1e-9)):
        assert p.log_prob(column(y)).item() == pytest.approx(t.logpdf(y), abs=tolerance)


def test_the_scale_mixture_has_the_moments_of_its_gamma() -> None:
    dof = torch.tensor([2.5, 5.0, 40.0, 1e6], dtype=torch.float64)
    g, weights = precisions(dof)
    torch.testing.assert_close((weights * g).sum(0), torch.ones(4).double(), rtol=2e-4, atol=0)
    torch.testing.assert_close((weights / g).sum(0)[1:], (dof / (dof - 2))[1:], rtol=1e-6, atol=0)
