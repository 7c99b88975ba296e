"""A year of real half-hourly demand, day ahead: the whole flow with the linear model, its bands and its error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch

from streamgp.base import Chunk, Offset
from streamgp.windows.windows import WindowSpec
from tests.contracts.stream import Stream

DATA = Path(__file__).parents[2] / "data" / "elecdemand.csv"
FIRST = 28 * 48
"""Scored from day 29 on."""


class Year:
    """The rows of the file."""

    def __init__(self) -> None:
        frame = pl.read_csv(DATA, try_parse_dates=True)
        self.rows = frame.to_arrow().combine_chunks().to_batches()[0]

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def read(self, after: Offset) -> Iterator[Chunk]:
        yield Chunk(self.rows, {})


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def play(year: Year, model: str) -> dict[str, np.ndarray]:
    spec = WindowSpec(
        targets=("demand_gw",),
        known=("workday",),
        lags=24,
        horizon=48,
        season=336,
        time=year.schema.names[0],
        every_ns=1800 * 10**9,
    )
    run = Stream(spec, model, batch=256, period=48)
    run.run(year)
    low, high = [], []
    for due in run.dues:
        low.append(due.quantiles[0])
        high.append(due.quantiles[-1])
    parts = {name: torch.cat([getattr(due, name) for due in run.dues]).numpy() for name in ("y", "ds", "position")}
    parts |= {"low": torch.cat(low).numpy(), "high": torch.cat(high).numpy()}
    parts["mean"] = torch.cat([due.predictive.mean[:, 0] for due in run.dues]).numpy()
    chosen = parts.pop("position") >= FIRST
    return {name: values[chosen] for name, values in parts.items()}


@pytest.fixture(scope="module")
def linear(one_thread: None) -> dict[str, np.ndarray]:
    return play(Year(), "linear")


@pytest.mark.slow
def test_bands_cover_over_the_year_and_in_every_tenth(linear: dict[str, np.ndarray]) -> None:
    found = linear
    inside = (found["low"] <= found["y"]) & (found["y"] <= found["high"])
    assert 0.93 <= inside.mean() <= 0.97
    edges = np.quantile(found["ds"], np.linspace(0, 1, 11))
    tenth = np.clip(np.searchsorted(edges, found["ds"], side="right") - 1, 0, 9)
    assert min(inside[tenth == part].mean() for part in range(10)) >= 0.90


@pytest.mark.slow
def test_the_linear_model_beats_the_season(linear: dict[str, np.ndarray]) -> None:
    found = play(Year(), "seasonal_naive")
    wanted, got = (np.abs(run["y"] - run["mean"]).mean() for run in (found, linear))
    assert got <= 0.78 * wanted
