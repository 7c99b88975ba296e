"""What stands in for log|F|: dense twins, expectations over partitions, and how far off it is where it is biased."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.objectives import finite_evidence as fe
from streamgp.optim.bsgd import Bsgd
from streamgp.optim.finite_head import Estimator, FiniteHead, NoDeterminant
from streamgp.optim.ldb import Ldb, LdbConfig
from streamgp.optim.minimax import Minimax, MinimaxConfig
from streamgp.optim.recent_rows import Recent
from streamgp.optim.scgd import Scgd, ScgdConfig, slots
from tests.optim.finite_toys import estimated_rows, features, head_of, normal, problem, true_rows

N, BATCHES = 2048, (32, 64)


def error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


def along_scale(found: Tensor, truth: Tensor, phi: Tensor) -> float:
    """Ratio of the derivatives of log|F| in the features' common scale."""
    return float((found * phi).sum() / (truth * phi).sum())


@pytest.mark.parametrize("rate", [0.0, 1e-9])
@pytest.mark.parametrize("batch", BATCHES)
def test_ldb_at_the_inverse_is_the_truth_over_a_partition(batch: int, rate: float) -> None:
    phi, head = features(N, 24), FiniteHead(24, 1)
    method = Ldb(LdbConfig(rate=rate, every=1))
    method.begin(fe.statistics([(phi, phi[:, :1])]), head)
    found = estimated_rows(method, phi, head, batch)
    assert error(found, true_rows(phi, fe.ridge(head.noise.detach()))) < (1e-10 if rate == 0 else 1e-5)


@pytest.mark.parametrize("batch", BATCHES)
def test_the_whitened_saddle_of_minimax_is_the_truth_over_a_partition(batch: int) -> None:
    phi, head = features(N, 24), FiniteHead(24, 1)
    method = Minimax(MinimaxConfig(whitened=True, descent_rate=0.0))
    method.begin(fe.statistics([(phi, phi[:, :1])]), head)
    found = estimated_rows(method, phi, head, batch)
    assert error(found, true_rows(phi, fe.ridge(head.noise.detach()))) < 1e-10


@pytest.mark.parametrize("batch", BATCHES)
def test_the_bias_of_scgd_falls_with_b_and_vanishes(batch: int) -> None:
    phi, head = features(N, 48), FiniteHead(48, 1, noise=0.1)
    truth = true_rows(phi, fe.ridge(head.noise.detach()))
    ratios, errors = [], []
    for b in (0.9, 0.1, 0.02, 0.002):
        passes = 2 if b > 0.01 else 12
        found = estimated_rows(Scgd(ScgdConfig(b=b, every=1, low_rank=False), batch), phi, head, batch, passes)
        ratios.append(along_scale(found, truth, phi))
        errors.append(error(found, truth))
    assert ratios == sorted(ratios) and errors == sorted(errors, reverse=True)
    assert ratios[0] < 0.9 and ratios[-1] > 0.995 and errors[0] > 0.3 and errors[-1] < 0.02


