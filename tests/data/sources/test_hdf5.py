"""HDF5 and MATLAB: which array is whose time, what is left out, and what is never followed."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from scipy.io import savemat
from scipy.sparse import eye

from streamgp import registry
from streamgp.errors import DataError, UsageError
from streamgp_data.ingestion.ingest import ingest
from streamgp_data.reading.cells import FAULT, LINE, TEXT
from streamgp_data.reading.files import open_source
from streamgp_data.reading.process import started
from streamgp_data.recordings import apart, matlab
from streamgp_data.recordings.apart import Apart
from streamgp_data.recordings.joined import Joined
from streamgp_data.table import Table
from streamgp_pipelines.config import DescribeConfig, IngestConfig
from streamgp_pipelines.describe_file import describe_file

pytestmark = pytest.mark.usefixtures("read_here")

T = np.arange(200) / 100
EPOCH = 1_700_000_000


def opened(path: Path, **options: Any) -> Joined:
    source = open_source(str(path), None, options)
    assert isinstance(source, Joined)
    return source


def frame(path: Path, **options: Any) -> pl.DataFrame:
    source = opened(path, **options)
    rows = pa.Table.from_batches([chunk.rows for chunk in source.read({})])
    return pl.DataFrame(pl.from_arrow(rows)).drop(LINE, FAULT, TEXT)


def write(path: Path, **arrays: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name.replace("__", "/")] = values
    return path


def test_a_time_beside_its_arrays_and_one_above(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.h5",
        time=T,
        top=np.sin(T),
        fast__t=np.arange(50) / 50,
        fast__xyz=np.arange(150.0).reshape(50, 3),
        fast__slow=np.cos(T),
    )
    found = frame(path)
    assert found.columns == ["time", "fast.slow", "fast.xyz.0", "fast.xyz.1", "fast.xyz.2", "top"]
    assert found["top"].to_list() == np.sin(T).tolist()
    assert found["fast.slow"].to_list() == np.cos(T).tolist()
    assert found.filter(pl.col("time") == 0.5)["fast.xyz.1"].to_list() == [25 * 3 + 1]


def test_signals_that_never_change_are_described_last(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", time=T, a=np.zeros(len(T)), b=np.sin(T))
    found: Any = describe_file(DescribeConfig.read({"source": path}))
    assert [(one["signal"], one.get("constant")) for one in found["signals"]] == [("b", None), ("a", 0.0)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("times", "unit", "options"),
    [
        (EPOCH + T, "", {}),
        ((EPOCH + T) * 1000, "", {}),
        (EPOCH * 10**9 + np.arange(200) * 10**7, "", {}),
        (T, "seconds since 2023-11-14 22:13:20", {}),
        (T * 1000 + 250_000, "", {"time_format": "elapsed-ms"}),
        (T * 1000 + 250_000, "ms", {}),
    ],
)
def test_units_of_time(tmp_path: Path, times: Any, unit: str, options: dict[str, Any]) -> None:
    path = write(tmp_path / "a.h5", t=times, y=np.sin(T))
    with h5py.File(path, "a") as file:
        file["t"].attrs["units"] = unit
        file["y"].attrs["units"] = "m"
    source = opened(path, **options)
    assert source.units["y"] == "m"
    found = frame(path, **options)["time"]
    if found.dtype == pl.Float64:
        np.testing.assert_allclose(found.to_numpy(), 250 + T, atol=1e-6)
    else:
        np.testing.assert_allclose(found.dt.epoch("us").to_numpy() / 1e6, EPOCH + T, atol=2e-6, rtol=0)


def test_a_count_from_a_start_needs_its_unit(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", t=np.arange(200), y=np.sin(T))
    with pytest.raises(DataError):
        opened(path)
    assert frame(path, time_format="elapsed-ms")["time"].to_list()[:3] == [0.0, 0.001, 0.002]


def test_arrays_without_a_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", axis=T, y=np.sin(T))
    with pytest.raises(DataError):
        opened(path)
    assert frame(path, time="axis")["y"].to_list() == np.sin(T).tolist()
    with pytest.raises(UsageError):
        opened(path, time="y.z")


def test_samples_are_numbered_where_that_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", y=np.sin(T), z=T)
    given: dict[str, Any] = {"source": (str(path),), "time": "row"}
    found = ingest(IngestConfig.read({**given, "table": tmp_path / "clock", "every": "10ms"}))
    table = Table.open(str(tmp_path / "clock"))
    rows = pl.DataFrame(pl.from_arrow(next(table.arrived({})).rows))
    assert found["rows"] == len(T) and table.meta.every_ns == 10**7 and table.meta.time == "time"
    assert rows["time"].to_physical().to_list()[:3] == [0, 10_000, 20_000] and rows["y"].to_list() == np.sin(T).tolist()
    ingest(IngestConfig.read({**given, "table": tmp_path / "rows"}))
    assert Table.open(str(tmp_path / "rows")).meta.time is None and Table.open(str(tmp_path / "rows")).rows == len(T)


def test_two_times_are_no_guess(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", host_time=T, device_time=T + 1, y=np.sin(T))
    with pytest.raises(UsageError):
        opened(path)
    assert frame(path, time="host_time", signals=("y",))["time"][0] == 0.0


def groups(path: Path) -> Path:
    clocks = {"a__t": np.arange(11.0), "e__t": np.arange(50.0, 61), "g__t": np.arange(7.0)}
    values = {"a__x": np.arange(11.0), "e__y": np.arange(11.0), "g__z": np.arange(7.0)}
    return write(path, **clocks, **values, c__loose=np.arange(11.0))


def first_times(path: Path, **options: Any) -> dict[str, float]:
    return {name: one.first / 1e9 for name, one in opened(path, **options).samples.signals.items()}


@pytest.mark.slow
def test_an_array_of_which_the_time_is_unsure_stops_no_other(tmp_path: Path) -> None:
    path = groups(tmp_path / "a.h5")
    beside = {"a.x": 0, "e.y": 50, "g.z": 0}
    assert first_times(path) == first_times(path, look=True) == beside
    source = opened(path)
    assert set(source.recording.left_out) == {"c.loose"}
    assert any("c.loose" in note for note in source.notes())
    assert first_times(path, time="a.t") == {**beside, "c.loose": 0}
    assert first_times(path, time="e.t") == {**beside, "c.loose": 50}
    assert first_times(path, time="g.t") == beside  # it does not fit the loose array


@pytest.mark.slow
def test_only_what_is_wanted_is_an_error(tmp_path: Path) -> None:
    path = groups(tmp_path / "a.h5")
    source = opened(path, signals=("e.*",))
    assert set(source.samples.signals) == {"e.y"} and not source.recording.left_out
    for signals in (("c.loose",), ("c.loose", "e.y")):
        with pytest.raises(UsageError) as caught:
            opened(path, signals=signals)
        assert "--time a.t" in caught.value.hint
    assert first_times(path, signals=("c.loose",), time="e.t") == {"c.loose": 50}


@pytest.mark.parametrize("arrays", [{"host_time": T, "device_time": T + 1}, {"t": np.arange(200)}])
def test_what_is_there_is_told_even_if_none_can_be_read(tmp_path: Path, arrays: dict[str, Any]) -> None:
    path = write(tmp_path / "a.h5", y=np.sin(T), **arrays)
    source = opened(path, look=True)
    assert not source.samples.signals and set(source.recording.left_out) == {"y"}


def test_a_time_that_is_named_wins_over_those_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", e__time=T, e__utc=T + 9, e__y=np.sin(T))
    assert first_times(path, time="e.utc", signals=("e.y",)) == {"e.y": 9}


def test_samples_without_a_time_are_put_aside(tmp_path: Path) -> None:
    times = T.copy()
    times[[3, 77]] = np.nan, 1e300
    source = opened(write(tmp_path / "a.h5", t=times, y=np.sin(T)))
    chunks = [chunk.rows for chunk in source.read({})]
    assert sum(rows.num_rows - rows.column(FAULT).null_count for rows in chunks) == 2
    assert sum(rows.column(FAULT).null_count for rows in chunks) == 198
    last = chunks[-1].column(FAULT).to_pylist()[-1]
    assert last.startswith("no time") and "a sample of y" in last


def test_no_other_file_is_read(tmp_path: Path) -> None:
    """External links, external storage and virtual datasets name other files: secrets of the machine may be there."""
    secret = write(tmp_path / "secret.h5", y=np.arange(200.0))
    (tmp_path / "raw").write_bytes(np.arange(200.0).tobytes())
    path = write(tmp_path / "a.h5", t=T, y=np.sin(T))
    with h5py.File(path, "a") as file:
        file["linked"] = h5py.ExternalLink(str(secret), "/y")
        file.create_dataset("outside", (200,), np.float64, external=[(str(tmp_path / "raw"), 0, 1600)])
        layout = h5py.VirtualLayout((200,), np.float64)
        layout[:] = h5py.VirtualSource(str(secret), "y", (200,))
        file.create_virtual_dataset("virtual", layout)
        file["loop"] = file["/"]
    source = opened(path)
    assert source.names == ["time", "y"]
    assert {"linked", "outside", "virtual"} <= set(source.recording.left_out)


def test_values_that_are_not_there_fill_no_disk(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("t", "y"):
            file.create_dataset(name, (1 << 40,), np.float64, chunks=(1 << 20,))
    with pytest.raises(DataError):
        opened(tmp_path / "a.h5")


def test_records_are_signals(tmp_path: Path) -> None:
    rows = np.zeros(200, [("timestamp", "f8"), ("v", "f4"), ("n", "i2"), ("label", "S3")])
    rows["timestamp"], rows["v"], rows["n"] = T, np.sin(T), np.arange(200)
    found = frame(write(tmp_path / "a.h5", table=rows))
    assert found.columns == ["time", "table.n", "table.v"]
    assert found["table.n"].to_list() == list(range(200))


def test_matlab_5(tmp_path: Path) -> None:
    signals = np.zeros((1, 2), [("Name", object), ("Unit", object), ("Data", object)])
    signals[0, 0] = ("speed", "m/s", np.sin(T)[:, None])
    signals[0, 1] = ("torque", "N m", np.cos(T)[None, :])
    savemat(tmp_path / "a.mat", {"run": {"X": {"Data": T[:, None]}, "Y": signals}}, do_compression=True)
    source = opened(tmp_path / "a.mat")
    assert source.units == {"Y.speed": "m/s", "Y.torque": "N m"}
    found = frame(tmp_path / "a.mat")
    assert found.columns == ["time", "Y.speed", "Y.torque"]
    assert found["Y.torque"].to_list() == np.cos(T).tolist()


APART = """
import os, signal
from streamgp.errors import UsageError

