"""Ingest: numbers as people write them, and what is said where they stay text."""

from __future__ import annotations

import gzip
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamgp.errors import SchemaError
from streamgp_data.table import Table, TableMeta
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.columns import window_spec
from tests.live.feeds import Memory
from tests.live.feeds import take as listen
from tests.pipelines.ingesting import rows, take, write
from tests.words import names

UNITS = {
    "decimal commas": ("p\n3,41 kW\n2,52 kW\n12,52 kW\n", [3.41, 2.52, 12.52]),
    "points": ("p\n3.41 kW\n2.52 kW\n", [3.41, 2.52]),
    "groups": ("p\n1.234,5 kW\n2,52 kW\n12 kW\n", [1234.5, 2.52, 12]),
    "groups and points": ("p\n1,234.5 kW\n2.52 kW\n", [1234.5, 2.52]),
    "a name beside decimal commas": ("p;os\n3,41;10.04 LTS\n2,52;12.04 LTS\n", [3.41, 2.52]),
    "another column has points": ("p;q\n3,41 kW;1.5\n2,52 kW;2.5\n", ["3,41 kW", "2,52 kW"]),
}


@pytest.mark.parametrize("name", UNITS)
def test_the_decimal_sign_is_found_in_cells_with_units(name: str, tmp_path: Path) -> None:
    text, found = UNITS[name]
    header, *cells = text.splitlines()
    lines = [f"ds;{header}", *(f"2024-01-01 0{hour}:00;{line}" for hour, line in enumerate(cells))]
    summary = take(tmp_path / "t", write(tmp_path / "a.csv", "\n".join(lines) + "\n"))
    assert (rows(tmp_path / "t")["p"].to_list(), summary["quarantined"]) == (found, {})
    field = Table.open(tmp_path / "t").schema.field("p")
    if isinstance(found[0], float):
        assert field.type == pa.float64()
        assert ("kW" in header + cells[0]) == ((field.metadata or {}).get(b"unit") == b"kW")
    else:
        assert "--decimal" in " ".join(summary["hints"])


def test_a_comma_between_commas_is_not_guessed_at_with_a_unit_either(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'ds,p\n2024-01-01,"1,234 kW"\n2024-01-02,"2,345 kW"\n')
    hints = " ".join(take(tmp_path / "t", path)["hints"])
    assert "'1,234 kW'" in hints and "--thousands" in hints and "--decimal" in hints
    take(tmp_path / "u", path, decimal=",")
    take(tmp_path / "v", path, thousands=",")
    assert [rows(tmp_path / name)["p"].to_list() for name in "uv"] == [[1.234, 2.345], [1234, 2345]]


def test_numbers_that_may_be_thousands_are_read_as_decimals_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ds;p;q\n2024-01-01;2.025;0.125\n2024-01-02;2.073;1.250\n")
    hints = take(tmp_path / "t", path)["hints"]
    assert len(hints) == 1 and "'p'" in hints[0] and "'2.025'" in hints[0] and "--thousands ." in hints[0]
    assert not take(tmp_path / "u", path, decimal=".")["hints"]
    take(tmp_path / "v", write(tmp_path / "b.csv", "ds;p\n2024-01-01;2.025\n"), thousands=".")
    assert [rows(tmp_path / name)["p"][0] for name in "tuv"] == [2.025, 2.025, 2025]


def test_digits_alone_beside_such_numbers_are_said_too(tmp_path: Path) -> None:
    hints = take(tmp_path / "t", write(tmp_path / "a.csv", columns_of("p\n950\n1.234\n12.345")))["hints"]
    assert len(hints) == 1 and "'1.234'" in hints[0] and "--thousands ." in hints[0]