def test_scgd_with_b_of_one_over_t_is_exact_after_an_epoch() -> None:
    phi, head = features(256, 8), FiniteHead(8, 1)
    kappa = fe.ridge(head.noise.detach())
    method = Scgd(ScgdConfig(b=1.0, power=1.0, every=1), 32)
    for rows in torch.arange(256).split(32):
        part = method.determinant(phi[rows], kappa, 256)
    torch.testing.assert_close(part.value, torch.logdet(fe.regularised(phi.T @ phi, kappa)), rtol=1e-11, atol=0)
    torch.testing.assert_close(part.rows, true_rows(phi, kappa)[-32:], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("batch", BATCHES)
def test_bsgd_is_several_times_too_large(batch: int) -> None:
    phi, head = features(N, 96), FiniteHead(96, 1, noise=0.1)
    truth = true_rows(phi, fe.ridge(head.noise.detach()))
    found = estimated_rows(Bsgd(), phi, head, batch)
    assert along_scale(found, truth, phi) > 5 and error(found, truth) > 1


@pytest.mark.parametrize("order", ["after", "before"])
@pytest.mark.parametrize("power", [0.0, 0.5])
def test_scgd_is_the_plain_loop(order: str, power: float) -> None:
    phi = features(60, 5)
    config = ScgdConfig.model_validate({"b": 0.3, "every": 1, "order": order, "power": power, "low_rank": False})
    method, average = Scgd(config, 10), torch.zeros(5, 5, dtype=FLOAT)
    for t in range(1, 13):
        kappa = torch.tensor(0.1 + 0.01 * t, dtype=FLOAT)  # is taken as it is now, never averaged
        rows = phi[10 * (t % 6) : 10 * (t % 6) + 10]
        b = max(0.3 if not power else min(0.3, t**-power), 1 / t)
        held = average.clone()
        average = (1 - b) * average + b * 6 * rows.T @ rows
        f = fe.regularised(average if order == "after" or t == 1 else held, kappa)
        part = method.determinant(rows, kappa, 60)
        torch.testing.assert_close(part.value, torch.logdet(f), rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(part.rows, torch.linalg.solve(f, rows.T).T, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(part.trace, torch.linalg.inv(f).trace(), rtol=1e-10, atol=0)


def test_a_factor_is_used_for_as_many_steps_as_asked() -> None:
    phi, kappa = features(60, 5), torch.tensor(0.2, dtype=FLOAT)
    method = Scgd(ScgdConfig(b=0.3, every=3), 10)
    values = [float(method.determinant(rows, kappa, 60).value) for rows in phi.split(10)]
    assert values[0] == values[1] == values[2] != values[3] == values[4] == values[5]


@pytest.mark.parametrize("order", ["after", "before"])
def test_newest_rows_are_the_dense_average(order: str) -> None:
    """Woodbury's path, rows pushed out and smaller mini-batches among them; κ is not tiny, or the dense twin errs."""
    config = {"b": 0.9, "every": 1, "order": order, "tolerance": 1e-16}
    dense = Scgd(ScgdConfig.model_validate(config | {"low_rank": False}), 4)
    newest = Scgd(ScgdConfig.model_validate(config | {"low_rank": True}), 4)
    kappa = torch.tensor(1.0, dtype=FLOAT)
    for step in range(50):
        rows = features(4 if step % 7 else 3, 90, seed=step)
        a, b = dense.determinant(rows, kappa, 64), newest.determinant(rows, kappa, 64)
        torch.testing.assert_close(b.value, a.value, rtol=1e-10, atol=0)
        torch.testing.assert_close(b.trace, a.trace, rtol=1e-10, atol=0)
        assert error(b.rows, a.rows) < 1e-10
    assert isinstance(newest.average, Recent) and newest.average.rows.shape == (16 * 4, 90)


def test_newest_rows_leave_out_no_more_than_their_tolerance() -> None:
    kappa = torch.tensor(0.5, dtype=FLOAT)
    for tolerance in (1e-3, 1e-6):
        dense = Scgd(ScgdConfig(b=0.9, every=1, low_rank=False), 4)
        newest = Scgd(ScgdConfig(b=0.9, low_rank=True, tolerance=tolerance), 4)
        for step in range(20):
            rows = features(4, 40, seed=step)
            a, b = dense.determinant(rows, kappa, 64), newest.determinant(rows, kappa, 64)
        largest = float(16 * rows.square().sum())  # of what was pushed out, before its weight
        assert error(b.rows, a.rows) < 10 * tolerance * largest / float(kappa)


def test_rows_or_the_matrix_whichever_is_smaller() -> None:
    assert (slots(ScgdConfig(b=0.9)), slots(ScgdConfig(b=1.0)), slots(ScgdConfig(b=0.1))) == (12, 1, 263)
    kappa = torch.ones((), dtype=FLOAT)
    for width, rows in ((1000, 32), (300, 32), (128, 64)):
        method = Scgd(ScgdConfig(b=0.9), rows)
        method.determinant(normal(rows, width, seed=0), kappa, 100)
        assert isinstance(method.average, Recent) is (12 * rows <= 0.8 * width)


@pytest.mark.parametrize("width", [4, 20])
def test_bsgd_takes_the_smaller_matrix(width: int) -> None:
    phi, kappa = features(10, width), torch.tensor(0.3, dtype=FLOAT)
    f = fe.regularised(phi.T @ phi, kappa)
    part = Bsgd().determinant(phi, kappa, 1000)
    torch.testing.assert_close(part.value, torch.logdet(f), rtol=1e-10, atol=0)
    torch.testing.assert_close(part.rows, torch.linalg.solve(f, phi.T).T, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(part.trace, torch.linalg.inv(f).trace(), rtol=1e-10, atol=0)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("rows", [3, 12])
def test_bsgd_estimates_are_gradients_of_its_batch_loss(rows: int, columns: int) -> None:
    phi, y, head, _ = problem(rows, 6, columns)
    found = Bsgd().estimate(phi, y, head, total=1000)
    leaf = phi.clone().requires_grad_()
    loss = fe.batch_loss(leaf, y, head.noise) / rows
    by_phi, by_noise = torch.autograd.grad(loss, [leaf, head.log_noise])
    torch.testing.assert_close(found.value, loss.detach(), rtol=1e-10, atol=0)
    torch.testing.assert_close(found.phi, by_phi, rtol=1e-9, atol=1e-9 * float(by_phi.abs().max()))
    torch.testing.assert_close(found.log_noise, by_noise, rtol=1e-9, atol=1e-9)
    assert not found.weights.any()


@pytest.mark.parametrize("columns", [1, 3])
def test_ldb_estimates_at_the_inverse_average_to_the_gradient_of_l(columns: int) -> None:
    """Dense NLML by autograd, every mini-batch of a partition, through the floor on the noise."""
    phi, y, head, _ = problem(48, 6, columns)
    leaf = phi.clone().requires_grad_()
    value = fe.loss(fe.statistics([(leaf, y)]), head.weights, head.noise) / 48
    expected = torch.autograd.grad(value, [leaf, head.weights, head.log_noise])
    method = Ldb(LdbConfig(rate=0.0))
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


@pytest.mark.parametrize("method", [NoDeterminant(), Bsgd(), Scgd(ScgdConfig(), 16), Ldb(LdbConfig())])
def test_float32_features_give_float32_rows(method: Estimator) -> None:
    phi, y, head, data = problem(16, 4, 1)
    method.begin(data, head)
    assert method.determinant(phi.float(), torch.ones((), dtype=FLOAT), 16).rows.dtype == torch.float32
    found = method.estimate(phi.float(), y, head, 16)
    assert found.phi.dtype == torch.float32 and bool(torch.isfinite(found.phi).all())


def test_without_determinant_ridge_regression_is_left() -> None:
    phi, y, head, data = problem(30, 4, 1)
    found, noise = NoDeterminant().estimate(phi, y, head, 30), head.noise.detach()
    f = torch.logdet(fe.regularised(data.gram, fe.ridge(noise)))
    torch.testing.assert_close(30 * found.value, (fe.loss(data, head.weights, noise) - f).detach(), rtol=1e-10, atol=0)


def test_the_head_has_its_floor() -> None:
    head = head_of(3, 2, noise=0.3, floor=0.05)
    torch.testing.assert_close(head.noise, head.log_noise.exp() + 0.05)
    with torch.no_grad():
        head.log_noise.fill_(-800.0)
    assert head.noise.tolist() == [0.05, 0.05]