def dies(path):
    os.kill(os.getpid(), signal.SIGSEGV)

def fills(path):
    return bytearray(3 << 30)

def hangs(path):
    while True:
        pass

def refuses(path, word):
    raise UsageError(f"no {word}", hint="another")
"""


def test_a_library_that_hangs_is_ended_though_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(APART)
    line = "from streamgp_data.recordings import apart; apart.time_limit = lambda _: 0.2; "
    line += f"apart.main('reads', 'hangs', '{tmp_path}', '{{}}')"
    done = subprocess.run([sys.executable, "-c", line], cwd=tmp_path, timeout=60)
    assert done.returncode == -signal.SIGALRM


def test_a_crash_of_a_library_ends_no_process_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "started", started)
    (tmp_path / "reads.py").write_text(APART)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="died"):
        list(Apart(str(tmp_path / "reads.py"), "reads", "dies").blocks(lambda name: True))
    with pytest.raises(ValueError, match="MemoryError"):
        list(Apart(str(tmp_path / "reads.py"), "reads", "fills").blocks(lambda name: True))
    with pytest.raises(UsageError, match="no time") as raised:
        list(Apart(str(tmp_path / "reads.py"), "reads", "refuses", options={"word": "time"}).blocks(lambda name: True))
    assert raised.value.hint == "another"


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["a.h5", "a.mat"])
def test_they_are_read_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(apart, "started", started)
    if name.endswith("mat"):
        savemat(tmp_path / name, {"t": T, "y": T})
    else:
        write(tmp_path / name, t=T, y=T)
    source = opened(tmp_path / name)
    assert isinstance(source.recording, Apart)
    with pytest.raises(UsageError, match="no such vector"):
        opened(tmp_path / name, time="nothing")


def test_matlab_variables(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"t": T, "u": np.arange(200), "y": np.c_[T, -T], "note": "text", "k": 3.0})
    found = frame(tmp_path / "a.mat")
    assert found.columns == ["time", "u", "y.0", "y.1"]
    assert found["y.1"].to_list() == (-T).tolist()


@pytest.mark.parametrize("packed", [False, True])
def test_a_variable_of_another_length_loses_no_other(tmp_path: Path, packed: bool) -> None:
    """SciPy passes over what the length of a variable covers, and ends without a word at one beyond the file."""
    path, c = tmp_path / "a.mat", np.array([T, "a", 5], dtype=object)
    content = {"u": T, "c": c, "s": {"a": T, "b": {"c": "x"}}, "n": eye(9).tocsc(), "e": np.zeros((0, 3)), "y": T + 1j}
    savemat(path, content, do_compression=packed)
    whole = path.read_bytes()
    names = [leaf.name for leaf in matlab._leaves(str(path), "a.mat")[0]]
    assert names == ["u", "c.1", "c.3", "s.a", "e"]
    starts = [128]
    while starts[-1] < len(whole):
        starts.append(starts[-1] + 8 + int.from_bytes(whole[starts[-1] + 4 : starts[-1] + 8], "little"))
    assert len(starts) == 7 and starts[-1] == len(whole)
    for at, (start, behind) in enumerate(pairwise(starts)):
        after = [end - start - 8 for end in starts[at + 2 :]]
        for length in (*after, 0, behind - start - 16, 0x0FFFFFF0, 0xFFFFFFF0):
            path.write_bytes(whole[: start + 4] + length.to_bytes(4, "little") + whole[start + 8 :])
            with pytest.raises(DataError, match="damaged at byte"):
                matlab._leaves(str(path), "a.mat")


@pytest.mark.parametrize("name", ["a.h5", "a.mat"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_half_a_file_is_refused(tmp_path: Path, name: str, share: float) -> None:
    path = tmp_path / name
    if name.endswith("mat"):
        savemat(path, {"t": T, "y": np.sin(T)})
    else:
        write(path, t=T, y=np.sin(T))
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(DataError) as caught:
        opened(path)
    assert name in caught.value.message and caught.value.hint


def test_no_format_is_imported_before_it_is_used() -> None:
    names = ["h5py", "mcap", "rosbags", "can", "cantools", "asammdf", "pyulog", "fastexcel", "scipy"]
    code = (
        "import sys; from streamgp_data.reading.files import suffixes; suffixes(); "
        f"print([name for name in {names} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert "hdf5" in registry.names("sources")
