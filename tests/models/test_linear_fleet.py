"""Many linear models in one: each is the model that it would be alone."""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.models.linear import Config, LinearFleet
from streamgp.testing.stateful import check_stateful, same_bits

SHAPE = Shape(targets=("y", "z"), horizon=2, lags=3, past=("y", "z", "u"), future=("k",))
SERIES = 5


def batch(seed: int, rows: int) -> tuple[Inputs, Tensor, Tensor]:
    """Windows of some of the series, each of its own size, their truths with gaps, and their codes."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=FLOAT)

    series = torch.randint(SERIES, (rows,), generator=generator)
    size = 10.0 ** (series.to(FLOAT) - 2.0)
    x = Inputs(normal(rows, 3, 3) * size[:, None, None], normal(rows, 2, 1))
    y = 0.9 * x.past[:, -1, :2].repeat_interleave(2, 1) + (0.3 * normal(rows, 4) + x.future[:, :1, 0]) * size[:, None]
    y[torch.rand(y.shape, generator=generator) < 0.05] = torch.nan
    return x, y, series


def nothing(y: Tensor) -> Tensor:
    return y.new_zeros(3, len(y), SHAPE.columns)


def test_a_series_that_is_not_there_keeps_its_bits() -> None:
    fleet = LinearFleet(Config(), SHAPE)
    x, y, series = batch(0, 400)
    fleet.fit(x, y, series)
    before = fleet.state()[0]
    there = series > 1
    fleet.update(x.rows(there), y[there], series[there], nothing(y[there]))
    after = fleet.state()[0]
    assert all(same_bits(part[:2], after[name][:2]) for name, part in before.items())
    assert not any(same_bits(before["gram"][code], after["gram"][code]) for code in (2, 3, 4))


def test_sums_that_overflow_change_nothing_of_their_series_and_are_told() -> None:
    fleet = LinearFleet(Config(limit=None), SHAPE)
    x, y, series = batch(0, 400)
    fleet.fit(x, y, series)
    before = fleet.state()[0]
    tensors = fleet.state()[0]
    tensors["gram"][3] = 1.7e308
    fleet.restore(tensors, {})
    steps = fleet.update(x, y, series, nothing(y))
    assert [step.healthy for step in steps] == [True, True, True, False, True] and "undone" in steps[3].done
    assert same_bits(before["cross"][3], fleet.state()[0]["cross"][3])


def test_it_goes_on_from_its_state_bit_for_bit() -> None:
    def advance(fleet: LinearFleet, turn: int) -> Tensor:
        x, y, series = batch(turn, 60)
        fleet.update(x, y, series, nothing(y))
        return fleet.predict(x, series)

    check_stateful(lambda: LinearFleet(Config(), SHAPE), advance, 6, torch.equal)
