"""The evidence of thinned rows: its value, its gradient, and what it finds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from streamgp.evidence.thinned import JITTER, Hyper, distances, estimate, objective
from tests.models import oracles_svdgp as oracle

GROUPS = torch.tensor([0, 1, 1, 2])


def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    y = torch.stack((torch.sin(2 * x[:, 0]), torch.cos(2 * x[:, 0]) + 0.1 * x[:, 1]), 1)
    return x, y + 0.2 * torch.randn(count, 2, generator=generator, dtype=torch.float64)


def test_value_is_the_evidence_and_the_prior() -> None:
    x, y = rows(30)
    hyper = Hyper(torch.tensor([0.3, -0.2, 0.9]).double(), torch.tensor(0.4).double(), torch.tensor(-1.5).double())
    value, _ = objective(hyper.pack(), distances(x, GROUPS), y)
    sizes = np.array([1.0, 2.0, 2.0, 1.0])
    inverse = np.exp(-hyper.lengthscale.numpy()[GROUPS.numpy()]) / np.sqrt(sizes)
    train = oracle.kernel(x.numpy(), x.numpy(), inverse, float(hyper.outputscale.exp()))
    evidence = oracle.negative_log_evidence(train, y.numpy(), float(hyper.noise.exp()) + JITTER) / 2
    prior = 0.5 * ((hyper.lengthscale.numpy() - 1.0) ** 2).sum()
    assert float(value) == pytest.approx(evidence - 0.5 * 30 * np.log(2 * np.pi) + prior, rel=1e-9)


def test_gradient_against_finite_differences() -> None:
    x, y = rows(25)
    distance, at = distances(x, GROUPS), torch.tensor([0.2, 0.5, 1.2, -0.3, -1.0], dtype=torch.float64)
    _, gradient = objective(at, distance, y)
    step = 1e-6 * torch.eye(5, dtype=torch.float64)
    wanted = [float(objective(at + s, distance, y)[0] - objective(at - s, distance, y)[0]) / 2e-6 for s in step]
    np.testing.assert_allclose(gradient.numpy(), wanted, rtol=1e-6, atol=1e-7)


def test_it_finds_the_channel_that_matters_and_the_noise() -> None:
    x, y = rows(200)
    found = estimate(x, y, GROUPS, Hyper.start(3), steps=80)
    assert found.lengthscale[0] < found.lengthscale[1] - 0.5 and found.lengthscale[0] < found.lengthscale[2] - 0.5
    assert 0.02 < float(found.noise.exp()) < 0.08  # 0.04


def test_packing_is_lossless() -> None:
    packed = torch.arange(6.0)
    assert torch.equal(Hyper.unpack(packed).pack(), packed)
