"""What describe says of a table, counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from streamgp.errors import TableError
from streamgp_data.table import Table, TableMeta
from streamgp_pipelines.describe import describe_table
from tests.pipelines.ingesting import take, write


def test_two_series_with_gaps(tmp_path: Path) -> None:
    text = (
        "ds,unique_id,Load [MW],note\n"
        "2024-01-01 00:00,a,1,x\n2024-01-01 00:00,b,,x\n2024-01-01 01:00,a,2,\n2024-01-01 04:00,a,3,x\n"
        "2024-01-01 01:00,b,oops,x\n2024-01-01 01:00,b,5,x\n2024-01-01 01:00,b,6,x\n2024-01-01 03:00,a,7,x\n"
    )
    take(tmp_path / "t", write(tmp_path / "a.csv", text), every="1h", timezone="Europe/Berlin")
    told = describe_table(tmp_path / "t")
    aside = told["newest_quarantined"]
    assert [(row["line"], row["reason"], row["column"]) for row in aside][:1] == [(6, "unparsable", "Load [MW]")]  # type: ignore[union-attr,index,call-overload]
    json.dumps(told)
    assert (told["rows"], told["time"], told["zone"]) == (6, "ds", "Europe/Berlin")
    assert told["series"] == {"column": "unique_id", "count": 2, "names": ["a", "b"]}
    assert told["span"] == ["2024-01-01T00:00:00+01:00", "2024-01-01T04:00:00+01:00"]
    assert told["interval"] == {"declared": 3600.0, "tolerance": None, "lateness": None, "observed": 3600.0}
    assert (told["gaps"], told["backwards"], told["conflicts"]) == (1, 1, 1)
    assert told["quarantined"] == {"conflict": 1, "unparsable": 1}
    assert told["missing"] == {"ds": 0, "unique_id": 0, "Load [MW]": 1, "note": 1}
    assert told["schema"] == [
        {"name": "ds", "type": "timestamp[us, tz=UTC]", "role": "time", "unit": None},
        {"name": "unique_id", "type": "string", "role": "series", "unit": None},
        {"name": "Load [MW]", "type": "double", "role": None, "unit": "MW"},
        {"name": "note", "type": "string", "role": None, "unit": None},
    ]
    assert told["version"] == Table.open(tmp_path / "t").version


def test_a_source_of_corrections_alone(tmp_path: Path) -> None:
    """Its commit adds versions of rows, and no row of a time of its own."""
    for name, values in (("a", (1, 2, 3)), ("b", (4, 5, 6))):
        text = "ds,y\n" + "".join(f"2024-01-01 0{hour}:00,{value}\n" for hour, value in enumerate(values))
        take(tmp_path / "t", write(tmp_path / f"{name}.csv", text), duplicates="last")
    told = describe_table(tmp_path / "t")
    assert (told["versions"], told["span"]) == (3, ["2024-01-01T00:00:00", "2024-01-01T02:00:00"])
    assert (told["gaps"], told["interval"]["observed"]) == (0, 3600.0)  # type: ignore[index,call-overload]


def test_chunks_do_not_matter(tmp_path: Path) -> None:
    """Gaps and intervals across the chunks of a reader, against one look at all rows."""
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.choice([1, 1, 1, 5], size=150_000))
    names = rng.choice(["a", "b", "c"], size=150_000)
    frame = pl.DataFrame({"step": steps, "unique_id": names})
    frame.write_parquet(tmp_path / "a.parquet")
    take(tmp_path / "t", tmp_path / "a.parquet", time="step")
    told = describe_table(tmp_path / "t")
    gaps = frame.select(pl.col("step").diff().over("unique_id")).to_series().drop_nulls()
    assert told["interval"] == {
        "declared": 1,
        "tolerance": None,
        "lateness": None,
        "observed": int(np.sort(gaps.to_numpy())[(len(gaps) - 1) // 2]),
    }
    assert told["gaps"] == int((gaps > 1.5).sum())
    assert told["span"] == [int(steps[0]), int(steps[-1])]


@pytest.mark.parametrize("zone", ["UTC-3", "-0300", "-03:00"])
def test_a_zone_that_is_an_offset(zone: str, tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "a.csv", "ds,y\n2024-01-01 12:00,1\n"), timezone=zone)
    take(tmp_path / "t", tmp_path / "a.csv", timezone="-3:00")
    told = describe_table(tmp_path / "t")
    assert (told["zone"], told["span"]) == ("-03:00", ["2024-01-01T12:00:00-03:00"] * 2)


def test_without_a_clock_or_rows(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "a.csv", "a,b\n1,2\n3,\n"), time="row")
    told = describe_table(tmp_path / "t")
    assert (told["rows"], told["time"], told["span"], told["gaps"]) == (2, None, None, 0)
    Table.create(str(tmp_path / "u"), pa.schema({"ds": pa.timestamp("us"), "y": pa.float64()}), TableMeta(time="ds"))
    empty = describe_table(tmp_path / "u")
    assert (empty["rows"], empty["span"], empty["bytes"]) == (0, None, 0)
    with pytest.raises(TableError):
        describe_table(tmp_path / "none")
