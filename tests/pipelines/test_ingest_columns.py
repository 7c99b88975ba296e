"""Ingest: which columns are found, what their cells become, and what goes to the quarantine."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamgp.errors import SchemaError, UsageError
from streamgp_data.table import Table
from tests.pipelines.ingesting import FRAME, START, quarantine, rows, take, write
from tests.words import names


def test_long_format_is_found_by_itself(tmp_path: Path) -> None:
    text = "y,unique_id,ds,z\n1,a,2024-01-01,5\n2,b,2024-01-01,6\n3,a,2024-01-02,7\n4,b,2024-01-01,8\n5,,2024-01-09,1\n"
    summary = take(tmp_path / "t", write(tmp_path / "a.csv", text))
    table = Table.open(tmp_path / "t")
    assert (table.meta.time, table.meta.series) == ("ds", "unique_id")
    assert table.schema.names == ["_seq", "ds", "unique_id", "y", "z"]
    assert summary["quarantined"] == {"conflict": 1, "no series": 1}


def test_the_only_time_is_found_and_two_are_a_question(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "a.csv", "when,y\n2024-01-01T00:00Z,1\n"))
    assert Table.open(tmp_path / "t").meta.time == "when"
    with pytest.raises(UsageError):
        take(tmp_path / "u", write(tmp_path / "b.csv", "day,when,y\n2024-01-01,2024-01-01 00:00,1\n"))
    with pytest.raises(UsageError):
        take(tmp_path / "u", write(tmp_path / "c.csv", "a,b\n1,2\n"))


def test_units_and_types_are_kept(tmp_path: Path) -> None:
    fields: list[pa.Field[Any]] = [
        pa.field("ds", pa.timestamp("us", "Europe/Berlin")),
        pa.field("small", pa.uint8()),
        pa.field("wide", pa.uint32()),
        pa.field("half", pa.float32(), metadata={"unit": "V"}),
        pa.field("flag", pa.bool_()),
        pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
        pa.field("mark", pa.timestamp("ns")),
        pa.field("Load [MWh]", pa.float64()),
    ]
    schema = pa.schema(fields)
    row = {"small": 255, "wide": 2**32 - 1, "half": 1.5, "flag": True, "kind": "a", "mark": 1, "Load [MWh]": 2.0}
    pq.write_table(
        pa.Table.from_pylist([{"ds": datetime(2024, 1, 1, tzinfo=UTC), **row}], schema=schema), tmp_path / "a.parquet"
    )
    take(tmp_path / "t", tmp_path / "a.parquet")
    table = Table.open(tmp_path / "t")
    kinds = {field.name: str(field.type) for field in table.schema}
    assert table.meta.zone == "Europe/Berlin"
    assert kinds == {
        "_seq": "int64",
        "ds": "timestamp[us, tz=UTC]",
        "small": "int16",
        "wide": "int64",
        "half": "double",
        "flag": "bool",
        "kind": "string",
        "mark": "int64",
        "Load [MWh]": "double",
    }
    told = {field.name: field.metadata or {} for field in table.schema}
    assert [told[name].get(b"unit") for name in ("Load [MWh]", "half", "mark", "small")] == [b"MWh", b"V", b"ns", None]
    assert told["ds"][b"role"] == b"time"


def test_csv_numbers_are_float64_and_fit_the_table_they_come_to(tmp_path: Path) -> None:
    frame = pl.DataFrame({"ds": [START], "n": [1]}, schema={"ds": pl.Datetime("us"), "n": pl.Int8})
    frame.write_parquet(tmp_path / "a.parquet")
    take(tmp_path / "t", tmp_path / "a.parquet")
    text = "ds,n\n2024-01-02,2\n2024-01-03,3.0\n2024-01-04,4.5\n2024-01-05,500\n2024-01-06,\n"
    summary = take(tmp_path / "t", write(tmp_path / "b.csv", text))
    assert (summary["added"], summary["quarantined"]) == (3, {"unparsable": 2})
    assert rows(tmp_path / "t")["n"].to_list() == [1, 2, 3, None]
    take(tmp_path / "u", tmp_path / "b.csv")
    assert Table.open(tmp_path / "u").schema.field("n").type == pa.float64()


def test_missing_values(tmp_path: Path) -> None:
    text = (
        "ds,y,note\n2024-01-01,,a\n2024-01-02,NaN,\n2024-01-03,inf,NA\n"
        "2024-01-04,-inf,d\n2024-01-05, 5 ,e\n2024-01-06,?,f\n"
    )
    summary = take(tmp_path / "t", write(tmp_path / "a.csv", text), null=["?"])
    assert summary["quarantined"] == {}
    assert rows(tmp_path / "t")["y"].to_list() == [None, None, None, None, 5.0, None]
    assert rows(tmp_path / "t")["note"].to_list() == ["a", None, "NA", "d", "e", "f"]
    FRAME[:3].with_columns(y=pl.Series([float("nan"), float("inf"), 1.0])).write_parquet(tmp_path / "b.parquet")
    take(tmp_path / "u", tmp_path / "b.parquet")
    assert rows(tmp_path / "u")["y"].to_list() == [None, None, 1.0]


def test_the_quarantine_has_reason_source_line_and_the_row(tmp_path: Path) -> None:
    text = (
        'ds,y,note\n2024-01-01,1,"two\nlines"\n2024-01-02,1.2.3,x\n\n,4,no time\nsoon,5,x\n2024-01-03,6\n'
        "2024-01-01,7,again\n2024-01-04,8,fine\n"
    )
    path = write(tmp_path / "a.csv", text)
    summary = take(tmp_path / "t", path, keep_going=True)
    assert summary["added"] == 2
    assert summary["quarantined"] == {"conflict": 1, "no time": 1, "ragged": 1, "unparsable": 2}
    bad = quarantine(tmp_path / "t")
    assert bad.select("reason", "column", "line").rows() == [
        ("unparsable", "y", 4),
        ("no time", "ds", 6),
        ("unparsable", "ds", 7),
        ("ragged", "", 8),
        ("conflict", "ds", 9),
    ]
    assert set(bad["source"]) == {str(path)}
    assert bad["row"].to_list()[3] == "2024-01-03,6"
    assert json.loads(bad["row"][4])["note"] == "again"
    assert "'1.2.3' is not a number" in bad["detail"][0]


def test_a_file_of_other_columns_at_the_same_times_is_to_be_joined(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "load.csv", "ds,load\n2024-01-01,1\n2024-01-02,2\n"))
    with pytest.raises(SchemaError) as caught:
        take(tmp_path / "t", write(tmp_path / "weather.csv", "ds,temperature\n2024-01-01,1\n2024-01-02,2\n"))
    assert "join the files before ingest" in caught.value.hint


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_key_of_json_that_comes_late_is_left_out_with_a_note(dry_run: bool, tmp_path: Path) -> None:
    """As over a broker; one that may be a column renamed is a fault."""
    lines = [{"ds": str(START + timedelta(minutes=at)), "y": at, "load": 1.0} for at in range(1003)]
    lines[1001] |= {"fw": 7}
    lines[1002]["Load"] = lines[1002].pop("load")
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    found = take(tmp_path / "t", path, dry_run=dry_run)
    assert found["quarantined"] == {"ragged": 1}
    (note,) = [hint for hint in found["hints"] if "left out" in hint]
    assert names(note, "a.jsonl 'fw' 1,002") and "Load" not in note
    if not dry_run:
        assert rows(tmp_path / "t").columns[1:] == ["ds", "y", "load"] and rows(tmp_path / "t").height == 1002
        assert "renamed" in quarantine(tmp_path / "t")["detail"][0]