@pytest.mark.parametrize("cells", [(), ("1.200 kW",)])
def test_thousands_behind_the_first_rows_are_put_aside(cells: tuple[str, ...], tmp_path: Path) -> None:
    """The first 3,000 rows have digits alone, so that nothing says what 1.200 is."""
    unit = " kW" if cells else ""
    lines = [f"{at};{at % 900}{unit}" for at in range(3000)] + [f"{at};1.200{unit}" for at in range(3000, 3005)]
    text = "ds;p\n" + "\n".join([*lines, f"3005;1.234{unit}", f"3006;7{unit}"]) + "\n"
    path = write(tmp_path / "a.csv", text)
    assert take(tmp_path / "t", path)["quarantined"] == {"unparsable": 5}
    assert rows(tmp_path / "t")["p"].to_list()[-3:] == [2999 % 900, 1.234, 7.0]
    take(tmp_path / "u", path, decimal=".")
    take(tmp_path / "v", path, thousands=".")
    assert [rows(tmp_path / name)["p"][3000] for name in "uv"] == [1.2, 1200.0]


def test_a_column_that_a_word_makes_text_names_it(tmp_path: Path) -> None:
    cells = ["ERR" if at % 5 < 3 else str(at) for at in range(50)]
    lines = [f"2024-01-01 {at // 2:02}:{30 * (at % 2):02},{cell}" for at, cell in enumerate(cells[:48])]
    path = write(tmp_path / "a.csv", "ds,y\n" + "\n".join(lines) + "\n")
    hints = " ".join(take(tmp_path / "t", path)["hints"])
    assert "--null 'ERR'" in hints and "'y'" in hints
    take(tmp_path / "u", path, null=["ERR"])
    assert rows(tmp_path / "u")["y"].null_count() == 30
    names = "ds,y\n2024-01-01,12A\n2024-01-02,13\n2024-01-03,B4\n"
    assert not take(tmp_path / "v", write(tmp_path / "b.csv", names))["hints"]


@pytest.mark.parametrize("numbers", [[], ["q"]])
def test_a_text_column_is_to_be_ingested_again(numbers: list[str]) -> None:
    fields = [("ds", pa.timestamp("us")), ("p", pa.string()), *((name, pa.float64()) for name in numbers)]
    with pytest.raises(SchemaError) as refused:
        window_spec(TrainConfig.read({"table": "t", "target": "p"}), pa.schema(fields), TableMeta(time="ds"))
    assert "new table with --decimal" in refused.value.hint
    assert refused.value.hint.startswith("numbers are: q; " if numbers else "if ")


CONVENTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "commas, which may be either": ("a\n950\n1,200\n12,345", {"a": "1,200"}),
    "points, which cannot be decimals": ("a\n950\n1.200\n12.345", {"a": "1.200"}),
    "points in groups": ("a\n1.200\n1.234.567", {"a": [1200.0, 1234567.0]}),
    "commas in groups": ("a\n950\n1,200\n1,234,567", {"a": [950.0, 1200.0, 1234567.0]}),
    "a column says it of itself": ("a\n1,5\n1.200\n2,25", {"a": [1.5, 1200.0, 2.25]}),
    "another column has decimal commas": ("a;b\n1.200;1,5\n2.300;2,5", {"a": "1.200", "b": [1.5, 2.5]}),
    "another column has decimal points": ("a;b\n1,200;1.5\n2,300;2.5", {"a": "1,200", "b": [1.5, 2.5]}),
    "another column has groups": ("a;b\n1.200;1.234,5\n2.300;7", {"a": [1200.0, 2300.0], "b": [1234.5, 7.0]}),
    "both at once": ("a;b;c\n1.200;1,5;2.5\n3.400;1,5;2.5", {"a": "1.200", "b": "1,5", "c": [2.5, 2.5]}),
    "three decimals": ("a\n21.125\n22.250\n0.500", {"a": [21.125, 22.25, 0.5]}),
    "a list of numbers": ("a\n100,200,300\n400,500,600", {"a": "100,200,300"}),
    "addresses": ("a\n192.168.100.200\n192.168.100.201", {"a": "192.168.100.200"}),
    "quoted": ('a\n"950"\n"1,200"\n"12,345"', {"a": "1,200"}),
    "with units": ("a\n1,200 kW\n12,345 kW", {"a": "1,200 kW"}),
    "no-break spaces": ("a\n950\n1\u00a0200\n1\u202f234\u202f567,5", {"a": [950.0, 1200.0, 1234567.5]}),
    "no-break spaces and a unit": ("a\n1\u00a0200,5\u00a0kW\n950 kW", {"a": [1200.5, 950.0]}),
    "a minus after decimals": ("a;b\n5,00-;1,5-2,5\n1.234,5-;5,-\n3,5;2-", {"a": [-5.0, -1234.5, 3.5], "b": None}),
    "a minus after few digits": ("a;b\n2024.01-;31,12-\n2024.02-;31,12-\nto the end;no\n;7,5", {"a": None, "b": None}),
    "a Unicode minus": ("a\n\u22125,5\n5\n1e\u22123", {"a": [-5.5, 5.0, 0.001]}),
    "a no-break space elsewhere": ("a\n1\u00a02\nx\u00a01", {"a": None}),
}


