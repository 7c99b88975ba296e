"""Times finer than a microsecond are rounded to the nearest one, however they are written and whoever reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pandas as pd
import polars as pl
import pytest

from streamgp import Forecaster
from streamgp_data.moments import Moments
from tests.live import feeds
from tests.pipelines.ingesting import quarantine, rows, take

BASE = 1_779_999_999 * 10**9
NANOSECONDS = [BASE + at * 10_000_000 + fine for at, fine in enumerate((950_295, 499, 500, 999_999, 0))]
MICROS = [(time + 500) // 1000 for time in NANOSECONDS]
Y = [1.0, 2.0, 3.0, 4.0, 5.0]


def iso(time: int, digits: int = 9) -> str:
    second, rest = divmod(time, 10**9)
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}"[: 20 + digits]


def german(time: int) -> str:
    second, rest = divmod(time, 10**9)
    return f"{datetime.fromtimestamp(second, UTC):%d.%m.%Y %H:%M:%S}.{rest:09d}"


WAYS: dict[str, tuple[Callable[[int], Any], str, dict[str, str]]] = {
    "int64 in Parquet": (lambda time: time, ".parquet", {}),
    "int64 in CSV": (lambda time: time, ".csv", {}),
    "int64 in JSON": (lambda time: time, ".jsonl", {}),
    "seconds with 9 digits in CSV": (lambda time: f"{time // 10**9}.{time % 10**9:09d}", ".csv", {}),
    "milliseconds with 6 digits in CSV": (lambda time: f"{time // 10**6}.{time % 10**6:06d}", ".csv", {}),
    "ISO 8601 in CSV": (iso, ".csv", {}),
    "ISO 8601 in UTC in CSV": (lambda time: f"{iso(time)}Z", ".csv", {}),
    "ISO 8601 with an offset in JSON": (lambda time: f"{iso(time + 3600 * 10**9)}+01:00", ".jsonl", {}),
    "a format": (german, ".csv", {"time_format": "%d.%m.%Y %H:%M:%S%.f"}),
    "elapsed nanoseconds": (lambda time: time - BASE, ".parquet", {"time_format": "elapsed-ns"}),
}


def save(path: Path, times: Any) -> Path:
    frame = pl.DataFrame({"time": times, "y": Y})
    {".csv": frame.write_csv, ".jsonl": frame.write_ndjson, ".parquet": frame.write_parquet}[path.suffix](path)
    return path


def micros_of(table: Path) -> list[int]:
    return rows(table)["time"].to_physical().to_list()


@pytest.mark.sampled
@pytest.mark.parametrize("way", WAYS)
def test_a_time_is_the_nearest_microsecond_in_every_file(way: str, tmp_path: Path) -> None:
    written, suffix, options = WAYS[way]
    path = save(tmp_path / f"a{suffix}", [written(time) for time in NANOSECONDS])
    summary = take(tmp_path / "t", path, time="time", **options)
    start = BASE // 1000 if "elapsed" in way else 0
    assert (summary["quarantined"], micros_of(tmp_path / "t")) == ({}, [time - start for time in MICROS])


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_timestamp_of_nanoseconds_is_the_nearest_microsecond(zone: str | None, tmp_path: Path) -> None:
    path = save(tmp_path / "a.parquet", pl.Series(NANOSECONDS).cast(pl.Datetime("ns", zone)))
    assert take(tmp_path / "t", path, time="time")["quarantined"] == {}
    assert micros_of(tmp_path / "t") == MICROS


def test_that_nanoseconds_are_rounded_is_said(tmp_path: Path) -> None:
    hints = take(tmp_path / "t", save(tmp_path / "a.parquet", NANOSECONDS))["hints"]
    assert any("microseconds that a table keeps" in hint for hint in hints)
    even = save(tmp_path / "b.parquet", [time // 1000 * 1000 for time in NANOSECONDS])
    assert not any("microseconds that a table keeps" in hint for hint in take(tmp_path / "u", even)["hints"])


@pytest.mark.parametrize("digits", [7, 9])
@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_time_of_a_message_is_the_nearest_microsecond(form: str, digits: int, tmp_path: Path) -> None:
    def payload(time: int, y: float) -> bytes:
        if form == "json":
            return json.dumps({"time": iso(time, digits) + "Z", "y": y}).encode()
        return bytes(msgpack.packb({"time": msgpack.Timestamp.from_unix_nano(time), "y": y}))

    payloads = [payload(time, y) for time, y in zip(NANOSECONDS, Y, strict=True)]
    found = feeds.take(tmp_path / "t", feeds.Memory(payloads), format=form, time="time")
    assert (found["quarantined"], micros_of(tmp_path / "t")) == ({}, MICROS)


def test_rows_whose_times_are_rounded_to_one_are_duplicates_or_conflicts(tmp_path: Path) -> None:
    times = [BASE + 100, BASE + 499, BASE + 400, BASE + 1000, BASE + 1499]
    pl.DataFrame({"time": times, "y": [1.0, 1.0, 2.0, 3.0, 3.0]}).write_parquet(tmp_path / "a.parquet")
    summary = take(tmp_path / "t", tmp_path / "a.parquet", time="time")
    assert (summary["added"], summary["quarantined"]) == (2, {"duplicate": 2, "conflict": 1})
    assert quarantine(tmp_path / "t")["reason"].to_list() == ["duplicate", "conflict", "duplicate"]
    assert rows(tmp_path / "t")["y"].to_list() == [1.0, 3.0]


def test_a_forecaster_reads_pandas_times_of_nanoseconds() -> None:
    at = np.arange(120)
    times = pd.to_datetime(BASE + at * 10_000_000 + at * 7919 % 40_000)
    frame = pd.DataFrame({"stamp": times, "y": np.sin(at / 5)})
    learned = Forecaster("y", horizon=3, time="stamp", model="linear", lags=4, every="10ms", tolerance="2ms").fit(frame)
    ahead = learned.predict()
    assert len(ahead) == 3 and (ahead["stamp" if "stamp" in ahead else "ds"] > times[-1]).all()
    learned.learn(frame.assign(stamp=times + pd.Timedelta("1200ms") + pd.Timedelta("123ns")))


def test_a_time_in_an_option_and_in_a_future_file_is_rounded_alike() -> None:
    text = [iso(time) for time in NANOSECONDS]
    assert [Moments().instant(one, "--start") // 1000 for one in text] == MICROS
    assert [Moments(form="epoch-ns").instant(str(time), "--start") // 1000 for time in NANOSECONDS] == MICROS
    fine = pl.Series("time", NANOSECONDS).cast(pl.Datetime("ns", "UTC"))
    for cells in (pl.Series("time", text), fine, fine.dt.replace_time_zone(None)):
        assert Moments().read(cells, None, "f.csv", 2).to_physical().to_list() == MICROS
