"""Hyper-parameters and kernels by evidence, against the other implementation, finite differences and known data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.evidence import thinned
from streamgp.evidence.thinned import JITTER, Evidence, LogHyper, by_adam, choose, descend, start
from streamgp.kernels import Stationary, matern, squared_exponential
from tests.models import oracles_svdgp as oracle

GROUPS = torch.tensor([0, 1, 1, 2])
KERNELS: list[Stationary] = [
    squared_exponential.build(squared_exponential.Config(), 4),
    *(matern.build(matern.Config(nu=nu), 4) for nu in (2.5, 1.5, 0.5)),
]


def rows(count: int, noise: float = 0.2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    y = torch.stack((torch.sin(2 * x[:, 0]), torch.cos(2 * x[:, 0]) + 0.1 * x[:, 1]), 1)
    return x, y + noise * torch.randn(count, 2, generator=generator, dtype=torch.float64)


def hyper() -> LogHyper:
    values = torch.tensor([0.3, -0.2, 0.9, 0.4, -1.5], dtype=torch.float64)
    return LogHyper.unpack(values)


@pytest.mark.parametrize("kernel", KERNELS, ids=["se", "5/2", "3/2", "1/2"])
def test_value_is_the_evidence_of_a_column_and_the_prior(kernel: Stationary) -> None:
    x, y = rows(30)
    evidence, at = Evidence(x, y, GROUPS, kernel.profile, floor=0.0), hyper()
    value, _ = evidence(evidence.pack(at))
    sizes = torch.tensor([1.0, 2.0, 2.0, 1.0], dtype=torch.float64)
    z = x / at.lengthscale[GROUPS].exp() / sizes.sqrt()
    with torch.no_grad():
        train = (at.outputscale.exp() * kernel.correlation(z, z)).numpy()
    whole = oracle.negative_log_evidence(train, y.numpy(), float(at.noise.exp()) + JITTER) / 2
    prior = 0.5 * ((at.lengthscale.numpy() - 1.0) ** 2).sum()
    assert value == pytest.approx(whole - 0.5 * 30 * np.log(2 * np.pi) + prior, rel=1e-9)
    assert torch.allclose(evidence.unpack(evidence.pack(at)).pack(), at.pack())


def test_it_finds_the_channel_that_matters_and_the_noise() -> None:
    x, y = rows(200)
    found = by_adam(x, y, GROUPS, [(LogHyper.start(3), 80)]).hyper
    assert found.lengthscale[0] < found.lengthscale[1] - 0.5 and found.lengthscale[0] < found.lengthscale[2] - 0.5
    assert 0.02 < float(found.noise.exp()) < 0.08  # 0.04


@pytest.mark.parametrize("kernel", KERNELS, ids=["se", "5/2", "3/2", "1/2"])
@pytest.mark.parametrize("spread", [None, 0.2])
def test_gradient_against_finite_differences(kernel: Stationary, spread: float | None) -> None:
    x, y = rows(25)
    evidence = Evidence(x, y, GROUPS, kernel.profile, spread)
    at = torch.tensor([0.2, 0.5, 1.2, -0.3, -1.0], dtype=torch.float64)
    _, gradient = evidence(at)
    step = 1e-6 * torch.eye(5, dtype=torch.float64)
    wanted = [(evidence(at + s)[0] - evidence(at - s)[0]) / 2e-6 for s in step]
    np.testing.assert_allclose(gradient.numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_twenty_evaluations_are_worth_more_than_sixty_of_adam() -> None:
    x, y = rows(150)
    profile = KERNELS[0].profile
    evidence = Evidence(x, y, GROUPS, profile, floor=1e-9)
    _, ours = descend(evidence, start(3), evaluations=20)
    adam = by_adam(x, y, GROUPS, [(start(3), 60)]).hyper
    assert ours < evidence(evidence.pack(adam))[0] + 0.05


def test_adam_tries_a_further_start_only_where_it_found_little_signal() -> None:
    x, y = rows(60)
    good, stuck = (
        LogHyper.start(3),
        LogHyper.start(3)._replace(outputscale=torch.tensor(-9.0).double(), noise=torch.tensor(0.0).double()),
    )
    alone = by_adam(x, y, GROUPS, [(good, 30)])
    both = by_adam(x, y, GROUPS, [(good, 30), (start(3), 200)])
    assert both.value == alone.value and both.hyper.signal > 1
    left = by_adam(x, y, GROUPS, [(stuck, 3)])
    assert left.hyper.signal < 1
    assert by_adam(x, y, GROUPS, [(stuck, 3), (good, 30)]).value == alone.value < left.value


def test_the_noise_has_a_floor() -> None:
    x, y = rows(60, noise=0.0)
    found, _ = descend(Evidence(x, y, GROUPS, KERNELS[0].profile, floor=1e-2), start(3), evaluations=40)
    assert 1e-2 <= float(found.noise.exp()) < 1.2e-2


def test_a_common_prior_keeps_lengthscales_together() -> None:
    x, y = rows(100)
    apart, near = (
        descend(Evidence(x, y, GROUPS, KERNELS[0].profile, spread), start(3), evaluations=30)[0].lengthscale
        for spread in (None, 0.1)
    )
    assert float(near.std()) < 0.5 * float(apart.std())
    moved = Evidence(x, y, GROUPS, KERNELS[0].profile, 0.1)
    free = float(moved(moved.pack(LogHyper(near + 0.0, hyper().outputscale, hyper().noise)))[1][:3].sum())
    plain = Evidence(x, y, GROUPS, KERNELS[0].profile, 1e9)
    assert free == pytest.approx(
        float(plain(plain.pack(LogHyper(near, hyper().outputscale, hyper().noise)))[1][:3].sum())
    )


@pytest.mark.sampled
@pytest.mark.parametrize(("nu", "allowed"), [(None, {0}), (0.5, {3})])
def test_it_chooses_the_kernel_that_the_data_came_from(
    nu: float | None, allowed: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thinned, "FEW", 300)
    x = 3.0 * torch.rand(400, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth: Stationary = KERNELS[0] if nu is None else KERNELS[3]
    with torch.no_grad():
        covariance = truth(x, x) + 1e-3 * torch.eye(400, dtype=torch.float64)
    draw = torch.randn(400, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.linalg.cholesky(covariance) @ draw
    found = choose(x, y, torch.arange(4), KERNELS, [(start(4), 20)])
    assert found.kernel in allowed
    again = choose(x, y, torch.arange(4), KERNELS, [(start(4), 20)])
    assert torch.equal(found.hyper.pack(), again.hyper.pack()) and found.value == again.value
    whole = Evidence(x, y, torch.arange(4), KERNELS[found.kernel].profile)
    assert found.value == pytest.approx(whole(whole.pack(found.hyper))[0] / 400, rel=1e-4)
    assert float((found.hyper.lengthscale).abs().max()) < 1.0  # the truth is 0


def test_rows_that_are_not_finite_end_where_they_began() -> None:
    x, y = rows(20)
    x[0, 0] = torch.inf
    found, value = descend(Evidence(x, y, GROUPS, KERNELS[0].profile), start(3), evaluations=5)
    assert value == 1e10 and torch.allclose(found.pack(), start(3).pack())


def test_distances_by_group_are_those_of_the_columns() -> None:
    """With many columns a group the distances are kept: the value of a dense matrix, the gradient of differences."""
    x, y = rows(40)
    many, groups = x.repeat(1, 12), GROUPS.repeat(12)
    apart, at = Evidence(many, y, groups, KERNELS[0].profile, floor=0.0), hyper()
    ends = 1e-5 * torch.eye(5, dtype=torch.float64)
    found, gradient = apart(apart.pack(at))
    slope = [(apart(apart.pack(at) + e)[0] - apart(apart.pack(at) - e)[0]) / 2e-5 for e in ends]
    assert gradient.tolist() == pytest.approx(slope, rel=1e-5, abs=1e-5)
    sizes = torch.bincount(groups).to(torch.float64)
    z = many / at.lengthscale[groups].exp() / sizes.sqrt()[groups]
    whole = at.outputscale.exp() * torch.exp(-0.5 * torch.cdist(z, z).square())
    dense = oracle.negative_log_evidence(whole.numpy(), y.numpy(), float(at.noise.exp()) + JITTER) / 2
    prior = 0.5 * ((at.lengthscale.numpy() - 1.0) ** 2).sum()
    assert found == pytest.approx(dense - 0.5 * 40 * np.log(2 * np.pi) + prior, rel=1e-9)