def columns_of(text: str, sign: str = ";") -> str:
    """A file with a day a row before its columns."""
    header, *lines = text.replace(";", sign).split("\n")
    dated = [f"ds{sign}{header}", *(f"2024-01-{day:02}{sign}{line}" for day, line in enumerate(lines, 1))]
    return "\n".join(dated) + "\n"


@pytest.mark.sampled
@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_file_has_one_convention(name: str, tmp_path: Path) -> None:
    """Numbers are asserted, and a cell that the note on a column of text names."""
    text, wanted = CONVENTIONS[name]
    summary = take(tmp_path / "t", write(tmp_path / "a.csv", columns_of(text)))
    found, hints = rows(tmp_path / "t"), " ".join(summary["hints"])
    assert summary["quarantined"] == {}
    for column, cells in wanted.items():
        if isinstance(cells, list):
            assert found[column].to_list() == cells
        else:
            assert found[column].dtype == pl.String
            assert cells is None or (repr(cells) in hints and repr(column) in hints and "--decimal" in hints)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_no_break_spaces_in_every_encoding(encoding: str, tmp_path: Path) -> None:
    text = columns_of("a\n950\n1\u00a0200,5\n2\u00a0345,75")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode(encoding)))
    take(tmp_path / "t", tmp_path / "a.csv.gz")
    assert rows(tmp_path / "t")["a"].to_list() == [950.0, 1200.5, 2345.75]


@pytest.mark.parametrize("sign", "' ")
def test_a_minus_after_grouped_digits(sign: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", columns_of(f"a\n1{sign}234.50-\n950.00\n12{sign}345{sign}678.5-"))
    take(tmp_path / "t", path, thousands=sign)
    assert rows(tmp_path / "t")["a"].to_list() == [-1234.5, 950.0, -12345678.5]


GIVEN: dict[str, tuple[dict[str, str], list[float]]] = {
    "decimal comma": ({"decimal": ","}, [950.0, 1.2, 12.345]),
    "decimal point": ({"decimal": "."}, [950.0, 1200.0, 12345.0]),
    "thousands": ({"thousands": ","}, [950.0, 1200.0, 12345.0]),
}


@pytest.mark.sampled
@pytest.mark.parametrize("sign", [",", "."])
@pytest.mark.parametrize("name", GIVEN)
def test_an_option_decides(name: str, sign: str, tmp_path: Path) -> None:
    options, wanted = GIVEN[name]
    swap = str.maketrans(",.", f"{sign}{',' if sign == '.' else '.'}")
    path = write(tmp_path / "a.csv", columns_of("a\n950\n1,200\n12,345").translate(swap))
    take(tmp_path / "t", path, **{flag: value.translate(swap) for flag, value in options.items()})
    assert rows(tmp_path / "t")["a"].to_list() == wanted


def test_an_ambiguous_file_is_not_read_into_a_table_of_numbers(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "a.csv", columns_of("a\n1,5\n2,5")))
    later = write(tmp_path / "b.csv", columns_of("a\n1,200\n12,345").replace("2024", "2025"))
    with pytest.raises(SchemaError) as refused:
        take(tmp_path / "t", later)
    assert "--decimal" in refused.value.hint and "'a'" in refused.value.message
    take(tmp_path / "t", later, decimal=",")
    assert rows(tmp_path / "t")["a"].to_list() == [1.5, 2.5, 1.2, 12.345]


