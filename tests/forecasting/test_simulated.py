"""Calibration of simulations: what is believed of a movement, bands against what happened, ranks of paths, state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from streamgp.base import FLOAT, Shape
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.simulated import GRID, PRIOR, Paths, SimulationBands

SHAPE = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
LEVELS = Calibration((80.0, 95.0))


class World:
    """Random walks of unit steps from 10, simulated by paths with a drift and steps of another size."""

    def __init__(self, steps: int, drift: float = 0.0, wide: float = 1.0, seed: int = 0) -> None:
        self.steps, self.drift, self.wide = steps, drift, wide
        self.generator = torch.Generator().manual_seed(seed)

    def walks(self, *size: int) -> Tensor:
        return torch.randn(*size, self.steps, 1, generator=self.generator, dtype=FLOAT).cumsum(-2)

    def paths(self, count: int, paths: int = 40) -> Paths:
        ahead = torch.arange(1, self.steps + 1, dtype=FLOAT)[:, None]
        first = torch.full((count, 1), 10.0, dtype=FLOAT)
        series = torch.zeros(count, dtype=torch.int64)
        return Paths(series, first, 10.0 + self.drift * ahead + self.wide * self.walks(paths, count))

    def truth(self, count: int) -> Tensor:
        return 10.0 + self.walks(count)


def learned(world: World, rounds: int, each: int = 16, steps: int | None = None) -> SimulationBands:
    bands = SimulationBands(SHAPE, steps or world.steps, LEVELS)
    for _ in range(rounds):
        bands.learn(world.paths(each), world.truth(each))
    return bands


def test_a_drift_is_not_believed_and_a_movement_that_comes_is() -> None:
    """The dead zone is that of a dense search; a drift lies in it, and of paths that are right there is none."""
    world = World(8, drift=3.0)
    simulated, truth = world.paths(60), world.truth(60)
    bands = SimulationBands(SHAPE, 8, LEVELS)
    bands.learn(simulated, truth)
    mean, spread = simulated.y.mean(0)[..., 0].numpy() - 10.0, simulated.y.std(0)[..., 0].numpy()
    y = truth[..., 0].numpy() - 10.0
    tried = [np.sign(mean) * np.maximum(np.abs(mean) - zone * spread, 0) for zone in GRID[:-1]] + [0 * mean]
    loss = np.stack([np.abs(y - one).sum(0) for one in tried], -1)  # (steps, grid)
    loss = loss / (loss.min(-1, keepdims=True) / 60) + PRIOR * np.linspace(0, 1, len(GRID))
    near = np.concatenate([loss[:1], loss, loss[-1:]])
    assert_allclose(bands.dead_zone()[0], GRID[(0.25 * near[:-2] + 0.5 * loss + 0.25 * near[2:]).argmin(-1)])
    centre = bands.calibrated(world.paths(100), (0.5,)).mean
    assert ((centre - 10).abs().mean((0, 2)) < 0.2 * 3.0 * torch.arange(1, 9)).all()
    moving = SimulationBands(SHAPE, 8, LEVELS)
    ahead = 3.0 * torch.arange(1, 9, dtype=FLOAT)[:, None]
    for _ in range(5):
        moving.learn(world.paths(20), world.truth(20) + ahead)
    assert (moving.dead_zone() <= 0.2).all()


@pytest.mark.sampled
@pytest.mark.parametrize("wide", [0.2, 5.0])
def test_bands_cover_what_happened_where_those_of_the_paths_do_not(wide: float) -> None:
    world = World(30, drift=1.0, wide=wide)
    bands = learned(world, 40)
    simulated, truth = world.paths(300, 50), world.truth(300)
    low, high = bands.calibrated(simulated, (0.1, 0.9)).quantiles
    covered = ((low <= truth) & (truth <= high)).double().mean((0, 2))  # by step
    assert covered.min() >= 0.68 and covered.max() <= 0.92 and 0.74 <= covered.mean() <= 0.86
    steps: Any = bands.summary()["steps"]
    assert bands.summary()["scored"] == 640
    assert abs(steps[-1]["coverage"]["80"] - 0.8) < abs(steps[-1]["raw_coverage"]["80"] - 0.8)
    assert steps[-1]["rmse"] < steps[-1]["raw_rmse"]


def test_scores_are_of_what_was_known_before() -> None:
    """The first round is scored with no calibration at all: its centre is the mean of the paths."""
    world = World(4, drift=2.0)
    simulated, truth = world.paths(10), world.truth(10)
    bands = SimulationBands(SHAPE, 4, LEVELS)
    bands.learn(simulated, truth)
    steps: Any = bands.summary()["steps"]
    error = simulated.y.mean(0) - truth
    assert_allclose([row["rmse"] for row in steps], error.square().mean((0, 2)).sqrt())
    assert_allclose([row["raw_rmse"] for row in steps], [row["rmse"] for row in steps])
    assert_allclose([row["persistence_rmse"] for row in steps], (truth - 10).square().mean((0, 2)).sqrt())
    low, high = np.quantile(simulated.y.numpy(), [0.1, 0.9], axis=0, method="weibull")
    held = ((low <= truth.numpy()) & (truth.numpy() <= high)).mean((0, 2))
    assert_allclose([row["raw_coverage"]["80"] for row in steps], held)


def test_paths_keep_their_ranks_and_have_the_calibrated_quantiles() -> None:
    world = World(60, drift=0.5, wide=0.3)
    bands = learned(world, 10)
    simulated = world.paths(3, 99)
    found = bands.paths(simulated)
    assert torch.equal(found.argsort(0), simulated.y.argsort(0))
    wanted = bands.calibrated(simulated, (0.05, 0.5, 0.95)).quantiles
    got = np.quantile(found.numpy(), [0.05, 0.5, 0.95], axis=0, method="weibull")
    assert_allclose(got, wanted.numpy(), rtol=1e-9)
    shorter = simulated._replace(y=simulated.y[:, :, :7])
    assert_allclose(bands.calibrated(shorter, (0.5,)).mean, bands.calibrated(simulated, (0.5,)).mean[:, :7])


def test_what_rose_says_how_far_the_like_falls() -> None:
    """After rises alone, bands of mirrored paths are the mirrored bands; beyond its bounds a target has none."""
    world = World(12, drift=2.0)
    bands, bounded = (SimulationBands(SHAPE, 12, Calibration((80.0, 95.0), lower=lower)) for lower in (None, 9.0))
    for _ in range(12):
        simulated, truth = world.paths(16), world.truth(16) + 3.0 * torch.arange(1, 13, dtype=FLOAT)[:, None]
        for each in (bands, bounded):
            each.learn(simulated, truth)
    rising = world.paths(5)
    falling = rising._replace(y=2 * rising.first[:, None] - rising.y)
    up, down = (bands.calibrated(one, (0.1, 0.3, 0.9)) for one in (rising, falling))
    lo, hi = up.quantiles[0] - rising.first[:, None], up.quantiles[2] - rising.first[:, None]
    assert (hi > 0).all() and (hi + lo).mean() > 1
    assert_allclose(down.quantiles[[0, 2]], 20.0 - up.quantiles[[2, 0]], rtol=1e-9)
    assert_allclose(down.mean, 20.0 - up.mean, rtol=1e-9)
    assert_allclose(bounded.calibrated(falling, (0.3,)).quantiles, down.quantiles[1:2].clamp(min=9.0), rtol=1e-9)


def test_few_rounds_whose_simulations_are_alike_leave_the_bands_wide() -> None:
    """Each round has one error, that of all its simulations: bands of 95 % cover the next one."""
    held, steps = [], 6
    for seed in range(60):
        world = World(steps, seed=seed)
        bands = SimulationBands(SHAPE, steps, LEVELS)
        for _ in range(2):
            bands.learn(world.paths(16, 40), world.truth(1).expand(16, -1, -1))
        low, high = bands.calibrated(world.paths(1), (0.025, 0.975)).quantiles
        truth = world.truth(1)
        held.append(((low <= truth) & (truth <= high))[0, -1, 0].item())
    assert np.mean(held) >= 0.9


def test_missing_truths_teach_nothing_and_two_targets_are_each_alone() -> None:
    world = World(5, drift=1.0)
    shape = Shape(targets=("y", "z"), horizon=1, lags=1, past=("y", "z"), future=())
    both, alone = SimulationBands(shape, 5, LEVELS), SimulationBands(SHAPE, 5, LEVELS)
    for _ in range(6):
        simulated, truth = world.paths(20), world.truth(20)
        truth[3:, 4] = torch.nan
        alone.learn(simulated, truth)
        nothing = torch.full_like(truth, torch.nan)
        twice = Paths(simulated.series, simulated.first.repeat(1, 2), simulated.y.repeat(1, 1, 1, 2))
        both.learn(twice, torch.cat([truth, nothing], -1))
    assert_allclose(both.dead_zone()[0], alone.dead_zone()[0])
    assert (both.dead_zone()[1] == 0).all()
    found, wanted = (bands.summary() for bands in (both, alone))
    assert found["scored"] == wanted["scored"] == 120
    steps: Any = zip(found["steps"], wanted["steps"], strict=True)  # type: ignore[arg-type]
    for one, other in steps:
        for name in ("step", "rmse", "raw_rmse", "persistence_rmse"):
            assert one[name] == pytest.approx(other[name], rel=1e-12)


def test_state_and_restore() -> None:
    world = World(40, drift=1.0)
    one, two = learned(world, 4), SimulationBands(SHAPE, 40, LEVELS)
    two.restore(*one.state())
    simulated, truth = world.paths(8), world.truth(8)
    for bands in (one, two):
        bands.learn(simulated, truth)
    for name, tensor in one.state()[0].items():
        assert torch.equal(tensor, two.state()[0][name]), name
    assert torch.equal(one.paths(simulated), two.paths(simulated))
