"""Ingest: numbers with units, within a file and between files: converted, refused or put aside, never mixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamgp.errors import DataError, UsageError
from streamgp_data.ingestion.ingest import ingest
from streamgp_data.table import Table
from streamgp_pipelines.config import IngestConfig
from streamgp_pipelines.live.bodies import JsonRows
from streamgp_pipelines.serving.intake import Intake
from tests.live.feeds import Memory
from tests.live.feeds import take as listen
from tests.pipelines.ingesting import quarantine, rows, take, write
from tests.words import names, naming


def days(*cells: str, first: int = 1, header: str = "p") -> str:
    """A CSV of a day a cell."""
    return f"ds;{header}\n" + "".join(f"2024-01-{first + at:02};{cell}\n" for at, cell in enumerate(cells))


def unit(table: Path, column: str = "p") -> str:
    return (Table.open(table).schema.field(column).metadata or {}).get(b"unit", b"").decode()


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{}, {"sort": True}])
@pytest.mark.parametrize("twice", [False, True])
def test_a_prefix_is_converted_between_files(tmp_path: Path, twice: bool, options: dict[str, Any]) -> None:
    jan = write(tmp_path / "jan.csv", days("1.5 kW", "2.25 kW"))
    feb = write(tmp_path / "feb.csv", days("1500 W", "2250 W", "0.003 MW", first=10))
    for sources in ([jan], [feb]) if twice else ([jan, feb],):
        summary = take(tmp_path / "t", *sources, **options)
    assert rows(tmp_path / "t")["p"].to_list() == [1.5, 2.25, 1.5, 2.25, 3.0]
    assert (unit(tmp_path / "t"), summary["quarantined"]) == ("kW", {})


OTHERS = {
    "another unit": ("57 km/h", "35 mph", "mph km/h"),
    "none": ("57 km/h", "35", "km/h --unit v=km/h"),
    "one where there was none": ("57", "35 km/h", "km/h --unit v=km/h"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_converted_is_refused(name: str, tmp_path: Path) -> None:
    first, second, said = OTHERS[name]
    take(tmp_path / "t", write(tmp_path / "jan.csv", days(first, first, header="v")))
    with pytest.raises(DataError, match=naming("feb.csv line 2 'v'")) as refused:
        take(tmp_path / "t", write(tmp_path / "feb.csv", days(second, second, first=10, header="v")))
    assert names(f"{refused.value.message} {refused.value.hint}", said)
    assert rows(tmp_path / "t").height == 2


def test_unit_says_what_the_numbers_are(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "jan.csv", days("1.5 kW")))
    plain = write(tmp_path / "feb.csv", days("1500", first=10))
    assert take(tmp_path / "t", plain, unit="p=W")["quarantined"] == {}
    assert take(tmp_path / "t", write(tmp_path / "mar.csv", days("2", first=20)), unit="p=kW")["added"] == 1
    assert rows(tmp_path / "t")["p"].to_list() == [1.5, 1.5, 2.0]
    take(tmp_path / "u", plain, unit="p=W")
    assert unit(tmp_path / "u") == "W"
    take(tmp_path / "v", tmp_path / "jan.csv", unit="p=W")
    assert (unit(tmp_path / "v"), rows(tmp_path / "v")["p"].to_list()) == ("W", [1500.0])
    for wrong in ("q=W", "p", "p="):
        with pytest.raises(UsageError, match=naming("--unit")):
            take(tmp_path / "w", plain, unit=wrong)


MIXED = {
    "prefixes": ("1.5 kW;1500 W;2 kW;0.001 MW", [1.5, 1.5, 2.0, 1.0], 0),
    "no majority": ("1.5 kW;1500 W;0.002 MW;2 kW;3 W", [1.5, 1.5, 2.0, 2.0, 0.003], 0),
    "a unit that ends as another": ("1500 W;2 kW;1 W;5 W", [1500.0, 2000.0, 1.0, 5.0], 0),
    "decimal commas": ("1,5 kW;1.500,5 W;2,25 kW", [1.5, 1.5005, 2.25], 0),
    "another unit": ("57 km/h;35 mph;58 km/h", [57.0, 58.0], 1),
    "none": ("57 km/h;35;58 km/h", [57.0, 58.0], 1),
    "micro": ("5 µA;5000 nA;0.001 mA;7 μA", [5.0, 5.0, 1.0, 7.0], 0),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", MIXED)
def test_within_a_file(name: str, tmp_path: Path) -> None:
    cells, found, aside = MIXED[name]
    summary = take(tmp_path / "t", write(tmp_path / "a.csv", days(*cells.split(";"))))
    assert rows(tmp_path / "t")["p"].to_list() == pytest.approx(found, rel=1e-15)
    assert sum(summary["quarantined"].values()) == aside == quarantine(tmp_path / "t").height


def test_a_unit_in_the_header_is_the_column_s(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "a.csv", days("1500 W", "2 kW", header="p [kW]")))
    assert (unit(tmp_path / "t", "p [kW]"), rows(tmp_path / "t")["p [kW]"].to_list()) == ("kW", [1.5, 2.0])
    take(tmp_path / "t", write(tmp_path / "b.csv", days("3", "3.1", "3100 W", first=10, header="p [kW]")))
    assert rows(tmp_path / "t")["p [kW]"].to_list() == [1.5, 2.0, 3.0, 3.1, 3.1]


def test_rows_that_a_followed_file_gets(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", days("1.5 kW", "2 kW"))

    def grow() -> bool:
        if path.read_text().count("\n") < 6:
            with path.open("a") as file:
                file.write(f"2024-02-{path.read_text().count(chr(10)):02};1500 W\n")
            return False
        return True

    ingest(
        IngestConfig.read({"source": [str(path)], "table": str(tmp_path / "t"), "follow": True, "poll": 0.01}),
        stop=grow,
    )
    take(tmp_path / "t", path)
    assert rows(tmp_path / "t")["p"].to_list() == [1.5, 2.0, 1.5, 1.5, 1.5]


def test_units_of_columnar_files(tmp_path: Path) -> None:
    def file(name: str, own: str | None, value: float, day: int) -> Path:
        fields: list[pa.Field[Any]] = [pa.field("ds", pa.string())]
        fields.append(pa.field("p", pa.float32(), metadata={"unit": own} if own else None))
        data = pa.table({"ds": [f"2024-01-{day:02}"], "p": pa.array([value], pa.float32())}, schema=pa.schema(fields))
        pq.write_table(data, tmp_path / name)
        return tmp_path / name

    take(tmp_path / "t", file("a.parquet", "V", 1.5, 1), file("b.parquet", "mV", 1500, 2))
    assert rows(tmp_path / "t")["p"].to_list() == [1.5, 1.5]
    for own in ("A", None):
        with pytest.raises(DataError, match=naming("'p' V")):
            take(tmp_path / "t", file("c.parquet", own, 1, 3))


def test_melted_columns_with_different_units(tmp_path: Path) -> None:
    text = "ds;a;b\n2024-01-01;1,5 kW;2500 W\n2024-01-02;2,5 kW;1500 W\n"
    take(tmp_path / "t", write(tmp_path / "a.csv", text), melt="a,b")
    assert rows(tmp_path / "t")["y"].to_list() == [1.5, 2.5, 2.5, 1.5] and unit(tmp_path / "t", "y") == "kW"
    with pytest.raises(DataError, match=naming("'b' A kW")):
        take(tmp_path / "u", write(tmp_path / "b.csv", text.replace("0 W", "0 A")), melt="a,b")


def test_the_first_file_may_have_no_values(tmp_path: Path) -> None:
    """A column without values has no unit, and does not contradict one."""
    take(tmp_path / "t", write(tmp_path / "a.csv", days("1 kW")))
    summary = take(tmp_path / "t", write(tmp_path / "b.csv", days("", "NA", first=10)))
    assert (summary["added"], rows(tmp_path / "t")["p"].to_list()) == (2, [1.0, None, None])


def test_frames_are_in_the_units_of_the_table() -> None:
    from streamgp_pipelines.memory import FrameReader

    field: list[pa.Field[Any]] = [pa.field("ds", pa.string()), pa.field("p", pa.float64(), metadata={"unit": "kW"})]
    first = pa.table({"ds": ["2024-01-01", "2024-01-02"], "p": [1.5, 2.0]}, schema=pa.schema(field))
    reader = FrameReader(first)
    later = pl.DataFrame({"ds": ["2024-01-03"], "p": [3.0]}).to_arrow()
    assert reader.read(later.cast(pa.schema([("ds", pa.string()), ("p", pa.float64())])))["p"].to_pylist() == [3.0]
    watts = pa.schema([field[0], pa.field("p", pa.float64(), metadata={"unit": "W"})])
    assert reader.read(pa.table({"ds": ["2024-01-04"], "p": [3000.0]}, schema=watts))["p"].to_pylist() == [3.0]


def test_a_unit_in_the_name_of_a_column_is_that_of_messages(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "a.csv", days("1.5", "2", header="p [kW]")))
    lines = [b'{"ds": "2024-02-01", "p [kW]": 3}', b'{"ds": "2024-02-02", "p [kW]": "4000 W"}']
    assert listen(tmp_path / "t", Memory(lines))["quarantined"] == {}
    assert rows(tmp_path / "t")["p [kW]"].to_list() == [1.5, 2.0, 3.0, 4.0]


def test_messages_are_held_against_the_unit_too(tmp_path: Path) -> None:
    """A number without a unit is put aside, or is what --unit says; the stream goes on."""
    take(tmp_path / "t", write(tmp_path / "a.csv", days("1.5 kW", "2 kW")))
    lines = [b'{"ds": "2024-02-01", "p": 1500}', b'{"ds": "2024-02-02", "p": null}', b'{"ds": "2024-02-03"}']
    summary = listen(tmp_path / "t", Memory(lines))
    assert (summary["added"], summary["quarantined"]) == (2, {"no unit": 1})
    later = [b'{"ds": "2024-03-01", "p": 1500}', b'{"ds": "2024-03-02", "p": 2500}']
    summary = listen(tmp_path / "t", Memory([*lines, *later]), unit=("p=W",))
    assert rows(tmp_path / "t")["p"].to_list() == [1.5, 2.0, None, None, 1.5, 2.5]


CELLS = {
    "its unit": ("1.5 kW", 1.5),
    "another prefix": ("1500 W", 1.5),
    "another unit": ("1500 A", "unparsable"),
    "the number alone": ("1.5", "no unit"),
    "a missing one": ("NA", None),
}


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["json", "csv", "msgpack"])
@pytest.mark.parametrize("name", CELLS)
def test_cells_of_messages_say_their_unit(name: str, form: str, tmp_path: Path) -> None:
    cell, found = CELLS[name]
    take(tmp_path / "t", write(tmp_path / "a.csv", days("1.25 kW", "2 kW")))
    one: dict[str, object] = {"ds": "2024-02-01", "p": cell}
    payload = {
        "json": json.dumps(one).encode(),
        "csv": f"ds,p\n2024-02-01,{cell}\n".encode(),
        "msgpack": msgpack.packb(one),
    }
    summary = listen(tmp_path / "t", Memory([payload[form]]), format=form)
    put_aside = isinstance(found, str)
    assert summary["quarantined"] == ({found: 1} if put_aside else {})
    assert rows(tmp_path / "t")["p"].to_list()[2:] == ([] if put_aside else [found])


def test_a_unit_that_is_given_is_that_of_the_numbers_alone(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "a.csv", days("1.5 kW", "2 kW")))
    lines = [b'{"ds": "2024-02-01", "p": 1500}', b'{"ds": "2024-02-02", "p": "2.5 kW"}']
    assert listen(tmp_path / "t", Memory(lines), unit=("p=W",))["quarantined"] == {}
    assert rows(tmp_path / "t")["p"].to_list() == [1.5, 2.0, 1.5, 2.5]


def test_rows_of_a_request_say_their_unit_too(tmp_path: Path) -> None:
    """A number alone is in the unit of the table."""
    take(tmp_path / "t", write(tmp_path / "a.csv", days("50 km/h", "51 km/h", header="v")))
    cells: list[object] = ["30 km/h", "30000 m/h", 30, "30", "30 mph"]
    sent = [{"ds": f"2024-02-{at + 1:02}", "v": cell} for at, cell in enumerate(cells)]
    intake = Intake(table := Table.open(tmp_path / "t"))
    receipt = intake.submit(JsonRows(sent, table)).result()
    intake.close()
    assert [(one.row, one.reason) for one in receipt.quarantined] == [(4, "unparsable")]
    assert rows(tmp_path / "t")["v"].to_list() == [50.0, 51.0, 30.0, 30.0, 30.0, 30.0]


@pytest.mark.sampled
@pytest.mark.parametrize("name", MIXED)
def test_a_file_of_json_as_one_of_csv(name: str, tmp_path: Path) -> None:
    cells, found, aside = MIXED[name]
    if "," in cells:
        return
    lines = [json.dumps({"ds": f"2024-01-{at + 1:02}", "p": cell}) for at, cell in enumerate(cells.split(";"))]
    summary = take(tmp_path / "t", write(tmp_path / "a.jsonl", "\n".join(lines) + "\n"))
    assert rows(tmp_path / "t")["p"].to_list() == pytest.approx(found, rel=1e-15)
    assert sum(summary["quarantined"].values()) == aside
    more = {"ds": "2024-02-01", "p": f"{cells.split(';')[0]}"}
    take(tmp_path / "t", write(tmp_path / "b.jsonl", json.dumps(more) + "\n"))
    assert rows(tmp_path / "t")["p"][-1] == found[0]


def test_messages_make_a_table_with_units(tmp_path: Path) -> None:
    lines = [json.dumps({"ds": f"2024-01-{at:02}", "p": f"{at} kW"}).encode() for at in range(1, 9)]
    assert listen(tmp_path / "t", Memory(lines))["quarantined"] == {}
    assert (unit(tmp_path / "t"), rows(tmp_path / "t")["p"].to_list()) == ("kW", [float(at) for at in range(1, 9)])


def test_a_date_and_a_time_in_two_columns_do_not_hide_a_unit(tmp_path: Path) -> None:
    texts = [
        f"Date,Time,p\n2024-01-{day:02},10:00,{cell}\n" for day, cell in ((1, "1.5 kW"), (2, "1500 W"), (3, "2 A"))
    ]
    files = [write(tmp_path / f"{at}.csv", text) for at, text in enumerate(texts)]
    take(tmp_path / "t", *files[:2], time="Date,Time")
    assert rows(tmp_path / "t")["p"].to_list() == [1.5, 1.5]
    with pytest.raises(DataError, match=naming("line 2 'p' A kW")):
        take(tmp_path / "t", files[2])


def test_a_known_unit_in_parentheses_is_that_of_the_column(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "jan.csv", days("1.5", "2.25", header="Power (kW)")))
    assert unit(tmp_path / "t", "Power (kW)") == "kW"
    summary = take(tmp_path / "t", write(tmp_path / "feb.csv", days("1500", first=10, header="Power (W)")))
    assert rows(tmp_path / "t")["Power (kW)"].to_list() == [1.5, 2.25, 1.5]
    assert any("'Power (W)' is read as 'Power (kW)'" in hint for hint in summary["hints"])
    take(tmp_path / "u", write(tmp_path / "net.csv", days("1", header="Load (net)")))
    assert unit(tmp_path / "u", "Load (net)") == ""
    with pytest.raises(DataError, match=naming("'Load (net)' 'Load (gross)'")):
        take(tmp_path / "u", write(tmp_path / "gross.csv", days("1", first=10, header="Load (gross)")))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Temp (min)", "Temp (max)"),
        ("Flow (in)", "Flow (out)"),
        ("Traffic (N)", "Traffic (S)"),
        ("Phase (A)", "Phase (B)"),
        ("kids (m)", "kids (f)"),
        ("Bus (V2)", "Bus (V3)"),
        ("Sensor (K1)", "Sensor (K2)"),
    ],
)
def test_words_in_parentheses_are_no_units(one: str, other: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"ds,{one},{other}\n2024-01-01,1,2\n2024-01-02,3,4\n")
    take(tmp_path / "t", path)
    assert (unit(tmp_path / "t", one), unit(tmp_path / "t", other)) == ("", "")
    with pytest.raises(UsageError, match="has no such column"):
        take(tmp_path / "u", path, signals=[one.partition(" (")[0]])


def test_columns_are_taken_by_their_names_without_units(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ds;A (kW);B [kW];C (kW)\n2024-01-01;1;2;3\n2024-01-02;4;5;6\n")
    take(tmp_path / "t", path, signals=["A", "B"])
    assert rows(tmp_path / "t").columns[1:] == ["ds", "A (kW)", "B [kW]"]
    take(tmp_path / "m", path, melt=["A", "B", "C"])
    assert rows(tmp_path / "m")["unique_id"].unique(maintain_order=True).to_list() == ["A (kW)", "B [kW]", "C (kW)"]


@pytest.mark.parametrize("options", [{}, {"dry_run": True}])
def test_a_column_of_units_that_changes_by_a_prefix_is_told(options: dict[str, Any], tmp_path: Path) -> None:
    """A meter was replaced by one that counts Wh; a meter of water and the letters of a status are no such change."""

    def told(name: str, *said: str, table: str = "t") -> bool:
        lines = [f"2024-01-{1 + at:02};{at};{unit};W" for at, unit in enumerate(said)]
        path = write(tmp_path / name, "\n".join(["ds;use;unit;status", *lines, ""]))
        return any(names(str(hint), "'unit' kWh Wh") for hint in take(tmp_path / table, path, **options)["hints"])

    assert told("a.csv", "kWh", "kWh", "Wh") and not told("b.csv", "kWh", "kWh", "m³", table="u")
    assert not told("c.csv", "kWh", table="v")
    take(tmp_path / "w", write(tmp_path / "first.csv", "ds;use;unit;status\n2023-01-01;1;kWh;V\n"))
    assert told("later.csv", "Wh", "Wh", table="w")
