"""The driver: what it learns, that restarts go on bit for bit, and what it does with rows it cannot use."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite
from streamgp.objectives import finite_evidence as fe
from streamgp.training.finite_descent import FiniteDescent, FiniteDescentConfig
from streamgp.training.finite_head import FiniteHead, Scgd
from tests.training.finite_toys import Live, network, nlml, normal, problem

METHODS: list[dict[str, Any]] = [{"b": 0.1}, {"b": 0.9}]


def names(method: dict[str, Any]) -> str:
    return "-".join(str(value) for value in method.values())


def rows(count: int = 200, columns: int = 1) -> tuple[Tensor, Tensor]:
    x = normal(count, 3, seed=20)
    signal = torch.stack([torch.sin(2 * x[:, 0]) + x[:, c % 3] * x[:, 1] for c in range(columns)], 1)
    return x, signal + 0.1 * normal(count, columns, seed=21)


def made(
    method: dict[str, Any], columns: int = 1, epochs: int = 6, dtype: torch.dtype = FLOAT, alone: bool = False
) -> FiniteDescent:
    config = FiniteDescentConfig.model_validate({"batch": 16, "rate": 1e-2, "weights_rate": 1e-2} | method)
    return FiniteDescent(network(3, 8, seed=30, dtype=dtype), FiniteHead(8, columns, 0.5, 1e-3), config, epochs, alone)


def evidence(descent: FiniteDescent, x: Tensor, y: Tensor) -> float:
    """NLML of all rows, per row."""
    with torch.no_grad():
        return float(nlml(descent.statistics(x, y), descent.head.noise)) / len(y)


def everything(descent: FiniteDescent) -> list[Tensor]:
    return [p.detach().clone() for module in (descent.features, descent.head) for p in module.parameters()]


@pytest.mark.parametrize("method", METHODS, ids=names)
def test_epochs_lower_the_nlml(method: dict[str, Any]) -> None:
    x, y = rows(columns=2)
    count = 20
    descent, generator = made(method, 2, count), torch.Generator().manual_seed(0)
    before = evidence(descent, x, y)
    losses = [descent.epoch(x, y, generator) for _ in range(count)]
    assert descent.healthy and descent.epochs == count
    assert evidence(descent, x, y) < before - 0.6 and losses[-1] < losses[0]


@pytest.mark.parametrize("method", METHODS, ids=names)
def test_restored_it_goes_on_bit_for_bit(method: dict[str, Any]) -> None:
    """In the middle of an epoch's worth of steps, after an epoch."""
    x, y = rows(columns=2)
    whole, generator = made(method, 2), torch.Generator().manual_seed(0)
    whole.epoch(x, y, generator)
    whole.steps(x, y, 5, generator)
    again, resumed = made(method, 2), torch.Generator()
    again.features.load_state_dict(whole.features.state_dict())
    again.head.load_state_dict(whole.head.state_dict())
    tensors, rest = whole.state()
    again.restore({name: t.clone() for name, t in tensors.items()}, rest)
    resumed.set_state(generator.get_state())
    for descent, drawn in ((whole, generator), (again, resumed)):
        descent.steps(x, y, 9, drawn)
        descent.epoch(x, y, drawn)
    assert all(torch.equal(a, b) for a, b in zip(everything(whole), everything(again), strict=True))
    one, other = whole.state(), again.state()
    assert one[1] == other[1] and all(torch.equal(one[0][name], other[0][name]) for name in one[0])


@pytest.mark.parametrize("method", METHODS, ids=names)
def test_a_state_holds_nothing_by_the_row(method: dict[str, Any]) -> None:
    sizes = []
    for count in (100, 400):
        descent = made(method)
        descent.epoch(*rows(count), torch.Generator().manual_seed(0))
        sizes.append(sum(t.numel() for t in descent.state()[0].values()))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("method", METHODS, ids=names)
def test_memory_of_a_step_is_that_of_the_matrices_and_the_mini_batch(method: dict[str, Any]) -> None:
    """Live bytes of steps on given features, in units of d² + |b|d numbers; the number of rows does not matter."""
    for width, batch in ((64, 16), (128, 16), (16, 64)):
        phi, y, head, _ = problem(batch, width, 1)
        made = Scgd(method["b"])
        with Live() as live:
            for _ in range(3):
                made.estimate(phi, y, head, 10_000_000)
        unit = 8 * (width**2 + batch * width)
        assert live.peak < 20 * unit


