"""CSV against Python's own csv module: cells, types, faults and line numbers."""

from __future__ import annotations

import csv as python_csv
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp.errors import DataError
from streamgp_data.reading import quotes, records
from streamgp_data.reading.cells import FAULT, LINE, TEXT
from streamgp_data.sources import csv
from tests.properties import examples

TEXTS = st.text(alphabet='ab ,;"\n\t.é|0', max_size=6)
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr), st.integers(-(10**6), 10**6).map(str), st.just("")
)
NULLS = {"", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None"}


def rows_of(source: csv.Csv, after: dict[str, int] | None = None) -> list[dict[str, Any]]:
    return [row for chunk in source.read(after or {}) for row in chunk.rows.to_pylist()]


def build(path: Path, data: str | bytes, **options: Any) -> csv.Csv:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return csv.build(csv.Config(**options), str(path))


@pytest.mark.slow
@examples(60)
@given(
    cells=st.lists(st.tuples(NUMBERS, TEXTS, NUMBERS), min_size=1, max_size=25),
    separator=st.sampled_from([",", ";", "\t", "|"]),
    quoting=st.sampled_from([python_csv.QUOTE_MINIMAL, python_csv.QUOTE_ALL]),
    newline=st.sampled_from(["\n", "\r\n"]),
    block=st.sampled_from([16, 50, 400, 1 << 20]),
)
def test_against_python(
    cells: list[tuple[str, str, str]],
    separator: str,
    quoting: Any,
    newline: str,
    block: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    out = io.StringIO()
    writer = python_csv.writer(out, delimiter=separator, quoting=quoting, lineterminator=newline)
    writer.writerow(["a", "text", "b"])
    lines = []
    for row in cells:
        lines.append(1 + out.getvalue().count("\n"))
        writer.writerow(row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BLOCK", block)
        source = build(tmp_path_factory.mktemp("c") / "a.csv", out.getvalue(), separator=separator, decimal=".")
        source.expect(pa.schema([("a", pa.float64()), ("text", pa.string()), ("b", pa.float64())]))
        found = rows_of(source)
    assert [row[FAULT] for row in found] == [None] * len(cells)
    assert [row[LINE] for row in found] == lines
    for row, (a, text, b) in zip(found, cells, strict=True):
        assert (row["text"] or "") == text
        assert [row["a"], row["b"]] == [float(cell) if cell else None for cell in (a, b)]


@pytest.mark.slow
@examples(100)
@given(
    lines=st.lists(st.text(alphabet='a1.,"', max_size=8), min_size=1, max_size=15),
    block=st.sampled_from([8, 30, 1 << 20]),
)
def test_whatever_the_lines_are_none_is_lost(
    lines: list[str], block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every line that is not blank is in some row: as cells, or in the text of a fault."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BLOCK", block)
        data = "x,y\n1,1\n" + "\n".join(lines) + "\n"
        source = build(tmp_path_factory.mktemp("c") / "a.csv", data, final=True, separator=",")
        source.expect(pa.schema([("x", pa.string()), ("y", pa.float64())]))
        found = rows_of(source)[1:]
    said = [(2 + i, line) for i, line in enumerate(lines, 1) if line]
    starts = [row[LINE] for row in found]
    assert starts == sorted(set(starts))
    assert set(starts) <= {number for number, _ in said}
    bounds = [*starts, 10**6]
    for row, low, high in zip(found, bounds, bounds[1:], strict=False):
        raw = "\n".join(lines[low - 3 : high - 3]).rstrip("\n")
        if row[FAULT] is not None:
            assert row[TEXT] == raw
        else:
            assert [row["x"] or "", row["y"]] == _two_cells(raw)


def _two_cells(raw: str) -> list[Any]:
    cells = next(python_csv.reader([raw]), [])
    assert len(cells) == 2 or (len(cells) == 3 and not cells[2].strip())  # a trailing separator
    return [cells[0], float(cells[1]) if cells[1].strip() not in NULLS else None]


def test_resuming_behind_any_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "BLOCK", 64)
    source = build(tmp_path / "a.csv", "a,b\n" + "".join(f'{i},"two\nlines {i}"\n' for i in range(40)))
    chunks = list(source.read({}))
    assert len(chunks) > 5
    whole = rows_of(source)
    for i, chunk in enumerate(chunks):
        rest = rows_of(csv.build(csv.Config(), str(tmp_path / "a.csv")), dict(chunk.after))  # type: ignore[arg-type]
        assert rest == whole[sum(len(one.rows) for one in chunks[: i + 1]) :]


DIALECTS: list[tuple[str | bytes, str, str, str]] = [
    ("a,b\n1.5,2\n", ",", ".", "utf-8"),
    ("a;b\n1,5;2\n", ";", ",", "utf-8"),
    ("a;b\n1.5;2\n", ";", ".", "utf-8"),
    ("a;b\n1;2\n", ";", ".", "utf-8"),
    ("a\tb\n1,5\t2,25\n", "\t", ",", "utf-8"),
    ("a|b\n1|2\n", "|", ".", "utf-8"),
    ('a,b\n"1,234",2\n', ",", ".", "utf-8"),
    ('"a;x",b\n"1;2",2\n3,4\n', ",", ".", "utf-8"),
    ("only\n1\n2\n", ",", ".", "utf-8"),
    ("größe,b\n1,2\n".encode("cp1252"), ",", ".", "cp1252"),
    ("größe,b\n1,2\n".encode("utf-8-sig"), ",", ".", "utf-8"),
    ("größe,b\n1,2\n".encode("utf-16"), ",", ".", "utf-16-le"),
    ("a,b\n1,2\n".encode("utf-16-be"), ",", ".", "utf-16-be"),
    (b"a,b\n\x81,2\n", ",", ".", "latin-1"),
]


@pytest.mark.parametrize(("data", "separator", "decimal", "encoding"), DIALECTS)
def test_the_dialect_is_found(data: str | bytes, separator: str, decimal: str, encoding: str, tmp_path: Path) -> None:
    dialect = build(tmp_path / "a.csv", data).dialect
    assert (dialect.separator, dialect.decimal, dialect.encoding) == (separator, decimal, encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1", "cp1252", "cp1250"])
def test_every_encoding_by_name(encoding: str, tmp_path: Path) -> None:
    source = build(tmp_path / "a.csv", "größe [°C],b\n1,ä\n2,ü\n".encode(encoding), encoding=encoding)
    assert source.names == ["größe [°C]", "b"]
    assert [row["b"] for row in rows_of(source)] == ["ä", "ü"]
    assert source.units == {"größe [°C]": "°C"}


def test_types_are_found(tmp_path: Path) -> None:
    data = "n,half,flag,text,empty,mostly\n1,NA,true,x,,a\n2,7,FALSE,1,,b\n,8,True,y,,1\n"
    kinds = build(tmp_path / "a.csv", data).schema
    found = {name: str(kinds.field(name).type) for name in ("n", "half", "flag", "text", "empty", "mostly")}
    assert found == {
        "n": "double",
        "half": "double",
        "flag": "bool",
        "text": "string",
        "empty": "double",
        "mostly": "string",
    }


def test_cells_to_types(tmp_path: Path) -> None:
    source = build(tmp_path / "a.csv", "i,b,d\n1,true,2024-01-02\n2.0,0,2024-01-03\n2.5,yes,soon\n300,,\n1e2,FALSE,\n")
    source.expect(pa.schema([("i", pa.int8()), ("b", pa.bool_()), ("d", pa.date32())]))
    found = rows_of(source)
    assert [row["i"] for row in found] == [1, 2, None, None, 100]
    assert [row["b"] for row in found] == [True, False, None, None, False]
    assert [str(row["d"]) for row in found] == ["2024-01-02", "2024-01-03", "None", "None", "None"]
    assert [row[FAULT] and row[FAULT].split("|")[:2] for row in found] == [
        None,
        None,
        ["unparsable", "i"],
        ["unparsable", "i"],
        None,
    ]
    assert found[2][TEXT] == "2.5,yes,soon"


def test_a_stray_quote_costs_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotes, "RECORD_LIMIT", 200)
    monkeypatch.setattr(records, "BLOCK", 300)
    lines = [f"{i},{i}" for i in range(100)]
    lines[10] = '"10,10'
    source = build(tmp_path / "a.csv", "a,b\n" + "\n".join(lines) + "\n")
    found = rows_of(source)
    assert [row["a"] for row in found] == [float(i) if i != 10 else None for i in range(100)]
    assert [(row[LINE], row[TEXT]) for row in found if row[FAULT]] == [(12, '"10,10')]


def test_what_was_consumed_may_not_change(tmp_path: Path) -> None:
    source = build(tmp_path / "a.csv", "a,b\n1,2\n")
    after = list(source.read({}))[-1].after
    build(tmp_path / "a.csv", "a,b\n1,3\n4,5\n")
    with pytest.raises(DataError):
        list(csv.build(csv.Config(), str(tmp_path / "a.csv")).read(after))
