"""Recordings in a table: exactly once, whatever is killed or run again; what is told of them."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from streamgp.errors import DataError, UsageError
from streamgp_cli.app import app
from streamgp_data.table import Table
from streamgp_pipelines.config import DescribeConfig
from streamgp_pipelines.describe import describe_table
from streamgp_pipelines.state import describe
from tests.data.sources.recordings import WRITERS, write_can, write_database, write_mcap
from tests.needs import needs, public
from tests.pipelines.ingesting import quarantine, rows, take
from tests.pipelines.killed import Crash, code_of, start

pytestmark = pytest.mark.usefixtures("read_here")

T = np.arange(3000) / 100


def write(path: Path, count: int = 3000) -> Path:
    with h5py.File(path, "w") as file:
        file["imu/t"], file["imu/y"] = T[:count], np.sin(T[:count])
        file["wheel/t"], file["wheel/v"] = T[:count:7], np.cos(T[:count:7])
    return path


@pytest.mark.sampled
@pytest.mark.parametrize(
    "suffix", [pytest.param(one, marks=pytest.mark.slow) if one == "mf4" else one for one in WRITERS]
)
def test_the_same_command_again_adds_nothing(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    WRITERS[suffix](path)
    given = {"dbc": str(write_database(tmp_path))} if suffix in ("log", "asc", "blf") else {}
    first = take(tmp_path / "t", path, **given)
    assert first["added"] > 100 and not first["quarantined"] and not first["late"]
    again = take(tmp_path / "t", path, **given)
    assert (again["added"], again["quarantined"]) == (0, {})


def ingest_apart(source: str, table: str, mine: Crash | None) -> None:
    """What the process does: chunks of 256 rows."""
    from streamgp_data.recordings import joined

    joined.ROWS = 256
    if mine is not None:
        mine.arm()
    take(Path(table), source, salvage=True)


@pytest.mark.slow
def test_a_killed_ingest_goes_on(tmp_path: Path) -> None:
    """Killed between quarantine and table, before and after commits of rows, and of what could not be read."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        times = T.copy()
        times[[7, 1500]] = np.nan
        file["t"], file["y"] = times, np.sin(T)
    assert code_of(start(ingest_apart, str(path), str(tmp_path / "whole"), None)) == 0
    for count, after in ((1, True), (4, True), (12, False)):
        mine = Crash("streamgp_data.delta", "commit", count, after)
        table = tmp_path / f"t{count}{after}"
        assert code_of(start(ingest_apart, str(path), str(table), mine)) == -signal.SIGKILL
        assert code_of(start(ingest_apart, str(path), str(table), None)) == 0
        assert rows(table).equals(rows(tmp_path / "whole"))
        assert quarantine(table)["reason"].to_list() == ["no time"] * 2


