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
from streamgp.models.deep.posterior import RIDGE
from streamgp.models.deep.staleness import Staleness
from streamgp.online.model import StreamModel
from streamgp.online.recent import RecentWindows
from streamgp.online.state import gather, scatter
from streamgp.testing.models import SHAPES, example_windows
from streamgp.testing.stateful import same_bits
from tests.models.deep_toys import deep, residuals

TWO = SHAPES[1]  # two targets, a season, an input and a known input


def narx(shape: Shape, **options: Any) -> StreamModel:
    module = registry.load("models", "narx")
    made: StreamModel = module.build(
        module.Config(**{"validation": 0.0, "epochs": 1, "target": "level", **options}), shape
    )
    return made


def test_the_mean_is_a_ridge_regression_on_standardised_windows() -> None:
    x, y = example_windows(TWO, 300)
    model = narx(TWO, mean="linear")
    list(model.fit(x, y, 1))
    z, target = model.inputs(x), (y - y.mean(0)) / y.std(0, correction=0)
    flat = torch.cat([x.past.flatten(1), x.future.flatten(1)], 1)
    assert z.shape == flat.shape
    centred = z - z.mean(0)
    slope = torch.linalg.solve(centred.T @ centred + RIDGE * torch.eye(z.shape[1], dtype=FLOAT), centred.T @ target)
    left = target - z @ slope
    torch.testing.assert_close(deep(model).mean(z), z @ slope + left.mean(0), rtol=1e-9, atol=1e-9)
    r = residuals(model, x, y)
    torch.testing.assert_close(r.mean(0), torch.zeros(6, dtype=FLOAT), atol=1e-9, rtol=0)
    torch.testing.assert_close(r.square().mean(0), torch.ones(6, dtype=FLOAT))


def test_regression_sees_inputs_alone() -> None:
    model = narx(TWO, mode="regression", mean="linear")
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


def test_staleness_is_a_ratio_of_two_means() -> None:
    generator = torch.Generator().manual_seed(0)
    squares = torch.randn(4000, 2, generator=generator, dtype=FLOAT).square()
    squares[3900:] *= 4
    staleness = Staleness(2.0, short=100, long=1000)
    told = []
    for batch in squares.split(20):
        staleness.add(batch)
        told.append(staleness.stale)
    rows = torch.arange(4000).flip(0) // 20 * 20
    means = [(torch.exp(-rows / m) * squares.mean(1)).sum() / torch.exp(-rows / m).sum() for m in (100.0, 1000.0)]
    near, far = (staleness.sums[:, 1] / staleness.sums[:, 0]).tolist()
    assert near == pytest.approx(means[0].item()) and far == pytest.approx(means[1].item())
    assert not any(told[:195]) and told[-1]
    before = torch.exp(-rows / 1000.0) - torch.exp(-rows / 100.0)
    weight, square = (staleness.sums[1] - staleness.sums[0]).tolist()
    assert square / weight == pytest.approx(((before * squares.mean(1)).sum() / before.sum()).item())
    staleness.calm()
    assert not staleness.stale
    staleness.add(torch.full((5, 2), torch.nan))
    assert not staleness.stale


def test_a_jump_in_a_young_stream_does_not_hide_itself() -> None:
    """400 rows: the long run's mean would follow the jump almost as fast as the short run's."""
    staleness = Staleness(2.0)
    told = []
    for square in [1.0] * 20 + [9.0] * 5:
        staleness.add(torch.full((20, 1), square))
        told.append(staleness.stale)
    assert not any(told[:20]) and told[-1]


def test_state_of_parts_round_trips() -> None:
    def parts() -> dict[str, nn.Module | torch.Tensor | Staleness]:
        return {"net": nn.Linear(2, 2), "noise": torch.rand(3), "staleness": Staleness(2.0)}

    one, other = parts(), parts()
    one["staleness"].add(torch.ones(4, 1))  # type: ignore[union-attr, operator]
    scatter(other, *gather(one))
    first, second = gather(one)[0], gather(other)[0]
    assert first.keys() == second.keys() and all(same_bits(first[name], second[name]) for name in first)
