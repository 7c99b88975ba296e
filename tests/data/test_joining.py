"""Signals at their own rates on one clock, against pandas."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp.errors import DataError
from streamgp_data.recordings.joining import join
from streamgp_data.recordings.recording import SignalBlock
from streamgp_data.recordings.samples import Samples
from tests.properties import examples

TIMES = st.lists(st.integers(-50, 50), max_size=30)


def merged(
    clock: np.ndarray, times: np.ndarray, values: np.ndarray, way: Literal["backward", "nearest"], reach: int | None
) -> np.ndarray:
    left = pd.DataFrame({"t": clock.astype(np.int64)})
    right = pd.DataFrame({"t": times.astype(np.int64), "v": values.astype(float)})
    found = pd.merge_asof(left, right, on="t", direction=way, tolerance=reach)
    return found["v"].to_numpy()


@examples(80)
@given(TIMES, TIMES, st.none() | st.integers(1, 20), st.sampled_from(["last", "nearest"]))
def test_equals_merge_asof(clock: list[int], times: list[int], reach: int | None, rule: str) -> None:
    instants = np.sort(np.unique(np.array(times, np.int64)))
    values = np.arange(len(instants)) + 0.5
    asked = np.sort(np.array(clock, np.int64))
    way: Literal["backward", "nearest"] = "backward" if rule == "last" else "nearest"
    expected = merged(asked, instants, values, way, reach)
    np.testing.assert_array_equal(join(asked, instants, values, rule, reach), expected)


@examples(100)
@given(TIMES, TIMES)
def test_of_samples_at_one_time_the_last_counts(clock: list[int], times: list[int]) -> None:
    instants, asked = np.sort(np.array(times, np.int64)), np.sort(np.array(clock, np.int64))
    values = np.arange(len(instants)) + 0.5
    np.testing.assert_array_equal(
        join(asked, instants, values, "last"), merged(asked, instants, values, "backward", None)
    )


@examples(100)
@given(TIMES, st.lists(st.integers(-50, 50), min_size=1, max_size=30, unique=True))
def test_between_neighbours_equals_numpy(clock: list[int], times: list[int]) -> None:
    instants, asked = np.sort(np.array(times, np.int64)), np.sort(np.array(clock, np.int64))
    values = np.sin(instants)
    expected = np.interp(asked, instants, values, left=np.nan, right=np.nan)
    np.testing.assert_allclose(join(asked, instants, values, "interpolate"), expected, atol=1e-12)


def test_neighbours_beyond_the_reach_give_nothing() -> None:
    clock, times, values = np.array([5, 8]), np.array([0, 6, 10]), np.array([0.0, 6.0, 10.0])
    assert np.isnan(join(clock, times, values, "interpolate", 4)[0])
    assert join(clock, times, values, "interpolate", 4)[1] == 8.0


@examples(100)
@given(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=6), min_size=1, max_size=6), st.integers(-60, 60))
def test_samples_come_back_in_the_order_of_time(blocks: list[list[int]], low: int) -> None:
    """Whatever the order of blocks, and of samples in them; samples at one time keep the order of the file."""
    samples = Samples(0, "file")
    count = 0
    for times in blocks:
        values = np.arange(count, count + len(times), dtype=float)
        assert samples.add(SignalBlock(np.array(times), {"a": values, "b": -values})) == 0
        count += len(times)
    samples.sort()
    flat = np.array([time for times in blocks for time in times])
    order = np.argsort(flat, kind="stable")
    for name, sign in (("a", 1.0), ("b", -1.0)):
        times_read, values_read = samples.between(name, -100, 100)
        np.testing.assert_array_equal(times_read, flat[order])
        np.testing.assert_array_equal(values_read, sign * order)
    part, _ = samples.between("a", low, low + 10)
    inside = flat[order][(flat[order] >= low) & (flat[order] <= low + 10)]
    assert set(inside) <= set(part) and len(part) <= len(inside) + 2
    np.testing.assert_array_equal(samples.rows("a", 1, 4), flat[order][1:4])


def test_times_beyond_all_clocks_are_left_out() -> None:
    samples = Samples(0, "file")
    assert samples.add(SignalBlock(np.array([1, np.iinfo(np.int64).min, 3]), {"a": np.array([1.0, 2.0, 3.0])})) == 1
    samples.sort()
    assert samples.between("a", 0, 9)[1].tolist() == [1.0, 3.0]


def test_samples_out_of_proportion_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgp_data.recordings.samples.LEAST", 1000)
    samples = Samples(1, "file")
    with pytest.raises(DataError):
        for _ in range(3):
            samples.add(SignalBlock(np.arange(100), {"a": np.arange(100.0)}))
