"""Early stopping: the best is kept, patience ends, validation rows are blocks inside the span."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from streamgp.errors import UsageError
from streamgp.training.early_stopping import EarlyStopping, validation_rows


def module(value: float) -> nn.Module:
    made = nn.Linear(2, 1)
    with torch.no_grad():
        for p in made.parameters():
            p.fill_(value)
    return made


@given(st.integers(0, 400), st.floats(0, 0.99), st.integers(1, 9))
def test_validation_rows_are_even_blocks(n: int, fraction: float, blocks: int) -> None:
    mask = validation_rows(n, fraction, blocks)
    held = round(n * fraction)
    assert mask.shape == (n,) and mask.dtype == torch.bool
    assert held - blocks <= int(mask.sum()) <= held
    if fraction <= 0.5 and n >= 2 * blocks:
        assert int(mask.sum()) == held
        starts = (mask & ~mask.roll(1)).sum() if n else 0
        assert int(starts) <= blocks
        edge = [bool(mask[0]), bool(mask[-1])]
        assert not all(edge) or fraction > 0.4


def test_they_lie_inside_the_span() -> None:
    mask = validation_rows(1000, 0.1, 5)
    assert int(mask.sum()) == 100
    where = mask.nonzero()[:, 0].view(5, 20)
    assert torch.equal(where[:, -1] - where[:, 0], torch.full((5,), 19))
    assert where[:, 0].tolist() == [90, 290, 490, 690, 890]
    assert not mask[:50].any() and not mask[-50:].any()


@pytest.mark.parametrize("n", [0, 1, 37, 1000])
def test_one_block_is_the_last_rows(n: int) -> None:
    held = round(0.3 * n)
    assert validation_rows(n, 0.3, 1).tolist() == [False] * (n - held) + [True] * held


@pytest.mark.parametrize(("fraction", "blocks"), [(-0.1, 1), (1.0, 1), (0.1, 0)])
def test_impossible_cuts_are_told(fraction: float, blocks: int) -> None:
    with pytest.raises(UsageError):
        validation_rows(10, fraction, blocks)


def test_the_best_comes_back() -> None:
    stopping, encoder, head = EarlyStopping(patience=3), module(0.0), module(0.0)
    both = {"encoder": encoder, "head": head}
    for value, score in enumerate((5.0, 2.0, float("nan"), 2.0)):
        encoder.load_state_dict(module(value).state_dict())
        better = stopping.add(score, both)
        assert better == (value < 2)
    assert (stopping.score, stopping.since, stopping.finished) == (2.0, 2, False)
    assert sorted(stopping.best) == ["encoder.bias", "encoder.weight", "head.bias", "head.weight"]
    stopping.add(3.0, both)
    assert stopping.finished
    stopping.rewind(both)
    assert bool((next(encoder.parameters()) == 1).all())


def test_without_a_finite_score_modules_stay() -> None:
    stopping, one = EarlyStopping(patience=2), module(7.0)
    for score in (float("nan"), float("inf")):
        assert not stopping.add(score, {"one": one})
    stopping.rewind({"one": one})
    assert stopping.finished and bool((next(one.parameters()) == 7).all())
    fresh = EarlyStopping(patience=2)
    fresh.restore(*stopping.state())
    assert fresh.finished and fresh.score == float("inf") and not fresh.best


def test_restored_it_goes_on() -> None:
    stopping, one = EarlyStopping(patience=2), module(1.0)
    stopping.add(0.1 + 0.2, {"one": one})
    stopping.add(4.0, {"one": one})
    tensors, rest = stopping.state()
    fresh = EarlyStopping(patience=2)
    fresh.restore({name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(rest)))
    assert (fresh.score, fresh.since) == (stopping.score, 1)
    other = module(9.0)
    fresh.rewind({"one": other})
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))
    fresh.add(0.5, {"one": other})
    assert fresh.finished
