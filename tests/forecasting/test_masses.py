"""Masses: found where values repeat and nowhere else; quantiles and CRPS as in closed form; probabilities that hold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri

from streamgp.base import Due, Inputs, Shape
from streamgp.forecasting import bands as bands_module
from streamgp.forecasting.bands import Bands, Questions
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.masses import AtOrigin, Masses
from streamgp.forecasting.quantiles import crps
from streamgp.forecasting.volatility import Errors
from streamgp.predictives.gaussian import Gaussian
from streamgp.testing import check_stateful

ROWS, BATCH, LAGS = 4000, 64, 20
CALIBRATION = Calibration((80.0, 95.0))
SHAPE = Shape(targets=("y",), horizon=1, lags=LAGS, past=("y",), future=())


def stops(rng: np.random.Generator, rows: int) -> np.ndarray:
    """0 while a chain stands, else about 5 around 10: it starts with probability 0.1 and stops with 0.05."""
    draws, moving = rng.random(rows), np.zeros(rows, bool)
    for t in range(1, rows):
        moving[t] = draws[t] >= 0.05 if moving[t - 1] else draws[t] < 0.1
    return np.where(moving, rng.normal(10.0, 2.0, rows), 0.0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("continuous", []), ("rounded", []), ("ladder", []), ("zeros", [0.0]), ("valve", [0.0, 100.0])],
)
def test_a_mass_is_a_value_that_repeats_more_than_its_neighbours(name: str, expected: list[float]) -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(50.0, 20.0, 4000)
    streams = {
        "continuous": y,
        "rounded": y.round(),
        "ladder": (10.0 * rng.integers(1, 9, 4000) + 0.5 * rng.normal(size=4000)).round(1),
        "zeros": np.where(rng.random(4000) < 0.2, 0.0, y),
        "valve": y.clip(0.0, 100.0) if name != "valve" else rng.normal(50.0, 60.0, 4000).clip(0.0, 100.0),
    }
    masses = Masses(1, 1)
    for start in range(0, 4000, BATCH):
        masses.count(0, streams[name][start : start + BATCH])
    assert [masses.value[0, slot] for slot in masses.active(0)] == expected


def test_quantiles_and_crps_of_a_mixture_are_those_in_closed_form() -> None:
    masses, p = Masses(1, 1), np.array([0.3])
    masses.count(0, np.where(np.arange(1000) % 3 > 0, np.linspace(5.0, 9.0, 1000), 0.0))
    grid = np.concatenate([[1e-6], np.linspace(0.0005, 0.9995, 2000), [1 - 1e-6]])
    wanted = np.linspace(0.001, 0.999, 999)
    found = masses.mixture(0, masses.active(0), p[:, None], grid, ndtri(grid)[None] + 1, wanted[None])[0]
    below = 0.7 * ndtr(-1.0)
    exact = np.where(wanted < below, ndtri((wanted / 0.7).clip(0, 1)) + 1, 0.0)
    exact = np.where(wanted > below + 0.3, ndtri(((wanted - 0.3) / 0.7).clip(0, 1)) + 1, exact)
    assert np.abs(found - exact).max() < 0.01
    y, x = 0.4, np.linspace(-8.0, 10.0, 200_001)
    cdf = 0.7 * ndtr(x - 1) + 0.3 * (x >= 0)
    integral = ((cdf - (x >= y)) ** 2).sum() * (x[1] - x[0])
    score = crps(wanted.tolist(), torch.from_numpy(found)[:, None], torch.tensor([y], dtype=torch.float64))
    assert score.item() == pytest.approx(integral, rel=0.01)


def test_probabilities_are_those_of_a_chain() -> None:
    rng = np.random.default_rng(1)
    y, horizon = stops(rng, ROWS), 3
    masses, origin = Masses(1, horizon), np.arange(LAGS, ROWS - horizon)
    transition = np.array([[0.9, 0.1], [0.05, 0.95]])

    def course(at: np.ndarray, step: np.ndarray) -> AtOrigin:
        one = np.ones(len(at))
        return AtOrigin(step, 7.0 * one, 3.0 * one, y[at], 5.0 * one, 0.0 * one)

    for start in range(0, len(origin), BATCH):
        at = origin[start : start + BATCH]
        masses.count(0, y[at + 1])
        row, step = np.repeat(at, horizon), np.tile(np.arange(horizon), len(at))
        masses.learn(0, y[row + step + 1], course(row, step), 0.999)
    (slot,) = masses.active(0)
    for state, at in enumerate((int(np.flatnonzero(y == 0)[-1]), int(np.flatnonzero(y > 0)[-1]))):
        exact = [np.linalg.matrix_power(transition, h + 1)[state, 0] for h in range(horizon)]
        found = masses.probability(0, [slot], course(np.full(horizon, at), np.arange(horizon)))[0]
        assert np.abs(found - exact).max() < 0.06


def dead_zone(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Independent; 0 where it is near 0: a mass that no state foretells."""
    y = rng.normal(size=rows)
    return np.where(np.abs(y) < 0.3, 0.0, y)


