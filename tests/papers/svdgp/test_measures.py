"""Theorem 1: the KL of two decoupled measures against dense Gaussians over every function that they mention."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.kernels.squared_exponential import correlation
from streamgp.papers.svdgp.measures import Measure, divergence
from tests.objectives import oracles_elbo as oracle


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def measure(seed: int, size: float) -> Measure:
    points = draw(7, 2, seed=seed)
    return Measure(points[:4], size * draw(4, 1, seed=seed + 1), points[4:], size * draw(3, 3, seed=seed + 2).tril())


def test_theorem_1_is_the_kl_of_dense_gaussians() -> None:
    q, p = measure(0, 0.8), measure(10, 0.6)
    everything = torch.cat((q.alpha, q.beta, p.alpha, p.beta))
    joint = correlation(everything, everything).numpy()
    (mean, cov), (other, prior) = (
        oracle.decoupled(
            joint, slice(s, s + 4), slice(s + 4, s + 7), m.a[:, 0].numpy(), m.root.numpy() + 1e-9 * np.eye(3)
        )
        for m, s in ((q, 0), (p, 7))
    )
    assert divergence(q, p).item() == pytest.approx(oracle.gaussian_kl(mean - other, cov, prior), rel=1e-6)


def test_of_a_normal_prior_it_is_equation_9_and_of_itself_nothing() -> None:
    q, p = measure(0, 0.8), measure(10, 0.0)
    k = correlation(q.alpha, q.alpha)
    kb = correlation(q.beta, q.beta)
    b = q.root @ q.root.T
    inner = b @ torch.linalg.inv(torch.eye(3, dtype=torch.float64) + kb @ b)
    expected = 0.5 * ((q.a * (k @ q.a)).sum() + torch.logdet(torch.eye(3).double() + kb @ b) - (kb @ inner).trace())
    assert divergence(q, p).item() == pytest.approx(expected.item(), rel=1e-9)
    assert divergence(q, q).item() == pytest.approx(0.0, abs=1e-9)
