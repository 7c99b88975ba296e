"""Beside an encoder: what it sees, the mean function, the newest windows, staleness, the state of parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from streamgp import registry
from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import UsageError
from streamgp.models.deep.staleness import MEMORY, Staleness
from streamgp.online.model import StreamModel
from streamgp.online.recent import RecentWindows
from streamgp.state import gather, scatter
from streamgp.testing.models import SHAPES, example_windows
from streamgp.testing.stateful import same_bits

TWO = SHAPES[1]  # two targets, a season, an input and a known input


def narx(shape: Shape, **options: Any) -> StreamModel:
    module = registry.load("models", "narx")
    made: StreamModel = module.build(
        module.Config(**{"validation": 0.0, "epochs": 1, "target": "level", **options}), shape
    )
    return made


def test_regression_sees_inputs_alone() -> None:
    model = narx(TWO, mode="regression")
    x, y = example_windows(TWO, 100)
    list(model.fit(x, y, 1))
    assert model.inputs.layout == (4, 2, 3, 1)  # u and k of four lags, k of three steps
    other = Inputs(x.past.clone(), x.future.clone())
    other.past[..., [0, 1, 4, 5]] += 7.0  # both targets and their seasons
    other.future[..., :2] -= 3.0
    assert torch.equal(model.inputs(x), model.inputs(other))
    assert torch.equal(model.predict(x).parameters(), model.predict(other).parameters())
    past, future = model.inputs.layout.split(model.inputs(x))
    torch.testing.assert_close(past, model.inputs.scaling.past.transform(x.past)[..., [2, 3]])
    torch.testing.assert_close(future, model.inputs.scaling.future.transform(x.future)[..., [2]].flatten(1))


@pytest.mark.parametrize(
    ("shape", "options"),
    [(SHAPES[0], {"mode": "regression"}), (TWO, {"mode": "regression", "target": "change"})],  # no inputs
    ids=str,
)
def test_what_does_not_go_together_is_refused(shape: Shape, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        narx(shape, **{"target": "auto", **options})
    assert refused.value.hint


@given(sizes=st.lists(st.integers(0, 9), max_size=8), capacity=st.integers(1, 12))
def test_the_newest_windows_in_their_order(sizes: list[int], capacity: int) -> None:
    recent = RecentWindows(capacity, SHAPES[0])
    every = torch.arange(float(sum(sizes)), dtype=FLOAT)
    for part in every.split(sizes) if sizes else ():
        past = part[:, None, None].expand(-1, 3, 1)
        recent.push(Inputs(past, past[:, :1, :0]), part[:, None])
    x, y = recent.rows()
    wanted = every[max(len(every) - capacity, 0) :]
    assert torch.equal(y[:, 0], wanted) and torch.equal(x.past[:, 2, 0], wanted)
    assert int(recent.seen) == len(every) and recent.capacity == capacity


def test_staleness_is_an_exponential_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    squares = torch.randn(4000, 2, generator=generator, dtype=FLOAT).square()
    squares[3800:] *= 4
    staleness, told = Staleness(2.0), []
    for batch in squares.split(20):
        staleness.add(batch)
        told.append(staleness.stale)
    weight = torch.exp(-(torch.arange(4000).flip(0) // 20 * 20) / MEMORY)
    rows, total = staleness.sums.tolist()
    assert total / rows == pytest.approx(((weight * squares.mean(1)).sum() / weight.sum()).item())
    assert not any(told[:190]) and told[-1]
    staleness.calm()
    assert not staleness.stale
    staleness.add(torch.full((5, 2), torch.nan))
    staleness.add(torch.full((40, 2), 9.0))
    assert not staleness.stale, "so few rows say nothing"
    staleness.add(torch.full((40, 2), 9.0))
    assert staleness.stale


def test_state_of_parts_round_trips() -> None:
    def parts() -> dict[str, nn.Module | torch.Tensor | Staleness]:
        return {"net": nn.Linear(2, 2), "noise": torch.rand(3), "staleness": Staleness(2.0)}

    one, other = parts(), parts()
    one["staleness"].add(torch.ones(4, 1))  # type: ignore[union-attr, operator]
    scatter(other, *gather(one))
    first, second = gather(one)[0], gather(other)[0]
    assert first.keys() == second.keys() and all(same_bits(first[name], second[name]) for name in first)
