"""Every parser, fed bytes that were mutated at random: no crash, no hang, no error of a library, no row lost.

Parsers are called in a child process, case after case: files by their source, messages by their decoder. A valid file
is mutated (`mutated_files_break_no_count.py`, `mutated_recordings_break_no_count.py`) and read to its end. Claimed of
each case:

- nothing is raised but the errors of `streamgp.errors` that a source has (exit codes 2 and 3);
- of CSV without a quote, of JSON Lines: rows read = lines that are not blank; of messages: each has a row or a reason;
- no case takes longer than a limit, no process dies of a signal, and its memory stays below a limit.

A child that dies or hangs is counted, and another one goes on behind that case.

    python benchmarks/fuzzed_parsers_break_no_count.py [--cases 100000] [--seconds 600] [--seed 0] [--kind csv]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

PATIENCE = 20.0
"""Seconds of one case."""
LIMIT_MB = 2500
TEXT = ("csv", "jsonl", "parquet", "feather", "arrows", "xlsx")
MESSAGES = ("message.json", "message.csv", "message.msgpack", "message.avro", "message.arrow")
RECORDINGS = ("h5", "mat", "mcap", "bag", "db3", "log", "asc", "blf", "mf4", "ulg")
KINDS = (*TEXT, *MESSAGES, *RECORDINGS)
WANTED = 100_000
"""Cases of each kind."""

Case = Callable[[random.Random], tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=WANTED, help="of each kind")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, default=None, help="one alone")
    parser.add_argument("--first", type=int, default=0, help="case to begin with")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        work(asked.kind, asked.seed, asked.first, asked.cases)
        return
    kinds = [asked.kind] if asked.kind else list(KINDS)
    end = time.monotonic() + asked.seconds
    found = {}
    for at, kind in enumerate(kinds):
        share = (end - time.monotonic()) / (len(kinds) - at)
        found[kind] = run(kind, asked.seed, asked.first, asked.cases, share)
        counts, wrong, peak = found[kind]
        print(
            f"{kind:16} {sum(counts.values()):9,} {dict(counts)} {len(wrong)} broke a claim, {peak:.0f} MB", flush=True
        )
        for one in wrong[:5]:
            print(f"    {one}", flush=True)
    tell(found, asked.kind is None and not asked.first)


def run(kind: str, seed: int, first: int, cases: int, seconds: float) -> tuple[Counter[str], list[str], float]:
    """Outcomes of cases, those that broke a claim, and the largest memory in MB."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    peak, at, end = 0.0, first, time.monotonic() + seconds
    while at < first + cases and time.monotonic() < end:
        command = [sys.executable, __file__, "--child", "--kind", kind, "--seed", str(seed), "--first", str(at)]
        with tempfile.TemporaryFile() as log:
            child = subprocess.Popen([*command, "--cases", str(first + cases - at)], stdout=subprocess.PIPE, stderr=log)
            assert child.stdout is not None
            os.set_blocking(child.stdout.fileno(), False)
            rest, heard, hung = b"", time.monotonic() + 120, False  # it has much to import
            while True:
                data = child.stdout.read()
                if data:
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        number, outcome, fault, used = json.loads(line)
                        counts[outcome] += 1
                        peak, at, heard = max(peak, used), number + 1, time.monotonic()
                        if fault:
                            wrong.append(f"case {number}: {fault}")
                elif child.poll() is not None:
                    break
                if time.monotonic() > heard + PATIENCE or time.monotonic() > end:
                    hung = time.monotonic() < end
                    child.kill()
                    child.wait()
                    break
                time.sleep(0.02)
            if child.returncode and (hung or child.returncode != -9):
                log.seek(0)
                said = log.read()[-300:].decode(errors="replace")
                counts["hung" if hung else "died"] += 1
                wrong.append(f"case {at}: {'no end' if hung else f'exit {child.returncode}'} {said}")
                at += 1
            child.stdout.close()
    return counts, wrong, peak


