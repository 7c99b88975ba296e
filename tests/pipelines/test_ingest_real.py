"""Real files with real faults, where the folder STREAMGP_TEST_DATA has them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from streamgp_data.table import Table
from streamgp_pipelines.describe import describe_table
from tests.needs import needs, public
from tests.pipelines.ingesting import quarantine, rows, take
from tests.pipelines.worlds import run


@needs("raw/smard_lu_2020_quarterhour.csv")
def test_a_german_file_with_a_repeated_hour(tmp_path: Path) -> None:
    """Semicolons, decimal commas, units in brackets, three time columns: only the time and its zone are given."""
    summary = take(
        tmp_path / "t", public("raw/smard_lu_2020_quarterhour.csv"), time="DateTime", timezone="Europe/Luxembourg"
    )
    assert (summary["added"], summary["quarantined"], summary["late"]) == (34_944, {}, 0)
    told = describe_table(tmp_path / "t")
    assert told["interval"] == {"declared": None, "tolerance": None, "lateness": None, "observed": 900.0}
    assert (told["gaps"], told["backwards"]) == (0, 0)
    units = {field.name: (field.metadata or {}).get(b"unit") for field in Table.open(tmp_path / "t").schema}
    assert units["Gesamtverbrauch (Netzlast) [MWh]"] == b"MWh"
    night = rows(tmp_path / "t").filter(pl.col("Datum") == "2020-10-25", pl.col("Uhrzeit") == "02:00")
    assert [moment.hour for moment in night["DateTime"]] == [0, 1]


@needs("raw/smard_lu_2020_quarterhour.csv")
def test_the_same_file_on_a_naive_clock(tmp_path: Path) -> None:
    summary = take(tmp_path / "t", public("raw/smard_lu_2020_quarterhour.csv"), time="DateTime")
    assert (summary["added"], summary["quarantined"]) == (34_940, {"conflict": 4})
    assert quarantine(tmp_path / "t")["line"].to_list() == [28138, 28139, 28140, 28141]


@needs("raw/pjm_dayton_hourly.csv")
def test_months_in_reverse(tmp_path: Path) -> None:
    path = public("raw/pjm_dayton_hourly.csv")
    summary = take(tmp_path / "t", path)
    assert (summary["added"], summary["quarantined"]) == (121_271, {"conflict": 4})
    assert summary["late"] > 100_000
    assert take(tmp_path / "t", path)["added"] == 0
    ordered = take(tmp_path / "u", path, sort=True)
    assert (ordered["added"], ordered["late"]) == (121_271, 0)
    told = describe_table(tmp_path / "u")
    assert (told["backwards"], told["gaps"]) == (0, 25)
    naive, table = (rows(tmp_path / name).drop("_seq").sort("Datetime") for name in "tu")
    assert naive.equals(table)


@needs("elecdemand.parquet", "gef2012_wind.parquet")
def test_parquet_files(tmp_path: Path) -> None:
    frame = pl.read_parquet(public("elecdemand.parquet"))
    summary = take(tmp_path / "t", public("elecdemand.parquet"), timezone="+10:00", every="30m")
    assert (summary["added"], summary["quarantined"]) == (17_520, {})
    assert rows(tmp_path / "t").drop("_seq").equals(frame)
    assert describe_table(tmp_path / "t")["span"] == ["2014-01-01T00:00:00+10:00", "2014-12-31T23:30:00+10:00"]
    wind = take(tmp_path / "w", public("gef2012_wind.parquet"))
    assert (wind["added"], wind["late"]) == (131_292, 0)
    assert Table.open(tmp_path / "w").meta.series == "unique_id"


@pytest.mark.slow
@needs("quarter_drone.parquet")
def test_a_clock_that_jitters(tmp_path: Path) -> None:
    """10 ms that are 7 to 14: counted from the first row, 313 rows share a step with another one."""
    drone = {"time": "elapsed_s", "time_format": "epoch-s", "every": "10ms"}
    learned = {}
    for tolerance in (None, "5ms"):
        given = {} if tolerance is None else {"tolerance": tolerance}
        take(tmp_path / f"{tolerance}", public("quarter_drone.parquet"), **drone, **given)
        options = {"target": "angle_deg", "inputs": "control_pct", "lags": 8, "horizon": 1, "season": None}
        found = run(tmp_path / f"{tolerance}", tmp_path / f"c{tolerance}", **options, score_from=None)
        learned[tolerance] = found["snapped"], found["late"] > 0
        described = describe_table(tmp_path / f"{tolerance}")
        assert (described["gaps"], described["snapped"]) == (0, None if tolerance is None else 6314)
    assert learned == {None: (0, True), "5ms": (6314, False)}
