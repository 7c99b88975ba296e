"""What all kinds of fuzzed inputs share: odd values, damage to bytes, and what became of a case."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

OUTCOMES = ("refused", "read", "set aside", "refused late", "no rows", "raised", "miscounted")
"""read: no row is faulty; set aside: some rows are for the quarantine; refused late: rows came before the error."""

WORDS = (
    "", " ", "0", "1", "-1.5", "1e400", "-1e-400", "9" * 25, "9" * 400, "1,5", "1.234,5", "NaN", "nan", "inf", "-inf",
    "null", "None", "N/A", "true", "FALSE", "é", "😀", "\t", "'", "1 km/h", "57%", "2024-01-01", "2024-02-30 00:00",
    "24:00", "0x1f", "1_000", "+", "-", ".", "e5", "٣", "\u2028", "a" * 300, "=1+1", "\\", "\x1a", "\ufeff", "−5",
    "\x85",
)  # fmt: skip
QUOTED = ('"', '""', "a\nb", "a,b", ";", "a\r\nb", "\0", "\r")


class Found(NamedTuple):
    """Outcomes of one call of a `Check`, and which claim it broke ("" for none)."""

    counts: Counter[str]
    fault: str = ""


Check = Callable[[random.Random], Found]
"""One case, or several, drawn by the random numbers."""


def one(outcome: str, fault: str = "") -> Found:
    return Found(Counter([outcome]), fault)


def tried(rows: Callable[[], Iterator[tuple[int, int]]], expected: int | None = None) -> Found:
    """One case: `rows` gives the number of rows and of faulty ones, chunk by chunk; `expected` is their true number."""
    from streamgp.errors import StreamgpError

    given = bad = 0
    try:
        for count, faulty in rows():
            given, bad = given + count, bad + faulty
    except StreamgpError as error:
        fault = "" if error.exit_code in (2, 3) and error.hint else f"exit {error.exit_code}: {error}"
        return one("refused late" if given else "refused", fault)
    except BaseException as error:
        return one("raised", f"{type(error).__name__}: {error}"[:300])
    if expected is not None and given != expected:
        return one("miscounted", f"{given} rows of {expected}")
    return one("set aside" if bad else "read" if given else "no rows")


INGESTED = False
"""Whether files are ingested into a table, twice, and not only read."""
APART = False
"""Whether a library that streamgp has in a process of its own is in one here too, for each file."""


def of_file(home: Path, suffix: str, **options: Any) -> Callable[..., Found]:
    """Reads bytes as a file of this suffix; `expected`: its rows, where they are known."""
    if INGESTED:
        return _ingested(home, suffix, options)
    from streamgp_data.reading.cells import FAULT
    from streamgp_data.reading.files import open_source

    numbers = iter(range(10**9))  # HDF5 knows a file that it has open by its name

    def read(data: bytes, expected: int | None, **more: Any) -> Found:
        path = home / f"{next(numbers)}.{suffix}"
        path.write_bytes(data)

        def rows() -> Iterator[tuple[int, int]]:
            for chunk in open_source(str(path), None, options | more).read({}):
                found = chunk.rows
                yield found.num_rows, found.num_rows - found.column(FAULT).null_count

        try:
            return tried(rows, expected)
        finally:
            path.unlink()

    return read


def _ingested(home: Path, suffix: str, options: dict[str, Any]) -> Callable[..., Found]:
    """Ingests bytes: rows taken + rows set aside are those of the file, and a second run adds none."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_data.quarantine import FOLDER
    from streamgp_data.table import Table
    from streamgp_pipelines.config import IngestConfig

    numbers = iter(range(10**9))
    time = (
        {"time": "t"}
        if suffix.split(".")[0] in ("csv", "jsonl", "arrows", "feather", "parquet", "xlsx", "xls", "xlsb", "ods")
        else {}
    )

    def aside(table: Path) -> list[tuple[Any, ...]]:
        if not (table / FOLDER).is_dir():
            return []
        chunks = Table.open(table / FOLDER).read(columns=["reason", "line", "row"])
        return [tuple(row.values()) for chunk in chunks for row in chunk.rows.to_pylist()]

    def read(data: bytes, expected: int | None, **more: Any) -> Found:
        room = home / str(next(numbers))
        room.mkdir()
        path, table = room / f"a.{suffix}", room / "t"
        path.write_bytes(data)
        given = {"source": [str(path)], "table": str(table), "max_ahead": None} | time | options | more
        seen: list[Any] = []

        def rows() -> Iterator[tuple[int, int]]:
            seen[:] = [ingest(IngestConfig.read(given)), aside(table)]
            yield Table.open(table).rows + len(seen[1]), len(seen[1])

        found = tried(rows, expected)
        if len(seen) == 2 and not found.fault:
            again: Any = ingest(IngestConfig.read(given))
            if len(set(seen[1])) != len(seen[1]):
                found = one("miscounted", "a row was set aside twice")
            elif again["added"] or again["quarantined"] or aside(table) != seen[1]:
                found = one("miscounted", f"a second run added {again['added']} rows, {again['quarantined']}")
        shutil.rmtree(room)
        return found

    return read


