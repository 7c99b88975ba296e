"""Many linear models in one: each is the model that it would be alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.models.linear import Config, Linear, LinearFleet
from streamgp.testing.stateful import check_stateful, same_bits

SHAPE = Shape(targets=("y", "z"), horizon=2, lags=3, past=("y", "z", "u"), future=("k",))
SERIES = 5
CONFIGS: list[dict[str, Any]] = [{}, {"memory": 200.0}, {"ridge": 3.0, "predictive": "student_t"}, {"limit": None}]


def batch(seed: int, rows: int, wild: bool = False) -> tuple[Inputs, Tensor, Tensor]:
    """Windows of some of the series, each of its own size, their truths with gaps, and their codes."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=FLOAT)

    series = torch.randint(SERIES, (rows,), generator=generator)
    size = 10.0 ** (series.to(FLOAT) - 2.0)
    x = Inputs(normal(rows, 3, 3) * size[:, None, None], normal(rows, 2, 1))
    y = 0.9 * x.past[:, -1, :2].repeat_interleave(2, 1) + (0.3 * normal(rows, 4) + x.future[:, :1, 0]) * size[:, None]
    y[torch.rand(y.shape, generator=generator) < 0.05] = torch.nan
    if wild:
        y[torch.rand(rows, generator=generator) < 0.02] *= 1e6
        x.past[torch.rand(rows, generator=generator) < 0.01, -1, 0] = 1e170
    return x, y, series


def nothing(y: Tensor) -> Tensor:
    return y.new_zeros(3, len(y), SHAPE.columns)


@pytest.mark.parametrize("seed", [0, 1000])
@pytest.mark.parametrize("options", CONFIGS)
def test_each_model_is_the_one_that_it_would_be_alone(options: dict[str, Any], seed: int) -> None:
    config = Config(**options)
    fleet, alone = LinearFleet(config, SHAPE), [Linear(config, SHAPE) for _ in range(SERIES)]
    for turn, rows in enumerate((400, 90, 7, 300, 300, 40)):
        x, y, series = batch(seed + turn, rows, wild=turn > 2)
        steps = fleet.update(x, y, series, nothing(y)) if turn else fleet.fit(x, y, series)
        for code, step in zip(series.unique().tolist(), steps, strict=True):
            own, model = series == code, alone[code]
            expected = model.update(x.rows(own), y[own]) if turn else next(iter(model.fit(x.rows(own), y[own], 1)))
            assert step[1:] == expected[1:]
            assert step.loss == pytest.approx(expected.loss, rel=1e-8, abs=1e-8, nan_ok=True)
        x, _, series = batch(seed + 100, 50)
        found = fleet.predict(x, series)
        for code in range(SERIES):
            own, size = series == code, 10.0 ** (code - 2)
            expected_here = alone[code].predict(x.rows(own)).parameters()
            torch.testing.assert_close(found[:, own], expected_here, rtol=1e-8, atol=1e-9 * size)


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
