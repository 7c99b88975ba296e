"""Schedules by their formulas, clipping against torch's, mini-batches as partitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from streamgp.training import descent as descent_module
from streamgp.training.descent import Descent, DescentConfig, batches_of, minibatches, rate


def line(value: float = 0.0, width: int = 3) -> nn.Linear:
    made = nn.Linear(width, 1, dtype=torch.float64)
    with torch.no_grad():
        for p in made.parameters():
            p.fill_(value)
    return made


def test_constant_stays() -> None:
    assert [rate(DescentConfig(), 0.3, t, 10) for t in (0.0, 7.5, 1e6)] == [0.3] * 3


def test_cosine_falls_to_its_last_part_and_stays() -> None:
    config = DescentConfig(schedule="cosine")
    found = [rate(config, 2.0, t, 8) for t in (0.0, 2.0, 4.0, 8.0, 20.0)]
    expected = [2.0 * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(t / 8, 1)))) for t in (0.0, 2.0, 4.0, 8.0, 20.0)]
    assert found == pytest.approx(expected, rel=1e-12)
    assert found[0] == pytest.approx(2.0) and found[-1] == pytest.approx(0.02)
    assert rate(config, 2.0, 5.0, 0) == 2.0


@pytest.mark.parametrize("delta", [0.1, 1.0])
def test_it_falls_as_in_the_theorems(delta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent_module, "DELTA", delta)
    config = DescentConfig(schedule="theorem")
    for t in (0.0, 1.0, 99.0):
        assert rate(config, 0.5, t, 0) == pytest.approx(0.5 * (t + 1) ** (-(1 + delta) / 2), rel=1e-12)


@pytest.mark.parametrize("clip", [0.5, 100.0])
def test_clipping_is_by_the_norm_over_all_weights(clip: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent_module, "CLIP", clip)
    ours, theirs = line(), line()
    x = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    taken: list[Tensor] = []
    descent = Descent(ours, 0.1, DescentConfig())
    descent.adam.step = lambda known, rate: taken.extend(known)  # type: ignore[method-assign, assignment, misc]
    assert descent.step((ours(x) - 3).square().mean(), 0.0)
    (theirs(x) - 3).square().mean().backward()
    norm = nn.utils.clip_grad_norm_(theirs.parameters(), clip)
    assert norm > 1
    for one, p in zip(taken, theirs.parameters(), strict=True):
        assert p.grad is not None
        torch.testing.assert_close(one, p.grad, rtol=1e-5, atol=0)  # torch adds 1e-6 to the norm


def test_a_scheduled_descent_is_torchs_adam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent_module, "DELTA", 1.0)
    monkeypatch.setattr(descent_module, "CLIP", math.inf)
    ours, theirs = line(), line()
    x = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    descent = Descent(ours, 0.1, DescentConfig(schedule="theorem"))
    twin = torch.optim.Adam(theirs.parameters(), lr=0.1, eps=1e-12)
    for epoch in range(20):
        descent.step((ours(x) - 3).square().mean(), epoch)
        twin.param_groups[0]["lr"] = 0.1 / (1 + epoch)
        twin.zero_grad()
        (theirs(x) - 3).square().mean().backward()
        twin.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


def test_not_finite_is_skipped_and_counted() -> None:
    made = line(1.0)
    descent = Descent(made, 0.1, DescentConfig())
    assert not descent.step(made.weight.sum() * float("inf"), 0.0)
    assert not descent.descend([torch.full((1, 3), float("nan")).double(), None], 0.0)
    assert descent.skipped == 2 and bool((made.weight == 1).all()) and float(descent.adam.age[0]) == 0


def test_frozen_and_unused_weights_stay() -> None:
    made = line(1.0)
    made.bias.requires_grad_(False)
    descent = Descent(made, 0.1, DescentConfig())
    assert set(descent.parameters) == {"weight"}
    assert descent.descend([None], 0.0) and bool((made.weight == 1).all())


def test_it_follows_tensors_that_were_replaced() -> None:
    """`Module.to` puts new storage behind a parameter."""
    made = line(1.0)
    descent = Descent(made, 0.1, DescentConfig())
    made.weight.data = made.weight.data.clone()
    descent.step(made.weight.sum(), 0.0)
    assert bool((made.weight < 1).all())


def test_restored_it_goes_on_bit_for_bit() -> None:
    one, other = line(), line()
    first = Descent(one, 0.1, DescentConfig())
    for _ in range(3):
        first.step((one.weight - 2).square().sum(), 0.0)
    second = Descent(other, 0.1, DescentConfig())
    other.load_state_dict(one.state_dict())
    second.restore(*first.state())
    for descent, module in ((first, one), (second, other)):
        descent.step((module.weight - 5).square().sum(), 0.0)
    assert torch.equal(one.weight, other.weight)


@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 12), st.integers(0, 99))
def test_mini_batches_are_partitions(n: int, batch: int, count: int, seed: int) -> None:
    parts = list(minibatches(n, batch, count, torch.Generator().manual_seed(seed)))
    whole = batches_of(n, batch)
    assert len(parts) == count
    for first in range(0, count - whole + 1, whole):
        epoch = parts[first : first + whole]
        sizes = [len(part) for part in epoch]
        assert torch.equal(torch.cat(epoch).sort().values, torch.arange(n))
        assert max(sizes) <= batch and max(sizes) - min(sizes) <= 1
        assert batch < 3 or n < 2 or min(sizes) > 1
