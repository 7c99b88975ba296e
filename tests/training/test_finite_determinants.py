"""What stands in for log|F|: dense twins, expectations over partitions, and how far off it is where it is biased."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.objectives import finite_evidence as fe
from streamgp.training import finite_head
from streamgp.training.finite_head import Estimator, FiniteHead, HeldInverse, Scgd
from tests.training.finite_toys import estimated_rows, features, head_of, loss, problem, true_rows

N, BATCHES = 2048, (32, 64)


def error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


def along_scale(found: Tensor, truth: Tensor, phi: Tensor) -> float:
    """Ratio of the derivatives of log|F| in the features' common scale."""
    return float((found * phi).sum() / (truth * phi).sum())


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A factorisation for every mini-batch."""
    monkeypatch.setattr(finite_head, "EVERY", 1)


@pytest.mark.parametrize("batch", BATCHES)
def test_the_inverse_is_the_truth_over_a_partition(batch: int) -> None:
    phi, head = features(N, 24), FiniteHead(24, 1)
    method = HeldInverse()
    method.begin(fe.statistics([(phi, phi[:, :1])]), head)
    found = estimated_rows(method, phi, head, batch)
    assert error(found, true_rows(phi, fe.ridge(head.noise.detach()))) < 1e-10


@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize("batch", BATCHES)
def test_the_bias_of_scgd_falls_with_b_and_vanishes(batch: int) -> None:
    phi, head = features(N, 48), FiniteHead(48, 1, noise=0.1)
    truth = true_rows(phi, fe.ridge(head.noise.detach()))
    ratios, errors = [], []
    for b in (0.9, 0.1, 0.02, 0.002):
        passes = 2 if b > 0.01 else 12
        found = estimated_rows(Scgd(b), phi, head, batch, passes)
        ratios.append(along_scale(found, truth, phi))
        errors.append(error(found, truth))
    assert ratios == sorted(ratios) and errors == sorted(errors, reverse=True)
    assert ratios[0] < 0.9 and ratios[-1] > 0.995 and errors[0] > 0.3 and errors[-1] < 0.02


@pytest.mark.usefixtures("every_step")
def test_scgd_is_exact_after_an_epoch_of_a_plain_mean() -> None:
    phi, head = features(256, 8), FiniteHead(8, 1)
    kappa = fe.ridge(head.noise.detach())
    method = Scgd(1e-9)  # below 1/t
    for rows in torch.arange(256).split(32):
        part = method.determinant(phi[rows], kappa, 256)
    torch.testing.assert_close(part.value, torch.logdet(fe.regularised(phi.T @ phi, kappa)), rtol=1e-11, atol=0)
    torch.testing.assert_close(part.rows, true_rows(phi, kappa)[-32:], rtol=1e-8, atol=1e-12)


@pytest.mark.usefixtures("every_step")
def test_scgd_is_the_plain_loop() -> None:
    phi = features(60, 5)
    method, average = Scgd(0.3), torch.zeros(5, 5, dtype=FLOAT)
    for t in range(1, 13):
        kappa = torch.tensor(0.1 + 0.01 * t, dtype=FLOAT)  # is taken as it is now, never averaged
        rows = phi[10 * (t % 6) : 10 * (t % 6) + 10]
        b = max(0.3, 1 / t)
        average = (1 - b) * average + b * 6 * rows.T @ rows
        f = fe.regularised(average, kappa)
        part = method.determinant(rows, kappa, 60)
        torch.testing.assert_close(part.value, torch.logdet(f), rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(part.rows, torch.linalg.solve(f, rows.T).T, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(part.trace, torch.linalg.inv(f).trace(), rtol=1e-10, atol=0)


def test_a_factor_is_used_for_some_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite_head, "EVERY", 3)
    phi, kappa = features(60, 5), torch.tensor(0.2, dtype=FLOAT)
    method = Scgd(0.3)
    values = [float(method.determinant(rows, kappa, 60).value) for rows in phi.split(10)]
    assert values[0] == values[1] == values[2] != values[3] == values[4] == values[5]


@pytest.mark.parametrize("columns", [1, 3])
def test_estimates_at_the_inverse_average_to_the_gradient_of_l(columns: int) -> None:
    """Dense NLML by autograd, every mini-batch of a partition, through the floor on the noise."""
    phi, y, head, _ = problem(48, 6, columns)
    leaf = phi.clone().requires_grad_()
    value = loss(fe.statistics([(leaf, y)]), head.weights, head.noise) / 48
    expected = torch.autograd.grad(value, [leaf, head.weights, head.log_noise])
    method = HeldInverse()
    method.begin(fe.statistics([(phi, y)]), head)
    parts = torch.randperm(48, generator=torch.Generator().manual_seed(0)).split(8)
    found = [method.estimate(phi[rows], y[rows], head, 48) for rows in parts]
    by_phi = torch.zeros_like(phi)
    for rows, part in zip(parts, found, strict=True):
        by_phi[rows] = part.phi / len(parts)
    means = (by_phi, *(torch.stack([getattr(p, name) for p in found]).mean(0) for name in ("weights", "log_noise")))
    torch.testing.assert_close(torch.stack([p.value for p in found]).mean(), value.detach(), rtol=1e-10, atol=0)
    for ours, theirs in zip(means, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9 * float(theirs.abs().max()))


@pytest.mark.parametrize("method", [Scgd(0.1), HeldInverse()])
def test_float32_features_give_float32_rows(method: Estimator) -> None:
    phi, y, head, data = problem(16, 4, 1)
    method.begin(data, head)
    assert method.determinant(phi.float(), torch.ones((), dtype=FLOAT), 16).rows.dtype == torch.float32
    found = method.estimate(phi.float(), y, head, 16)
    assert found.phi.dtype == torch.float32 and bool(torch.isfinite(found.phi).all())


def test_the_head_has_its_floor() -> None:
    head = head_of(3, 2, noise=0.3, floor=0.05)
    torch.testing.assert_close(head.noise, head.log_noise.exp() + 0.05)
    with torch.no_grad():
        head.log_noise.fill_(-800.0)
    assert head.noise.tolist() == [0.05, 0.05]