def test_steps_alone_leave_the_noise_and_solve_for_the_weights() -> None:
    """Of the features alone, with P = F⁻¹ held: the mini-batches of an epoch that stands still average to the NLML's
    gradient (`test_estimates_at_the_inverse_average_to_the_gradient_of_l`)."""
    x, y = rows(columns=2)
    descent, generator = made({"rate": 3e-3}, 2, 20, alone=True), torch.Generator().manual_seed(0)
    noise, before = descent.head.noise.detach().clone(), evidence(descent, x, y)
    for _ in range(20):
        data = descent.statistics(x, y)
        descent.epoch(x, y, generator)
        torch.testing.assert_close(descent.head.weights.detach(), fe.best_weights(data, noise), rtol=1e-9, atol=1e-12)
    assert torch.equal(descent.head.noise, noise) and evidence(descent, x, y) < before - 0.05


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e300])
def test_a_row_that_cannot_be_used_leaves_its_steps_out(bad: float) -> None:
    x, y = rows()
    descent, generator = made({}), torch.Generator().manual_seed(0)
    descent.features[-1] = nn.ReLU()  # type: ignore[operator]  # not bounded
    x[3] = bad
    descent.epoch(x, y, generator)
    assert not descent.healthy
    assert all(bool(torch.isfinite(p).all()) for p in everything(descent))
    x[3] = 0.0
    descent.epoch(x, y, generator)
    assert descent.healthy


def test_looking_at_all_rows_raises_where_one_cannot_be_used() -> None:
    x, y = rows()
    x[3] = float("nan")
    with pytest.raises(NotPositiveDefinite):
        made({}, alone=True).epoch(x, y, torch.Generator().manual_seed(0))


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    x, y = rows()
    y[0] = float("inf")
    descent = made({"batch": 200})
    before = everything(descent)
    descent.epoch(x, y, torch.Generator().manual_seed(0))
    assert not descent.healthy
    assert all(torch.equal(a, b) for a, b in zip(before, everything(descent), strict=True))


def test_rates_warm_up_fall_and_leave_the_noise_alone() -> None:
    descent = made({"rate": 0.5, "weights_rate": 0.25}, epochs=100)
    assert descent.rates(0.0)[0] == pytest.approx(5e-4, rel=1e-2)
    assert descent.rates(1.0)[0] == pytest.approx(0.25, rel=0.02)
    assert descent.rates(50.0) == pytest.approx((0.2525, 0.12625, 3e-3))
    assert descent.rates(100.0) == pytest.approx((0.005, 0.0025, 3e-3))
    assert made({}, epochs=0).rates(0.0)[0] == 1e-2 and made({}, alone=True).rates(3.0)[1:] == (0.0, 0.0)


def test_features_without_parameters_train_a_head_alone() -> None:
    x, y = rows()
    descent = FiniteDescent(nn.Identity(), FiniteHead(3, 1), FiniteDescentConfig(batch=16, weights_rate=3e-2))
    for _ in range(60):
        descent.epoch(x, y, torch.Generator().manual_seed(0))
    with torch.no_grad():
        best = fe.best_weights(descent.statistics(x, y), descent.head.noise)
    torch.testing.assert_close(descent.head.weights.detach(), best, rtol=0, atol=0.05)


def test_float32_features_train_with_a_float64_head() -> None:
    x, y = rows()
    descent = made({}, epochs=20, dtype=torch.float32)
    before = evidence(descent, x.float(), y)
    for _ in range(20):
        descent.epoch(x.float(), y, torch.Generator().manual_seed(0))
    assert evidence(descent, x.float(), y) < before - 0.3 and descent.head.weights.dtype == FLOAT


def test_no_rows_and_no_steps_are_no_loss() -> None:
    x, y = rows()
    descent = made({})
    assert not descent.epoch(x[:0], y[:0], torch.Generator()) < 0
    assert not descent.steps(x, y, 0, torch.Generator()) < 0
