"""Inputs that benchmarks/fuzzed_parsers_break_no_count.py found: each once ended in an error of a library, or lost."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
import zlib
from base64 import b85decode
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamgp.errors import DataError, UsageError
from streamgp_data.ingestion.ingest import ingest
from streamgp_data.protobuf import ProtobufSchema
from streamgp_data.reading import workbook
from streamgp_data.reading.cells import FAULT
from streamgp_data.reading.columnar import plain
from streamgp_data.reading.files import open_source
from streamgp_data.sources import mcap, rosbag
from streamgp_data.sources.jsonl import natural
from streamgp_pipelines.config import IngestConfig
from tests.data.sources.recordings import COUNT, write_bag, write_mcap, write_ulog
from tests.words import naming

ENDLESS = "RZMSZ0TML<Kub&j00000H~>arV`F7(I(2DobT%|!bRcwTZDn(G0000000000fIk2L06+s507L))K}$>k00000004kL004kL0000$0{"

FAR = (
    "c-rliOG*Pl5QhKi={zPvNF)flkbnqoase0W#tX!Sdr=UA350BN01qPM0)p2NJwjZ%^8o7jclXRNz956yMCvPw?x~rs?w;!EdVFZlZ*I4q@Pz|Jcu"
    "!(f3pPpB(*oZoiR)&qBT-h0H>!(Y#MoJCh3aBnqt>Z$8eipq(#ME0K^MmuvK?cJGHjqCnJ-yzO!2-r<?Le&aOT%BKv~vdq`03&#+dZ}S`ww_UowB"
    "1Kd$pfR9)8JyOj62zioFh;}4Q4g7k1j>EWEx#U*9mTjuEe=rq`8zu24K?AK`EF6>24@QO{i>nQT&Mkb7xjCeTNf98kTnp>aN4AabOR2XW_T3)y4B"
    "s_)^#*JCiPEUe`41Ee*Afl7vA$~awmc5<abku;ND2k#eilQirqO2SrVomLq"
)
"""A workbook of Excel 97, compressed, with a cell in column 9,001."""


def rows(path: Path, **options: Any) -> pa.Table:
    return pa.Table.from_batches([chunk.rows for chunk in open_source(str(path), None, options).read({})])


@pytest.mark.parametrize("name", ["_line", "_fault", "_text"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_names_of_our_own_columns_are_refused(tmp_path: Path, name: str, suffix: str) -> None:
    path, frame = tmp_path / f"a.{suffix}", pl.DataFrame({"t": [1, 2], name: [1.0, 2.0]})
    {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[suffix](path)
    with pytest.raises(DataError, match=f"{name}' is used by streamgp"):
        rows(path)


def test_a_zero_byte_makes_no_utf_16(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"t\n\0\n2024-01-01\n2024-01-02\n")
    assert rows(tmp_path / "a.csv").num_rows == 3
    for encoding in ("utf-16-le", "utf-16-be"):
        (tmp_path / "b.csv").write_bytes("t,ж\n2024-01-01,да\n".encode(encoding))
        assert rows(tmp_path / "b.csv").column("ж").to_pylist() == ["да"]


def test_pages_that_lose_rows_are_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"y": pa.array([1], pa.int32())}), out, use_dictionary=False, compression="none")
    data = bytearray(out.getvalue())
    assert data[4:6] == b"\x15\0"  # the kind of the first page
    data[5] = 6
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(DataError, match="0 of 1 rows"):
        rows(tmp_path / "a.parquet")


def test_units_that_are_no_text(tmp_path: Path) -> None:
    table = pa.table({"y": [1.0]}, pa.schema([pa.field("y", pa.float64(), metadata={b"unit": b"\xff", b"\xff": b""})]))
    with pa.ipc.new_file(tmp_path / "a.feather", table.schema) as writer:
        writer.write(table)
    source = open_source(str(tmp_path / "a.feather"), None, {})
    assert source.units == {"y": "\ufffd"}


def test_missing_values_where_none_may_be() -> None:
    rows = pa.table({"y": [1.0, None]}, pa.schema([pa.field("y", pa.float64(), nullable=False)]))
    assert plain(rows).column("y").to_pylist() == [1.0, None]


def test_time_zones_that_are_no_text(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([0], pa.timestamp("s", "UTC"))})
    with pa.ipc.new_file(tmp_path / "a.feather", table.schema) as writer:
        writer.write(table)
    data = (tmp_path / "a.feather").read_bytes()
    (tmp_path / "a.feather").write_bytes(data.replace(b"UTC", b"U\xffC"))
    with pytest.raises(DataError, match="time zone"):
        rows(tmp_path / "a.feather")


@pytest.mark.parametrize("zone", [None, "+10:00", "Europe/Berlin"])
def test_times_that_no_calendar_has_are_put_aside(tmp_path: Path, zone: str | None) -> None:
    micros = pa.array([0, 2**62, -(2**62), 10**6]).cast(pa.timestamp("us", zone))
    other = pa.array([2**62, -(2**62), 1, 2], pa.timestamp("us"))
    pq.write_table(pa.table({"t": micros, "y": [1.0, 2.0, 3.0, 4.0], "other": other}), tmp_path / "a.parquet")
    config = {"source": [str(tmp_path / "a.parquet")], "table": str(tmp_path / "t"), "time": "t", "max_ahead": None}
    found: Any = ingest(IngestConfig.read(config))
    assert (found["added"], found["quarantined"]) == (2, {"out of range": 2})


def test_times_in_a_dictionary(tmp_path: Path) -> None:
    times = pa.array(["2024-01-01", "2024-01-02", "2024-01-03"]).dictionary_encode()
    with pa.ipc.new_file(tmp_path / "a.feather", (table := pa.table({"t": times, "y": [1.0, 2, 3]})).schema) as writer:
        writer.write(table)
    config = {"source": [str(tmp_path / "a.feather")], "table": str(tmp_path / "t"), "time": "t"}
    found: Any = ingest(IngestConfig.read(config))
    assert found["added"] == 3


def test_an_unknown_zone_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": pa.array([0]).cast(pa.timestamp("us", "Europe/B"))}), tmp_path / "a.parquet")
    config = {"source": [str(tmp_path / "a.parquet")], "table": str(tmp_path / "t"), "time": "t"}
    with pytest.raises(UsageError, match="Europe/B"):
        ingest(IngestConfig.read(config))


def test_times_beyond_the_calendar_are_put_aside(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([0, 2**62], pa.timestamp("s"))})
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write(table)
    found = rows(path)
    assert found.column(FAULT).to_pylist() == [None, f"unparsable|t|{2**62} is no timestamp[us]"]


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**63) - 1, 10**400, -(10**400)])
def test_whole_numbers_of_any_length(value: int) -> None:
    assert len(natural([1, value])) == 2


@pytest.mark.sampled
@pytest.mark.parametrize("place", ["A999999999999", "A1048577", "XFE1", "AAAAAA1", "XFD1048576"])
def test_a_cell_that_is_far_away_fills_no_memory(tmp_path: Path, place: str) -> None:
    pl.DataFrame({"t": [1, 2], "y": [3, 4]}).write_excel(tmp_path / "whole.xlsx")
    with zipfile.ZipFile(tmp_path / "whole.xlsx") as old, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data.replace(b'r="B3"', f'r="{place}"'.encode()) if "worksheets" in name else data)
    assert rows(tmp_path / "whole.xlsx").num_rows == 2
    with pytest.raises(DataError, match="far from all others"):
        rows(tmp_path / "a.xlsx")


@pytest.mark.parametrize("suffix", ["mcap", "bag"])
def test_all_chunks_together_are_bounded(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a recording may be small, and many, and each unpack to a lot."""
    module, path = {"mcap": mcap, "bag": rosbag}[suffix], tmp_path / f"a.{suffix}"
    if suffix == "mcap":
        write_mcap(path)
    else:
        write_bag(path, "LZ4")
    assert rows(path).num_rows > 0
    monkeypatch.setattr(module, "_LEAST", 1000)
    monkeypatch.setattr(module, "_PACKED", 0)
    with pytest.raises(DataError, match="chunks decompress to more"):
        rows(path)


