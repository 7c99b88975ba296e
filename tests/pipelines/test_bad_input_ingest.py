"""Bad input to ingest, as one table: the exit code, what is said, what to do, and that nothing is lost."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pytest
import zstandard

from streamgp.errors import StreamgpError
from streamgp_data import delta
from streamgp_data.reading import records
from tests.pipelines.ingesting import quarantine, rows, take, write
from tests.words import names, naming

GOOD = "ds,y\n2024-01-01,1\n2024-01-02,2\n"
MORE = "".join(f"2024-02-{day:02d},{day}\n" for day in range(1, 29))


class Refused(NamedTuple):
    """An input that ends a run.

    Attributes:
        make: puts the input into a folder and gives the source and the options.
        code: exit code. says, hint: words in the message and the hint. kept: rows in the table afterwards, beyond
            the two of GOOD. fresh: whether there is no table yet.
    """

    make: Callable[[Path], tuple[object, dict[str, Any]]]
    code: int
    says: str
    hint: str
    kept: int = 0
    fresh: bool = False


def text(content: str | bytes, name: str = "a.csv", **options: Any) -> Callable[[Path], tuple[object, dict[str, Any]]]:
    def make(room: Path) -> tuple[object, dict[str, Any]]:
        data = content if isinstance(content, bytes) else content.encode()
        (room / name).write_bytes(data)
        return room / name, options

    return make


def folder(*names: str) -> Callable[[Path], tuple[object, dict[str, Any]]]:
    def make(room: Path) -> tuple[object, dict[str, Any]]:
        (room / "in").mkdir()
        for name in names:
            (room / "in" / name).write_text("x")
        return room / "in", {}

    return make


def changed(room: Path) -> tuple[object, dict[str, Any]]:
    path = write(room / "grown.csv", "ds,y\n2024-03-01,1\n")
    take(room / "t", path)
    return write(path, "ds,y\n2024-03-02,1\n2024-03-03,1\n"), {}


def shrunk(room: Path) -> tuple[object, dict[str, Any]]:
    path = write(room / "grown.csv", "ds,y\n2024-03-01,1\n")
    take(room / "t", path)
    return write(path, "ds,y\n"), {}


def table_is(what: str) -> Callable[[Path], tuple[object, dict[str, Any]]]:
    """The table's place is taken by something else."""

    def make(room: Path) -> tuple[object, dict[str, Any]]:
        place = room / "other"
        if what == "file":
            place.write_text("x")
        elif what == "under a file":
            (room / "file").write_text("x")
            place = room / "file" / "t"
        elif what == "full directory":
            place.mkdir()
            (place / "thesis.tex").write_text("x")
        elif what == "foreign":
            pl.DataFrame({"a": [1]}).write_delta(str(place))
        else:
            (place / "_delta_log").mkdir(parents=True)
            (place / "_delta_log" / f"{0:020d}.json").write_text("no json")
        return write(room / "a.csv", GOOD), {"table": place}

    return make


def parquet(frame: pl.DataFrame | pa.Table, name: str = "a.parquet") -> Callable[[Path], tuple[object, dict[str, Any]]]:
    def make(room: Path) -> tuple[object, dict[str, Any]]:
        import pyarrow.parquet as pq

        pq.write_table(frame if isinstance(frame, pa.Table) else frame.to_arrow(), room / name)
        return room / name, {}

    return make


def parquet_bytes() -> bytes:
    buffer = io.BytesIO()
    days = pl.datetime_range(pl.datetime(2024, 5, 1), pl.datetime(2024, 5, 20), "1h", eager=True)
    pl.DataFrame({"ds": days, "y": [1.0] * len(days)}).write_parquet(buffer)
    return buffer.getvalue()


