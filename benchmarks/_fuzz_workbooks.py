"""Fuzzed workbooks that are no .xlsx: .xls (BIFF8 in an OLE container), .xlsb (BIFF12) and .ods, written here byte by
byte: odd cells, damaged records and XML, damaged containers."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

from _fuzz import Check, Found, damaged, damaged_text, of_file
from _fuzz_here import here

ROWS = 5
NUMBERS = (45292.5, 1.0, -5.0, 1e300, 2958466.0, -1.0, float("nan"), float("inf"), 0.1, 0.0)
WORDS = ("x", "&", "1,5", "N/A", "é", "\x01", "12", "", "a" * 300, "\U0001f600")
NAMES = ("t", "y", "note")
END = 0xFFFFFFFE
"""Of a chain of sectors."""


def of_xls(home: Path) -> Check:
    """Of Excel 97 to 2003."""

    def make(chance: random.Random, count: int) -> tuple[list[bytes], Callable[[list[bytes]], bytes]]:
        return _xls_records(chance, count), lambda records: _ole(b"".join(records))

    return _check(home, "xls", make)


def of_xlsb(home: Path) -> Check:
    """Of Excel, in binary records."""

    def make(chance: random.Random, count: int) -> tuple[list[bytes], Callable[[list[bytes]], bytes]]:
        parts = _xlsb_parts(chance, count)
        return list(parts.values()), lambda made: _zip(dict(zip(parts, made, strict=True)))

    return _check(home, "xlsb", make)


def of_ods(home: Path) -> Check:
    """Of LibreOffice."""

    def make(chance: random.Random, count: int) -> tuple[list[bytes], Callable[[list[bytes]], bytes]]:
        parts = {"mimetype": b"application/vnd.oasis.opendocument.spreadsheet", "content.xml": _content(chance, count)}
        parts["META-INF/manifest.xml"] = (
            b'<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
            b'<manifest:file-entry manifest:full-path="/" manifest:media-type="'
            b'application/vnd.oasis.opendocument.spreadsheet"/></manifest:manifest>'
        )
        return list(parts.values()), lambda made: _zip(dict(zip(parts, made, strict=True)))

    return _check(home, "ods", make)


def _check(
    home: Path,
    suffix: str,
    make: Callable[[random.Random, int], tuple[list[bytes], Callable[[list[bytes]], bytes]]],
) -> Check:
    """Whole workbooks, of which the rows are known; those with damage to a part; to the container."""
    read = here(of_file(home, suffix))

    def check(chance: random.Random) -> Found:
        count, what = chance.randrange(ROWS + 1), chance.random()
        pieces, joined = make(chance, count)
        if 0.3 < what < 0.85:
            at = chance.choice(
                [max(range(len(pieces)), key=lambda one: len(pieces[one])), chance.randrange(len(pieces))]
            )
            pieces[at] = chance.choice([damaged, damaged_text])(pieces[at], chance)
        data = joined(pieces)
        return read(damaged(data, chance) if what >= 0.85 else data, count if what <= 0.3 else None)

    return check


def _zip(parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return out.getvalue()


def _xls_records(chance: random.Random, count: int) -> list[bytes]:
    """The records of a workbook of one sheet."""

    def record(number: int, body: bytes) -> bytes:
        return struct.pack("<HH", number, len(body)) + body

    def text(word: str, size: str) -> bytes:
        wide = word.encode("utf-16-le")
        return struct.pack(f"<{size}B", len(wide) // 2, 1) + wide

    def cell(row: int, column: int) -> bytes:
        place, form = struct.pack("<HHH", row, column, chance.randrange(4)), chance.randrange(9)
        number = struct.pack("<d", chance.choice(NUMBERS))
        if form < 3:
            return record(0x203, place + number)
        if form == 3:
            return record(0x27E, place + struct.pack("<I", chance.getrandbits(32)))  # RK
        if form == 4:
            return record(0x204, place + text(chance.choice(WORDS), "H"))  # LABEL
        if form == 5:
            return record(0xFD, place + struct.pack("<I", chance.randrange(5)))  # LABELSST
        if form == 6:
            return record(0x205, place + bytes([chance.choice([0, 1, 7, 42]), chance.randrange(2)]))  # BOOLERR
        if form == 7:
            formula = struct.pack("<HIH", 0, 0, 3) + b"\x1e\x01\x00"
            return record(0x06, place + number + formula)
        return record(0xBD, place[:4] + struct.pack("<HI", 0, chance.getrandbits(32)) + struct.pack("<H", column))

    begin = record(0x809, struct.pack("<HHHHII", 0x600, 5, 0, 1997, 0, 6))
    styles = [record(0x41E, struct.pack("<H", 164) + text("yyyy-mm-dd hh:mm", "H"))]
    styles += [record(0xE0, struct.pack("<HH", 0, form) + bytes(16)) for form in (0, 164, 14)]
    words = record(0xFC, struct.pack("<II", 3, 3) + b"".join(text(word, "H") for word in ("t", "on", "é")))
    end, name = record(0x0A, b""), text("S", "B")
    at = len(begin) + sum(map(len, styles)) + (4 + 6 + len(name)) + len(words) + len(end)
    sheet = record(0x85, struct.pack("<IBB", at, 0, 0) + name)
    rows = [record(0x809, struct.pack("<HHHHII", 0x600, 16, 0, 1997, 0, 6))]
    rows.append(record(0x200, struct.pack("<IIHHH", 0, count + 1, 0, len(NAMES), 0)))
    rows += [record(0x204, struct.pack("<HHH", 0, at, 0) + text(name, "H")) for at, name in enumerate(NAMES)]
    for row in range(1, count + 1):
        rows += [record(0x203, struct.pack("<HHHd", row, 0, 0, row)), cell(row, 1), cell(row, 2)]
    return [begin, *styles, sheet, words, end, *rows, end]


def _ole(stream: bytes) -> bytes:
    """A compound file with the stream `Workbook`, in sectors of 512 bytes."""
    stream = stream.ljust(4096, b"\0")
    sectors = -(-len(stream) // 512)
    table = [0xFFFFFFFD, END, *range(3, 2 + sectors), END]
    table = [*table, *[0xFFFFFFFF] * (128 - len(table) % 128)]
    blocks = len(table) // 128
    if blocks > 1:
        raise ValueError("a workbook of more than 60 KB")
    header = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16) + struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    header += struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, END, 0, END, 0) + struct.pack("<109I", 0, *[0xFFFFFFFF] * 108)

    def entry(name: str, kind: int, child: int, start: int, size: int) -> bytes:
        wide = (name + "\0").encode("utf-16-le") if name else b""
        ties = struct.pack("<III", 0xFFFFFFFF, 0xFFFFFFFF, child)
        return (
            wide.ljust(64, b"\0")
            + struct.pack("<HBB", len(wide), kind, 1)
            + ties
            + bytes(36)
            + struct.pack("<IQ", start, size)
        )

    empty = 0xFFFFFFFF
    folder = (
        entry("Root Entry", 5, 1, END, 0) + entry("Workbook", 2, empty, 2, len(stream)) + 2 * entry("", 0, empty, 0, 0)
    )
    return header + struct.pack("<128I", *table) + folder + stream.ljust(512 * sectors, b"\0")


def _xlsb_parts(chance: random.Random, count: int) -> dict[str, bytes]:
    """The parts of a workbook of one sheet."""

    def record(number: int, body: bytes = b"") -> bytes:
        head = bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])
        size, length = len(body), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return head + length + bytes([size]) + body

    def text(word: str) -> bytes:
        wide = word.encode("utf-16-le")
        return struct.pack("<I", len(wide) // 2) + wide

    def cell(column: int) -> bytes:
        place, form = struct.pack("<II", column, chance.randrange(4)), chance.randrange(8)
        number = struct.pack("<d", chance.choice(NUMBERS))
        if form < 3:
            return record(5, place + number)
        if form == 3:
            return record(2, place + struct.pack("<I", chance.getrandbits(32)))  # RK
        if form == 4:
            return record(6, place + text(chance.choice(WORDS)))
        if form == 5:
            return record(7, place + struct.pack("<I", chance.randrange(5)))  # a shared string
        if form == 6:
            return record(chance.choice([3, 4]), place + bytes([chance.choice([0, 1, 7, 42])]))  # an error, a truth
        return record(9, place + number + struct.pack("<HI", 0, 3) + b"\x1e\x01\x00")  # a formula

    ties, tie = (
        'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"',
        ("http://schemas.openxmlformats.org/officeDocument/2006/relationships"),
    )
    links = {"r1": ("worksheet", "worksheets/sheet1.bin"), "r2": ("sharedStrings", "sharedStrings.bin")}
    links["r3"] = ("styles", "styles.bin")
    listed = "".join(
        f'<Relationship Id="{key}" Type="{tie}/{kind}" Target="{to}"/>' for key, (kind, to) in links.items()
    )
    book = record(131) + record(143) + record(156, struct.pack("<II", 0, 1) + text("r1") + text("S")) + record(144)
    words = [record(19, b"\0" + text(word)) for word in ("t", "on", "é")]
    forms = [record(47, struct.pack("<HH", 0, form) + bytes(12)) for form in (0, 164, 14)]
    styles = record(278) + record(615, struct.pack("<I", 1)) + record(44, struct.pack("<H", 164) + text("yyyy-mm-dd"))
    styles += record(616) + record(617, struct.pack("<I", 3)) + b"".join(forms) + record(618) + record(279)
    rows = [record(129), record(148, struct.pack("<IIII", 0, count, 0, len(NAMES) - 1)), record(145)]
    for row in range(count + 1):
        rows.append(record(0, struct.pack("<II", row, 0) + bytes(9)))
        if row:
            rows += [record(5, struct.pack("<IId", 0, 0, row)), cell(1), cell(2)]
        else:
            rows += [record(6, struct.pack("<II", at, 0) + text(name)) for at, name in enumerate(NAMES)]
    return {
        "xl/worksheets/sheet1.bin": b"".join(rows) + record(146) + record(130),
        "xl/workbook.bin": book + record(132),
        "xl/_rels/workbook.bin.rels": f"<Relationships {ties}>{listed}</Relationships>".encode(),
        "xl/sharedStrings.bin": record(159, struct.pack("<II", 3, 3)) + b"".join(words) + record(160),
        "xl/styles.bin": styles,
        "[Content_Types].xml": b'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "_rels/.rels": f'<Relationships {ties}><Relationship Id="r1" Type="{tie}/officeDocument" '
        'Target="xl/workbook.bin"/></Relationships>'.encode(),
    }


def _content(chance: random.Random, count: int) -> bytes:
    """The sheet of an OpenDocument."""

    def cell() -> str:
        number, word = chance.choice(NUMBERS), chance.choice(["x", "&amp;", "1,5", "N/A", "é", "12", "", "a" * 300])
        kinds = [f'<table:table-cell office:value-type="float" office:value="{number}"/>'] * 3
        kinds += [f'<table:table-cell office:value-type="string"><text:p>{word}</text:p></table:table-cell>']
        kinds += ['<table:table-cell office:value-type="date" office:date-value="2024-01-01T00:30:00"/>']
        kinds += ['<table:table-cell office:value-type="time" office:time-value="PT01H30M00S"/>']
        kinds += ['<table:table-cell office:value-type="boolean" office:boolean-value="true"/>']
        kinds += ['<table:table-cell office:value-type="percentage" office:value="0.5"/>', "<table:table-cell/>"]
        kinds += ['<table:covered-table-cell table:number-columns-repeated="1"/>']
        return chance.choice(kinds)

    heads = "".join(
        f'<table:table-cell office:value-type="string"><text:p>{name}</text:p></table:table-cell>' for name in NAMES
    )
    rows = [
        f'<table:table-row><table:table-cell office:value-type="float" office:value="{row}"/>{cell()}{cell()}'
        "</table:table-row>"
        for row in range(1, count + 1)
    ]
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    beyond = chance.choice(["", "", '<table:table-row table:number-rows-repeated="1048000"><table:table-cell '
                            'table:number-columns-repeated="16384"/></table:table-row>'])  # fmt: skip
    return (
        f'<?xml version="1.0"?><office:document-content {spaces}><office:body><office:spreadsheet>'
        f'<table:table table:name="S"><table:table-row>{heads}</table:table-row>{"".join(rows)}{beyond}</table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    ).encode()


KINDS: dict[str, Callable[[Path], Check]] = {
    "Excel (.xls)": of_xls,
    "Excel (.xlsb)": of_xlsb,
    "OpenDocument (.ods)": of_ods,
}