def test_a_log_in_which_its_reader_goes_back_for_ever(tmp_path: Path) -> None:
    write_ulog(tmp_path / "whole.ulg")
    (tmp_path / "a.ulg").write_bytes(b85decode(ENDLESS))
    with pytest.raises(DataError, match="could not be read"):
        rows(tmp_path / "a.ulg")
    assert rows(tmp_path / "whole.ulg").num_rows == COUNT


def test_a_schema_names_no_module() -> None:
    """A file of Google that is not one: an error of the file, and nothing of its name is imported."""
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    files.file.add(name="a.proto", dependency=["google/protobuf/compiler.proto"])
    with pytest.raises(ValueError, match="is not in it") as raised:
        ProtobufSchema(files.SerializeToString())
    assert not isinstance(raised.value, UsageError)


def test_more_columns_than_a_sheet_can_have(tmp_path: Path) -> None:
    (tmp_path / "a.xls").write_bytes(zlib.decompress(b85decode(FAR)))
    with pytest.raises(DataError, match=naming("column 9,001 of 256")):
        workbook.sheets_of(str(tmp_path / "a.xls"), "a.xls", None, None)


def test_cells_that_take_too_much_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    pl.DataFrame({"t": [1]}).write_excel(tmp_path / "a.xlsx")
    written = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", SimpleNamespace(buffer=written))
        for name in ("limit_memory", "end_in"):
            patch.setattr(workbook, name, lambda _: None)
        patch.setattr(pl.DataFrame, "write_ipc", fails)
        workbook.main(str(tmp_path / "a.xlsx"), "a.xlsx", "0")
    message, hint = json.loads(written.getvalue())["refused"]
    assert "memory" in message and hint


@pytest.mark.slow
def test_few_cases_of_the_kinds_that_are_read_apart(tmp_path: Path) -> None:
    benchmark, results = Path(__file__).parents[2] / "benchmarks" / "fuzzed_parsers_break_no_count.py", tmp_path / "a"
    kinds = ("MATLAB 5", "HDF5", "MDF", "Excel (.xls)", "Excel (.xlsb)", "OpenDocument (.ods)")
    asked = [word for kind in kinds for word in ("--kind", kind, "--kind", f"{kind}, apart")]
    words = [sys.executable, str(benchmark), "--cases", "40", "--apart", "2", "--results", str(results), *asked]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=400)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for kind, (counts, died, hung, faults, *_) in json.loads(results.read_text()).items():
        assert sum(counts.values()) + died + hung == (2 if kind.endswith("apart") else 40)
        assert not faults