def work(kind: str, seed: int, first: int, cases: int) -> None:
    """In the child: one line a case, of its number, outcome, fault and memory."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (4 * LIMIT_MB * 10**6, 4 * LIMIT_MB * 10**6))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=place) as home:
        check = of_messages(kind) if kind in MESSAGES else of_files(kind, Path(home))
        for number in range(first, first + cases):
            outcome, fault = check(random.Random(f"{seed}/{kind}/{number}"))
            out.write(
                json.dumps([number, outcome, fault, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3]) + "\n"
            )


def of_files(kind: str, home: Path) -> Case:
    """Cases of files: a valid one, mutated, read to its end."""
    import mutated_files_break_no_count as files
    import mutated_recordings_break_no_count as recordings

    from streamgp.errors import StreamgpError
    from streamgp.streaming.reading.files import open_source
    from tests.streaming.sources.recordings import WRITERS, write_database

    options = dict[str, Any]()
    if kind in RECORDINGS:
        WRITERS[kind](home / f"o.{kind}")
        originals = [(home / f"o.{kind}").read_bytes()]
        if kind in ("log", "asc", "blf"):
            options = {"dbc": str(write_database(home))}
    elif kind == "xlsx":
        originals = [workbook(seed) for seed in range(5)]
    else:
        originals = [files.original(kind, random.Random(seed)) for seed in range(50)]
        originals += [files.original("quoted.csv", random.Random(seed)) for seed in range(25)] if kind == "csv" else []
    mutate = recordings.mutated if kind in RECORDINGS else files.mutated

    def check(chance: random.Random) -> tuple[str, str]:
        data = mutate(chance.choice(originals), chance)
        path = home / f"{chance.getrandbits(64)}.{kind}"  # HDF5 knows a file that it has open by its name
        path.write_bytes(data)
        try:
            return read(path, data)
        finally:
            path.unlink()

    def read(path: Path, data: bytes) -> tuple[str, str]:
        count = 0
        try:
            source = open_source(str(path), None, options)
            for chunk in source.read({}):
                count += chunk.rows.num_rows
        except StreamgpError as error:
            return f"refused, exit {error.exit_code}", "" if error.exit_code in (2, 3) else repr(error)
        except BaseException as error:
            return "raised", f"{type(error).__name__}: {error}"[:300]
        if kind == "csv" and b'"' not in data and not data.startswith((b"\n", b"\r")):
            wanted = max(files.lines_of(data) - 1, 0)
        elif kind == "jsonl":
            wanted = files.lines_of(data) - files.spaces_only(data)
        else:
            return "read", ""
        return "read", "" if count == wanted else f"{count} rows of {wanted}"

    return check


def workbook(seed: int) -> bytes:
    """A small Excel file."""
    import polars as pl

    out, chance = io.BytesIO(), random.Random(seed)
    rows = range(chance.randrange(1, 30))
    pl.DataFrame({"t": list(rows), "y": [chance.gauss() for _ in rows], "note": ["a" for _ in rows]}).write_excel(out)
    return out.getvalue()


def of_messages(kind: str) -> Case:
    """Cases of messages: ten of a batch, half of them mutated; each has a row, or a reason."""
    import mutated_recordings_break_no_count as recordings

    from streamgp.errors import StreamgpError
    from streamgp.streaming.messages import Message
    from streamgp_pipelines.config import IngestConfig
    from streamgp_pipelines.live.decoding import Decoder

    form = kind.partition(".")[2]
    fields = [("t", "long"), ("y", ["null", "double"]), ("note", "string")]
    schema = {"type": "record", "name": "Row", "fields": [{"name": name, "type": of} for name, of in fields]}
    with tempfile.NamedTemporaryFile("w", suffix=".avsc") as file:
        file.write(json.dumps(schema))
        file.flush()
        given = {"source": ["mqtt://h/t"], "table": "t", "time": "t", "format": form}
        config = IngestConfig.read(given | ({"message_schema": file.name} if form == "avro" else {}))
        decoder = Decoder(config, "a")
    valid = [payload(form, schema, seed) for seed in range(30)]

    def check(chance: random.Random) -> tuple[str, str]:
        payloads = [
            recordings.mutated(chance.choice(valid), chance) if at % 2 else chance.choice(valid) for at in range(10)
        ]
        messages = [Message(one, "t", "", (at,), False, None) for at, one in enumerate(payloads)]
        try:
            contents, bad = decoder.split(messages)
            seen = set(bad)
            for content in contents:
                seen |= set(content.owner.tolist())
                source = decoder.source(content, None)
                if source.parse(content).num_rows != len(content.owner):
                    return "read", "rows of a content were lost"
        except StreamgpError as error:
            return f"refused, exit {error.exit_code}", "" if error.exit_code in (2, 3) else repr(error)
        except BaseException as error:
            return "raised", f"{type(error).__name__}: {error}"[:300]
        lost = set(range(10)) - seen
        return ("put aside in part" if bad else "read"), f"messages {lost} have no row and no reason" if lost else ""

    return check


def payload(form: str, schema: dict[str, Any], seed: int) -> bytes:
    """A valid message."""
    chance = random.Random(seed)
    row = {"t": seed, "y": chance.gauss(), "note": "é" * chance.randrange(5)}
    if form == "json":
        return json.dumps(row).encode()
    if form == "csv":
        return f"t,y,note\n{row['t']},{row['y']},{row['note']}\n".encode()
    if form == "msgpack":
        import msgpack

        return bytes(msgpack.packb(row))
    out = io.BytesIO()
    if form == "avro":
        import fastavro

        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
        return out.getvalue()
    import polars as pl

    pl.DataFrame([row]).write_ipc_stream(out)
    return out.getvalue()


def tell(found: dict[str, tuple[Counter[str], list[str], float]], whole: bool) -> None:
    """Write the table, and say what was missed."""
    from _report import Claim, report

    rows, missed = [], []
    for kind, (counts, wrong, peak) in found.items():
        cases = sum(counts.values())
        refused = sum(number for name, number in counts.items() if name.startswith("refused"))
        broken = sum(counts[name] for name in ("died", "hung", "raised"))
        rows.append([kind, f"{cases:,}", f"{refused:,}", str(broken), str(len(wrong) - broken), f"{peak:.0f}"])
        if wrong or peak > LIMIT_MB:
            missed.append(f"{kind}: {len(wrong)} cases, {peak:.0f} MB")
        if cases < WANTED:
            missed.append(f"{kind}: {cases:,} cases, not {WANTED:,}")
    text = (
        f"Valid files and messages, mutated at random, {WANTED:,} cases of each kind: read, or refused with an error "
        f"of ours; nobody dies, nothing takes more than {PATIENCE:.0f} s, rows are there as counted where that can be, "
        f"and memory stays below {LIMIT_MB} MB."
    )
    columns = ["parser", "cases", "refused", "died, hung or raised", "miscounted", "peak MB"]
    if whole:
        report(__file__, Claim("Fuzzed parsers", text, columns, rows, missed))
    sys.exit(f"MISSED {missed}" if missed else 0)


if __name__ == "__main__":
    main()
