"""A wide table becomes a long one at ingest: as polars unpivots it, once, however often and wherever it is read."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from streamgp.errors import SchemaError, UsageError
from tests.pipelines.ingesting import START, quarantine, rows, take, text_of
from tests.pipelines.killed import Crash, code_of, start
from tests.pipelines.test_ingest_killed import CRASHES

COUNT = 60
WIDE = pl.DataFrame({"ds": [START.replace(hour=i % 24, day=1 + i // 24) for i in range(COUNT)]}).with_columns(
    temperature=pl.int_range(COUNT) / 3,
    zone_a=pl.int_range(COUNT) * 1.5,
    zone_b=pl.when(pl.int_range(COUNT) % 7 != 3).then(pl.int_range(COUNT) * -2),
    zone_c=pl.int_range(COUNT),
)


def long(wide: pl.DataFrame) -> pl.DataFrame:
    """What the table must have: a row's series beside one another."""
    values = [pl.col(name).cast(pl.Float64).alias(name) for name in ("zone_a", "zone_b", "zone_c")]
    found = (
        wide.with_columns(values)
        .with_row_index()
        .unpivot(
            ["zone_a", "zone_b", "zone_c"],
            index=["index", "ds", "temperature"],
            variable_name="unique_id",
            value_name="y",
        )
    )
    order = found.sort("index", maintain_order=True).drop("index")
    return order.select("ds", "unique_id", "temperature", "y")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_a_wide_table_is_stored_as_polars_unpivots_it(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / f"wide.{suffix}"
    {"csv": lambda p: p.write_text(text_of(WIDE)), "parquet": WIDE.write_parquet, "jsonl": WIDE.write_ndjson}[suffix](
        source
    )
    told = take(tmp_path / "table", source, melt="zone_*", every="1h")
    assert told["added"] == 3 * COUNT and not told["quarantined"]
    assert_frame_equal(rows(tmp_path / "table").drop("_seq"), long(WIDE), check_exact=False)
    assert take(tmp_path / "table", source, melt="zone_*")["added"] == 0


@pytest.mark.parametrize("melt", ["zone_a [kW],zone_b [kW]", "zone_* [kW]"])
def test_columns_with_a_unit_in_their_name_are_melted(tmp_path: Path, melt: str) -> None:
    source = tmp_path / "wide.csv"
    source.write_text(text_of(WIDE.rename({"zone_a": "zone_a [kW]", "zone_b": "zone_b [kW]"})))
    assert take(tmp_path / "table", source, melt=melt)["added"] == 2 * COUNT
    assert set(rows(tmp_path / "table")["unique_id"]) == {"zone_a [kW]", "zone_b [kW]"}


@pytest.mark.parametrize("name", ["ds", "moment"])
def test_a_pattern_leaves_the_time_out(tmp_path: Path, name: str) -> None:
    source = tmp_path / "wide.csv"
    source.write_text(text_of(WIDE.drop("temperature").rename({"ds": name})))
    assert take(tmp_path / "table", source, melt="*")["added"] == 3 * COUNT
    assert_frame_equal(rows(tmp_path / "table").drop("_seq").rename({name: "ds"}), long(WIDE).drop("temperature"))
    assert take(tmp_path / "table", source, melt="*")["added"] == 0


def test_a_file_that_grows_goes_on_and_repeated_rows_are_duplicates(tmp_path: Path) -> None:
    source = tmp_path / "wide.csv"
    source.write_text(text_of(WIDE.head(20)))
    assert take(tmp_path / "table", source, melt="zone_*", series="zone")["added"] == 60
    source.write_text(text_of(pl.concat([WIDE.head(20), WIDE.slice(15)])))  # five rows come twice
    told = take(tmp_path / "table", source, melt="zone_*", series="zone")
    assert (told["added"], told["duplicates"]) == (120, 15)
    found = rows(tmp_path / "table").drop("_seq").rename({"zone": "unique_id"})
    assert_frame_equal(found, long(WIDE))
    assert quarantine(tmp_path / "table")["line"].unique().sort().to_list() == [22, 23, 24, 25, 26]


def test_a_row_with_an_unreadable_cell_is_quarantined_whole(tmp_path: Path) -> None:
    source = tmp_path / "wide.csv"
    lines = text_of(WIDE).splitlines()
    lines[7] = lines[7].rpartition(",")[0] + ",oops"
    lines[9] = lines[9] + ",more"
    source.write_text("\n".join(lines) + "\n")
    told = take(tmp_path / "table", source, melt="zone_*")
    assert told["added"] == 3 * (COUNT - 2)
    aside = quarantine(tmp_path / "table")
    assert aside["line"].to_list() == [8, 10] and aside["column"][0] == "zone_c" and "oops" in aside["row"][0]


def ingest_apart(source: str, table: str, mine: Crash | None) -> None:
    """What the process does."""
    from streamgp_data.reading import records

    records.BLOCK = 500
    if mine is not None:
        mine.arm()
    take(Path(table), source, melt="zone_*")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["between quarantine and table", "after the second batch", "at a judgement"])
def test_killed_anywhere_every_row_is_there_once(tmp_path: Path, where: str) -> None:
    source, table = tmp_path / "wide.csv", tmp_path / "table"
    source.write_text(text_of(pl.concat([WIDE, WIDE.head(3)])))
    assert code_of(start(ingest_apart, str(source), str(table), CRASHES[where])) == -signal.SIGKILL
    assert code_of(start(ingest_apart, str(source), str(table), None)) == 0
    assert_frame_equal(rows(table).drop("_seq"), long(WIDE))
    assert quarantine(table).height == 9


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"melt": "area_*"}, UsageError),
        ({"melt": "zone_*", "series": "temperature"}, UsageError),
        ({"melt": "zone_*,note"}, SchemaError),
        ({"melt": "zone_*", "repair": True}, UsageError),
    ],
)
def test_what_cannot_be_melted_is_refused(tmp_path: Path, options: dict[str, Any], error: type[Exception]) -> None:
    source = tmp_path / "wide.csv"
    source.write_text(text_of(WIDE.with_columns(note=pl.lit("text"))))
    with pytest.raises(error):
        take(tmp_path / "table", source, **options)
    assert not (tmp_path / "table").exists()


def test_what_may_be_misunderstood_of_a_melted_column_is_said(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("ds;a;b\n2024-01-01;1.200;950\n2024-01-02;2.300;850\n")
    hints = take(tmp_path / "t", path, melt=["a", "b"])["hints"]
    assert len(hints) == 1 and "'a'" in hints[0] and "--thousands ." in hints[0]
