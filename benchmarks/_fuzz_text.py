"""Fuzzed text: CSV, JSON Lines, compressed text, cells, messages, bodies of requests."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from _fuzz import QUOTED, WORDS, Check, Found, damaged, damaged_text, lines_of, of_file, one, tried

CELLS = 500
"""Cells of a call: each is a case."""
MESSAGES = 10
"""Messages of a call: each is a case."""


def csv_text(chance: random.Random, plain: bool = False) -> tuple[bytes, str, int | None]:
    """A CSV of odd cells, its separator, and its rows where they are known; `plain`: without a cell that needs quotes.

    They are not known where a line has too many or too few cells and one of them has a newline: a quote that is open
    may be a stray one.
    """
    separator = "," if plain else chance.choice(",,,;\t|")
    width, end = chance.choice([1, 2, 2, 3]), chance.choice(["\n", "\n", "\r\n"])
    names = ["t", "y", chance.choice(["note", "y [kW]", "a b", "Y", "é", "_line", "t"])][:width]
    start = datetime(2024, 3, 31, tzinfo=UTC)
    odd = WORDS if plain else (*WORDS, *QUOTED)

    def cell(text: str) -> str:
        needs = any(sign in text for sign in (separator, '"', "\n", "\r"))
        return '"' + text.replace('"', '""') + '"' if needs or (not plain and chance.random() < 0.02) else text

    lines, known = [separator.join(names)], True
    for at in range(chance.randrange(7)):
        cells = [f"{start + timedelta(minutes=30 * at):%Y-%m-%d %H:%M}", f"{chance.gauss(0, 10):.3f}", "on"][:width]
        if chance.random() < 0.4:
            cells[chance.randrange(width)] = chance.choice([word for word in odd if not plain or "," not in word])
        if chance.random() < 0.1:
            cells = chance.choice([cells[:-1], [*cells, "1"], [""] * width])
            known = known and not any("\n" in text for text in cells)
        lines.append(separator.join(map(cell, cells)))
        if chance.random() < 0.1:
            lines.append("")
    rows = sum(line not in ("", "\r") for line in lines) - 1
    return (end.join(lines) + end).encode(), separator, rows if known else None


def of_csv(home: Path) -> Check:
    read = of_file(home, "csv")

    def check(chance: random.Random) -> Found:
        if chance.random() < 0.5:
            data, separator, rows = csv_text(chance)
            return read(data, rows, separator=separator)
        data = damaged_text(csv_text(chance, plain=True)[0], chance)
        known = b'"' not in data and data[:1] not in (b"\n", b"\r", b"") and b"\0" not in data[:4]
        return read(data, max(lines_of(data) - 1, 0) if known else None)

    return check


def value(chance: random.Random, deep: int = 0) -> Any:
    """An odd value of JSON."""
    kind = chance.randrange(12 if deep < 3 else 9)
    if kind < 4:
        return chance.choice([0, 1, -1, 1.5, 10**18, 10**30, -(2**63), 2**64, 1e308, 5e-324, 10**400, 0.1])
    if kind < 7:
        return chance.choice((*WORDS, *QUOTED))
    if kind < 9:
        return chance.choice([None, True, False, "2024-01-01T00:00:00Z", 1_700_000_000, "1700000000"])
    if kind == 9:
        return [value(chance, deep + 1) for _ in range(chance.randrange(3))]
    return {chance.choice(["a", "", "name", "é"]): value(chance, deep + 1) for _ in range(chance.randrange(3))}


def row(chance: random.Random, at: int) -> dict[str, Any]:
    """An object with few odd values."""
    found: dict[str, Any] = {"t": 1_700_000_000 + at, "y": round(chance.gauss(), 3), "on": True}
    while chance.random() < 0.3:
        found[chance.choice(["t", "y", "on", "new", ""])] = value(chance)
    while chance.random() < 0.1:
        found.pop(chance.choice(["t", "y", "on"]), None)
    return found


def json_line(chance: random.Random, at: int) -> bytes:
    text = json.dumps(row(chance, at), ensure_ascii=chance.random() < 0.5)
    if chance.random() < 0.1:
        old, new = chance.choice([("}", ',"y":2}'), ("true", "tru"), ('"', "'"), ("1", "NaN"), ('"t"', '"\\ud800"')])
        text = text.replace(old, new, 1)
    return text.encode()


def of_jsonl(home: Path) -> Check:
    read = of_file(home, "jsonl")

    def check(chance: random.Random) -> Found:
        lines = [json_line(chance, at) for at in range(chance.randrange(1, 6))]
        data = b"\n".join(lines) + b"\n"
        if chance.random() < 0.5:
            data = damaged_text(data, chance)
        blank = sum(line.strip() == b"" and line not in (b"", b"\r") for line in data.split(b"\n")[:-1])
        return read(data, lines_of(data) - blank)

    return check


def of_compressed(home: Path, suffix: str) -> Check:
    """The bytes of a compressed CSV are damaged; gzip has a checksum, so what is read is what was packed."""
    import zstandard

    read = of_file(home, f"csv.{suffix}")
    pack = partial(gzip.compress, mtime=0) if suffix == "gz" else zstandard.ZstdCompressor(write_checksum=True).compress

    def check(chance: random.Random) -> Found:
        data, _, rows = csv_text(chance, plain=True)
        packed = pack(data)
        if chance.random() < 0.2:
            data = data + data.split(b"\n", 1)[1]
            packed, rows = packed + pack(data[len(data) - len(data.split(b"\n", 1)[1]) :]), 0
            return read(packed, None)
        whole = chance.random() < 0.2
        packed = packed if whole else damaged(packed, chance)
        magic = suffix == "gz" and packed.startswith(b"\x1f\x8b") and packed.count(b"\x1f\x8b") == 1
        return read(packed, rows if whole or magic else None)

    return check


def of_numbers(_: Path) -> Check:
    """Cells as numbers, with and without a unit: what is read is what Python reads, or it is set aside."""
    import numpy as np
    import polars as pl
    import pyarrow as pa

    from streamgp_data.reading.cells import NULLS, convert
    from streamgp_data.reading.units import without_unit

    signs = "0123456789" * 3 + "+-.,eE _'%kmhnaif \tNA٣−"

    def cell(chance: random.Random) -> str:
        text = chance.choice([f"{chance.gauss(0, 1e3):.4g}", str(chance.getrandbits(70)), chance.choice(WORDS), "1.5"])
        for _ in range(chance.choice([0, 0, 1, 1, 2, 3])):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(signs) + text[at + chance.randrange(2) :]
        return text

    def check(chance: random.Random) -> Found:
        unit = chance.choice(["", "", " km/h", "%"])
        texts = [cell(chance) + (unit if chance.random() < 0.9 else "") for _ in range(CELLS)]
        whole, counts = chance.random() < 0.3, Counter[str]()
        cells = pl.Series(texts)
        bare, powers = without_unit(cells, unit.strip()) if unit else (cells, np.zeros(CELLS, np.int64))
        found, bad = convert(bare, pa.int64() if whole else pa.float64(), ".", NULLS, powers=powers)
        for text, got, wrong, power in zip(texts, found.to_list(), bad.to_list(), powers.tolist(), strict=True):
            counts["set aside" if wrong else "read"] += 1
            if got is not None and not _is(text, unit.strip(), got, power):
                return Found(counts, f"{text!r} was read as {got!r}, unit {unit!r}")
            if got is None and not wrong and re.search(r"\d", text) and text.strip() not in NULLS:
                return Found(counts, f"{text!r} was lost, unit {unit!r}")
        return Found(counts)

    return check


def _is(text: str, unit: str, got: float, power: int) -> bool:
    """Whether a cell says this number, by Python's own reading of it; with another SI prefix, 10^power of it."""
    bare = text.strip().replace("−", "-")
    if power:
        found = re.match(r"[+-]?(\d+\.?\d*|\.\d+)", bare, re.ASCII)
        return found is not None and math.isclose(float(found[0]) * 10.0**power, got, rel_tol=1e-12)
    bare = bare.removesuffix(unit).strip() if unit else bare
    bare = f"-{bare[:-1]}" if bare.endswith("-") else bare  # a minus behind the number, as of SAP
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", bare, re.ASCII):
        return False
    return float(bare) == got or (isinstance(got, int) and re.fullmatch(r"[+-]?\d+", bare) and int(bare) == got) is True


