"""Logs of messages: MCAP, bags of ROS 1 and 2, CAN."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pytest

from streamgp.errors import DataError, UsageError
from streamgp_data.reading.cells import FAULT
from tests.data.sources.recordings import (
    COUNT,
    EPOCH,
    frame,
    opened,
    read,
    speeds,
    write_bag,
    write_can,
    write_database,
    write_db3,
    write_mcap,
)
from tests.needs import needs, public


def seconds(rows: pl.DataFrame) -> np.ndarray:
    return (rows["time"].dt.epoch("us").to_numpy() - EPOCH * 10**6) / 1e6


ROS: dict[str, Any] = {
    "mcap": write_mcap,
    "lz4.mcap": lambda path: write_mcap(path, "LZ4"),
    "none.mcap": lambda path: write_mcap(path, "NONE"),
    "bag": write_bag,
    "lz4.bag": lambda path: write_bag(path, "LZ4"),
    "bz2.bag": lambda path: write_bag(path, "BZ2"),
    "db3": write_db3,
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ROS)
def test_messages_of_ros(tmp_path: Path, name: str) -> None:
    """Names within a message name its arrays; empty arrays, texts and headers are no signals."""
    path = tmp_path / f"a.{name}"
    ROS[name](path)
    source = opened(path, clock="imu.vector.vector.x")
    ros = ["imu.vector.vector.x", "imu.vector.vector.y", "imu.vector.vector.z", "joints.effort.hip"]
    ros += ["joints.effort.knee", "joints.position.hip", "joints.position.knee"]
    json = ["status.battery.volts", "status.ok"] if "mcap" in name else []
    assert source.names == ["time", *ros, *json]
    found = read(source)
    at = np.arange(COUNT)
    np.testing.assert_array_equal(seconds(found), at / 100)
    np.testing.assert_array_equal(found["imu.vector.vector.x"], at / 7)
    np.testing.assert_array_equal(found["joints.effort.knee"], at // 3 * 3 * 2.5)
    if json:
        np.testing.assert_array_equal(found["status.battery.volts"], 12 + at // 10 * 10 / 100)
        assert "/blob" in source.recording.left_out


def test_a_text_of_one_bag_runs_no_code(tmp_path: Path) -> None:
    """rosbags makes Python of definitions: constants and odd names do not reach it."""
    from mcap.writer import Writer

    for at, (name, text) in enumerate(
        [
            ("a/B", "float64 x\nstring EVIL=\"\"\"'''\\n__import__('os').mkdir('evil')\n"),
            ("a/B:\n  pass\n__import__('os').mkdir('evil')\nclass C", "float64 x\n"),
            ("a/B", "float64 x\nMSG: a/C'''+__import__('os').mkdir('evil')\nfloat64 y"),
        ]
    ):
        with (tmp_path / f"{at}.mcap").open("wb") as file:
            writer = Writer(file)
            writer.start()
            schema = writer.register_schema(name, "ros2msg", text.encode())
            channel = writer.register_channel("/x", "cdr", schema)
            for time in range(1, 5):
                writer.add_message(channel, time, b"\0\1\0\0" + np.float64(time).tobytes(), time)
            writer.finish()
        before = set(os.listdir("."))
        with suppress(DataError):
            assert frame(tmp_path / f"{at}.mcap")["x.x"].to_list() == [1.0, 2.0, 3.0, 4.0]
        assert set(os.listdir(".")) == before


def test_a_chunk_that_fills_the_memory_is_refused(tmp_path: Path) -> None:
    import zstandard
    from mcap.records import Chunk
    from mcap.writer import Writer

    packed = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(1 << 24))
    for claimed in (1 << 40, 100):
        path = tmp_path / f"{claimed}.mcap"
        with path.open("wb") as file:
            writer = Writer(file)
            writer.start()
            writer.finish()
        data = path.read_bytes()
        from mcap.data_stream import RecordBuilder

        record = RecordBuilder()
        Chunk(
            compression="zstd", data=packed, message_end_time=0, message_start_time=0, uncompressed_crc=0,
            uncompressed_size=claimed,
        ).write(record)  # fmt: skip
        path.write_bytes(data[:8] + record.end() + data[8:])
        with pytest.raises(DataError):
            opened(path)


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", ["log", "asc", "blf"])
def test_decoded_speed_is_the_logged_speed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    write_can(path)
    source = opened(path, dbc=write_database(tmp_path), clock="can0.SPEED.SPEED")
    found = read(source)
    times, values = speeds()
    assert found["can0.SPEED.SPEED"].to_list() == pytest.approx(values, abs=1e-9)
    start = EPOCH if suffix == "asc" else 0  # such a log counts from its start
    told = found["time"] if suffix == "asc" else found["time"].dt.epoch("us") / 1e6
    np.testing.assert_allclose(told.to_numpy(), np.array(times) - start, atol=2e-6, rtol=0)
    odd = [value for at, value in enumerate(values) if at % 2]
    assert found["can0.WHEELS.LEFT"][1::2].to_list() == pytest.approx(odd, abs=1e-9)
    assert found["can1.WHEELS.LEFT"][1::2].to_list() == pytest.approx(odd, abs=1e-9)
    assert source.units["can0.SPEED.SPEED"] == "km/h"
    assert found["can0.TILT.ROLL"][4:9].to_list() == pytest.approx([-0.3, -0.3, -0.3, -0.7, -0.7])
    assert source.recording.left_out == {"frames that are not in the database": "30"}


def test_lines_that_are_no_frames_are_put_aside(tmp_path: Path) -> None:
    database = write_database(tmp_path)
    for suffix in ("log", "asc"):
        path = tmp_path / f"a.{suffix}"
        write_can(path)
        lines = path.read_text().splitlines(keepends=True)
        whole = read(opened(path, dbc=database)).height
        cut = lines[40][: -len("00 00 00\n")] + "\n" if suffix == "asc" else lines[40][:30] + "\n"
        path.write_text("".join([*lines[:40], cut, *lines[41:60], "noise\n", *lines[60:-1], lines[-1].rstrip("\n")]))
        source = opened(path, dbc=database)
        faults = read(source)[FAULT].drop_nulls().to_list()
        if suffix == "log":
            assert len(faults) == 3 and "no newline" in faults[2]
            assert len(read(opened(path, dbc=database, final=True))[FAULT].drop_nulls()) == 2
            assert whole - 2 <= read(source).height - 3 <= whole
        assert any("line 61" in one or "line 62" in one for one in faults)


def test_a_log_needs_a_database(tmp_path: Path) -> None:
    write_can(tmp_path / "a.log")
    with pytest.raises(UsageError) as caught:
        opened(tmp_path / "a.log")
    assert "--dbc" in caught.value.hint
    assert "can0.0B4" in opened(tmp_path / "a.log", look=True).samples.signals
    (tmp_path / "bad.dbc").write_text("no database")
    with pytest.raises(DataError):
        opened(tmp_path / "a.log", dbc=tmp_path / "bad.dbc")


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", ["mcap", "bag", "blf"])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_half_a_log_is_refused_or_salvaged(tmp_path: Path, suffix: str, share: float) -> None:
    path, given = tmp_path / f"a.{suffix}", {}
    if suffix == "blf":
        write_can(path)
        given = {"dbc": write_database(tmp_path)}
    else:
        ROS[suffix](path)
    whole = frame(path, **given)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(DataError) as caught:
        opened(path, **given)
    assert path.name in caught.value.message
    if suffix == "mcap":
        source = opened(path, salvage=True)
        faults = read(source)[FAULT].drop_nulls().to_list()
        assert len(faults) == 1 and faults[0].startswith("damaged")
        rows = frame(path, salvage=True)
        assert 0 < rows.height < whole.height
        assert rows.equals(whole.head(rows.height))


def test_a_compressed_log(tmp_path: Path) -> None:
    import gzip

    write_mcap(tmp_path / "a.mcap")
    with gzip.open(tmp_path / "a.mcap.gz", "wb") as out, (tmp_path / "a.mcap").open("rb") as file:
        shutil.copyfileobj(file, out)
    assert frame(tmp_path / "a.mcap.gz").equals(frame(tmp_path / "a.mcap"))


@needs("raw/comma_rav4_candump.log", "comma2k19_segment.parquet")
def test_a_real_log_of_a_car(tmp_path: Path) -> None:
    """Decoded wheel speeds equal the speed that comma.ai decoded and stored beside the log."""
    car = tmp_path / "car.dbc"
    signals = [(7, "FR"), (23, "FL"), (39, "RR"), (55, "RL")]
    wheels = "\n".join(f' SG_ {name} : {bit}|16@0+ (0.01,-67.67) [0|250] "km/h" X' for bit, name in signals)
    speed = ' SG_ SPEED : 47|16@0+ (0.01,0) [0|250] "km/h" X'
    car.write_text(f'VERSION ""\nBU_: X\nBO_ 170 WHEEL: 8 X\n{wheels}\n\nBO_ 180 SPEED: 8 X\n{speed}\n\n')
    source = opened(public("raw/comma_rav4_candump.log"), dbc=car, signals=("can0.WHEEL.*", "can0.SPEED.SPEED"))
    found = read(source)
    assert (source.lost, found.height) == (0, 1658)
    mean = found.select(pl.mean_horizontal(f"can0.WHEEL.{name}" for _, name in signals)).to_series().to_numpy() / 3.6
    own = found["time"].dt.epoch("us").to_numpy() / 1e6
    logged = pl.read_parquet(public("comma2k19_segment.parquet"))
    told = logged["timestamp"].dt.epoch("us").to_numpy() / 1e6
    np.testing.assert_array_less(np.abs(mean - np.interp(own, told, logged["speed_m_s"])), 0.3)


@needs("raw/comma2k19_multirate.h5")
def test_real_signals_equal_merge_asof() -> None:
    """HDF5 at five rates, joined as pandas joins it."""
    path = public("raw/comma2k19_multirate.h5")

    def exact(seconds: Any) -> Any:
        return (np.floor(seconds) * 1e9 + np.round(seconds % 1 * 1e9)).astype(np.int64)

    with h5py.File(path) as file:
        left = pd.DataFrame({"t": exact(file["IMU/gyro/t"][()])})
        signals = {
            "CAN.speed": (file["CAN/speed/t"][()], file["CAN/speed/value"][:, 0]),
            "CAN.wheel_speed.3": (file["CAN/wheel_speed/t"][()], file["CAN/wheel_speed/value"][:, 3]),
            "GNSS.live_gnss_ublox.2": (file["GNSS/live_gnss_ublox/t"][()], file["GNSS/live_gnss_ublox/value"][:, 2]),
            "global_pose.frame_velocities.0": (
                file["global_pose/frame_times"][()],
                file["global_pose/frame_velocities"][:, 0],
            ),
        }
    reach = 20_000_000
    for rule, way in (("last", "backward"), ("nearest", "nearest")):
        found = frame(path, clock="IMU.gyro.0", join=rule, max_age=reach)
        for name, (times, values) in signals.items():
            right = pd.DataFrame({"t": exact(times), "v": values})
            expected = pd.merge_asof(left, right, on="t", direction=way, tolerance=reach)["v"]
            np.testing.assert_array_equal(found[name].fill_null(np.nan), expected.to_numpy(), f"{name} {rule}")


@needs("raw/panda_joint_states.mcap", "panda_exciting.parquet")
def test_a_real_bag() -> None:
    found = frame(public("raw/panda_joint_states.mcap"))
    told = pl.read_parquet(public("panda_exciting.parquet"))
    assert found.height == told.height == 727
    for joint in range(1, 8):
        for name, column in (
            ("position", f"q{joint}_rad"),
            ("velocity", f"qd{joint}_rad_s"),
            ("effort", f"effort{joint}_nm"),
        ):
            np.testing.assert_array_equal(found[f"joint_states.{name}.fer_joint{joint}"], told[column])
