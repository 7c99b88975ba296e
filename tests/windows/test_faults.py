"""Sentinels, dead sensors and spikes: found by what came before, however a stream is cut, and not in clean streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgp.testing.stateful import reborn
from streamgp.windows.faults import Faults
from streamgp.windows.windows import Windows, WindowSpec
from tests.properties import examples

DAY = 24


def found(y: Any, code: Any = None, sizes: Any = None, season: int = DAY, **options: Any) -> tuple[Any, Faults, Any]:
    """What is left of one column or several, read in pieces of these sizes."""
    values = np.asarray(y, float)
    values = values[:, None] if values.ndim == 1 else values
    code = np.zeros(len(values), np.int64) if code is None else code
    given = {"declared": (), "finds": True} | options
    faults = Faults(tuple(f"c{at}" for at in range(values.shape[1])), season, **given)
    out, stuck, start = [], [], 0
    for size in [*(sizes or []), len(values)]:
        rows = slice(start, start + size)
        own = faults.take(code[rows], values[rows])
        out.append(own.values)
        stuck += [(start + one.row, one.code, one.column, one.value) for one in own.stuck]
        start += size
    return np.concatenate(out), faults, stuck


def noise(rows: int, seed: int = 0) -> Any:
    return 50 + 8 * np.sin(2 * np.pi * np.arange(rows) / DAY) + np.random.default_rng(seed).standard_normal(rows)


@pytest.mark.parametrize("value", [-999.0, 9999.0, -9999.0, 999.99, 65535.0, -99.0])
def test_a_sentinel_is_missing_from_the_first_and_said_once(value: float) -> None:
    y = noise(400)
    y[[100, 180, 181, 300]] = value
    out, faults, _ = found(y, season=1)
    assert np.flatnonzero(np.isnan(out[:, 0])).tolist() == [100, 180, 181, 300]
    assert len(faults.said) == 1 and f"{value:.10g}" in faults.said[0]


def test_a_value_that_other_values_come_near_is_none() -> None:
    y = noise(400)
    y[200:] += 950.0  # the level moves, and one row is 999 exactly
    y[[250, 300]] = 999.0
    out, faults, _ = found(y)
    assert not np.isnan(out).any() and not faults.said


def test_declared_values_are_missing_everywhere_and_others_are_values_where_nothing_is_looked_for() -> None:
    y = noise(200)
    y[[0, 60, 90]], y[[70, 80]] = 0.0, -999.0
    out, faults, _ = found(y, declared=(0.0,), finds=False)
    assert np.flatnonzero(np.isnan(out[:, 0])).tolist() == [0, 60, 90] and not faults.said


def test_a_dead_sensor_is_found_after_a_day_and_a_quarter_and_lives_again() -> None:
    y = noise(400)
    y[200:280] = y[200]
    out, faults, stuck = found(y)
    gone = np.flatnonzero(np.isnan(out[:, 0]))
    assert gone.tolist() == list(range(229, 280)) and stuck == [(229, 0, 0, y[200])]
    assert len(faults.said) == 1 and "dead" in faults.said[0]


def test_a_spike_stands_alone_and_a_level_stays() -> None:
    y = noise(800)
    y[[300, 400, 405]] = 1e4, -1e4, 1e4
    y[500:] += 2e4
    y[600] = 80.0  # within all that was seen
    out, faults, _ = found(y, spikes=True)
    assert np.flatnonzero(np.isnan(out[:, 0])).tolist() == [300, 400, 405, 500]
    assert len(faults.said) == 1 and faults.said[0].startswith("c0 is 10000, ")
    out, faults, _ = found(y)
    assert not np.isnan(out).any() and not faults.said


def test_nothing_is_a_spike_before_values_have_moved() -> None:
    flag = np.zeros(600)
    flag[[300, 301, 400]] = 1.0
    early = noise(600)
    early[200] = 1e6
    late = noise(600)
    late[300] = 1e6
    for y, gone in ((flag, []), (early, []), (late, [300])):
        out, _, _ = found(y, spikes=True)
        assert np.flatnonzero(np.isnan(out[:, 0])).tolist() == gone


def clean(seed: int) -> dict[str, Any]:
    """Streams that repeat values, and mean it."""
    generator, rows = np.random.default_rng(seed), 60 * DAY
    sun = np.sin(2 * np.pi * np.arange(rows) / DAY).clip(0) * generator.uniform(0.2, 1, rows)
    rain = np.where(np.repeat(generator.random(rows // 12) < 0.1, 12), generator.exponential(1, rows), 0.0)
    drives = np.repeat(generator.random(rows // 40) < 0.5, 40)
    speed = np.where(drives, np.abs(20 + np.cumsum(generator.standard_normal(rows)) % 40), 0.0)
    set_points = np.repeat(generator.choice([18.0, 21.0, 22.5], rows // 120), 120)
    return {
        "nights": sun,
        "winter": np.where(np.arange(rows) // DAY % 50 < 40, sun, 0.0),
        "rain": rain.round(1),
        "parked": speed,
        "set points": set_points,
        "counts": generator.poisson(2.0, rows),
        "flags": np.repeat(generator.random(rows // DAY) < 0.7, DAY),
        "degrees": (15 + 5 * np.sin(np.arange(rows) / 30)).round(),
        "heavy": generator.standard_t(3, rows).cumsum() / 50 + generator.lognormal(0, 1.5, rows),
        "full": (noise(rows, seed) + np.repeat(generator.normal(0, 30, rows // 60), 60)).clip(30, 70),
    }


@pytest.mark.parametrize("seed", range(3))
def test_clean_streams_are_left_alone(seed: int) -> None:
    for name, y in clean(seed).items():
        out, faults, stuck = found(y, spikes=True)
        assert not np.isnan(out).any() and not faults.said and not stuck, name


@given(data=st.data(), seed=st.integers(0, 10**6))
@examples(40)
def test_however_a_stream_is_cut_it_is_the_same(data: Any, seed: int) -> None:
    generator, rows = np.random.default_rng(seed), 900
    code = generator.integers(0, 2, rows) if seed % 2 else np.zeros(rows, np.int64)
    values = np.stack([noise(rows, seed), generator.standard_normal(rows)], 1)
    begin = int(generator.integers(150, 400))
    values[begin : begin + int(generator.integers(20, 150)), 1] = values[begin, 1]
    values[generator.random(rows) < 0.02, 0] = -999.0
    values[generator.random((rows, 2)) < 0.05] = np.nan
    values[300:330, 0] = np.repeat(values[300:330:3, 0], 3)
    for row in generator.integers(0, rows - 3, 5):
        values[row : row + generator.integers(1, 4), generator.integers(0, 2)] = generator.choice([-5e4, 5e4, 1e6])
    sizes = data.draw(st.lists(st.integers(1, 60), max_size=30))
    out, faults, stuck = found(values, code, sizes, season=5, spikes=True)
    whole, other, all_stuck = found(values, code, season=5, spikes=True)
    np.testing.assert_array_equal(out, whole)
    assert stuck == all_stuck and faults.said == other.said
    for part, own in faults.state(2)[0].items():
        np.testing.assert_array_equal(own, other.state(2)[0][part])


def test_a_run_that_ends_with_a_batch_counts_as_one_before() -> None:
    values = noise(400)[:, None]
    values[300, 0], values[301:330, 0] = values[299, 0], values[330, 0]
    _, faults, _ = found(values, np.zeros(400, np.int64), [301])
    assert "more than 2 before" in faults.said[0]


def test_of_several_series_it_is_said_which_one() -> None:
    """A meter of forty that was replaced by one in another unit has to be found."""
    values = np.sin(np.arange(600.0))[:, None]
    values[500] = 1000.0
    faults = Faults(("kwh",), 1, (), True, spikes=True)
    faults.take(np.arange(600) % 2, values, ["north", "south"])
    assert len(faults.said) == 1 and faults.said[0].startswith("kwh of north is 1000, ")


@pytest.mark.parametrize("size", [7, 50, 1000])
def test_what_is_found_is_said_in_the_order_of_rows(size: int) -> None:
    """A second series' column dies first, and the first column's sentinel comes again last."""
    values, code = np.stack([noise(800), noise(800, 1)], 1), np.tile([0, 1], 400)
    values[300::2, 1], values[241::2, 1] = values[300, 1], values[241, 1]
    values[[500, 700], 0] = -999.0
    sizes = [size] * (800 // size)
    _, faults, stuck = found(values, code, sizes)
    assert [one[1] for one in stuck] == [1, 0]
    assert [said.split()[:2] for said in faults.said] == [["c1", "has"], ["c0", "is"]]
    assert f"{values[241, 1]:.6g}" in faults.said[0]


def test_series_of_a_panel_are_apart() -> None:
    values, code = np.stack([noise(300), noise(300, 1) * 1000], 1).reshape(-1), np.tile([0, 1], 300)
    values[200:600:2] = np.where(np.arange(200) % 50 == 0, 9999.0, values[200:600:2])
    out, _, _ = found(values, code)
    assert np.flatnonzero(np.isnan(out[:, 0])).tolist() == [200, 300, 400, 500]
    y = noise(300)
    y[100:200] = y[100]
    both = np.stack([y, noise(300, 1)], 1).reshape(-1)
    apart, faults, stuck = found(both, code)
    alone, _, _ = found(y)
    np.testing.assert_array_equal(apart[::2, 0], alone[:, 0])
    assert not np.isnan(apart[1::2]).any() and [one[1] for one in stuck] == [0]
    restored = Faults(("c0",), DAY, (), True)
    restored.restore(*faults.state(2))
    np.testing.assert_array_equal(
        restored.take(code[:20], both[:20, None]).values, faults.take(code[:20], both[:20, None]).values
    )


def pushed(
    y: Any, sizes: list[int], known: bool = False, restart: bool = False, faults: bool = True, x: Any = None
) -> tuple[Any, Any]:
    """Questions and answers of a stream read in pieces, by position; x: of an input, which counts where it is known."""
    inputs = ({"inputs": ("x",)} if known or x is not None else {}) | ({"known": ("x",)} if known else {})
    whole = np.arange(len(y)).astype(float) if x is None else x
    spec = WindowSpec(("y",), **inputs, lags=6, horizon=3, season=DAY, seasons=(DAY,), faults=faults)
    windows, start, asks, answers = Windows(spec), 0, [], []
    for size in [*sizes, len(y)]:
        part = y[start : start + size]
        ask, answer = windows.push(
            pa.record_batch({"y": part, "x": whole[start : start + size]} if inputs else {"y": part})
        )
        asks.append(ask)
        answers.append(answer)
        start += size
        if restart:
            windows = reborn(windows, Windows(spec))
    return [torch.cat([getattr(one, name) for one in asks]) for name in ("origin", "age")] + [
        torch.cat([part for one in asks if (part := getattr(one.x, name)) is not None]) for name in one_of(spec)
    ], [torch.cat([getattr(one, name) for one in answers]) for name in ("step", "y", "seasonal")]


def one_of(spec: WindowSpec) -> tuple[str, ...]:
    return ("past", "future", "context") if spec.context is not None else ("past", "future")


@pytest.mark.sampled
@pytest.mark.parametrize("known", [False, True])
def test_what_a_dead_sensor_repeated_is_forgotten_however_the_stream_is_cut(known: bool) -> None:
    y = noise(400)
    y[200:260] = y[200]
    for sizes, restart in (([], False), ([7] * 50, False), ([100, 125, 1, 30], True)):
        one, other = pushed(y, [], known), pushed(y, sizes, known, restart)
        for a, b in zip([*one[0], *one[1]], [*other[0], *other[1]], strict=True):
            torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0)
    gone = y.copy()
    gone[200:260] = np.nan
    for a, b in zip(*(pushed(v, [], known)[0] for v in (y, gone)), strict=True):  # questions behind the row that told
        behind = -(400 - 231) + (3 if known else 0)
        torch.testing.assert_close(a[behind:], b[behind:], equal_nan=True, rtol=0, atol=0)


@pytest.mark.sampled
@pytest.mark.parametrize("known", [False, True])
def test_a_spike_is_a_truth_and_missing_among_the_values_before(known: bool) -> None:
    """However the stream is cut, and restored in between; with known inputs its truth waits for these."""
    y = noise(360)
    y[300] = 1e5
    gone = np.where(y > 1e4, np.nan, y)
    one, without = pushed(y, [], known), pushed(gone, [], known)
    for a, b in zip(one[0], without[0], strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0)
    assert torch.equal(one[1][1].flatten(), torch.from_numpy(y[: len(one[1][1])]))
    assert bool(without[1][1].isnan().any())
    for sizes in ([7] * 50, [301, 1, 1]):
        cut = pushed(y, sizes, known, restart=True)
        for a, b in zip([*one[0], *one[1]], [*cut[0], *cut[1]], strict=True):
            torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0)


@pytest.mark.sampled
@pytest.mark.parametrize("known", [False, True])
def test_the_first_value_of_a_level_comes_back(known: bool) -> None:
    """However the stream is cut, and restored in between, questions see it once a second one is there."""
    y = noise(360)
    y[300:] += 1e5
    one, plain = pushed(y, [], known), pushed(y, [], known, faults=False)
    behind = int((one[0][0] > 301).nonzero()[0])
    for a, b in zip(one[0], plain[0], strict=True):
        torch.testing.assert_close(a[behind:], b[behind:], equal_nan=True, rtol=0, atol=0)
    assert torch.equal(one[1][1], plain[1][1])
    assert torch.equal(one[0][2].nan_to_num(), plain[0][2].nan_to_num()) == known  # whose questions wait for the second
    for sizes in ([7] * 50, [301, 1, 1], [280, *[1] * 79]):
        cut = pushed(y, sizes, known, restart=sizes[0] > 1)
        for a, b in zip([*one[0], *one[1]], [*cut[0], *cut[1]], strict=True):
            torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0)


@pytest.mark.sampled
@pytest.mark.parametrize("known", [False, True])
def test_the_first_value_of_a_level_of_an_input_comes_back(known: bool) -> None:
    """As that of a target; a spike does not, and neither depends on how the stream is cut."""
    y, x = noise(360), noise(360, 1)
    level, spike = x + 1e5 * (np.arange(360) >= 300), x + 1e5 * (np.arange(360) == 300)
    for moved, comes in ((level, True), (spike, False)):
        one, plain = pushed(y, [], known, x=moved), pushed(y, [], known, faults=False, x=moved)
        behind = int((one[0][0] > 301).nonzero()[0])
        same = [
            torch.equal(a[behind:].nan_to_num(), b[behind:].nan_to_num()) for a, b in zip(one[0], plain[0], strict=True)
        ]
        assert all(same) == comes
        for sizes in ([7] * 50, [301, 1, 1], [280, *[1] * 79]):
            cut = pushed(y, sizes, known, restart=sizes[0] > 1, x=moved)
            for a, b in zip([*one[0], *one[1]], [*cut[0], *cut[1]], strict=True):
                torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0)
