"""Ingest: files without a header, and files of which most rows cannot be read."""

from __future__ import annotations

import gzip
import io
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamgp.errors import DataError, UsageError
from streamgp_data.ingestion.ingest import ingest
from streamgp_data.ingestion.report import check_share
from streamgp_pipelines.config import DescribeConfig, IngestConfig
from streamgp_pipelines.describe_file import describe_file
from tests.pipelines.ingesting import quarantine, rows, take, write
from tests.words import naming

BARE = "2024-01-01T00:00;1,5;a\n2024-01-01T01:00;2,5;b\n2024-01-01T02:00;x;c\n"
ENCODED = {"plain": BARE.encode(), "mark": BARE.encode("utf-8-sig"), "utf-16": BARE.encode("utf-16")}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("options", [{"columns": "ds,y,kind"}, {"no_header": True}])
def test_the_first_line_is_a_row(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(ENCODED[name]))
    assert take(tmp_path / "t", path, **options)["added"] == 2
    found = rows(tmp_path / "t")
    names = ["ds", "y", "kind"] if "columns" in options else ["column_1", "column_2", "column_3"]
    assert found.columns[1:] == names and found[names[1]].to_list() == [1.5, 2.5]
    assert quarantine(tmp_path / "t")["line"].to_list() == [3]
    assert take(tmp_path / "t", path, **options)["added"] == 0


def test_a_file_that_grows_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.csv", "2024-01-01,1\n2024-01-02,2\n2024-01-03,")
    assert take(tmp_path / "t", path, columns="ds,y")["added"] == 2
    write(path, "2024-01-01,1\n2024-01-02,2\n2024-01-03,3\n")
    assert take(tmp_path / "t", path, columns="ds,y")["added"] == 1
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    take(tmp_path / "u", "-", columns="ds,y")
    assert rows(tmp_path / "t")["y"].to_list() == rows(tmp_path / "u")["y"].to_list() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("text", ["1;2\n3;4\n", BARE, "2024-01-01,north,1.5\n2024-01-02,south,2.5\n"])
def test_the_message_about_a_first_line_of_data_names_the_way(text: str, tmp_path: Path) -> None:
    with pytest.raises((DataError, UsageError)) as refused:
        take(tmp_path / "t", write(tmp_path / "a.csv", text))
    assert "--columns" in refused.value.hint and "--no-header" in refused.value.hint


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", BARE)
    with pytest.raises(DataError, match=naming("line 1 3 2 --columns")):
        take(tmp_path / "t", path, columns="ds,y")
    with pytest.raises(UsageError, match=naming("--header-row --columns")):
        take(tmp_path / "t", path, columns="ds,y,kind", header_row=1)
    with pytest.raises(DataError, match=naming("y")):
        take(tmp_path / "t", path, columns="ds,y,y")
    with pytest.raises(UsageError, match=naming("--columns")):
        take(tmp_path / "t", write(tmp_path / "a.jsonl", '{"ds": "2024-01-01", "y": 1}\n'), columns="ds,y")


def test_describe_has_the_same_options(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", BARE)
    for options, names in (({"columns": "ds,y,kind"}, ["ds", "y", "kind"]), ({"no_header": True}, None)):
        found: Any = describe_file(DescribeConfig.read({"source": path, **options}))
        assert [one["column"] for one in found["columns"]] == (names or ["column_1", "column_2", "column_3"])


SHARES: dict[str, tuple[str, bool]] = {
    "most cannot be read": ("ds,y\n2024-01-01,1\n" + "2024-01-02,1,1\n" * 49, True),
    "half cannot be read": ("ds,y\n2024-01-01,1\n2024-01-02,2,2\n", False),
    "most are in conflict": ("ds,y\n" + "".join(f"2024-01-01,{value}\n" for value in range(50)), True),
    "most are the same": ("ds,y\n" + "2024-01-01,1\n" * 50, False),
}


@pytest.mark.sampled
@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("name", SHARES)
def test_more_than_half_in_the_quarantine_is_an_error(name: str, dry: bool, tmp_path: Path) -> None:
    text, refused = SHARES[name]
    path = write(tmp_path / "a.csv", text)
    config = IngestConfig.read({"source": [str(path)], "table": str(tmp_path / "t"), "dry_run": dry})
    found = ingest(config)
    aside: Any = found["quarantined"]
    assert found["read"] == text.count("\n") - 1 == sum(aside.values()) + 1
    assert found["sources"][0]["state"] == ("dry run" if dry else "refused" if refused else "taken")
    if refused:
        with pytest.raises(DataError, match=naming("49 50 a.csv")) as error:
            check_share(config, found)
        assert error.value.exit_code == 3 and "--keep-going" in error.value.hint
        assert not (tmp_path / "t").exists()
        going = config.model_copy(update={"keep_going": True})
        check_share(going, found := ingest(going))
    else:
        check_share(config, found)
    if not dry:
        assert rows(tmp_path / "t").height == 1 and quarantine(tmp_path / "t").height == sum(aside.values())


def test_a_wrong_format_of_times_writes_nothing(tmp_path: Path) -> None:
    """The first twelve days of a month can be read with day and month swapped: the others show it."""
    days = [datetime(2024, 1, 1) + timedelta(hours=at) for at in range(2000)]
    path = write(tmp_path / "a.csv", "when,y\n" + "".join(f"{day:%m/%d/%Y %H:%M},1\n" for day in days))
    told = set[tuple[str, str]]()
    for dry in (True, False):
        swapped = {"time": "when", "time_format": "%d/%m/%Y %H:%M", "dry_run": dry}
        with pytest.raises(DataError, match=naming("a.csv line 290 'when' '01/13/2024 nothing 1,136")) as error:
            taken(tmp_path / "t", path, **swapped)
        told.add((error.value.message, error.value.hint))
    assert len(told) == 1 and "'%m/%d/%Y %H:%M'" in error.value.hint and not (tmp_path / "t").exists()
    assert taken(tmp_path / "t", path, time="when", time_format="%m/%d/%Y %H:%M")["added"] == 2000
    other = write(tmp_path / "b.csv", "when,y\n" + "".join(f"{day:%m/%d/%Y %H:%M},1\n" for day in days))
    with pytest.raises(DataError, match=naming("b.csv line 290")):
        taken(tmp_path / "t", other, time_format="%d/%m/%Y %H:%M")
    assert rows(tmp_path / "t").height == 2000 and not quarantine(tmp_path / "t").height


def test_a_table_with_rows_takes_what_else_is_wrong_with_a_source(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "a.csv", "ds,y\n2024-01-01,1\n2024-01-02,2\n"))
    assert (
        take(tmp_path / "t", write(tmp_path / "b.csv", "ds,y\n2024-01-01,3\n2024-01-02,4\n2024-01-03,5\n"))["added"]
        == 1
    )


@pytest.mark.parametrize(
    ("cell", "hint"), [("2024-01-01 00:00", "--time-format iso"), ("1704067200000", "--time-format epoch-ms")]
)
def test_no_time_of_the_first_rows_can_be_read(cell: str, hint: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"when,y\n{cell},1\n")
    with pytest.raises(DataError, match=naming(f"a.csv line 2 'when' {cell}")) as error:
        take(tmp_path / "t", path, time="when", time_format="%d/%m/%Y %H:%M")
    assert hint in error.value.hint and not (tmp_path / "t").exists()


def taken(table: Path, path: Path, **options: Any) -> dict[str, Any]:
    """Ingest as the command does, and return the summary."""
    config = IngestConfig.read({"source": [str(path)], "table": str(table), **options})
    found = dict(ingest(config))
    check_share(config, found)
    return found