_TIME = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[Tt ]+(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.,](\d+))?)?)? ?"
    r"(?:([Zz])|([+-])(\d{2})(?::?(\d{2}))?)?",
    re.ASCII,
)


def of_times(_: Path) -> Check:
    """Cells as times: what is read is what its digits say, or it is set aside."""
    import pyarrow as pa

    from streamgp_data.instants import MISSING, text_times

    def cell(chance: random.Random, offset: bool) -> str:
        moment = datetime(1970, 1, 1) + timedelta(
            seconds=chance.randrange(4 * 10**9), microseconds=chance.randrange(99)
        )
        form = chance.choice(["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S.%f", "%d.%m.%Y"])
        text = moment.strftime(form) + (chance.choice(["Z", "+01:00", "-0330", "+05"]) if offset else "")
        for _ in range(chance.choice([0, 0, 0, 1, 2])):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice("0123456789-:T +Z.,٣a") + text[at + chance.randrange(2) :]
        return text if chance.random() < 0.95 else chance.choice(WORDS)

    def check(chance: random.Random) -> Found:
        offset = chance.random() < 0.5
        texts = [cell(chance, offset) for _ in range(CELLS)]
        values, bad = text_times(pa.array(texts), offset, None)
        counts = Counter[str]()
        for text, got, wrong in zip(texts, values.cast(pa.int64()).to_pylist(), bad, strict=True):
            counts["set aside" if wrong else "read"] += 1
            if got is not None and got != _micros(text, offset):
                return Found(counts, f"{text!r} was read as {got} us, offset {offset}")
            if got is None and not wrong and text.strip() not in MISSING:
                return Found(counts, f"{text!r} was lost")
        return Found(counts)

    return check


