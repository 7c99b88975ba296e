"""Files that are damaged anywhere break no count: every record is taken, quarantined or blank, and none twice.

Valid CSV, JSON Lines, Parquet and Arrow files, plain and compressed, are mutated at random: bits flipped, bytes cut,
quotes, NULs, carriage returns, separators, bytes that are no text and long digits inserted, lines repeated or swapped.
Each is ingested in this process, and again. Claimed of each:

- nothing is raised but the errors of `streamgp.errors`;
- of a CSV without a quote and of JSON Lines: rows taken + quarantined = lines that are not blank, counted here by a
  loop over the bytes (without a last line that has no newline, which waits);
- no row is in the quarantine twice;
- a second run adds no row to the table and none to the quarantine;
- the memory of the process stays below a limit.

    python benchmarks/mutated_files_break_no_count.py [--files 5000] [--seconds 180] [--seed 0]
"""

from __future__ import annotations

import argparse
import gzip
import io
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import polars as pl
import zstandard
from _report import Claim, report

from streamgp.errors import StreamgpError
from streamgp.streaming.quarantine import FOLDER
from streamgp.streaming.table import Table
from streamgp_pipelines.config import IngestConfig
from streamgp_pipelines.ingestion.ingest import ingest
from streamgp_pipelines.ingestion.report import peak_mb

LIMIT_MB = 1500
KINDS = ("csv", "quoted.csv", "csv.gz", "csv.zst", "jsonl", "jsonl.gz", "parquet", "feather", "arrows")


def original(kind: str, random: random.Random) -> bytes:
    """A valid file of 5 to 80 rows, before compression."""
    rows = random.randrange(5, 80)
    start = 1_700_000_000
    frame = pl.DataFrame(
        {
            "t": [start + 60 * i for i in range(rows)],
            "y": [round(random.gauss(0, 100), random.randrange(6)) for _ in range(rows)],
            "note": [random.choice(["a", "b c", "é", "", "x;y"]) for _ in range(rows)],
        }
    )
    out = io.BytesIO()
    name = kind.removesuffix(".gz").removesuffix(".zst")
    if name == "csv":
        frame.write_csv(out, quote_style="never")
    elif name == "quoted.csv":
        frame.with_columns(note='say "' + pl.col("note") + '",\nor not').write_csv(out)
    elif name == "jsonl":
        frame.write_ndjson(out)
    elif name == "parquet":
        frame.write_parquet(out, row_group_size=20)
    elif name == "feather":
        frame.write_ipc(out)
    else:
        frame.write_ipc_stream(out)
    return out.getvalue()


def mutated(data: bytes, random: random.Random) -> bytes:
    """One to five mutations."""
    out = bytearray(data)
    for _ in range(random.randrange(1, 6)):
        if not out:
            break
        at = random.randrange(len(out))
        what = random.randrange(8)
        if what == 0:
            out[at] ^= 1 << random.randrange(8)
        elif what == 1 and random.random() < 0.3:
            del out[at:]
        elif what in (2, 3):
            out[at:at] = random.choice([b'"', b"\0", b"\r", b"\n", b",", b"\xff", b"\\ud800", b"[[[[", b"\n\n\r\n"])
        elif what == 4:
            out[at:at] = b"9" * random.choice([20, 400, 5000])
        elif what in (5, 6):
            lines = bytes(out).splitlines(keepends=True)
            first, second = random.randrange(len(lines)), random.randrange(len(lines))
            if what == 5:
                lines.insert(first, lines[second])
            else:
                lines[first], lines[second] = lines[second], lines[first]
            out = bytearray(b"".join(lines))
        else:
            del out[at : at + random.randrange(1, 30)]
    return bytes(out)


def packed(data: bytes, kind: str) -> bytes:
    pack = gzip.compress if kind.endswith(".gz") else zstandard.compress if kind.endswith(".zst") else bytes
    return pack(data)


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


def spaces_only(data: bytes) -> int:
    """Lines of JSON that hold nothing but spaces: blank too."""
    return sum(line.strip() == b"" and line not in (b"", b"\r") for line in data.split(b"\n")[:-1])


