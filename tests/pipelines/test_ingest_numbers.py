"""Ingest: numbers as people write them, and what is said where they stay text."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streamgp.errors import SchemaError
from streamgp.streaming.table import Table, TableMeta
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.columns import window_spec
from tests.pipelines.ingesting import rows, take, write

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


@pytest.mark.parametrize("numbers", [[], ["q"]])
def test_a_text_column_is_to_be_ingested_again(numbers: list[str]) -> None:
    fields = [("ds", pa.timestamp("us")), ("p", pa.string()), *((name, pa.float64()) for name in numbers)]
    with pytest.raises(SchemaError) as refused:
        window_spec(TrainConfig.read({"table": "t", "target": "p"}), pa.schema(fields), TableMeta(time="ds"))
    assert "new table with --decimal" in refused.value.hint
    assert refused.value.hint.startswith("numbers are: q; " if numbers else "if ")
