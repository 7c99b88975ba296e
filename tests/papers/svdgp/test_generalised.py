"""The generalised SE-ARD basis against equation 19, against integrals, and against the plain kernel."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import torch
from torch import Tensor

from streamgp.papers.svdgp.generalised import GeneralisedBasis
from streamgp.training.decoupled import GrowingBasis

SCALE = torch.tensor([0.7, 1.5], dtype=torch.float64)


def points(rows: int, seed: int) -> Tensor:
    """(rows, 4): z, then log c."""
    generator = torch.Generator().manual_seed(seed)
    half = torch.tensor([1.0, 1.0, 0.5, 0.5], dtype=torch.float64)
    return half * torch.randn(rows, 4, dtype=torch.float64, generator=generator)


def dense(z: np.ndarray, l: np.ndarray, w: np.ndarray, k: np.ndarray) -> float:  # noqa: E741
    """Equation (19) for one pair of points with lengthscales l and k."""
    return float(np.prod(np.sqrt(2 * l * k / (l**2 + k**2)) * np.exp(-((z - w) ** 2) / (l**2 + k**2))))


def test_gram_and_cross_are_equation_19() -> None:
    left, right, x = points(4, 0), points(3, 1), points(5, 2)[:, :2]
    s = SCALE.numpy()
    gram, cross = GeneralisedBasis.gram_of(left, right, SCALE), GeneralisedBasis.cross_of(x, left, SCALE)
    for m in range(4):
        z, l = left[m, :2].numpy(), s * left[m, 2:].exp().numpy()  # noqa: E741
        for n in range(3):
            expected = dense(z, l, right[n, :2].numpy(), s * right[n, 2:].exp().numpy())
            assert gram[m, n].item() == pytest.approx(expected, rel=1e-12)
        for n in range(5):
            assert cross[n, m].item() == pytest.approx(dense(z, l, x[n].numpy(), s), rel=1e-12)


def test_a_new_point_is_the_kernel_and_all_are_of_unit_norm() -> None:
    x = points(6, 2)[:, :2]
    made = GeneralisedBasis.made(x)
    torch.testing.assert_close(GeneralisedBasis.gram_of(made, made, SCALE), GrowingBasis.gram_of(x, x, SCALE))
    torch.testing.assert_close(GeneralisedBasis.cross_of(x, made, SCALE), GrowingBasis.cross_of(x, x, SCALE))
    both = torch.cat((points(6, 0), made))
    joint = GeneralisedBasis.gram_of(both, both, SCALE)
    assert torch.linalg.eigvalsh(joint).min() > -1e-12
    torch.testing.assert_close(joint.diagonal(), torch.ones(12, dtype=torch.float64), rtol=1e-12, atol=0)


def test_a_wide_point_is_an_average_of_the_function() -> None:
    """With c > 1, ψ is proportional to φ convolved with a Gaussian of variance (l² − s²)/2."""
    s, l, z, x = 1.0, 1.8, 0.3, 1.1  # noqa: E741
    spread = (l**2 - s**2) / 2

    def smoothed(at: float) -> float:
        weight = lambda u: np.exp(-((u - z) ** 2) / (2 * spread))  # noqa: E731
        return float(scipy.integrate.quad(lambda u: weight(u) * np.exp(-((u - at) ** 2) / (2 * s**2)), -20, 20)[0])

    one = torch.tensor([[z, np.log(l / s)]], dtype=torch.float64)
    got = GeneralisedBasis.cross_of(torch.tensor([[x], [z]]).double(), one, torch.tensor([s]).double())[:, 0]
    assert (got[0] / got[1]).item() == pytest.approx(smoothed(x) / smoothed(z), rel=1e-6)


def test_gradients_are_finite_differences() -> None:
    leaves = [t.clone().requires_grad_() for t in (points(3, 0), points(2, 1), points(4, 2)[:, :2], SCALE)]

    def value(p: Tensor, q: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        return GeneralisedBasis.gram_of(p, q, s), GeneralisedBasis.cross_of(x, p, s)

    assert torch.autograd.gradcheck(value, tuple(leaves))
