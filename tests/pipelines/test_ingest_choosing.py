"""Which columns of a file a table has: those asked for, and of a later file those of the table, by name."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from streamgp.errors import DataError, UsageError
from tests.pipelines.ingesting import quarantine, rows, take, write
from tests.pipelines.test_ingest_units import days
from tests.words import names, naming

KWH = "Wirkarbeit [kWh]"


def hints(found: dict[str, object], words: str) -> list[bool]:
    told = found["hints"]
    assert isinstance(told, list)
    return [True for hint in told if names(hint, words)]


@pytest.mark.parametrize(
    ("header", "cells", "options", "expected"),
    [
        ("Wirkarbeit [MWh]", ("0.003", "0.004"), {}, [3.0, 4.0]),
        ("Wirkarbeit [MWh]", ("0.003", "0.004"), {"unit": "Wirkarbeit [MWh]=MWh"}, [3.0, 4.0]),
        ("Wirkarbeit", ("0.003 MWh", "4 kWh"), {}, [3.0, 4.0]),
        ("Wirkarbeit", ("3", "4"), {"unit": "Wirkarbeit=kWh"}, [3.0, 4.0]),
        ("Wirkarbeit", ("3", "4"), {"unit": f"{KWH}=MWh"}, [3000.0, 4000.0]),
        ("Wirkarbeit", ("", ""), {}, [None, None]),
    ],
)
def test_a_header_with_another_unit_is_the_same_column(
    tmp_path: Path, header: str, cells: tuple[str, ...], options: dict[str, str], expected: list[float | None]
) -> None:
    take(tmp_path / "t", write(tmp_path / "jan.csv", days("1", "2.5", header=KWH)))
    found = take(tmp_path / "t", write(tmp_path / "feb.csv", days(*cells, first=10, header=header)), **options)
    assert hints(found, f"feb.csv Wirkarbeit '{KWH}'") and not found["quarantined"]
    assert rows(tmp_path / "t")[KWH].to_list() == [1.0, 2.5, *expected]
    assert take(tmp_path / "t", tmp_path / "feb.csv", **options)["added"] == 0


@pytest.mark.parametrize(("header", "said"), [("Wirkarbeit [°C]", "°C kWh"), ("Wirkarbeit", "kWh --unit")])
def test_a_header_with_a_unit_that_is_no_such_is_refused_for_its_unit(tmp_path: Path, header: str, said: str) -> None:
    take(tmp_path / "t", write(tmp_path / "jan.csv", days("1", "2.5", header=KWH)))
    with pytest.raises(DataError, match=naming("feb.csv line 2 Wirkarbeit")) as refused:
        take(tmp_path / "t", write(tmp_path / "feb.csv", days("3", first=10, header=header)))
    assert names(f"{refused.value.message} {refused.value.hint}", said) and rows(tmp_path / "t").height == 2


def test_a_unit_that_comes_later_needs_to_be_said(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "jan.csv", days("1", header="p")))
    feb = write(tmp_path / "feb.csv", days("3", first=10, header="p [kW]"))
    with pytest.raises(DataError, match=naming("kW")) as refused:
        take(tmp_path / "t", feb)
    assert "--unit" in refused.value.hint
    assert take(tmp_path / "t", feb, unit="p=kW")["added"] == 1


def test_a_column_that_the_table_has_not_is_left_out_and_told(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "jan.csv", "ds,y\n2024-01-01,1\n2024-01-02,2\n"))
    later = write(tmp_path / "feb.csv", "ds,note,y\n2024-02-01,3 kW?,1\n2024-02-02,,x\n2024-02-03,5,3\n")
    found = take(tmp_path / "t", later)
    assert found["added"] == 2 and hints(found, "feb.csv 'note'")
    assert rows(tmp_path / "t").columns == ["_seq", "ds", "y"]
    assert quarantine(tmp_path / "t")["row"].to_list() == ["2024-02-02,,x"]  # as it was, whole
    with later.open("a") as file:
        file.write("2024-02-04,,4\n")
    assert take(tmp_path / "t", later)["added"] == 1
    assert rows(tmp_path / "t")["y"].to_list() == [1.0, 2.0, 1.0, 3.0, 4.0]


def test_a_file_that_lacks_a_column_is_refused_with_both_names(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "jan.csv", "ds,load\n2024-01-01,1\n"))
    with pytest.raises(DataError, match=naming("'load' 'Load'")):
        take(tmp_path / "t", write(tmp_path / "feb.csv", "ds,Load\n2024-02-01,1\n"))


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_a_column_that_a_file_lacks_is_empty_in_its_rows_and_told(tmp_path: Path, suffix: str) -> None:
    take(tmp_path / "t", write(tmp_path / "jan.csv", "ds,y,temp,note\n2024-01-01,1,5.5,a\n2024-01-02,2,6.5,b\n"))
    frame = pl.DataFrame({"ds": ["2024-02-01", "2024-02-02"], "y": [3.0, 4.0]})
    later = tmp_path / f"feb.{suffix}"
    {"csv": frame.write_csv, "parquet": frame.write_parquet, "jsonl": frame.write_ndjson}[suffix](later)
    dry = take(tmp_path / "t", later, dry_run=True)
    found = take(tmp_path / "t", later)
    for told in (dry, found):
        assert hints(told, f"feb.{suffix} 'temp' 'note' empty") == [True]
    assert (found["added"], found["quarantined"]) == (2, {})
    kept = rows(tmp_path / "t")
    assert kept["y"].to_list() == [1.0, 2.0, 3.0, 4.0]
    assert kept["temp"].to_list() == [5.5, 6.5, None, None] and kept["note"].to_list() == ["a", "b", None, None]
    with later.open("a") as file:
        file.write({"csv": "2024-02-03,x\n", "jsonl": '{"ds": "2024-02-03", "y": "x"}\n'}.get(suffix, ""))
    if suffix != "parquet":  # its rows go to the quarantine as they are
        assert take(tmp_path / "t", later)["quarantined"] == {"unparsable": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("y,temp\n1,2\n", "'ds' rename"),
        ("ds,temp\n2024-02-01,1\n", "'y' add"),
        ("ds,y,temperature\n2024-02-01,1,2\n", "'temp' 'temperature' rename --signals 'y'"),
    ],
)
def test_without_time_or_target_or_with_another_name_it_is_refused_with_the_remedy(
    tmp_path: Path, text: str, said: str
) -> None:
    take(tmp_path / "t", write(tmp_path / "jan.csv", "ds,y,temp\n2024-01-01,1,5.5\n"))
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", write(tmp_path / "feb.csv", text))
    assert names(f"{refused.value.message} {refused.value.hint}", said) and rows(tmp_path / "t").height == 1
    if "temperature" in text:
        assert take(tmp_path / "t", tmp_path / "feb.csv", signals="y")["added"] == 1


def test_a_header_with_another_unit_is_its_column_where_another_is_missing(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "jan.csv", "ds,a [kWh],b\n2024-01-01,1,5.5\n"))
    found = take(tmp_path / "t", write(tmp_path / "feb.csv", "ds,a [MWh]\n2024-02-01,0.003\n"))
    assert hints(found, "'a [MWh]' 'a [kWh]'") and hints(found, "'b' empty")
    assert rows(tmp_path / "t").row(1)[2:] == (3.0, None)


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_columns_of_a_file_are_chosen_by_signals(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / f"a.{suffix}"
    plain = write(
        tmp_path / "all.csv",
        "when,site,load,temp [°C],note\n" + "".join(f"2024-01-0{day},a,{day}.5,{day},x\n" for day in (1, 2, 3)),
    )
    frame = pl.read_csv(plain, try_parse_dates=True)
    {"csv": lambda p: p.write_bytes(plain.read_bytes()), "parquet": frame.write_parquet, "jsonl": frame.write_ndjson}[
        suffix
    ](source)
    options = {"signals": ["load", "temp*"], "time": "when", "series": "site"}
    assert take(tmp_path / "t", source, **options)["added"] == 3
    assert rows(tmp_path / "t").columns == ["_seq", "when", "site", "load", "temp [°C]"]
    assert take(tmp_path / "t", source, **options)["added"] == 0
    assert not hints(take(tmp_path / "t", source, **options), "'note'")
    with pytest.raises(UsageError, match=naming("--signals 'lod'")):
        take(tmp_path / "u", source, signals="lod")
