"""Inputs that are lost: what stands in for them, how far it may be off, and that no cut of a stream changes it."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
import torch

from streamgp.predictives.gaussian import NORMAL
from streamgp.windows.lost_inputs import LostInputs
from streamgp.windows.timeline import Ring
from streamgp.windows.windows import Asks, Windows, WindowSpec

HOUR = 3600 * 10**9
SPEC = WindowSpec(
    targets=("y",),
    known=("warm", "work"),
    inputs=("wind",),
    lags=24,
    horizon=12,
    season=168,
    seasons=(24, 168),
    time="t",
    every_ns=HOUR,
    series="s",
)


def inputs(rows: int, seed: int = 0) -> np.ndarray:
    """(R, 3) wind, a temperature with a day and weather, and a flag of working days."""
    generator, at = np.random.default_rng(seed), np.arange(rows)
    weather = np.zeros(rows)
    for row in range(1, rows):
        weather[row] = 0.97 * weather[row - 1] + generator.standard_normal()
    wind = 5 + generator.standard_normal(rows)
    return np.stack([wind, 15 + 5 * np.sin(2 * np.pi * at / 24) + weather, (at % 168 < 120).astype(float)], 1)


def rows(x: np.ndarray, series: str = "a", first: int = 0) -> pl.DataFrame:
    """Rows of one series, missing values as null."""
    at = np.arange(len(x)) + first
    frame = pl.DataFrame(
        {
            "t": [datetime(2024, 1, 1) + timedelta(hours=int(row)) for row in at],
            "s": series,
            "y": np.sin(at),
            "wind": x[:, 0],
            "warm": x[:, 1],
            "work": x[:, 2],
        }
    )
    return frame.with_columns(pl.col("wind", "warm", "work").fill_nan(None), pl.col("t").cast(pl.Datetime("ns")))


def pushed(windows: Windows, frame: pl.DataFrame, batch: int) -> Asks:
    """All questions of rows that are read in batches."""
    found = []
    for start in range(0, len(frame), batch):
        (one,) = frame[start : start + batch].to_arrow().combine_chunks().to_batches()
        found.append(windows.push(one)[0])
    return Asks.cat(found)


def lose(x: np.ndarray, column: int, start: int, length: int) -> np.ndarray:
    x = x.copy()
    x[start : start + length, column] = np.nan
    return x


def filled(x: np.ndarray, seasons: tuple[int, ...] = (24, 168), back: int = 700) -> np.ndarray:
    """One column, filled in at once."""
    lost, ring, nil = LostInputs(1, seasons, back, 0, 6.0), Ring(back + 1, 1), np.zeros(len(x), np.int64)
    ring.reserve(1)
    return lost.fill(ring, nil, np.arange(len(x)), x[:, None], np.full(1, -1))[:, 0]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(4))
def test_however_a_stream_is_cut_and_restarted_the_questions_are_the_same(seed: int) -> None:
    generator = np.random.default_rng(seed)
    frames = []
    for at, name in enumerate("ab"):
        x = inputs(900, seed + at)
        for column in range(3):
            for _ in range(3):
                x = lose(x, column, int(generator.integers(200, 880)), int(generator.integers(1, 240)))
        frames.append(rows(x, name))
    frame = pl.concat(frames).sort("t", "s")
    whole = pushed(Windows(SPEC), frame, len(frame))
    cut = int(generator.integers(500, 1700))
    first, then = Windows(SPEC), Windows(SPEC)
    before = pushed(first, frame[:cut], int(generator.integers(1, 300)))
    then.restore(*first.state())
    parts = Asks.cat([before, pushed(then, frame[cut:], int(generator.integers(1, 300)))])
    assert len(whole.origin) == len(parts.origin) == 2 * (900 - 191 - 12)
    assert bool((whole.doubt > 0).any()) and bool(whole.stale.any())
    key = [torch.argsort(one.origin * 2 + one.series) for one in (whole, parts)]
    for one, other in zip(whole[:-1], parts[:-1], strict=True):
        assert torch.equal(one[key[0]], other[key[1]])
    for one, other in zip(whole.x, parts.x, strict=True):
        torch.testing.assert_close(one[key[0]], other[key[1]], rtol=1e-12, atol=1e-12, equal_nan=True)


def test_a_stream_that_lost_nothing_keeps_nothing() -> None:
    windows = Windows(SPEC)
    asks = pushed(windows, rows(inputs(400)), 50)
    assert not bool((asks.doubt != 0).any() or asks.stale.any())
    assert not [name for name in windows.state()[0] if name.startswith("lost.")]
    assert (windows.lost() == 0).all()


def test_a_flag_is_that_of_its_week_and_is_sure() -> None:
    x = inputs(900)
    windows = Windows(SPEC)
    asks = pushed(windows, rows(lose(x, 2, 600, 240)), 100)
    at = np.flatnonzero((asks.origin >= 600) & (asks.origin < 800))
    there = asks.x.future[at, :, 2].numpy()  # the season of y, the temperature, the flag
    assert (there == x[asks.origin[at].numpy()[:, None] + np.arange(1, 13), 2]).all()
    assert not bool((asks.doubt[..., 1] > 0).any())


@pytest.mark.parametrize("length", [1, 10, 100, 240])
def test_a_temperature_departs_from_its_season_as_it_did_last(length: int) -> None:
    x = inputs(1200, seed=3)[:, 1]
    start = 800
    found = filled(np.where((np.arange(1200) >= start) & (np.arange(1200) < start + length), np.nan, x))
    gone = slice(start, start + length)
    assert (np.delete(found, np.arange(start, start + length)) == np.delete(x, np.arange(start, start + length))).all()
    assert abs(found[start] - x[start - 1]) < abs(x[start - 24] - x[start - 1]) + 2.0
    ahead, day = np.abs(found[gone] - x[gone]).mean(), np.abs(x[start - 24 : start] - x[start : start + 24]).mean()
    assert ahead < 2.0 * day + 1.0


def test_deviations_are_those_of_errors() -> None:
    """Over many outages of two days the errors have the standard deviations that are told, within a third."""
    errors, told = [], []
    for seed in range(40):
        x = inputs(900, seed)[:, 1]
        lost, ring, nil = LostInputs(1, (24, 168), 700, 0, 6.0), Ring(701, 1), np.zeros(900, np.int64)
        ring.reserve(1)
        holed = np.where((np.arange(900) >= 700) & (np.arange(900) < 748), np.nan, x)
        found = lost.fill(ring, nil, np.arange(900), holed[:, None], np.full(1, -1))[:, 0]
        doubt = lost.doubt(nil[:1], np.full(1, 700), np.full(1, 701 + 700), np.arange(48), slice(None))
        assert doubt is not None
        told.append(doubt.deviation[0, :, 0])
        errors.append((found - x)[700:748])
    ratio = np.sqrt(np.square(errors).mean(0)) / np.sqrt(np.square(told).mean(0))
    assert 0.6 < ratio[12:].mean() < 1.4
    assert (np.diff(np.mean(told, 0)[:20]) > 0).all()  # what is older is known less


def test_without_a_season_the_last_value_stands_in_and_is_known_less_with_its_age() -> None:
    generator = np.random.default_rng(5)
    x = generator.standard_normal(300).cumsum()
    holed = np.where(np.arange(300) >= 280, np.nan, x)
    lost, ring, nil = LostInputs(1, (), 100, 0, np.inf), Ring(101, 1), np.zeros(300, np.int64)
    ring.reserve(1)
    found = lost.fill(ring, nil, np.arange(300), holed[:, None], np.full(1, -1))[:, 0]
    assert (found[280:] == x[279]).all()
    doubt = lost.doubt(nil[:1], np.full(1, 280), np.full(1, 101 + 280), np.arange(20), slice(None))
    assert doubt is not None
    one = doubt.deviation[0, 0, 0]
    assert one == pytest.approx(NORMAL * np.abs(np.diff(x[180:280])).mean(), rel=0.2)
    assert doubt.deviation[0, 3, 0] == pytest.approx(2 * one, rel=1e-9) and doubt.age[0, :, 0].tolist() == [
        *range(1, 21)
    ]


def test_an_input_that_is_usually_missing_is_in_no_doubt() -> None:
    x = inputs(900)
    x[np.arange(900) % 6 != 0, 1] = np.nan
    asks = pushed(Windows(SPEC), rows(x), 100)
    late = asks.origin > 300
    assert not bool((asks.doubt[late] > 0).any() or asks.stale[late].any())
    assert bool(torch.isfinite(asks.x.future).all())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_shifted_windows_are_those_of_other_values(sign: float) -> None:
    x = inputs(700)
    holed = lose(x, 1, 600, 30)
    windows = Windows(SPEC)
    asks = pushed(windows, rows(holed), 100)
    at = int(np.flatnonzero(asks.origin == 595)[0])  # sees the first seven lost ones ahead
    one = asks.rows(slice(at, at + 1))
    assert ((one.doubt[0, :, 0] > 0).numpy() == (np.arange(596, 608) >= 600)).all()
    holed[596:608, 1] = one.x.future[0, :, 1] + sign * one.doubt[0, :, 0]
    other = pushed(Windows(SPEC), rows(holed), 100)
    wanted, found = other.rows(slice(at, at + 1)).x, windows.shifted(one, 0, sign)
    for part, own in zip(wanted, found, strict=True):
        torch.testing.assert_close(own, part, rtol=1e-12, atol=1e-9, equal_nan=True)
    assert not torch.equal(found.context, one.x.context)


def test_lost_inputs_of_other_columns_are_refused() -> None:
    windows = Windows(SPEC)
    pushed(windows, rows(lose(inputs(400), 1, 300, 5)), 100)
    tensors, rest = windows.state()
    tensors["lost.open"] = tensors["lost.open"][:, :2]
    with pytest.raises(ValueError, match="lost inputs"):
        Windows(SPEC).restore(tensors, rest)
    assert windows.lost().tolist() == [[0, 0, 0]]


def test_before_its_first_value_an_input_is_not_known_and_from_then_on_it_is() -> None:
    x = inputs(600)
    x[:300, 1] = np.nan
    x[320:330, 1] = np.nan
    whole = pushed(Windows(SPEC), rows(x), 600)
    parts = pushed(Windows(SPEC), rows(x), 7)
    assert whole.origin.tolist() == parts.origin.tolist() == [*range(288, 588)]  # from where one is known ahead
    assert torch.equal(whole.doubt, parts.doubt) and torch.equal(whole.x.future, parts.x.future)


def test_with_nothing_kept_but_one_row_the_last_value_stands_in() -> None:
    spec = WindowSpec(targets=("y",), inputs=("u",), lags=1, gaps="fill")
    frame = pl.DataFrame({"y": [1.0, 2.0, 3.0], "u": [5.0, None, None]})
    asks, _ = Windows(spec).push(frame.to_arrow().to_batches()[0])
    assert asks.x.past[:, 0, 1].tolist() == [5.0, 5.0, 5.0]


def test_a_state_without_lost_inputs_forgets_them() -> None:
    x = inputs(600)
    used, clean = Windows(SPEC), Windows(SPEC)
    pushed(used, rows(lose(x, 1, 400, 48)), 100)
    asked = pushed(clean, rows(x), 100)
    state = clean.state()
    used.restore(*state)
    assert used.state()[0].keys() == state[0].keys()
    assert len(asked.origin) and (used.lost() == 0).all()
