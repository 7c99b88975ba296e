"""`forecast --follow`: a new forecast when rows come, whole at any moment, until it is ended."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from streamgp.errors import StreamgpError, UsageError
from streamgp_data.table import Table
from streamgp_pipelines.config import ForecastConfig
from streamgp_pipelines.forecasting.follow import follow
from tests.forked import start
from tests.pipelines.killed import wait_for
from tests.pipelines.worlds import append
from tests.serving.conftest import ROWS, new_rows


class Enough(Exception):
    pass


def test_a_forecast_is_made_when_rows_come_and_at_no_other_time(home: Path) -> None:
    given = {"checkpoint": home / "known", "table": str(home / "table"), "future": home / "next.csv"}
    config = ForecastConfig.read(given | {"output": home / "out.csv"})
    found: list[Any] = []
    warned: list[StreamgpError] = []
    looks = iter(range(10))

    def future(first: int) -> None:
        new_rows(4, first).select("t", "k").write_csv(home / "next.csv")

    def wait(_: float) -> None:
        look = next(looks)
        if look == 2:
            append(Table.open(home / "table"), new_rows(2))  # rows for which the file has no inputs
        elif look == 5:
            future(ROWS + 2)
        elif look == 8:
            raise Enough

    future(ROWS)
    with pytest.raises(Enough):
        follow(config, found.append, warned.append, wait)
    assert len(found) == 2 and len(warned) == 1
    written = pl.read_csv(home / "out.csv", try_parse_dates=True)
    assert written["cutoff"].unique().to_list() == [new_rows(2)["t"][-1]]
    (home / "next.csv").write_text("")
    with pytest.raises(StreamgpError):  # the first one has to be made
        follow(config, found.append, warned.append, wait)


def test_it_needs_somewhere_to_write(home: Path) -> None:
    with pytest.raises(UsageError):
        ForecastConfig.read({"checkpoint": home / "plain", "follow": True})


@pytest.mark.slow
def test_it_ends_when_it_is_asked_to(home: Path) -> None:
    words = ["forecast", "--checkpoint", home / "plain", "--table", home / "table", "--output", home / "out.json"]
    process = start(*words, "--follow")
    try:
        wait_for(lambda: (home / "out.json").exists() or process.poll() is not None, 120)
        append(Table.open(home / "table"), new_rows(1))
        last = new_rows(1)["t"][0].strftime("%Y-%m-%d %H")
        wait_for(lambda: last in json.loads((home / "out.json").read_text())[0]["cutoff"].replace("T", " "), 60)
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143 and "Traceback" not in said
    assert not list(home.glob(".*.tmp"))