def coarse(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Heavy tails in whole numbers: each is a mass."""
    return (2 * rng.standard_t(3, size=rows)).round() + 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("stream", "won"), [(stops, True), (dead_zone, False), (coarse, False)])
def test_masses_are_used_where_they_have_won(
    stream: Callable[[np.random.Generator, int], np.ndarray], won: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    y, found = stream(np.random.default_rng(2), ROWS), []
    late = slice(1500, ROWS - BATCH)
    for earned in (bands_module.EARNED, 1.0, -9.0):  # by evidence, never, always
        monkeypatch.setattr(bands_module, "EARNED", earned)
        quantiles = torch.from_numpy(played(y, Bands(SHAPE, CALIBRATION))[:, late])
        found.append(crps(CALIBRATION.probabilities, quantiles, torch.from_numpy(y[late])).mean().item())
    chosen, never, always = found
    assert (always < 0.9 * never) if won else (never < always)
    assert chosen < 1.001 * min(never, always)


def test_a_stream_without_masses_pays_nothing_for_them() -> None:
    y = np.random.default_rng(3).normal(size=1000)
    bands = Bands(SHAPE, CALIBRATION)
    played(y, bands)
    plain = bands.state()[0]
    played(stops(np.random.default_rng(3), 1000), bands)
    size, more = (sum(tensor.nbytes for tensor in state.values()) for state in (plain, bands.state()[0]))
    assert not any(name.startswith("outside.") for name in plain) and 1.2 * size < more < 2.5 * size


def test_state_with_masses() -> None:
    y = stops(np.random.default_rng(4), 2000)

    def advance(bands: Bands, step: int) -> torch.Tensor:
        return torch.from_numpy(np.nan_to_num(played(y[400 * step : 400 * (step + 1)], bands)))

    check_stateful(lambda: Bands(SHAPE, CALIBRATION), advance, 5, torch.equal)


def test_state() -> None:
    y = stops(np.random.default_rng(1), 1000)

    def advance(masses: Masses, step: int) -> torch.Tensor:
        own = y[100 * step : 100 * (step + 1)]
        masses.count(0, own)
        masses.learn(0, own, AtOrigin(np.zeros(100, np.int64), own, 1 + own, own, 1 + own, own), 0.9)
        return torch.from_numpy(masses.quantile(0, 0, np.array([0.1, 0.9])))

    check_stateful(lambda: Masses(1, 1), advance, 8, torch.equal)


def played(y: np.ndarray, bands: Bands) -> np.ndarray:
    """(Q, N) quantiles one step ahead of forecasts by the mean of the stream, issued row by row."""
    rows = np.arange(LAGS, len(y) - 1)
    quantiles = np.full((len(bands.probabilities), len(y)), np.nan)
    shape, nil = (1,), torch.zeros(0, dtype=torch.int64)
    mean, variance = torch.full((BATCH, 1), float(y.mean())).double(), torch.full((BATCH, 1), float(y.var())).double()
    due = None
    for start in range(0, len(rows) - BATCH, BATCH):
        at = rows[start : start + BATCH]
        past = torch.from_numpy(np.stack([y[at - LAGS + 1 + k] for k in range(LAGS)], 1)[..., None].copy())
        zero, order = torch.zeros(BATCH, dtype=torch.int64), torch.arange(BATCH)
        issued = Gaussian(mean, 0 * variance, variance)
        asked = Questions(zero, order, zero[:, None], issued, past[:, -1], past)
        known = Errors(zero, order[:0], nil, mean[:0, 0]) if due is None else Errors(zero, order, zero, due)
        found = bands.issue(asked, known)
        quantiles[:, at + 1] = found.quantiles[..., 0].numpy()
        truth = torch.from_numpy(y[at + 1].copy())
        due = truth - mean[:, 0]
        none = Inputs(torch.zeros(0, 1, 1).double(), torch.zeros(0, 1, 0).double())
        pair = found.quantiles[..., 0], found.features[..., 0]
        bands.update(
            Due(zero, zero, zero, zero, zero, truth, issued, *pair, none, past[:0, 0], torch.zeros(3, 0, *shape))
        )
    return quantiles


def test_bands_of_a_target_that_stops_have_the_mass_and_hold_beside_it() -> None:
    y = stops(np.random.default_rng(2), ROWS)
    quantiles = played(y, Bands(SHAPE, CALIBRATION))
    rows = np.flatnonzero(~np.isnan(quantiles[0]) & (np.arange(ROWS) > 1500))
    median, stood = quantiles[CALIBRATION.probabilities.index(0.5)], y[rows - 1] == 0
    assert (median[rows[stood]] == 0).mean() > 0.97  # it stands with probability 0.9
    assert np.abs(median[rows[~stood]] - 9.9).mean() < 0.4  # that of 0.05 δ(0) + 0.95 N(10, 2)
    low, high = (quantiles[at[1]][rows] for at in CALIBRATION.ends())
    other = y[rows] > 0
    assert 0.93 < ((y[rows] >= low) & (y[rows] <= high))[other & ~stood].mean() < 0.99
    assert (np.diff(quantiles[:, rows], axis=0) >= 0).all()


def test_outputs_that_are_counted_together_are_counted_as_alone() -> None:
    rng, together, alone = np.random.default_rng(3), Masses(6, 1), Masses(6, 1)
    for _ in range(8):
        units, lengths = np.array([0, 1, 3, 4, 5]), rng.integers(0, 90, 5)
        parts = [
            rng.normal(size=n) if unit % 2 else np.where(rng.random(n) < 0.4, 2.0, rng.normal(size=n))
            for unit, n in zip(units, lengths, strict=True)
        ]
        together.count_each(units, lengths, np.concatenate(parts))
        for unit, part in zip(units.tolist(), parts, strict=True):
            alone.count(unit, part)
    assert together.met.tolist() == [True, False, False, False, True, False]
    for name, part in alone.state()[0].items():
        assert torch.equal(part, together.state()[0][name]), name
