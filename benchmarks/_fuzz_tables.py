"""Fuzzed tables: Arrow, Parquet, Excel; valid structure with odd values, types and names, and damaged bytes."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import _fuzz
from _fuzz import Check, Found, damaged, damaged_text, of_file, one

from streamgp_data.reading import workbook
from streamgp_data.sources import excel

ROWS = 5


@cache
def _columns() -> list[tuple[Any, list[Any]]]:
    """Types of Arrow, with values of each."""
    import pyarrow as pa

    moment, word = datetime(2024, 1, 1, tzinfo=UTC), ["a", "", "é", None, "a" * 40]
    numbers: list[Any] = [1, 0, None, 5, 100]
    found: list[tuple[Any, list[Any]]] = [(kind(), numbers) for kind in (pa.int8, pa.uint8, pa.int32, pa.int64)]
    found += [(pa.uint64(), [2**64 - 1, 0, None, 1, 2]), (pa.uint64(), numbers), (pa.float32(), numbers)]
    found += [(pa.float64(), [1.5, float("nan"), float("inf"), None, -0.0]), (pa.bool_(), [True, False, None] * 2)]
    found += [(kind(), word) for kind in (pa.string, pa.large_string, pa.string_view)]
    found += [(pa.timestamp(unit, zone), [moment] * 5) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")]
    found += [(pa.timestamp("us", "Europe/Berlin"), [moment, None] * 3), (pa.date32(), [date(2024, 1, 1)] * 5)]
    found += [(pa.dictionary(pa.int8(), pa.string()), word), (pa.null(), [None] * 5), (pa.binary(), [b"\xff"] * 5)]
    found += [(pa.list_(pa.int32()), [[1], None, []] * 2), (pa.struct({"a": pa.int8()}), [{"a": 1}] * 5)]
    found += [(pa.decimal128(5, 2), [Decimal("1.50")] * 5), (pa.duration("s"), numbers), (pa.time64("us"), numbers)]
    return found


def table_of(chance: random.Random) -> Any:
    """A small table of Arrow."""
    import pyarrow as pa

    rows, columns, fields = chance.randrange(ROWS + 1), [], []
    for at in range(chance.randrange(1, 4)):
        kind, values = chance.choice(_columns()[: None if chance.random() < 0.2 else 24])
        columns.append(pa.array(values[:rows], kind))
        name = ("t", "y", "note")[at] if chance.random() < 0.95 else chance.choice(["", "y", "a\0b", "é", "_line"])
        about = {"unit": chance.choice(["kW", "\udcff", ""])} if chance.random() < 0.05 else None
        about = {key: one.encode("utf-8", "surrogateescape") for key, one in about.items()} if about else None
        fields.append(pa.field(name, kind, metadata=about))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def stream_of(table: Any, chance: random.Random) -> bytes:
    """An Arrow stream."""
    return _ipc(table, chance, "new_stream")


def _ipc(table: Any, chance: random.Random, new: str) -> bytes:
    import pyarrow as pa

    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=chance.choice([None, None, "lz4", "zstd"]))
    with getattr(pa.ipc, new)(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=chance.choice([2, 100]))
    return out.getvalue()


def of_arrow(new: str, suffix: str) -> Callable[[Path], Check]:
    def make(home: Path) -> Check:
        read = of_file(home, suffix)

        def check(chance: random.Random) -> Found:
            table = table_of(chance)
            data = _ipc(table, chance, new)
            whole = chance.random() < 0.4
            return read(data if whole else damaged(data, chance, 8), table.num_rows if whole else None)

        return check

    return make


def of_parquet(home: Path) -> Check:
    """Damage to pages leaves the number of rows, which the footer has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    read = of_file(home, "parquet")

    def check(chance: random.Random) -> Found:
        table, out = table_of(chance), io.BytesIO()
        try:
            pq.write_table(
                table,
                out,
                row_group_size=chance.choice([2, 100]),
                compression=chance.choice(["none", "none", "snappy", "zstd"]),
                use_dictionary=chance.random() < 0.5,
                data_page_version=chance.choice(["1.0", "2.0"]),
                store_schema=chance.random() < 0.5,
            )
        except pa.ArrowException:  # no type of Parquet
            return one("refused")
        data, what = out.getvalue(), chance.random()
        foot = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        if what < 0.3:
            return read(data, table.num_rows)
        if what < 0.75 and foot > 5:
            pages = damaged(data[:foot], chance, 4)
            if len(pages) == foot:
                return read(pages + data[foot:], table.num_rows)
        return read(damaged(data, chance, foot), None)

    return check


