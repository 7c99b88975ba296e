"""Bands: calibrated in the long run and in every tenth, nested, honest about what was issued, robust to a spike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from streamgp.base import Shape
from streamgp.forecasting.bands import Bands
from streamgp.predictives.gaussian import Gaussian
from streamgp.predictives.student_t import StudentT
from streamgp.testing import check_stateful
from tests.forecasting.frames import SHAPE, due_of, frame

LEVELS = (80.0, 95.0)


def stream(bands: Bands, shape: Shape, noise: Callable[[np.ndarray], np.ndarray], rows: int, batch: int) -> np.ndarray:
    """Play `rows` truths a column through the bands, N(0, 1) issued; (levels, rows, T) whether inside."""
    columns, inside = shape.columns, []
    one = torch.ones(batch * columns, 1, dtype=torch.float64)
    for start in range(0, rows, batch):
        y = torch.from_numpy(noise(np.arange(start, start + batch)[:, None] + np.zeros(columns)).reshape(-1))
        column = torch.arange(columns).repeat(batch)
        factors = bands.factors()[:, column]
        half = torch.special.ndtri(torch.tensor([0.9, 0.975], dtype=torch.float64))[:, None]
        inside.append((y.abs() <= factors * half).reshape(2, batch, columns))
        bands.update(due_of(Gaussian(0 * one, 0 * one, one), y, column, factors))
    return torch.cat(inside, 1).numpy()


def scaled(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    return lambda row: 3.0 * rng.normal(size=row.shape)


def heavy(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    return lambda row: rng.standard_t(2.5, size=row.shape)


def drifting(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    return lambda row: np.exp(np.sin(2 * np.pi * row / 8000)) * rng.normal(size=row.shape)


def jumping(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    return lambda row: np.where(row % 6000 < 3000, 0.5, 2.0) * rng.normal(size=row.shape)


@pytest.mark.parametrize("make", [scaled, heavy, drifting, jumping])
def test_coverage_overall_and_in_every_tenth(make: Callable[..., Callable[[np.ndarray], np.ndarray]]) -> None:
    rows = 16_000
    inside = stream(Bands(SHAPE, LEVELS), SHAPE, make(np.random.default_rng(0)), rows, 128)
    tenths = inside[:, : rows // 10 * 10].reshape(2, 10, -1).mean(2)
    assert np.abs(inside.mean((1, 2)) - [0.8, 0.95]).max() < 0.02
    assert tenths[1].min() > 0.90
    assert np.abs(inside[1].mean(0) - 0.95).max() < 0.02  # every column of its own


def test_the_scale_is_that_of_the_raw_residuals() -> None:
    """Without tracking, s is the weighted root mean square of z with its prior, whatever was issued."""
    bands = Bands(SHAPE, LEVELS, window=50.0, rate=0.0)
    sums, prior = np.zeros((2, 6)), 20
    for seed in range(5):
        data, window = frame(60, seed), min(50, max(10 * (seed + 1) / 4, 3))  # ten truths a column and batch
        z = (data["y"] - data["mean"]) / np.sqrt(data["latent"] + data["noise"])
        count = np.bincount(data["column"], minlength=6)
        sums = np.exp(-count / window) * sums + [count, np.bincount(data["column"], z**2, 6)]
        parts = [torch.from_numpy(data[name])[:, None] for name in ("mean", "latent", "noise")]
        y, column = torch.from_numpy(data["y"]), torch.from_numpy(data["column"])
        bands.update(due_of(Gaussian(*parts), y, column, torch.from_numpy(data["factors"])))
    weight, square = sums.reshape(2, 2, 3)
    pool = (square.mean(1, keepdims=True) + prior) / (weight.mean(1, keepdims=True) + prior)
    wanted = np.sqrt((square + prior * pool) / (weight + prior)).reshape(-1)
    np.testing.assert_allclose(bands.factors().numpy(), np.stack([wanted, wanted]))


def test_bands_are_nested_whatever_the_order_of_the_levels() -> None:
    rng = np.random.default_rng(1)
    bands = Bands(SHAPE, (95.0, 80.0), rate=0.2)  # a rate that makes the levels cross
    half = torch.special.ndtri(torch.tensor([0.975, 0.9], dtype=torch.float64))[:, None]
    crossed = False
    for _ in range(100):
        y = torch.from_numpy(rng.normal(size=60) * rng.choice([0.2, 3.0]))
        column = torch.from_numpy(rng.integers(0, 6, 60))
        distance = bands.factors() * half
        assert (distance[0] >= distance[1]).all()
        crossed |= bool((np.exp(bands._theta[0] - bands._theta[1]) < float(half[1, 0] / half[0, 0])).any())
        one = torch.ones(60, 1, dtype=torch.float64)
        bands.update(due_of(Gaussian(0 * one, 0 * one, one), y, column, bands.factors()[:, column]))
    assert crossed, "the test does not reach what it tests"


def test_one_spike_does_not_widen_the_bands_for_long() -> None:
    bands = Bands(SHAPE, LEVELS)
    rng = np.random.default_rng(2)
    stream(bands, SHAPE, lambda row: rng.normal(size=row.shape), 1280, 128)
    before = bands.factors()
    one = torch.ones(1, 1, dtype=torch.float64)
    spike = torch.tensor([1e6], dtype=torch.float64)
    bands.update(due_of(Gaussian(0 * one, 0 * one, one), spike, torch.tensor([0]), before[:, :1]))
    assert (bands.factors() / before).max() < 1.2


def test_a_certain_forecast_does_not_poison_the_sums() -> None:
    bands = Bands(SHAPE, LEVELS)
    nil = torch.zeros(3, 1, dtype=torch.float64)
    y = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    bands.update(due_of(Gaussian(nil, nil, nil), y, torch.tensor([0, 1, 2]), torch.ones(2, 3, dtype=torch.float64)))
    assert torch.isfinite(bands.factors()).all()


def test_several_series_count_as_so_many_rows_each() -> None:
    """The same truths seen by twelve series in one batch forget no faster than those of one."""
    one, many = Bands(SHAPE, LEVELS), Bands(SHAPE, LEVELS)
    y = torch.from_numpy(np.random.default_rng(3).normal(size=120) * 2)
    column = torch.zeros(120, dtype=torch.int64)
    issued = Gaussian(*(torch.full((120, 1), v, dtype=torch.float64) for v in (0.0, 0.5, 0.5)))
    due = due_of(issued, y, column, torch.ones(2, 120, dtype=torch.float64))
    one.update(due)
    many.update(due._replace(series=torch.arange(120) % 12))
    assert one._age == pytest.approx(20) and many._age == pytest.approx(20 / 12)  # of six columns one was seen
    assert many._theta[0, 0] == pytest.approx(one._theta[0, 0] / 12**2)  # a twelfth of the rows, of the rate too
    before = many._sums[0, 0, 0]
    many.update(due._replace(series=torch.arange(120) % 12))
    assert many._sums[0, 0, 0] == pytest.approx(120 + before * np.exp(-10 / 3))  # ten rows of each


def test_students_t_is_left_alone_where_it_is_right() -> None:
    rows = 20_000
    one = torch.ones(rows, 1, dtype=torch.float64)
    issued = StudentT(0 * one, 2 * one, 6 * one, one)
    y = issued.sample(1, torch.Generator().manual_seed(0))[0, :, 0]
    shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
    bands = Bands(shape, LEVELS)
    for start in range(0, rows, 200):
        part = slice(start, start + 200)
        seen = StudentT.from_parameters(issued.parameters()[:, part])
        nil = torch.zeros(200, dtype=torch.int64)
        bands.update(due_of(seen, y[part], nil, bands.factors().expand(2, 200)))
    assert (bands.factors() - 1).abs().max() < 0.2


def test_state() -> None:
    def advance(bands: Bands, step: int) -> torch.Tensor:
        data = frame(40, step)
        parts = [torch.from_numpy(data[name])[:, None] for name in ("mean", "latent", "noise")]
        y, column = torch.from_numpy(data["y"]), torch.from_numpy(data["column"])
        bands.update(due_of(Gaussian(*parts), y, column, bands.factors()[:, column]))
        return bands.factors()

    check_stateful(lambda: Bands(SHAPE, LEVELS), advance, 5, torch.equal)