def parquet(path: Path, kind: pa.DataType, *values: Any, day: int = 1) -> Path:
    days = [f"2024-01-{day + at:02}" for at in range(len(values))]
    pq.write_table(pa.table({"ds": days, "y": pa.array(values, kind)}), path)
    return path


@pytest.mark.sampled
@pytest.mark.parametrize("kind", [pa.float16(), pa.float32()])
@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "message"])
def test_a_narrow_column_takes_later_numbers_as_they_are(kind: pa.DataType, form: str, tmp_path: Path) -> None:
    large = [1e300, 123456789.0, 0.1, 16777217.0]
    take(tmp_path / "t", parquet(tmp_path / "a.parquet", kind, 0.5, 1.5))
    if form == "parquet":
        take(tmp_path / "t", parquet(tmp_path / "b.parquet", pa.float64(), *large, day=5))
    elif form == "csv":
        lines = "".join(f"2024-01-{5 + at:02},{value!r}\n" for at, value in enumerate(large))
        take(tmp_path / "t", write(tmp_path / "b.csv", "ds,y\n" + lines))
    else:
        lines = "".join(f'{{"ds": "2024-01-{5 + at:02}", "y": {value!r}}}\n' for at, value in enumerate(large))
        if form == "jsonl":
            take(tmp_path / "t", write(tmp_path / "b.jsonl", lines))
        else:
            listen(tmp_path / "t", Memory(lines.encode().splitlines()))
    assert rows(tmp_path / "t")["y"].to_list() == [0.5, 1.5, *large]


NOON = datetime(2024, 1, 1, 12)
NARROW: dict[str, tuple[pa.DataType, pa.DataType, list[Any], list[Any]]] = {
    "float32": (pa.float32(), pa.float64(), [1e300, 123456789.0, 0.25], [0.25]),
    "int32": (pa.int32(), pa.int64(), [3 * 10**9, 7], [7]),
    "int8 of floats": (pa.int8(), pa.float64(), [1.5, 300.0, 7.0], [7]),
    "float64 of whole numbers": (pa.float64(), pa.int64(), [2**53 + 1, 7], [7.0]),
    "float64 of decimals": (pa.float64(), pa.decimal128(20, 2), [Decimal("9007199254740993"), Decimal("1.25")], [1.25]),
    "decimals of floats": (pa.decimal128(5, 2), pa.float64(), [1.239, 1.25, 1e9], [Decimal("1.25")]),
    "days of times": (pa.date32(), pa.timestamp("us"), [NOON, datetime(2024, 1, 2)], [date(2024, 1, 2)]),
}


@pytest.mark.parametrize("name", NARROW)
def test_what_a_column_cannot_hold_is_put_aside(name: str, tmp_path: Path) -> None:
    """Also in a table that was made with a float32 column."""
    column, later, values, kept = NARROW[name]
    schema = pa.schema([("ds", pa.timestamp("us")), ("y", column)])
    Table.create(tmp_path / "t", schema, TableMeta(time="ds", time_format="iso"))
    summary = take(tmp_path / "t", parquet(tmp_path / "b.parquet", later, *values), keep_going=True)
    assert rows(tmp_path / "t")["y"].to_list() == kept
    assert summary["quarantined"] == {"unparsable": len(values) - len(kept)}


