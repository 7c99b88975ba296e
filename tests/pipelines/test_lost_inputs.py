"""While a known input is lost, forecasts are as good as without it, honest, and as before once it is back."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from streamgp.predictives.gaussian import Gaussian
from streamgp.tensors import Inputs
from streamgp.windows.windows import Asks
from streamgp_data.ingestion.ingest import ingest
from streamgp_pipelines import fit_stream
from streamgp_pipelines.config import IngestConfig
from streamgp_pipelines.learning.doubt import blurred

ROWS, DAY = 2400, 24


def drifting(generator: np.random.Generator, rate: float, size: float) -> np.ndarray:
    shocks = size * np.sqrt(1 - rate**2) * generator.standard_normal(ROWS)
    found = np.zeros(ROWS)
    for row in range(1, ROWS):
        found[row] = rate * found[row - 1] + shocks[row]
    return found


def stream(seed: int) -> pl.DataFrame:
    """A load of a day, a week and a temperature that heats and cools."""
    generator, at = np.random.default_rng(seed), np.arange(ROWS)
    warm = 14 + 5 * np.sin(2 * np.pi * (at - 9) / 24) + drifting(generator, 0.98, 4.0)
    work = np.where(at % 168 < 120, 1.0, 0.6)
    y = 40 + 8 * work * np.sin(2 * np.pi * (at - 8) / 24) + 0.8 * np.abs(warm - 15) + drifting(generator, 0.9, 1.0)
    times = [datetime(2024, 1, 1) + timedelta(hours=int(row)) for row in at]
    return pl.DataFrame({"t": times, "y": y, "warm": warm})


def ran(frame: pl.DataFrame, place: Path, **options: Any) -> pl.DataFrame:
    """All scored forecasts of a pass: ds, cutoff, y, mean, low, high, and how many steps after the first row each
    was made."""
    place.mkdir()
    frame.write_parquet(place / "rows.parquet")
    source = {"source": (str(place / "rows.parquet"),), "table": str(place / "table"), "every": "1h", "time": "t"}
    ingest(IngestConfig.read(source))
    cells = place / "cells.parquet"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_stream(
            place / "table", "y", model="linear", horizon=DAY, season=(DAY, 7 * DAY), checkpoint=place / "run",
            predictions=cells, batch=168, **options,
        )  # fmt: skip
    found = pl.read_parquet(cells).drop_nulls("y")
    ends = {"mean": "linear", "low": "linear-lo-95", "high": "linear-hi-95"}
    origin = (pl.col("cutoff") - datetime(2024, 1, 1)).dt.total_hours().alias("origin")
    return found.select("ds", "cutoff", "y", origin, **{name: pl.col(own) for name, own in ends.items()})


def lost(frame: pl.DataFrame, spans: list[tuple[int, int]]) -> pl.DataFrame:
    """Without the temperature of these rows."""
    gone = np.zeros(len(frame), bool)
    for start, length in spans:
        gone[start : start + length] = True
    return frame.with_columns(pl.when(~pl.Series(gone)).then("warm").alias("warm"))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[float]]]:
    """In and on the day after each outage: share of the rows that were asked at, MAE, that without the temperature,
    that of the week before, coverage; one list an outage."""
    found: dict[str, list[list[float]]] = {"in": [], "after": []}
    for seed in range(4):
        place, frame = tmp_path_factory.mktemp("lost"), stream(seed)
        generator = np.random.default_rng(seed)
        lengths = generator.permutation([1, 7, 48, 240]) if seed % 2 else generator.permutation([1, 30, 120, 168])
        spans = [(900 + 370 * at + int(generator.integers(0, 48)), int(own)) for at, own in enumerate(lengths)]
        run = ran(lost(frame, spans), place / "lost", known="warm")
        without = ran(frame.drop("warm"), place / "without").select("ds", "cutoff", without="mean")
        week = frame.select(ds=pl.col("t") + timedelta(days=7), naive="y")
        both = run.join(without, on=["ds", "cutoff"]).join(week, on="ds")
        for start, length in spans:
            for part, low, high in (
                ("in", start - DAY, start + length),
                ("after", start + length, start + length + DAY),
            ):
                own = both.filter(pl.col("origin").is_between(low, high - 1))
                errors = [(own["y"] - own[name]).abs().mean() for name in ("mean", "without", "naive")]
                covered = own["y"].is_between(own["low"], own["high"]).mean()
                found[part].append([own["origin"].n_unique() / (high - low), *errors, covered])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", ["in", "after"])
def test_forecasts_are_no_worse_than_without_the_input_or_a_week_ago(judged: dict[str, Any], part: str) -> None:
    made, error, without, naive, covered = np.mean(judged[part], 0)
    assert made == 1.0
    assert error <= 1.05 * min(without, naive)
    assert part == "after" or 0.93 <= covered <= 0.98  # 0.949 here, 0.956 over the 24 outages of six more seeds


def test_doubt_counts_where_the_forecast_turns_too() -> None:
    nil, none = torch.zeros(1, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.float64)
    doubt, future = torch.tensor([[[2.0], [0.0]]], dtype=torch.float64), torch.zeros(1, 2, 1, dtype=torch.float64)
    asks = Asks(
        nil, nil, nil, nil, nil[:, None], nil[:, None], doubt, none, none > 0, Inputs(future[:, :0], future, None)
    )

    def shifted(asks: Asks, column: int, sign: float) -> Inputs:
        return Inputs(asks.x.past, asks.x.future + sign * asks.doubt[..., column : column + 1], None)

    def load(asks: Asks) -> Gaussian:  # it heats and cools from 0 on
        return Gaussian(asks.x.future[..., 0].abs(), none, none)

    fake: Any = SimpleNamespace(shifted=shifted)
    assert blurred(fake, asks, load(asks), load).blur.tolist() == [[2.0, 0.0]]


def test_bands_are_wider_while_it_is_lost_and_not_before(tmp_path: Path) -> None:
    frame = stream(3)[:900]
    usual, run = (
        ran(lost(frame, spans), tmp_path / name, known="warm") for name, spans in (("u", []), ("l", [(700, 100)]))
    )
    both = run.join(usual, on=["ds", "cutoff"], suffix="_usual")
    before = both.filter(pl.col("origin") < 700 - DAY)
    assert (before["mean"] == before["mean_usual"]).all() and (before["high"] == before["high_usual"]).all()
    inside = both.filter(pl.col("origin").is_between(724, 770))
    assert ((inside["high"] - inside["low"]) > (inside["high_usual"] - inside["low_usual"])).mean() > 0.9
