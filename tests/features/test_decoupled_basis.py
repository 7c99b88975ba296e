"""The generalised SE-ARD basis against its formula, against integrals, and against plain SE-ARD."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import torch
from torch import Tensor

from streamgp.kernels.squared_exponential import Config, build
from streamgp.models.svdgp.decoupled import Basis, cross, gram

SCALE = torch.tensor([0.7, 1.5], dtype=torch.float64)


def basis(rows: int, seed: int) -> Basis:
    draw = torch.Generator().manual_seed(seed)
    points = torch.randn(rows, 2, dtype=torch.float64, generator=draw)
    return Basis(points, 0.5 * torch.randn(rows, 2, dtype=torch.float64, generator=draw))


def dense(z: np.ndarray, l: np.ndarray, w: np.ndarray, k: np.ndarray) -> float:  # noqa: E741
    """Equation (19) for one pair of points with lengthscales l and k."""
    return float(np.prod(np.sqrt(2 * l * k / (l**2 + k**2)) * np.exp(-((z - w) ** 2) / (l**2 + k**2))))


def test_gram_and_cross_are_equation_19() -> None:
    left, right, x, s = basis(4, 0), basis(3, 1), basis(5, 2).points, SCALE.numpy()
    assert left.log_widths is not None and right.log_widths is not None
    for m in range(4):
        l = s * left.log_widths[m].exp().numpy()  # noqa: E741
        for n in range(3):
            k = s * right.log_widths[n].exp().numpy()
            expected = dense(left.points[m].numpy(), l, right.points[n].numpy(), k)
            assert gram(left, right, SCALE)[m, n].item() == pytest.approx(expected, rel=1e-12)
        for n in range(5):
            expected = dense(left.points[m].numpy(), l, x[n].numpy(), s)
            assert cross(x, left, SCALE)[n, m].item() == pytest.approx(expected, rel=1e-12)


def test_widths_of_one_are_the_kernel() -> None:
    plain = Basis(basis(4, 0).points)
    ones = Basis(plain.points, torch.zeros_like(plain.points))
    x = basis(5, 2).points
    kernel = build(Config(), dims=2)
    with torch.no_grad():
        kernel.log_lengthscale.copy_(SCALE.log())
    for b in (plain, ones):
        torch.testing.assert_close(cross(x, b, SCALE), kernel(x, b.points).detach(), rtol=1e-12, atol=0)
        torch.testing.assert_close(gram(b, b, SCALE), kernel(b.points, b.points).detach(), rtol=1e-12, atol=0)


def test_the_joint_covariance_of_basis_and_function_is_positive_semi_definite() -> None:
    b, x = basis(12, 0), basis(10, 1).points
    same = Basis(x, torch.zeros_like(x))
    both = Basis(torch.cat((b.points, x)), torch.cat((b.log_widths, same.log_widths)))
    joint = gram(both, both, SCALE)
    torch.testing.assert_close(joint[12:, :12], cross(x, b, SCALE), rtol=1e-12, atol=0)
    assert torch.linalg.eigvalsh(joint).min() > -1e-12
    torch.testing.assert_close(joint.diagonal(), torch.ones(22, dtype=torch.float64), rtol=1e-12, atol=0)


def test_a_wide_basis_point_is_an_average_of_the_function() -> None:
    """With c > 1, ψ is proportional to φ convolved with a Gaussian of variance (l² − s²)/2, scaled to unit norm."""
    s, l, z, x = 1.0, 1.8, 0.3, 1.1  # noqa: E741
    spread = (l**2 - s**2) / 2

    def smoothed(at: float) -> float:
        weight = lambda u: np.exp(-((u - z) ** 2) / (2 * spread)) / np.sqrt(2 * np.pi * spread)  # noqa: E731
        return scipy.integrate.quad(lambda u: weight(u) * np.exp(-((u - at) ** 2) / (2 * s**2)), -20, 20)[0]

    one = Basis(torch.tensor([[z]], dtype=torch.float64), torch.tensor([[l / s]], dtype=torch.float64).log())
    got = cross(torch.tensor([[x], [z]], dtype=torch.float64), one, torch.tensor([s], dtype=torch.float64))[:, 0]
    assert (got[0] / got[1]).item() == pytest.approx(smoothed(x) / smoothed(z), rel=1e-9)


@pytest.mark.parametrize("own", [True, False])
def test_gradients_are_finite_differences(own: bool) -> None:
    b, c, x = basis(3, 0), basis(2, 1), basis(4, 2).points
    leaves = [t.clone().requires_grad_() for t in (b.points, b.log_widths, c.points, c.log_widths, x, SCALE)]

    def value(p: Tensor, v: Tensor, q: Tensor, w: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        left, right = Basis(p, v if own else None), Basis(q, w if own else None)
        return gram(left, right, s), cross(x, left, s)

    assert torch.autograd.gradcheck(value, tuple(leaves))