BODY = "ds,y\n" + MORE
REFUSED: dict[str, Refused] = {
    "a Parquet called CSV": Refused(text(parquet_bytes(), "a.csv"), 3, "Parquet", "--format parquet"),
    "a Parquet called JSON Lines": Refused(text(parquet_bytes(), "a.jsonl"), 3, "Parquet", "--format parquet"),
    "JSON Lines in UTF-16": Refused(
        text('{"ds":"2024-01-03","y":1}\n'.encode("utf-16"), "a.jsonl"), 3, "UTF-16", "iconv"
    ),
    "NUL in a column name": Refused(text("ds,y\0z\n2024-01-03,1\n"), 3, "1", ""),
    "NUL in a JSON key": Refused(text('{"ds":"2024-01-03","y\\u0000":1}\n', "a.jsonl"), 3, "", ""),
    "a header that nothing closes": Refused(text('"ds,y\n2024-01-03,1\n'), 3, "", ""),
    "a header beyond the limit": Refused(text("x" * 3_000_000 + ",ds,y\n", max_line="1MB"), 3, "1 --max-line", ""),
    **{
        f"--encoding {name}": Refused(text(BODY, encoding=name), 2, "--encoding", "latin-1")
        for name in (
            "idna",
            "rot13",
            "punycode",
            "base64",
            "unicode_escape",
            "utf-7",
            "utf-32",
            "undefined",
            "cp037",
            "",
        )
    },
    **{
        f"--separator {name!r}": Refused(text(BODY, separator=name), 2, "--separator", "")
        for name in ("", "\n", "\r", '"', "a", "0", ".", "-", "\0")
    },
    "thousands as the decimal sign": Refused(text(BODY, thousands=",", decimal=","), 2, "", "--decimal"),
    "thousands that are none": Refused(text(BODY, thousands="x"), 2, "--thousands", ""),
    "a limit that is none": Refused(text(BODY, max_line="much"), 2, "--max-line", "--help"),
    "no such file": Refused(lambda room: (room / "none.csv", {}), 3, "none.csv", ""),
    "a glob that matches nothing": Refused(lambda room: (f"{room}/x*.csv", {}), 3, "x*.csv", ""),
    "a directory with no known file": Refused(folder("notes.md"), 3, "", ".csv"),
    "an unknown suffix": Refused(text(GOOD, "a.docx"), 3, "docx", "--format"),
    "an empty file": Refused(text(""), 3, "a.csv", ""),
    "an empty JSON Lines file": Refused(text("\n", "a.jsonl"), 3, "empty", "JSON"),
    "header only, no table": Refused(text("ds,y\n"), 3, "", "", fresh=True),
    "no header": Refused(text("2024,1\n2025,2\n"), 3, "1", ""),
    "two columns of one name": Refused(text("ds,y,y\n2024-01-03,1,2\n"), 3, "1 y", ""),
    "all rows wider than the header": Refused(text("ds,y\n2024-01-03,1,2\n"), 3, "2 3", ""),
    "a reserved name": Refused(text("ds,_seq\n2024-01-03,1\n"), 3, "_seq", "", fresh=True),
    "a column too few": Refused(text("ds\n2024-01-03\n"), 3, "a.csv y", ""),
    "text where numbers were": Refused(text("ds,y\n2024-01-03,high\n2024-01-04,low\n"), 3, "y high", ""),
    "the wrong column": Refused(text(GOOD, time="when"), 3, "when", "", fresh=True),
    "the wrong series": Refused(text(GOOD, series="name"), 3, "name", "", fresh=True),
    "the wrong time format": Refused(text("ds,y\n03.01.2024 10:00,1\n"), 3, "03.01.2024 10:00", "%d.%m.%Y %H:%M"),
    "a format that does not fit": Refused(text(GOOD, time_format="%H:%M"), 3, "2024-01-01 %H:%M", "--time-format"),
    "an unknown format word": Refused(text(GOOD, time_format="iso8601"), 2, "iso8601", "epoch-ms"),
    "an unknown zone": Refused(text(GOOD, timezone="Europe/Berlni"), 2, "Europe/Berlni", "Europe/Berlin", fresh=True),
    "an offset that no clock has": Refused(text(GOOD, timezone="+99:00"), 2, "+99:00", "14:00", fresh=True),
    "sixty minutes of offset": Refused(text(GOOD, timezone="+05:60"), 2, "+05:60", "14:00", fresh=True),
    "the time as the series": Refused(text(GOOD, series="ds"), 2, "ds", "--series", fresh=True),
    "the time as the series, later": Refused(text(GOOD, series="ds"), 2, "ds", "--series"),
    "columns that differ by case": Refused(text("ds,Temp,temp\n2024-01-03,1,2\n"), 3, "Temp temp", "", fresh=True),
    "a reserved name in capitals": Refused(text("ds,_SEQ\n2024-01-03,1\n"), 3, "", "", fresh=True),
    "an interval of steps": Refused(text("n,y\n1,1\n2,2\n", time="n", every="30m"), 2, "n", "--every", fresh=True),
    "an interval without a clock": Refused(text(GOOD, time="row", every="30m"), 2, "", "--every", fresh=True),
    "a tolerance that is none": Refused(text(GOOD, every="1d", tolerance="x"), 2, "--tolerance x", "10ms"),
    "a tolerance without an interval": Refused(text(GOOD, tolerance="1h"), 2, "", "--every"),
    "a tolerance of an interval": Refused(text(GOOD, every="1d", tolerance="24h"), 2, "1d", "", fresh=True),
    "an interval that is none": Refused(text(GOOD, every="soon"), 2, "--every soon", "30m"),
    "times with an offset for a naive clock": Refused(text("ds,y\n2024-01-03T00:00+01:00,1\n"), 3, "UTC", ""),
    "a step column for a clock": Refused(text("ds,y\n1,1\n2,2\n"), 3, "int64", ""),
    "an unknown encoding": Refused(text(BODY, encoding="klingon"), 2, "klingon", "cp1252"),
    "bytes that are not the encoding": Refused(
        text(b"ds,y\n2024-01-03,3\n2024-01-04,\xff\n", encoding="utf-8"), 3, "3 utf-8", "--encoding cp1252"
    ),
    "a separator of two characters": Refused(text(BODY, separator="::"), 2, "ASCII", ""),
    "an option of another format": Refused(text('{"a":1}', "a.jsonl", separator=";"), 2, "jsonl", ""),
    "--as for two files": Refused(folder("a.csv", "b.csv"), 2, "--as", ""),
    "a truncated gzip": Refused(
        text(gzip.compress((BODY * 1).encode(), mtime=0)[:-12], "a.csv.gz"),
        3,
        "",
        "",
        kept=-1,
    ),
    "a damaged gzip": Refused(text(b"\x1f\x8b\x08\x00garbage that is no stream", "a.csv.gz"), 3, "", ""),
    "a truncated zstd": Refused(
        text(zstandard.compress((BODY * 1).encode())[:-6], "a.csv.zst"),
        3,
        "",
        "",
        kept=-1,
    ),
    "a truncated Parquet": Refused(text(parquet_bytes()[:-300], "a.parquet"), 3, "Parquet", ""),
    "damage inside a Parquet": Refused(
        text(parquet_bytes()[:40] + b"\0" * 300 + parquet_bytes()[340:], "a.parquet"), 3, "Parquet", ""
    ),
    "a CSV called Parquet": Refused(text(GOOD, "a.parquet"), 3, "Parquet", ""),
    "an Arrow file that is none": Refused(text(GOOD, "a.arrow"), 3, "Arrow", ""),
    "a JSON document": Refused(text('[{"ds": 1}]', "a.jsonl"), 3, "1 JSON", ""),
    "nested JSON": Refused(text('{"ds":"2024-01-03","y":{"a":1}}\n', "a.jsonl"), 3, "y", ""),
    "a list column": Refused(parquet(pl.DataFrame({"ds": [1], "y": [[1, 2]]})), 3, "y", ""),
    "a Parquet of other types": Refused(
        parquet(pa.table({"ds": pa.array(["2024-01-03"]), "y": pa.array(["a"])})), 3, "y", ""
    ),
    "lone carriage returns": Refused(text("ds,y\r2024-01-03,1\r"), 3, "", "tr"),
    "a changed prefix": Refused(changed, 3, "", "--as", kept=1),
    "a file that shrank": Refused(shrunk, 3, "", "--as", kept=1),
    "the table is a file": Refused(table_is("file"), 4, "", ""),
    "the table is somebody's directory": Refused(table_is("full directory"), 4, "", ""),
    "the table is another program's": Refused(table_is("foreign"), 4, "", ""),
    "the table's log is damaged": Refused(table_is("damaged"), 4, "", "_delta_log"),
    "the table lies under a file": Refused(table_is("under a file"), 5, "", ""),
    "the table is a source": Refused(lambda room: (room / "t", {}), 3, "Delta", "Parquet"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    case = REFUSED[name]
    table = tmp_path / "t"
    if not case.fresh:
        take(table, write(tmp_path / "good.csv", GOOD))
    source, options = case.make(tmp_path)
    if name == "--as for two files":
        options["as_name"] = "both"
    table_asked = options.pop("table", table)
    with pytest.raises(StreamgpError, match=naming(case.says)) as refused:
        take(table_asked, str(source), **options)
    assert refused.value.exit_code == case.code
    assert refused.value.hint and names(refused.value.hint, case.hint)
    if case.fresh:
        assert not table.exists()
        return
    found = rows(table)
    assert found["y"][:2].to_list() == [1, 2]
    if case.kept >= 0:
        assert found.height == 2 + case.kept


class Taken(NamedTuple):
    """An input that is taken as far as it can be: what goes where."""

    content: str | bytes
    y: list[float | None]
    quarantined: dict[str, int]
    options: dict[str, Any] | None = None
    name: str = "a.csv"


def json_rows(*values: str) -> str:
    return "".join(f'{{"ds":"2024-01-{day:02d}","y":{value}}}\n' for day, value in enumerate(values, 1))


TAKEN: dict[str, Taken] = {
    "a lone carriage return": Taken("ds,y\n2024-01-03,3\r4\n2024-01-04,4\n", [4], {"ragged": 1}),
    "carriage returns by the pair": Taken("ds,y\r\n2024-01-03,3\r\r\n2024-01-04,4\r\n", [3, 4], {}),
    "a carriage return in quotes": Taken('ds,y,n\n2024-01-03,3,"a\rb"\n2024-01-04,4,c\n', [3, 4], {}),
    "a stray quote near the top": Taken(
        'ds,y\n"2024-01-03,3\n' + MORE, [float(day) for day in range(1, 29)], {"ragged": 1}
    ),
    "a stray quote in a number": Taken(
        'ds,y\n2024-01-03,"3\n' + MORE, [float(day) for day in range(1, 29)], {"ragged": 1}
    ),
    "two stray quotes": Taken(
        'ds,y\n2024-01-03,"3\n2024-01-04,4\n2024-01-05,"5\n' + MORE, [4.0, *range(1, 29)], {"ragged": 2}
    ),
    "quotes that close in another line": Taken(
        'ds,y\n"2024-01-03,3\n2024-01-04,4\n2024-01-05,5"\n' + MORE,
        [4.0, *range(1, 29)],
        {"ragged": 1, "unparsable": 1},
    ),
    "5,000 digits": Taken("ds,y\n2024-01-03," + "1" * 5000 + "\n2024-01-04,4\n", [4], {"unparsable": 1}),
    "a time of 5,000 digits": Taken(
        "ds,y\n1,1\n" + "1" * 5000 + ",2\n3,3\n", [1, 3], {"unparsable": 1}, {"time_format": "step"}
    ),
    "JSON: 5,000 digits": Taken(json_rows("1", "1" * 5000, "3"), [1, 3], {"unparsable": 1}, None, "a.jsonl"),
    "JSON: beyond 64 bits": Taken(
        json_rows("1", "99999999999999999999999", "1e999", "4"), [1, 1e23, 4], {"unparsable": 1}, None, "a.jsonl"
    ),
    "JSON: half a surrogate pair": Taken(json_rows("1", '"\\ud800"', "3"), [1, 3], {"ragged": 1}, None, "a.jsonl"),
    "JSON: half a surrogate pair in a name": Taken(
        json_rows("1", '2,"\\ud800":1', "3"), [1, 3], {"ragged": 1}, None, "a.jsonl"
    ),
    "JSON: nested deeply": Taken(
        json_rows("1", "[" * 100_000 + "]" * 100_000, "3"), [1, 3], {"ragged": 1}, None, "a.jsonl"
    ),
    "JSON: a list in one row": Taken(json_rows("1", "[2]", "3"), [1, 3], {"unparsable": 1}, None, "a.jsonl"),
    "one line of other bytes": Taken(
        ("ds,y,n\n" + MORE.replace("\n", ",é\n")).encode().replace(b",3,\xc3\xa9", b",3,\xff"),
        [float(day) for day in range(1, 29) if day != 3],
        {"unparsable": 1},
    ),
    "half a character of UTF-16": Taken(
        ("ds,y\n" + MORE + "2024-03-04,\ud800\n").encode("utf-16-le", "surrogatepass"),
        [float(day) for day in range(1, 29)],
        {"unparsable": 1},
        {"encoding": "utf-16-le"},
    ),
    "a long line": Taken(
        "ds,y\n2024-01-03,3\n2024-01-04," + "4" * 3000 + "\n2024-01-05,5\n",
        [3, 5],
        {"too long": 1},
        {"max_line": "2KB"},
    ),
    "JSON: a long line": Taken(
        json_rows("1", "2" * 3000, "3"), [1, 3], {"too long": 1}, {"max_line": "2KB"}, "a.jsonl"
    ),
    "quoted thousands": Taken('ds,y\n2024-01-03,"1,234.5"\n2024-01-04,"1,000"\n2024-01-05,7\n', [1234.5, 1000, 7], {}),
    "thousands that are named": Taken(
        'ds,y\n2024-01-03,"1,234"\n2024-01-04,"1,5"\n2024-01-05,7\n', [1234, 7], {"unparsable": 1}, {"thousands": ","}
    ),
    "quoted decimal commas that are named": Taken(
        'ds,y\n2024-01-03,"1,5"\n2024-01-04,7\n', [1.5, 7], {}, {"decimal": ","}
    ),
    "rows with a trailing separator": Taken(
        "ds,y\n2024-01-03,3,\n2024-01-04,4,\n2024-01-05,5,x\n2024-01-06,6\n2024-01-07,7,\n", [3, 4, 6, 7], {"ragged": 1}
    ),
    "quoted rows with a trailing separator": Taken(
        'ds,y\n"2024-01-03",3,\n"2024-01-04",4,\n2024-01-05,5"6,\n', [3, 4], {"unparsable": 1}
    ),
    "mixed types": Taken(
        "ds,y\n2024-01-03,3\n2024-01-04,n/a\n2024-01-05,off\n2024-01-06,6\n", [3, None, 6], {"unparsable": 1}
    ),
    "NaN and infinity": Taken("ds,y\n2024-01-03,nan\n2024-01-04,inf\n2024-01-05,-Infinity\n", [None] * 3, {}),
    "dates of the future": Taken("ds,y\n2199-01-03,3\n2199-01-04,4\n", [3, 4], {}),
    "years that training cannot count": Taken(
        "ds,y\n0001-01-01,1\n1677-12-31,2\n1678-01-01,3\n2261-12-31,4\n2262-01-01,5\n9999-12-31,6\n",
        [3, 4],
        {"out of range": 4},
        {"keep_going": True},
    ),
    "a clock that goes backwards": Taken("ds,y\n2024-01-05,5\n2024-01-04,4\n2024-01-03,3\n", [5, 4, 3], {}),
    "a clock that stands still": Taken(
        "ds,y\n2024-01-05,5\n2024-01-05,6\n2024-01-05,5\n", [5], {"conflict": 1, "duplicate": 1}
    ),
    "rows without a time": Taken("ds,y\n,1\nNA,2\n2024-01-03,3\n2024-01-04,4\n", [3, 4], {"no time": 2}),
    "times that are none": Taken("ds,y\n2024-01-03,3\n2024-02-30,4\n2024-01-05,5\n", [3, 5], {"unparsable": 1}),
    "ragged rows": Taken("ds,y\n2024-01-03,3\n2024-01-04\n2024-01-05,5,5\n2024-01-06,6\n", [3, 6], {"ragged": 2}),
    "blank lines": Taken("ds,y\n\n2024-01-03,3\n\r\n2024-01-04,4\n\n", [3, 4], {}),
    "NUL bytes": Taken(
        b"ds,y\n2024-01-03,3\n\0\0\0\0\n2024-01-04,\0\n2024-01-05,5\n", [3, 5], {"ragged": 1, "unparsable": 1}
    ),
    "a quote that nothing closes": Taken(
        'ds,y\n2024-01-03,3\n"2024-01-04,4\n2024-01-05,5\n', [3, 5], {"ragged": 1}, {"final": True}
    ),
    "a stray quote": Taken('ds,y\n2024-01-03,3"\n2024-01-04,4\n', [4], {"unparsable": 1}),
    "thousands": Taken('ds,y\n2024-01-03,"1,234"\n2024-01-04,4\n2024-01-05,5\n', [4, 5], {"unparsable": 1}),
    "a decimal comma among points": Taken(
        "ds;y\n2024-01-03;1.5\n2024-01-04;1,5\n2024-01-05;2.5\n", [1.5, 2.5], {"unparsable": 1}
    ),
    "German thousands": Taken("ds;y\n2024-01-03;1,5\n2024-01-04;1.234,5\n2024-01-05;2.345\n", [1.5, 1234.5, 2345], {}),
    "thousands, or not": Taken(
        "ds;y\n2024-01-03;1,5\n2024-01-04;1.234,5\n2024-01-05;2.5\n2024-01-06;6\n",
        [1.5, 6],
        {"unparsable": 2},
        {"decimal": ","},
    ),
    "a number too large": Taken("ds,y\n2024-01-03,1e999\n2024-01-04,4\n", [4], {"unparsable": 1}),
    "the hour that the clock skipped": Taken(
        "ds,y\n2024-03-31 01:30,1\n2024-03-31 02:30,2\n2024-03-31 03:30,3\n",
        [1, 3],
        {"skipped hour": 1},
        {"timezone": "CET"},
    ),
    "finer than a microsecond": Taken(
        "ds,y\n2024-01-03T00:00:00.1234567,1\n2024-01-03T00:00:00.123456,2\n2024-01-03T00:00:00.2,3\n",
        [1, 2, 3],
        {},
    ),
    "torn JSON": Taken(
        '{"ds":"2024-01-03","y":3}\n{"ds":"2024-01-04","y"\n["a"]\n{"ds":"2024-01-05","y":"x"}\n',
        [3],
        {"ragged": 2, "unparsable": 1},
        {"keep_going": True},
        "a.jsonl",
    ),
    "JSON with NaN": Taken('{"ds":"2024-01-03","y":NaN}\n{"ds":"2024-01-04","y":4}\n', [None, 4], {}, None, "a.jsonl"),
    "latin-1 by itself": Taken("ds,y,größe\n2024-01-03,3,ä\n".encode("latin-1"), [3], {}),
    "a header in quotes with newlines": Taken('ds,y,"a\nb"\n2024-01-03,3,x\n', [3], {}),
    "a column without a name": Taken(",ds,y\n0,2024-01-03,3\n", [3], {}),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", TAKEN)
def test_taken_as_far_as_it_can_be(name: str, tmp_path: Path) -> None:
    case = TAKEN[name]
    data = case.content if isinstance(case.content, bytes) else case.content.encode()
    (tmp_path / case.name).write_bytes(data)
    options = case.options or {}
    summary = take(tmp_path / "t", tmp_path / case.name, **options)
    assert rows(tmp_path / "t")["y"].to_list() == case.y
    assert summary["quarantined"] == case.quarantined
    bad = quarantine(tmp_path / "t")
    assert bad.height == sum(case.quarantined.values())
    assert bad["line"].null_count() == 0
    again = take(tmp_path / "t", tmp_path / case.name, **options)
    assert (again["added"], again["quarantined"]) == (0, {})


@pytest.mark.parametrize("cell", ["1,234", "1,5"])
def test_a_column_of_numbers_is_not_text_without_a_word(cell: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f'ds,y,name\n2024-01-03,"{cell}",a\n2024-01-04,"{cell}",b\n')
    hints = " ".join(str(hint) for hint in take(tmp_path / "t", path)["hints"])
    assert "'y'" in hints and "--thousands" in hints and "--decimal" in hints and "'name'" not in hints


@pytest.mark.sampled
@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstandard.compress])
def test_blocks_and_limits_do_not_matter(packed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long lines, runs of blank lines and quotes over several lines, in blocks of every size."""
    lines = [f'2024-01-{1 + day:02d},{day},"a\n""b"""' for day in range(9)]
    lines[2:2] = ["\n" * 300, "2024-02-01," + "7" * 5000 + ",x", '2024-02-02,8,"y']
    data = ("ds,y,n\n" + "\n".join(lines) + "\n").encode()
    name = {bytes: "a.csv", gzip.compress: "a.csv.gz", zstandard.compress: "a.csv.zst"}[packed]
    (tmp_path / name).write_bytes(packed(data))
    found = []
    for block, count in ((64, 1 << 18), (1000, 7), (1 << 20, 1 << 18)):
        monkeypatch.setattr(records, "BLOCK", block)
        monkeypatch.setattr(records, "LINES", count)
        table = tmp_path / f"t{block}"
        take(table, tmp_path / name, max_line=1024)
        assert rows(table)["y"].to_list() == list(range(9))
        found.append(quarantine(table).select("reason", "line", "row").rows())
    assert found[0] == found[1] == found[2]
    assert [(reason, line) for reason, line, _ in found[0]] == [("too long", 307), ("ragged", 308)]
    assert len(found[0][0][2]) < 5000


def test_what_a_bomb_expands_to_is_not_held(tmp_path: Path) -> None:
    """64 MB in one line and 64 MB of blank lines; Python's own memory stays far below."""
    compressor = zstandard.ZstdCompressor()
    for name, piece in (("line", b"1" * (1 << 20)), ("blank", b"\n" * (1 << 20))):
        path = tmp_path / f"{name}.csv.zst"
        with path.open("wb") as raw, compressor.stream_writer(raw) as file:
            file.write(GOOD.encode())
            for _ in range(64):
                file.write(piece)
            file.write(b"\n2024-01-03,3\n")
        tracemalloc.start()
        summary = take(tmp_path / name, path, max_line="1MB")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (summary["added"], sum(summary["quarantined"].values())) == (3, int(name == "line"))
        assert peak < 150e6


def test_a_truncated_file_keeps_what_came_before_and_goes_on_when_whole(tmp_path: Path) -> None:
    body = "ds,y\n" + "".join(
        f"2024-01-01T{i // 3600:02d}:{i // 60 % 60:02d}:{i % 60:02d},{i * 7919 % 10007}\n" for i in range(9000)
    )
    whole = gzip.compress(body.encode())
    (tmp_path / "a.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StreamgpError):
        take(tmp_path / "t", tmp_path / "a.csv.gz")
    part = rows(tmp_path / "t").height
    assert 0 < part < 9000
    (tmp_path / "a.csv.gz").write_bytes(whole)
    assert take(tmp_path / "t", tmp_path / "a.csv.gz")["added"] == 9000 - part
    assert rows(tmp_path / "t")["y"].to_list() == [i * 7919 % 10007 for i in range(9000)]


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write call says that there is no space, at every commit in turn; then there is space again."""
    path = write(tmp_path / "a.csv", BODY + "soon,1\n")
    write_to = delta.write_parts
    for full in range(4):
        calls = [0]

        def no_space(*args: Any, full: int = full, calls: list[int] = calls, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] > full:
                raise OSError(28, "No space left on device")
            return write_to(*args, **kwargs)

        monkeypatch.setattr(delta, "write_parts", no_space)
        try:
            take(tmp_path / "t", path)
        except StreamgpError as error:
            assert error.exit_code == 5 and error.hint
    monkeypatch.undo()
    take(tmp_path / "t", path)
    assert rows(tmp_path / "t")["y"].to_list() == list(range(1, 29))
    assert quarantine(tmp_path / "t")["line"].to_list() == [30]
