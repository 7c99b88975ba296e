"""JSON Lines, Parquet, ORC and Arrow: types, faults, lines, and where a file is looked for."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc as orc_files

from streamgp.errors import DataError, SchemaError, UsageError
from streamgp_data.reading.cells import FAULT, LINE
from streamgp_data.reading.columnar import retype, storable
from streamgp_data.reading.files import expand, format_of, open_source
from streamgp_data.sources import arrow, jsonl, orc, parquet
from tests.words import naming


def rows_of(source: Any) -> list[dict[str, Any]]:
    return [row for chunk in source.read({}) for row in chunk.rows.to_pylist()]


def json_lines(path: Path, text: str, **options: Any) -> jsonl.Jsonl:
    path.write_text(text)
    return jsonl.build(jsonl.Config(**options), str(path))


def test_json_types_are_found(tmp_path: Path) -> None:
    text = '{"i":1,"f":1.5,"s":"a","b":true,"n":"2.5"}\n{"i":2,"z":null,"n":"3"}\n'
    source = json_lines(tmp_path / "a.jsonl", text)
    kinds = {name: str(source.schema.field(name).type) for name in source.names}
    assert kinds == {"i": "double", "f": "double", "s": "string", "b": "bool", "n": "double", "z": "double"}
    assert source.sample.schema.field("i").type == pa.int64()
    assert [row["n"] for row in rows_of(source)] == [2.5, 3.0]


def test_json_faults_have_their_line(tmp_path: Path) -> None:
    good = "".join(f'{{"ds":"2024-01-01","y":{i}}}\n' for i in range(1200))
    source = json_lines(tmp_path / "a.jsonl", good + '\n{"ds":"x","y":1,"new":2}\n{"y":"two"}\n{"y":3')
    found = rows_of(source)
    assert [(row[LINE], row[FAULT].split("|")[:2]) for row in found if row[FAULT]] == [(1203, ["unparsable", "y"])]
    (note,) = source.left_out()
    assert "'new' (first in line 1,202)" in note
    assert source.waiting is not None
    final = jsonl.build(jsonl.Config(final=True), source.uri)
    assert rows_of(final)[-1][FAULT].startswith("ragged||not JSON")


def test_plain_and_careful_give_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"y": rng.normal(size=300), "s": ['é"\\n'] * 300, "b": [True, None, False] * 100})
    source = json_lines(tmp_path / "a.jsonl", frame.write_ndjson())
    plain = rows_of(source)
    torn = json_lines(tmp_path / "b.jsonl", frame.write_ndjson() + '{"y":NaN}\n')
    assert rows_of(torn)[:-1] == plain
    assert [row["y"] for row in plain] == frame["y"].to_list()


STORED = [
    (pa.uint8(), pa.int16()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.uint64(), pa.int64()),
    (pa.int8(), pa.int8()),
    (pa.float16(), pa.float64()),
    (pa.float32(), pa.float64()),
    (pa.time32("s"), pa.string()),
    (pa.large_string(), pa.string()),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    (pa.null(), pa.float64()),
    (pa.timestamp("ns"), pa.int64()),
    (pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("us", "UTC")),
    (pa.timestamp("s"), pa.timestamp("us")),
    (pa.date64(), pa.date32()),
    (pa.decimal128(10, 2), pa.decimal128(10, 2)),
]


@pytest.mark.parametrize(("kind", "kept"), STORED)
def test_types_that_a_table_keeps(kind: pa.DataType, kept: pa.DataType) -> None:
    assert storable(kind, "x", "a") == kept


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.duration("s")])
def test_types_that_it_cannot(kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=naming("x")):
        storable(kind, "x", "a.parquet")


def test_values_that_do_not_survive() -> None:
    found, bad = retype(pa.array([2**63, 5, None], pa.uint64()), pa.int64())
    assert (found.to_pylist(), bad is not None and bad.tolist()) == ([None, 5, None], [True, False, False])
    found, bad = retype(pa.array([Decimal("1.5")]), pa.float64())
    assert (found.to_pylist(), bad) == ([1.5], None)
    found, bad = retype(pa.array([1.0, float("inf"), float("nan")], pa.float32()), pa.float32())
    assert (found.to_pylist(), bad) == ([1.0, None, None], None)


def test_row_groups_are_skipped_on_resuming(tmp_path: Path) -> None:
    pq.write_table(pa.table({"y": np.arange(1000.0)}), tmp_path / "a.parquet", row_group_size=64)
    source = parquet.build(parquet.Config(), str(tmp_path / "a.parquet"))
    end = next(iter(source.read({}))).after
    for rows in (0, 1, 63, 64, 65, 999, 1000):
        rest = [row for chunk in source.read({**end, "lines": rows}) for row in chunk.rows.to_pylist()]
        assert [row["y"] for row in rest] == [float(i) for i in range(rows, 1000)]
        assert [row[LINE] for row in rest] == list(range(rows + 1, 1001))


def test_two_parquet_columns_of_one_name(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DataError):
        arrow.build(arrow.Config(), str(tmp_path / "a.arrow"))


def test_formats_by_suffix() -> None:
    names = ["a.csv", "a.CSV", "a.tsv", "b.jsonl.gz", "c.parquet", "d.feather.zst", "d.orc.gz", "e.docx", "f"]
    assert [format_of(name) for name in names] == [
        "csv",
        "csv",
        "csv",
        "jsonl",
        "parquet",
        "arrow",
        "orc",
        None,
        None,
    ]


def test_what_names_stand_for(tmp_path: Path) -> None:
    names = ("b.csv", "a.csv", "odd[1].csv", "notes.md", "deep/c.csv", "_tmp/d.csv", ".e.csv", "demand/part.parquet")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "demand" / "_delta_log").mkdir()  # a table beside its sources
    inside = [str(Path(file).relative_to(tmp_path)) for file in expand((str(tmp_path),))]
    assert inside == ["a.csv", "b.csv", "deep/c.csv", "odd[1].csv"]
    assert expand((f"{tmp_path}/odd[1].csv",)) == [f"{tmp_path}/odd[1].csv"]
    assert len(expand((f"{tmp_path}/**/*.csv",))) == 5
    assert expand((f"{tmp_path}/b.csv", str(tmp_path)))[0] == f"{tmp_path}/b.csv"


def test_a_format_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_text("x;y\n1;2\n")
    with pytest.raises(DataError, match=naming("dat")):
        open_source(str(tmp_path / "a.dat"), None, {})
    assert open_source(str(tmp_path / "a.dat"), "csv", {"separator": ";"}).names == ["x", "y"]
    with pytest.raises(UsageError, match=naming("xml")):
        open_source(str(tmp_path / "a.dat"), "xml", {})


def test_of_a_parquet_file_cut_short_no_row_is_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"y": np.arange(4.0)}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=naming("Parquet")) as refused:
        open_source(str(path), None, {})
    assert "in the table" not in str(refused.value.hint)


def orc_file(path: Path, rows: int = 90_000) -> orc.ORC:
    """Of stripes of 20,000 rows; ORC keeps times to the nanosecond."""
    moments = np.datetime64("2024-01-01T00:00:00", "us") + np.arange(rows) * np.timedelta64(1, "s")
    table = pa.table(
        {"t": pa.array(moments), "y": np.arange(float(rows)), "s": pa.array(["a", None, "b"] * (rows // 3))}
    )
    with orc_files.ORCWriter(path, batch_size=1000, stripe_size=1 << 12, compression="zstd") as writer:
        for first in range(0, rows, 20_000):
            writer.write(table.slice(first, 20_000))
    return orc.build(orc.Config(), str(path))


@pytest.mark.parametrize("pieces", [7000, 1 << 17], ids=["less than a stripe", "more"])
def test_an_orc_file_is_read_from_any_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    monkeypatch.setattr("streamgp_data.sources.orc.ROWS", pieces)
    source = orc_file(tmp_path / "a.orc")
    chunks = list(source.read({}))
    assert len(chunks) > 4 and max(chunk.rows.num_rows for chunk in chunks) <= pieces
    for after in (0, 1, 19_999, 20_000, 65_000, 90_000):
        rest = [chunk.rows for chunk in source.read({**chunks[0].after, "lines": after})]
        whole = pa.Table.from_batches(rest, source.schema)
        np.testing.assert_array_equal(whole["y"], np.arange(after, 90_000))
        np.testing.assert_array_equal(whole[LINE], np.arange(after + 1, 90_001))


def test_times_of_an_orc_file_are_nanoseconds(tmp_path: Path) -> None:
    source = orc_file(tmp_path / "a.orc", 3)
    assert source.units == {"t": "ns"} and [row["s"] for row in rows_of(source)] == ["a", None, "b"]
    assert rows_of(source)[1]["t"] == 1_704_067_201_000_000_000


@pytest.mark.parametrize("left", [3, 500, -20])
def test_an_orc_file_cut_short_is_refused(tmp_path: Path, left: int) -> None:
    path = tmp_path / "a.orc"
    orc_file(path, 300)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(DataError, match=naming("ORC")):
        open_source(str(path), None, {})


@pytest.mark.slow
def test_a_machine_without_time_zones_is_told_what_to_install(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    orc_file(path, 300)
    read = "from streamgp_data.sources import orc; orc.build(orc.Config(), 'a.orc')"
    process = subprocess.run(  # which are looked for once in a process
        [sys.executable, "-c", read],
        cwd=tmp_path,
        env=os.environ | {"TZDIR": "/nowhere"},
        capture_output=True,
        text=True,
    )
    assert "DataError" in process.stderr and "time zone" in process.stderr


def test_an_arrow_file_with_damaged_offsets_is_refused(tmp_path: Path) -> None:
    """Whatever uses such an array reads memory that is not its own."""
    path = tmp_path / "a.arrow"
    table = pa.table({"y": np.arange(4.0), "s": ["aa", "bb", "cc", "dd"]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    offsets = np.array([0, 2, 4, 6, 8], np.int32).tobytes()
    data = path.read_bytes()
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, np.array([0, 2, 1 << 30, 6, 8], np.int32).tobytes()))
    with pytest.raises(DataError, match=naming("Arrow")):
        rows_of(arrow.build(arrow.Config(), str(path)))