def damaged(data: bytes, chance: random.Random, low: int = 0, high: int | None = None) -> bytes:
    """One to three changes of bytes from `low` to `high`, mostly small ones, which get far into a parser."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        stop = min(len(out), high or len(out))
        if stop <= low:
            break
        at, what = chance.randrange(low, stop), chance.randrange(12)
        if what < 5:
            out[at] = chance.choice([out[at] ^ (1 << chance.randrange(8)), 0, 255, 127, chance.randrange(256)])
        elif what < 8:
            width = chance.choice([2, 4, 8])
            value = chance.choice([0, 1, -1, 1 << (8 * width - 1), chance.getrandbits(8 * width), len(out)])
            out[at : at + width] = (value % (1 << (8 * width))).to_bytes(width, chance.choice(["little", "big"]))
        elif what == 8:
            del out[at : at + chance.choice([1, 4, 8, 100])]
        elif what == 9:
            put = [b"\0" * 8, b"\xff" * 8, bytes(out[at : at + 50]), b"\n", b"9" * chance.choice([20, 400]), b"("]
            out[at:at] = chance.choice(put)
        elif what == 10:
            other = chance.randrange(low, stop)
            out[at : at + 8], out[other : other + 8] = out[other : other + 8], out[at : at + 8]
        elif chance.random() < 0.3:
            del out[at:]
    return bytes(out)


def damaged_text(data: bytes, chance: random.Random) -> bytes:
    """One to four changes of text: signs, long digits, lines that are repeated or exchanged."""
    out = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        if not out:
            break
        at, what = chance.randrange(len(out)), chance.randrange(8)
        if what == 0:
            out[at] ^= 1 << chance.randrange(8)
        elif what == 1 and chance.random() < 0.3:
            del out[at:]
        elif what in (2, 3):
            signs = [b'"', b"\0", b"\r", b"\n", b",", b"\xff", b"\\ud800", b"[[[[", b"\n\n\r\n", b"{", b"}", b":", b"-"]
            out[at:at] = chance.choice(signs)
        elif what == 4:
            out[at:at] = b"9" * chance.choice([20, 400, 5000])
        elif what in (5, 6):
            lines = bytes(out).splitlines(keepends=True)
            first, second = chance.randrange(len(lines)), chance.randrange(len(lines))
            if what == 5:
                lines.insert(first, lines[second])
            else:
                lines[first], lines[second] = lines[second], lines[first]
            out = bytearray(b"".join(lines))
        else:
            del out[at : at + chance.randrange(1, 30)]
    return bytes(out)


def lines_of(data: bytes) -> int:
    """Whole lines that are not blank, counted byte by byte."""
    count, length, only_return = 0, 0, True
    for byte in data:
        if byte == 10:
            count += length > 0 and not (length == 1 and only_return)
            length, only_return = 0, True
        else:
            length += 1
            only_return = only_return and byte == 13
    return count


Make: TypeAlias = Callable[[random.Random], bytes]


def of_pool(suffix: str, make: Callable[[random.Random, Path], bytes], count: int = 60) -> Callable[[Path], Check]:
    """Recordings of a format that is slow to write: one of some valid ones, damaged."""

    def start(home: Path) -> Check:
        one_of, read = pool(suffix, make, count, home), of_file(home, suffix)
        return lambda chance: read(one_of(chance), None)

    return start


def pool(suffix: str, make: Callable[[random.Random, Path], bytes], count: int, home: Path) -> Make:
    valid = [make(random.Random(f"{suffix}/{at}"), home) for at in range(count)]

    def one_of(chance: random.Random) -> bytes:
        data = chance.choice(valid)
        return damaged(data, chance) if chance.random() < 0.95 else data

    return one_of