def test_text_is_read_into_a_float32_column(tmp_path: Path) -> None:
    schema = pa.schema([("ds", pa.timestamp("us")), ("y", pa.float32())])
    Table.create(tmp_path / "t", schema, TableMeta(time="ds", time_format="iso"))
    lines = "".join(f"2024-02-0{at},{cell}\n" for at, cell in enumerate(["0.1", "123456789", "1e300", "x", ""], 1))
    summary = take(tmp_path / "t", write(tmp_path / "a.csv", "ds,y\n" + lines), keep_going=True)
    assert rows(tmp_path / "t")["y"].to_list() == [pytest.approx(0.1), None]
    assert summary["quarantined"] == {"unparsable": 3}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_digits_that_float64_has_not_are_put_aside(form: str, tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "a.csv", "ds,y\n2024-01-01,1.5\n2024-01-02,9007199254740992\n"))
    cells = ["9007199254740993", "9007199254740994", "1e20", "0.1234567890123456789"]
    if form == "csv":
        text = "ds,y\n" + "".join(f"2024-02-{at:02},{cell}\n" for at, cell in enumerate(cells, 1))
    else:
        text = "".join(f'{{"ds": "2024-02-{at:02}", "y": {cell}}}\n' for at, cell in enumerate(cells, 1))
    summary = take(tmp_path / "t", write(tmp_path / f"b.{form}", text))
    assert rows(tmp_path / "t")["y"].to_list()[2:] == [9007199254740994.0, 1e20, 0.12345678901234568]
    assert summary["quarantined"] == {"unparsable": 1}


def test_words_that_are_read_as_missing_are_told(tmp_path: Path) -> None:
    days = [f"2024-01-{day:02},{cell},{note}" for day, cell, note in [(1, "1.5", "n/a"), (2, "n/a", "x"), (3, "", "y")]]
    source = write(tmp_path / "a.csv", "\n".join(["ds,load,note", *days, "2024-01-04,NaN,z", ""]))
    told = [hint for hint in take(tmp_path / "t", source)["hints"] if "n/a" in hint]
    assert len(told) == 1 and names(told[0], "a.csv 'load' 1") and "NaN" not in told[0]
    assert rows(tmp_path / "t")["load"].to_list() == [1.5, None, None, None]


def test_a_whole_number_beside_one_that_is_missing_stays(tmp_path: Path) -> None:
    """Both are one float64."""
    whole = [2**53, 2**53 + 1, 5]
    source = write(
        tmp_path / "a.csv", "\n".join(["ds,n", *(f"2024-01-{at + 1:02},{n}" for at, n in enumerate(whole)), ""])
    )
    take(tmp_path / "t", source, null=[str(2**53)])
    assert rows(tmp_path / "t")["n"].to_list() == [None, 2**53 + 1, 5]


@pytest.mark.parametrize("name", ["a.csv", "quoted.csv", "commas.csv", "a.jsonl"])
def test_a_number_may_stand_for_a_missing_value(name: str, tmp_path: Path) -> None:
    """However the block is read that it is in, and however the number is written."""
    numbers, read = ["1.5", "-999", "2", "-999.000", "-999.5"], [1.5, None, 2.0, None, -999.5]
    lines = {
        "a.csv": ["ds,y,n", *(f"2024-01-{at + 1:02},{one},7" for at, one in enumerate(numbers))],
        "quoted.csv": ["ds,y,n", *(f'2024-01-{at + 1:02},"{one}",7' for at, one in enumerate(numbers))],
        "commas.csv": ["ds;y;n", *(f"2024-01-{at + 1:02};{one.replace('.', ',')};7" for at, one in enumerate(numbers))],
        "a.jsonl": [f'{{"ds": "2024-01-{at + 1:02}", "y": {one}, "n": 7}}' for at, one in enumerate(numbers)],
    }
    take(tmp_path / "t", write(tmp_path / name, "\n".join(lines[name]) + "\n"), null=["-999"])
    assert rows(tmp_path / "t")["y"].to_list() == read
    assert rows(tmp_path / "t")["n"].to_list() == [7.0] * 5
    if name == "a.jsonl":
        listen(tmp_path / "m", Memory([line.encode() for line in lines[name]]), null=("-999",))
        assert rows(tmp_path / "m")["y"].to_list() == read
