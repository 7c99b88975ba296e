"""Hinges of `linear` where simulations are planned: sums stay those of all rows, whatever the order of the knots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from streamgp.base import Inputs, Shape
from streamgp.models import linear
from streamgp.models.linear.hinges import KNOTS, Hinges
from streamgp.testing import SHAPES, check_model

SHAPE = Shape(targets=("y",), horizon=1, lags=2, past=("y", "u"), future=("u",), simulated=50)


def windows(values: Tensor) -> Inputs:
    """Windows whose newest target is `values` (N,), and whose input is half of it."""
    past = torch.stack([values, values / 2], 1)[:, None].expand(-1, 2, -1)
    return Inputs(past, values[:, None, None] / 2)


def test_laws() -> None:
    shapes = [replace(shape, horizon=1, simulated=20) for shape in SHAPES if shape.context is None]
    check_model(lambda shape: linear.build(linear.Config(), shape), [SHAPE, *shapes])


def test_knots_follow_the_range_and_rows_before_had_nothing_there() -> None:
    """A column that is another one is 0 on all rows but the outermost of each batch."""
    g = torch.Generator().manual_seed(0)
    hinges, seen = Hinges(SHAPE), torch.zeros(0, dtype=torch.float64)
    for place in range(30):
        values = torch.randn(256, generator=g, dtype=torch.float64) + place * (1 if place < 15 else -2)
        changed = hinges.follow(windows(values)).view(2, KNOTS)
        columns = hinges(windows(torch.cat([seen, values]))).unflatten(1, (2, KNOTS))
        if place:
            moved = (columns[: len(seen)] > 0) & changed
            assert moved.any(1).to(torch.float64).mean() < 0.02
        for knots, sides, (low, high) in zip(hinges.knots, hinges.sides, hinges.ends.T, strict=True):
            placed = knots[sides != 0]
            assert KNOTS / 4 <= len(placed) <= KNOTS and low < placed.min() and placed.max() < high
            step = placed.sort().values.diff()
            assert (step == step[0]).all() and np.log2(float(step[0])) % 1 == 0
        seen = torch.cat([seen, values])
    wild = values.clone()
    wild[7] = 1e9
    before = hinges.ends.clone()
    assert not hinges.follow(windows(wild)).any() and torch.equal(hinges.ends, before)


def test_sums_are_those_of_all_rows_at_once() -> None:
    """A range that grows batch by batch, without a row beyond an earlier end: as if the knots had always been there."""
    g = np.random.default_rng(1)
    model = linear.build(linear.Config(limit=None), SHAPE)
    rows = []
    for place in range(6):
        values = np.clip(g.normal(size=400) * 3, -1 - place, 1 + place)
        values[:20] = np.repeat([-1.0 - place, 1.0 + place], 10)
        x = windows(torch.from_numpy(values))
        model.update(x, torch.from_numpy(values + np.abs(values) + 0.01 * g.normal(size=400))[:, None])
        rows.append(x)
    assert model.hinges is not None
    whole = model.hinges(Inputs.cat(rows))
    torch.testing.assert_close(model.state()[0]["gram"][-2 * KNOTS :, -2 * KNOTS :], whole.T @ whole)


def test_a_kink_is_found_where_simulations_are_planned() -> None:
    """y + |y|: a straight line is far off, the hinges are not."""
    g = np.random.default_rng(2)
    values = torch.from_numpy(4 * g.normal(size=2000))
    x, y = windows(values), (values + values.abs())[:, None]
    errors = []
    for shape in (SHAPE, replace(SHAPE, simulated=0)):
        model = linear.build(linear.Config(), shape)
        model.update(x, y)
        errors.append(float((model.predict(x).mean - y).abs().mean()))
    assert errors[0] < 0.1 * errors[1]


def test_functions_stay_near_the_range_seen() -> None:
    g = torch.Generator().manual_seed(3)
    values = torch.randn(500, generator=g, dtype=torch.float64)
    model = linear.build(linear.Config(), SHAPE)
    model.update(windows(values), 1.5 * values[:, None])
    draw, y = model.functions(8, g), values[:8] * 0 + 2.0
    for _ in range(60):
        y = draw(windows(y))[:, 0]
    assert y.abs().max() < 20