def quarantined(table: Path) -> list[tuple[str, int, str]]:
    if not (table / FOLDER).is_dir():
        return []
    found = []
    for chunk in Table.open(table / FOLDER).read(columns=["reason", "line", "row"]):
        found += [(row["reason"], row["line"], row["row"]) for row in chunk.rows.to_pylist()]
    return found


def check(kind: str, plain: bytes, source: Path, table: Path) -> tuple[str, str]:
    """What became of a file, and what is wrong with that ("" if nothing is)."""
    config = IngestConfig.read({"source": [str(source)], "table": str(table), "time": "t"})
    try:
        first = ingest(config)
    except StreamgpError as error:
        return f"refused, exit {error.exit_code}", "" if error.exit_code in (2, 3) else repr(error)
    except BaseException as error:
        return "raised", f"{type(error).__name__}: {error}"
    aside = quarantined(table)
    taken = Table.open(table).rows
    wrong = ""
    if len(set(aside)) != len(aside):
        wrong = "a row is in the quarantine twice"
    if "csv" in kind and b'"' not in plain and not plain.startswith((b"\n", b"\r")):
        expected = lines_of(plain) - 1
        if taken + len(aside) != expected:
            wrong = f"{taken} taken + {len(aside)} quarantined, {expected} records in the file"
    elif "jsonl" in kind:
        expected = lines_of(plain) - spaces_only(plain)
        if taken + len(aside) != expected:
            wrong = f"{taken} taken + {len(aside)} quarantined, {expected} records in the file"
    again = ingest(config)
    if again["added"] or again["quarantined"] or quarantined(table) != aside:
        wrong = f"the second run added {again['added']} rows, {again['quarantined']}"
    return ("taken whole" if not aside else "taken in part"), wrong or ("" if first["added"] == taken else "miscounted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=None, help="where the files that break a claim are put")
    asked = parser.parse_args()
    began, faults, done = time.monotonic(), 0, 0
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    with tempfile.TemporaryDirectory() as home:
        for number in range(asked.files):
            if time.monotonic() - began > asked.seconds:
                break
            chance = random.Random(f"{asked.seed}/{number}")
            kind = KINDS[number % len(KINDS)]
            plain = original(kind, chance)
            broken = chance.random() < 0.2 and kind.endswith((".gz", ".zst"))  # the packed bytes, not the text
            text = plain if broken else mutated(plain, chance)
            data = mutated(packed(text, kind), chance) if broken else packed(text, kind)
            room = Path(home) / str(number)
            room.mkdir()
            source = room / f"a.{kind}"
            source.write_bytes(data)
            outcome, wrong = check("broken" if broken else kind, text, source, room / "t")
            outcomes[kind][outcome] += 1
            done += 1
            if wrong:
                faults += 1
                print(f"file {number} ({kind}): {wrong}", flush=True)
                if asked.keep:
                    shutil.copy(source, asked.keep / f"{number}.{kind}")
            shutil.rmtree(room)
    names = sorted({name for one in outcomes.values() for name in one})
    print(f"{'':12}" + "".join(f"{name:>18}" for name in names))
    for kind, one in outcomes.items():
        print(f"{kind:12}" + "".join(f"{one[name]:18,}" for name in names))
    peak = peak_mb()
    print(
        f"{done:,} files in {time.monotonic() - began:.0f} s: {faults} broke a claim; peak {peak:.0f} MB ({LIMIT_MB})"
    )
    sums = [sum(one[name] for one in outcomes.values()) for name in names]
    text = (
        "CSV, JSON Lines, Parquet and Arrow files, plain and compressed, damaged at random: every record is taken, "
        f"quarantined or blank, none twice, a second run adds nothing, and memory stays below {LIMIT_MB} MB."
    )
    row = [f"{done:,}", *(f"{number:,}" for number in sums), str(faults), f"{peak:.0f}"]
    missed = [f"{faults} files"] if faults else [] if peak < LIMIT_MB else [f"{peak:.0f} MB"]
    report(__file__, Claim("Damaged files", text, ["files", *names, "broke a claim", "peak MB"], [row], missed))
    sys.exit(0 if not missed else "MISSED")


if __name__ == "__main__":
    main()
