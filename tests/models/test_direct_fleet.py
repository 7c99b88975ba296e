"""Many direct regressions in one: each is the model that it would be alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.context import Context
from streamgp.models.linear import Config, DirectFleet, build_fleet
from streamgp.testing.models import SEASONS, example_windows
from streamgp.testing.stateful import check_stateful, same_bits

SERIES, ROWS = 4, 420


def fleet_of(shape: Shape = SEASONS, **options: Any) -> DirectFleet:
    found = build_fleet(Config(**options), shape, torch.device("cpu"))
    assert isinstance(found, DirectFleet)
    return found


def stream(shape: Shape, seed: int = 0) -> tuple[Inputs, Tensor, Tensor]:
    """Windows of series of different size, their truths with gaps and glitches, and their codes, in order of time: the
    third begins late, and the known input of the last is a flag."""
    parts, generator = [], torch.Generator().manual_seed(seed)
    for code in range(SERIES):
        x, y = example_windows(shape, ROWS, seed=seed + code)
        assert shape.context is not None and x.context is not None
        if code == SERIES - 1 and shape.context.known:
            known, count = len(shape.targets) + 1, len(shape.context.window)
            steps = [entry.channel == known for entry in shape.context.steps] + [False] * Context.PHASES
            flag = [entry.channel == known for entry in shape.context.window] + steps * shape.horizon
            assert any(flag) and len(flag) == count + shape.horizon * len(steps)
            x.context[:, flag] = (x.context[:, flag] > 0).to(FLOAT)
        y[torch.rand(y.shape, generator=generator) < 0.03] = torch.nan
        y[torch.rand(ROWS, generator=generator) < 0.01] *= 1e4
        parts.append((x, y))
    series = torch.arange(SERIES).repeat(ROWS)
    place = torch.arange(ROWS).repeat_interleave(SERIES)
    order, stays = series * ROWS + place, (series != 2) | (place > 260)
    x, y = Inputs.cat([part[0] for part in parts]).rows(order), torch.cat([part[1] for part in parts])[order]
    return x.rows(stays), y[stays], series[stays]


def test_a_series_that_is_not_there_keeps_its_bits() -> None:
    fleet, (x, y, series) = fleet_of(), stream(SEASONS)
    fleet.fit(x, y, series)
    before, there = fleet.state()[0], series == 1
    fleet.update(x.rows(there), y[there], series[there], None)
    after = fleet.state()[0]
    changed = {name for name, part in before.items() if not same_bits(part, after[name])}
    assert "0.regression.sums.gram" in changed and not any(name.startswith("1.") for name in changed)
    rows = [bool((before["0.rows"][at] != after["0.rows"][at]).any()) for at in range(3)]
    assert rows == [False, True, False]


def test_sums_that_overflow_change_nothing_of_their_series_and_are_told() -> None:
    fleet, (x, y, series) = fleet_of(), stream(SEASONS)
    fleet.fit(x, y, series)
    tensors, rest = fleet.state()
    tensors["0.regression.sums.passed"][1] = 1.0
    tensors["0.regression.sums.new_gram"][1] = 1.7e308
    tensors["0.regression.sums.new_cross"][1] = torch.inf
    fleet.restore(tensors, rest)
    steps = fleet.update(x, y, series, fleet.predict(x, series))
    assert [step.healthy for step in steps] == [True, False, True, True] and "undone" in steps[1].done
    after = fleet.state()[0]
    same = [same_bits(tensors["0.mixer.moments"][at], after["0.mixer.moments"][at]) for at in range(3)]
    assert same == [False, True, False]


@pytest.mark.slow
def test_it_goes_on_from_its_state_bit_for_bit() -> None:
    x, y, series = stream(SEASONS)

    def advance(fleet: DirectFleet, turn: int) -> Tensor:
        rows = slice(200 * turn, 200 * turn + 200)
        issued = fleet.predict(x.rows(rows), series[rows])
        fleet.update(x.rows(rows), y[rows], series[rows], issued)
        return fleet.predict(x, series)

    check_stateful(fleet_of, advance, 5, torch.equal)


def test_truths_that_are_missing_are_no_glitches_of_their_series() -> None:
    x, y, series = stream(SEASONS)
    y = torch.where(y.abs() > 1e3, torch.nan, y)
    y[::50] = torch.nan
    assert all(step.healthy for step in fleet_of(SEASONS).fit(x, y, series))
