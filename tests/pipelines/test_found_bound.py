"""A solar park without --lower: no negative forecast or band by night, said once; --lower none takes no bound."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

import streamgp
from streamgp_pipelines import compare
from tests.pipelines.worlds import assert_same_state, make_table, run

DAY, HOURS = 24, 1000


def sun(seed: int) -> np.ndarray:
    """Power of a solar park: 0 at night, and under clouds that drift."""
    generator, cloud = np.random.default_rng(seed), np.zeros(HOURS)
    for hour, step in enumerate(generator.standard_normal(HOURS)[1:], 1):
        cloud[hour] = 0.95 * cloud[hour - 1] + 0.3 * step
    clear = np.sin(2 * np.pi * (np.arange(HOURS) / DAY - 0.25)).clip(0)
    return (100 * clear * (0.2 + 0.8 / (1 + np.exp(-cloud)))).round(2)


def frame(y: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame({"t": [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(len(y))], "y": y})


def learned(y: np.ndarray, **options: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = streamgp.Forecaster("y", DAY, season=DAY, time="t", every="1h", model="linear", batch=168, **options)
        found.learn(frame(y[:700]))
        found.learn(frame(y)[700:])
    return found, [str(one.message) for one in caught]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", [0, 1])
def test_nights_have_no_negative_forecast_and_it_is_said_once(seed: int) -> None:
    y = sun(seed)
    found, told = learned(y)
    none, quiet = learned(y, lower="none")
    given, _ = learned(y, lower=0.0)
    ends = ["linear", "linear-lo-80", "linear-lo-95"]
    ahead, without = found.forecast().select(ends), none.forecast().select(ends)
    assert ahead.min().min_horizontal().item() >= 0 > without.min().min_horizontal().item()
    assert len(told) == 1 and "0 or more in all rows so far" in told[0] and 'lower="none"' in told[0] and not quiet
    assert found.scores["mae"] == pytest.approx(given.scores["mae"], rel=0.01)
    assert found.scores["mae"] < none.scores["mae"]


def test_every_scored_forecast_of_a_run_is_at_the_bound_or_above_and_a_restart_knows_it(tmp_path: Any) -> None:
    data = frame(sun(2)[:400]).with_columns(pl.col("t").dt.replace_time_zone("UTC"))
    table = make_table(tmp_path / "t", data)
    options = {"horizon": DAY, "lags": DAY, "season": DAY, "batch": DAY, "warmup": 96}
    run(table, tmp_path / "c", predictions=tmp_path / "p.parquet", **options)
    found = pl.read_parquet(tmp_path / "p.parquet")
    assert found.select("linear", "linear-lo-80", "linear-lo-95").min().min_horizontal().item() >= 0
    run(table, tmp_path / "d", max_rows=250, **options)
    run(table, tmp_path / "d", **options)
    assert_same_state(tmp_path / "c", tmp_path / "d")


def test_peers_keep_to_it_as_models_do(tmp_path: Any) -> None:
    """Nights of a model are at 0: a ridge regression beside it that was not told would lose by that alone."""
    y = sun(2)[:600]
    y[500] = -5.0
    data = frame(y).with_columns(pl.col("t").dt.replace_time_zone("UTC"))
    make_table(tmp_path / "t", data)
    options: dict[str, Any] = {"horizon": 4, "lags": 4, "season": DAY, "batch": DAY, "warmup": 96, "level": (95.0,)}
    least, maes = {}, {}
    for lower in ("found", "none", 0.0):
        given = {} if lower == "found" else {"lower": lower}
        compare(tmp_path / "t", models="ridge", comparison=tmp_path / str(lower), **options, **given)
        rows = pl.read_parquet(tmp_path / str(lower) / "ridge" / "predictions.parquet")
        maes[lower] = float((rows["y"] - rows["ridge"]).abs().mean())  # type: ignore[arg-type]
        before, after = pl.col("cutoff") < data["t"][480], pl.col("cutoff") > data["t"][530]
        least[lower] = [rows.filter(part)["ridge-lo-95"].min() for part in (before, after)]
    assert [[bound < 0 for bound in pair] for pair in least.values()] == [[False, True], [True, True], [False, False]]
    assert maes["found"] < maes["none"] and maes["found"] == pytest.approx(maes[0.0], rel=0.05)


def test_a_value_below_ends_it() -> None:
    y = sun(3)
    y[900] = -5.0
    found, told = learned(y)
    assert any("its bound of 0, which was found, has ended" in text for text in told)
    assert found.forecast()["linear-lo-95"].min() < 0