def _micros(text: str, offset: bool) -> int | None:
    """Microseconds since 1970 by the digits of a time; None where it is none."""
    found = _TIME.fullmatch(text.strip())
    if found is None or bool(found[8] or found[9]) != offset:
        return None
    year, month, day, hour, minute, second = (int(found[at] or 0) for at in range(1, 7))
    micros = int((found[7] or "").ljust(6, "0")[:6])
    east = int(found[10] or 0) * 60 + int(found[11] or 0)
    leap = int(second == 60)
    try:
        moment = datetime(year, month, day, hour, minute, second - leap, micros, UTC) + timedelta(seconds=leap)
    except ValueError:
        return None
    whole = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return whole - (east if found[9] != "-" else -east) * 60_000_000


Payload = Callable[[random.Random, int], tuple[bytes, int | None]]
"""A message, and its rows where they are known."""


def of_messages(form: str) -> Callable[[Path], Check]:
    """Messages, half of them damaged; each has its rows, or a reason."""

    def make(_: Path) -> Check:
        from streamgp.errors import StreamgpError
        from streamgp_data.messages import Message
        from streamgp_data.reading.cells import FAULT
        from streamgp_pipelines.config import IngestConfig
        from streamgp_pipelines.live.decoding import Decoder

        given = {"source": ["mqtt://h/t"], "table": "t", "time": "t", "format": form}
        with tempfile.TemporaryDirectory() as room:
            config = IngestConfig.read(given | _schema(form, Path(room)))
            decoder, payload = Decoder(config, "a"), _payload(form)

        def check(chance: random.Random) -> Found:
            payloads, wanted = [], []
            for at in range(MESSAGES):
                data, rows = payload(chance, at)
                if chance.random() < 0.5:
                    data, rows = (damaged_text if form in ("json", "csv") else damaged)(data, chance), None
                payloads.append(data)
                wanted.append(rows)
            messages = [Message(data, "t", "", (at,), False, None) for at, data in enumerate(payloads)]
            counts, seen = Counter[str](), Counter[int]()
            try:
                contents, bad = decoder.split(messages)
                for content in contents:
                    owners = Counter(content.owner.tolist())
                    seen += owners
                    try:
                        rows = decoder.source(content, None).parse(content)
                    except StreamgpError as error:
                        if error.exit_code not in (2, 3):
                            return Found(counts, repr(error))
                        counts["refused"] += len(owners)
                        continue
                    if rows.num_rows != len(content.owner):
                        return one("miscounted", f"{rows.num_rows} rows of {len(content.owner)}")
                    faulty = rows.filter(rows.column(FAULT).is_valid()).column("_line").to_pylist()
                    counts["set aside"] += len(set(faulty))
                    counts["read"] += len(owners) - len(set(faulty))
            except BaseException as error:
                return one("raised", f"{type(error).__name__}: {error}"[:300])
            counts["set aside"] += len(bad)
            for at, rows in enumerate(wanted):
                if (at in seen) == (at in bad) or (at in seen and rows not in (None, seen[at])):
                    return one("miscounted", f"message {at}: {seen[at]} rows of {rows}, {bad.get(at)}")
            return Found(counts)

        return check

    return make


_AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "t", "type": "long"},
        {"name": "y", "type": ["null", "double"]},
        {"name": "note", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}


def _schema(form: str, room: Path) -> dict[str, Any]:
    """The options that a format needs."""
    if form == "avro":
        (room / "row.avsc").write_text(json.dumps(_AVRO))
        return {"message_schema": str(room / "row.avsc")}
    if form == "protobuf":
        from tests.data.protobufs import descriptor_set

        (room / "plant.binpb").write_bytes(descriptor_set())
        return {"message_schema": str(room / "plant.binpb"), "message": "plant.Meter"}
    return {}