_SPACE = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_TIES = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'
_TIE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PARTS = {
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
    "_rels/.rels": f'<Relationships {_TIES}><Relationship Id="r1" Type="{_TIE}/officeDocument" '
    'Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook {_SPACE} xmlns:r="{_TIE}"><sheets><sheet name="S" sheetId="1" r:id="r1"/></sheets>'
    "</workbook>",
    "xl/_rels/workbook.xml.rels": f'<Relationships {_TIES}><Relationship Id="r1" Type="{_TIE}/worksheet" '
    f'Target="worksheets/sheet1.xml"/><Relationship Id="r2" Type="{_TIE}/sharedStrings" Target="sharedStrings.xml"/>'
    f'<Relationship Id="r3" Type="{_TIE}/styles" Target="styles.xml"/></Relationships>',
    "xl/sharedStrings.xml": f"<sst {_SPACE}><si><t>t</t></si><si><t>y</t></si><si><t>on</t></si></sst>",
    "xl/styles.xml": f'<styleSheet {_SPACE}><numFmts><numFmt numFmtId="164" formatCode="yyyy-mm-dd hh:mm"/></numFmts>'
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="164"/><xf numFmtId="14"/></cellXfs></styleSheet>',
}


def of_excel(home: Path) -> Check:
    """Workbooks of odd cells, as fastexcel reads them in a process of its own; damage to the XML of a part, or to the
    archive."""
    if not _fuzz.INGESTED:
        excel.read_sheets = workbook.sheets_of
    read = of_file(home, "xlsx")

    def cell(chance: random.Random, place: str) -> str:
        number = chance.choice(["45292.5", "1", "-5", "1e300", "9" * 30, "2958466", "-1", "NaN", "", "0.1"])
        word = chance.choice(["x", "&amp;", "1,5", "N/A", "é", "_x0001_", "12"])
        kinds = [f'<c r="{place}"><v>{number}</v></c>'] * 4
        kinds += [f'<c r="{place}" s="{chance.randrange(4)}"><v>{number}</v></c>']
        kinds += [f'<c r="{place}" t="inlineStr"><is><t>{word}</t></is></c>', f'<c r="{place}" t="b"><v>1</v></c>']
        kinds += [f'<c r="{place}" t="e"><v>#DIV/0!</v></c>', f'<c r="{place}" t="s"><v>{chance.randrange(5)}</v></c>']
        kinds += [f'<c r="{place}" t="str"><f>A1+1</f><v>{word}</v></c>', f'<c r="{place}" t="d"><v>2024-01-01</v></c>']
        return chance.choice(kinds)

    def check(chance: random.Random) -> Found:
        heads = "".join(f'<c r="{sign}1" t="s"><v>{at}</v></c>' for at, sign in enumerate("ABC"))
        count = chance.randrange(5)
        rows = [
            f'<row r="{at}"><c r="A{at}"><v>{at}</v></c>{cell(chance, f"B{at}")}{cell(chance, f"C{at}")}</row>'
            for at in range(2, 2 + count)
        ]
        sheet = f'<worksheet {_SPACE}><sheetData><row r="1">{heads}</row>{"".join(rows)}</sheetData></worksheet>'
        parts = {**_PARTS, "xl/worksheets/sheet1.xml": sheet}
        what, out = chance.random(), io.BytesIO()
        packed = {name: text.encode() for name, text in parts.items()}
        if 0.3 < what < 0.8:
            name = chance.choice(["xl/worksheets/sheet1.xml"] * 4 + list(parts))
            packed[name] = chance.choice([damaged_text, damaged])(packed[name], chance)
        with zipfile.ZipFile(out, "w") as file:
            for name, data in packed.items():
                file.writestr(name, data)
        data = out.getvalue()
        return read(damaged(data, chance) if what >= 0.8 else data, count if what <= 0.3 else None)

    return check


KINDS: dict[str, Callable[[Path], Check]] = {
    "Arrow stream": of_arrow("new_stream", "arrows"),
    "Feather": of_arrow("new_file", "feather"),
    "Parquet": of_parquet,
    "Excel (.xlsx)": of_excel,
}