@pytest.mark.slow
def test_other_rows_of_one_file_are_another_source(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5")
    take(tmp_path / "t", path, join="nearest")
    for other in ({"join": "last"}, {"join": "nearest", "clock": "wheel.v"}, {"join": "nearest", "max_age": "1ms"}):
        with pytest.raises(DataError):
            take(tmp_path / "t", path, **other)
    write(path, 2000)
    with pytest.raises(DataError):
        take(tmp_path / "t", path, join="nearest")


def test_another_database_is_another_reading(tmp_path: Path) -> None:
    path, database = tmp_path / "a.log", write_database(tmp_path)
    write_can(path)
    take(tmp_path / "t", path, dbc=str(database))
    database.write_text(database.read_text().replace("(0.01,0)", "(0.02,0)"))
    with pytest.raises(DataError):
        take(tmp_path / "t", path, dbc=str(database))


def test_a_clock_of_equal_intervals(tmp_path: Path) -> None:
    summary = take(tmp_path / "t", write(tmp_path / "a.h5"), clock="50ms", join="interpolate", max_age="100ms")
    assert (summary["added"], summary["late"]) == (600, 0)
    told = describe_table(tmp_path / "t")
    assert told["interval"]["declared"] == 0.05
    found = rows(tmp_path / "t")
    np.testing.assert_allclose(found["imu.y"], np.sin(T[::5]), atol=1e-9)
    inside = found["wheel.v"].drop_nulls()
    np.testing.assert_allclose(inside, np.cos(T[::5])[: len(inside)], atol=1e-3)


def test_a_signal_is_taken_by_its_name_without_the_unit(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("time", "speed (kn)", "temp"):
            file[name] = np.arange(9.0)
    take(tmp_path / "t", tmp_path / "a.h5", signals=["speed"])
    assert rows(tmp_path / "t").columns[2:] == ["speed (kn)"]


def test_two_recordings_of_one_rig_share_a_table(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap")
    write_mcap(tmp_path / "b.mcap")
    given = {"signals": "imu.*", "clock": "imu.vector.vector.x"}
    take(tmp_path / "t", tmp_path / "a.mcap", **given)
    again = take(tmp_path / "t", tmp_path / "b.mcap", **given)
    assert (again["added"], again["quarantined"]) == (0, {"duplicate": 300})


def test_what_is_cut_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write_mcap(path)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(DataError):
        take(tmp_path / "t", path)
    summary = take(tmp_path / "t", path, salvage=True)
    assert summary["quarantined"] == {"damaged": 1}
    assert "nothing is read after" in quarantine(tmp_path / "t")["detail"][0]
    assert take(tmp_path / "t", path, salvage=True)["quarantined"] == {}


def test_flags_of_recordings_belong_to_recordings(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ds,y\n2024-01-01,1\n")
    with pytest.raises(UsageError) as caught:
        take(tmp_path / "t", tmp_path / "a.csv", clock="y", max_age="1s")
    assert "--clock" in caught.value.message and "--max-age" in caught.value.message
    for wrong in ({"clock": "nothing"}, {"clock": "0ms"}, {"signals": "imu.z"}, {"max_age": "soon"}):
        with pytest.raises(UsageError):
            take(tmp_path / "t", write(tmp_path / "a.h5"), **wrong)


def test_a_wrong_time_fills_no_table(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["t"], file["y"] = np.array([0.0, 1.0, 1e9]), np.arange(3.0)
    with pytest.raises(DataError):
        take(tmp_path / "t", tmp_path / "a.h5", clock="1ms")
    assert not Table.exists(str(tmp_path / "t"))


def test_describe_shows_signals(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5")
    told = describe(DescribeConfig.read({"source": str(path)}))
    assert told["signals"] == [
        {"signal": "imu.y", "unit": None, "samples": 3000, "rate": 100.0, "first": 0.0, "last": 29.99, "backwards": 0},
        {
            "signal": "wheel.v",
            "unit": None,
            "samples": 429,
            "rate": pytest.approx(100 / 7),
            "first": 0.0,
            "last": 29.96,
            "backwards": 0,
        },
    ]
    found = CliRunner().invoke(app, ["describe", str(path), "--signals", "wheel*", "--json"])
    assert [one["signal"] for one in json.loads(found.stdout)["signals"]] == ["wheel.v"]
    (tmp_path / "a.csv").write_text("ds,y [kW]\n2024-01-01,1\n")
    columns = describe(DescribeConfig.read({"source": str(tmp_path / "a.csv")}))["columns"]
    assert columns == [
        {"column": "ds", "type": "string", "unit": None},
        {"column": "y [kW]", "type": "double", "unit": "kW"},
    ]
    with pytest.raises(UsageError):
        DescribeConfig.read({"source": str(path), "table": str(tmp_path)})


@pytest.mark.parametrize(
    ("suffix", "module", "extra"),
    [
        ("h5", "h5py", "hdf5"),
        ("mcap", "mcap", "mcap"),
        ("bag", "rosbags", "mcap"),
        ("log", "can", "can"),
        ("asc", "cantools", "can"),
        ("mf4", "asammdf", "mdf"),
        ("ulg", "pyulog", "ulog"),
        ("xlsx", "fastexcel", "excel"),
    ],
)
def test_a_missing_extra_names_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, module: str, extra: str
) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(b"#ROSBAG V2.0\n(1.0) can0 123#00\n")
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as caught:
        take(tmp_path / "t", tmp_path / f"a.{suffix}", dbc=str(write_database(tmp_path)) if extra == "can" else None)
    assert caught.value.hint == f"pip install 'streamgp[{extra}]'"


REAL = {
    "ball_beam_dspace_v73.mat": ({}, 56_748),
    "comma2k19_multirate.h5": ({}, 6_256),
    "panda_joint_states.mcap": ({}, 727),
    "pjm_dayton_hourly.csv": ({"sort": True}, 121_271),
    "smard_lu_2020_quarterhour.csv": ({"time": "DateTime", "timezone": "Europe/Luxembourg"}, 34_944),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(f"raw/{name}")) for name in REAL])
def test_real_files_need_two_flags_at_most(tmp_path: Path, name: str) -> None:
    given, count = REAL[name]
    summary = take(tmp_path / "t", public(f"raw/{name}"), **given)
    aside = {"conflict": 4} if name.startswith("pjm") else {}  # the hours that the clock shows twice in autumn
    assert (summary["added"], summary["quarantined"], summary["late"]) == (count, aside, 0)
    assert pl.read_delta(str(tmp_path / "t")).height == count