def _payload(form: str) -> Payload:
    if form == "json":
        return _json
    if form == "csv":
        return lambda chance, at: (csv_text(chance)[0], None)
    if form == "msgpack":
        import msgpack

        def packed(chance: random.Random, at: int) -> tuple[bytes, int | None]:
            found = {key: _fit(one) for key, one in row(chance, at).items()}
            if chance.random() < 0.1:
                found["x"] = chance.choice([b"\xff", msgpack.Timestamp(2**33, 5), msgpack.ExtType(5, b"ab"), {1: 2}])
            return msgpack.packb(found), 1

        return packed
    if form == "avro":
        import fastavro

        schema = fastavro.parse_schema(_AVRO)

        def written(chance: random.Random, at: int) -> tuple[bytes, int | None]:
            out, note = io.BytesIO(), chance.choice((*WORDS, *QUOTED))
            found = {"t": chance.getrandbits(62), "y": chance.choice([None, 1.5, float("nan"), float("inf")])}
            fastavro.schemaless_writer(out, schema, found | {"note": note, "kind": "A"})
            return out.getvalue(), 1

        return written
    if form == "protobuf":
        from tests.data.protobufs import meter

        kind = meter()

        def filled(chance: random.Random, at: int) -> tuple[bytes, int | None]:
            found = kind(y=chance.choice([1.5, float("nan"), 1e300]), state=chance.choice([0, 1, 7]))
            found.ds.seconds = chance.choice([at, at, 1_700_000_000, -1, 2**40, -(2**62), 2**62])
            found.ds.nanos = chance.choice([0, 0, 999, -5, 2**31 - 1])
            found.raw = chance.choice([b"", b"", b"\xff\0"])
            if chance.random() < 0.5:
                found.place.floor, found.count = -3, 2**62
            return found.SerializeToString(), 1

        return filled
    from _fuzz_tables import stream_of, table_of

    def streamed(chance: random.Random, at: int) -> tuple[bytes, int | None]:
        table = table_of(chance)
        return stream_of(table, chance), table.num_rows or None

    return streamed


def _fit(found: Any) -> Any:
    """A value that MessagePack has."""
    if isinstance(found, int) and not -(2**63) <= found < 2**64:
        return float(found % 2**62)
    if isinstance(found, list):
        return [_fit(inner) for inner in found]
    return {key: _fit(inner) for key, inner in found.items()} if isinstance(found, dict) else found


def _json(chance: random.Random, at: int) -> tuple[bytes, int | None]:
    rows = [row(chance, at) for _ in range(chance.choice([1, 1, 1, 2, 3]))]
    if len(rows) > 1 or chance.random() < 0.2:
        return json.dumps(rows).encode(), len(rows)
    return json_line(chance, at), None


def of_body(_: Path) -> Check:
    """Bodies of requests in JSON: each row of the list is one."""
    import pyarrow as pa

    from streamgp_pipelines.live.bodies import JsonRows, parse_json

    kinds = {"t": pa.timestamp("us", "UTC"), "y": pa.float64(), "on": pa.bool_(), "new": pa.string(), "": pa.int64()}
    table: Any = SimpleNamespace(schema=pa.schema(list(kinds.items())), meta=SimpleNamespace(time="t"))

    def check(chance: random.Random) -> Found:
        rows: Sequence[Any] = [row(chance, at) for at in range(chance.randrange(4))]
        data = json.dumps(rows if chance.random() < 0.5 else {"rows": rows}).encode()
        broken = chance.random() < 0.5
        data = damaged_text(data, chance) if broken else data

        def parsed() -> Iterator[tuple[int, int]]:
            found = parse_json(data)
            for chunk in JsonRows(found, table).read({}):
                if chunk.rows.num_rows != len(found):
                    raise AssertionError(f"{chunk.rows.num_rows} rows of {len(found)}")
                yield chunk.rows.num_rows, len(found) - chunk.rows.column("_fault").null_count

        return tried(parsed, None if broken else len(rows))

    return check


KINDS: dict[str, Callable[[Path], Check]] = {
    "CSV": of_csv,
    "JSON Lines": of_jsonl,
    "CSV in gzip": lambda home: of_compressed(home, "gz"),
    "CSV in zstd": lambda home: of_compressed(home, "zst"),
    "numbers in cells": of_numbers,
    "times in cells": of_times,
    "message JSON": of_messages("json"),
    "message CSV": of_messages("csv"),
    "message MessagePack": of_messages("msgpack"),
    "message Avro": of_messages("avro"),
    "message Protobuf": of_messages("protobuf"),
    "message Arrow": of_messages("arrow"),
    "request JSON": of_body,
}
