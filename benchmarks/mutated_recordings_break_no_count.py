"""Recordings that are damaged anywhere are refused with an error, or read; nothing dies, hangs or comes twice.

Valid files of every format of recordings are mutated at random: bits flipped, bytes cut, inserted, repeated, the file
cut short. Each is read in a child process, which a fault of a C library ends alone. Claimed of each:

- nothing is raised but the errors of `streamgp.errors`, and no process dies of a signal or needs more than a limit of
  seconds or of memory;
- of a candump log: frames of the database + frames that are not in it + lines put aside = lines that are not blank;
- a second run adds no row to the table and none to the quarantine.

    python benchmarks/mutated_recordings_break_no_count.py [--files 2000] [--seconds 900] [--seed 0] [--kind mcap]
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from _report import Claim, report

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.streaming.sources.recordings import WRITERS, write_database

LIMIT_MB = 4000
PATIENCE = 60
"""Seconds of one file."""


def mutated(data: bytes, random: random.Random) -> bytes:
    """One to five mutations; of a binary file mostly small ones, which get far into a parser."""
    out = bytearray(data)
    for _ in range(random.randrange(1, 6)):
        if not out:
            break
        at, what = random.randrange(len(out)), random.randrange(10)
        if what < 5:
            out[at] = random.choice([out[at] ^ (1 << random.randrange(8)), 0, 255, 127, random.randrange(256)])
        elif what == 5 and random.random() < 0.3:
            del out[at:]
        elif what == 6:
            del out[at : at + random.choice([1, 4, 8, 100])]
        elif what == 7:
            out[at:at] = random.choice([b"\0" * 8, b"\xff" * 8, bytes(out[at : at + 50]), b"\n", b"9" * 20])
        else:
            width = random.choice([2, 4, 8])
            value = random.choice([0, 1, -1, 1 << (8 * width - 1), random.getrandbits(8 * width)])
            out[at : at + width] = (value % (1 << (8 * width))).to_bytes(width, "little")
    return bytes(out)


def lines_of(data: bytes) -> int:
    """Lines that are not blank."""
    return sum(bool(line.strip()) for line in data.decode("utf-8", "backslashreplace").split("\n"))


def check(suffix: str, source: Path, database: Path, table: Path) -> tuple[str, str]:
    """What became of a file, and what is wrong with that ("" if nothing is)."""
    from streamgp.errors import StreamgpError
    from streamgp.streaming.reading.files import open_source
    from streamgp.streaming.recordings.joined import Joined
    from streamgp_pipelines.config import IngestConfig
    from streamgp_pipelines.ingestion.ingest import ingest

    given: dict[str, Any] = {"dbc": str(database)} if suffix in ("log", "asc", "blf") else {}
    config = IngestConfig.read({"source": [str(source)], "table": str(table), "max_ahead": None, **given})
    try:
        first: Any = ingest(config)
    except StreamgpError as error:
        return f"refused, exit {error.exit_code}", "" if error.exit_code in (2, 3) else repr(error)
    except BaseException as error:
        return "raised", f"{type(error).__name__}: {error}"
    aside = sum(first["quarantined"].values())
    again: Any = ingest(config)
    if again["added"] or again["quarantined"]:
        return "taken", f"the second run added {again['added']} rows, {again['quarantined']}"
    if suffix == "log":
        found = open_source(str(source), None, {**given, "look": True})
        assert isinstance(found, Joined)
        counted = sum(
            signal.count
            for name, signal in found.samples.signals.items()
            if name.endswith((".SPEED", ".LEFT", ".MODE"))
        )
        unknown = sum(int(text.replace(",", "")) for text in found.recording.left_out.values())
        expected = lines_of(source.read_bytes())
        if counted + unknown + found.lost != expected:
            return "taken", f"{counted} + {unknown} + {found.lost} of {expected} lines"
    return ("taken in part" if aside else "taken whole"), ""


def work(jobs: Any, results: Any, home: str) -> None:
    """Check files until there are no more."""
    import warnings

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (3 * LIMIT_MB * 10**6, 3 * LIMIT_MB * 10**6))
    while (job := jobs.get()) is not None:
        suffix, source, database, table = job
        found = check(suffix, source, database, table)
        results.put((*found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000))


class Child:
    """A process that checks files; another one follows when it dies."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._start()

    def _start(self) -> None:
        context = mp.get_context("spawn")
        self._jobs, self._results = context.Queue(), context.Queue()
        self._process = context.Process(target=work, args=(self._jobs, self._results, self._home), daemon=True)
        self._process.start()

    def check(self, *job: Any) -> tuple[str, str, float]:
        self._jobs.put(job)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                found: tuple[str, str, float] = self._results.get(timeout=0.5)
                return found
            except Exception:  # queue.Empty
                if not self._process.is_alive():
                    code = self._process.exitcode
                    self._start()
                    return "process died", f"exit code {code}", 0.0
        self._process.kill()
        self._process.join()
        self._start()
        return "no answer", f"more than {PATIENCE} s", 0.0

    def close(self) -> None:
        self._jobs.put(None)
        self._process.join(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=sorted(WRITERS), default=None, help="one suffix alone")
    parser.add_argument("--keep", type=Path, default=None, help="where the files that break a claim are put")
    asked = parser.parse_args()
    kinds = [asked.kind] if asked.kind else list(WRITERS)
    began, faults, done, peak = time.monotonic(), 0, 0, 0.0
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    with tempfile.TemporaryDirectory() as home:
        database = write_database(Path(home))
        originals = {}
        for kind in kinds:
            WRITERS[kind](Path(home) / f"original.{kind}")
            originals[kind] = (Path(home) / f"original.{kind}").read_bytes()
        child = Child(home)
        for number in range(asked.files):
            if time.monotonic() - began > asked.seconds:
                break
            chance = random.Random(f"{asked.seed}/{number}")
            kind = kinds[number % len(kinds)]
            room = Path(home) / str(number)
            room.mkdir()
            source = room / f"a.{kind}"
            source.write_bytes(mutated(originals[kind], chance))
            outcome, wrong, used = child.check(kind, source, database, room / "t")
            outcomes[kind][outcome] += 1
            done, peak = done + 1, max(peak, used)
            if wrong:
                faults += 1
                print(f"file {number} ({kind}): {outcome}: {wrong[:300]}", flush=True)
                if asked.keep:
                    shutil.copy(source, asked.keep / f"{number}.{kind}")
            shutil.rmtree(room)
        child.close()
    names = sorted({name for one in outcomes.values() for name in one})
    print(f"{'':8}" + "".join(f"{name:>18}" for name in names))
    for kind, one in outcomes.items():
        print(f"{kind:8}" + "".join(f"{one[name]:18,}" for name in names))
    print(
        f"{done:,} files in {time.monotonic() - began:.0f} s: {faults} broke a claim; peak {peak:.0f} MB ({LIMIT_MB})"
    )
    sums = [sum(one[name] for one in outcomes.values()) for name in names]
    text = (
        "Recordings of ten formats, damaged at random: refused with an error that names the place, or read. "
        "Every line of a candump log is a frame or in the quarantine, a second run adds nothing, no process dies or "
        f"hangs, and memory stays below {LIMIT_MB} MB. A changed number in a file without checksums is not seen."
    )
    row = [f"{done:,}", *(f"{number:,}" for number in sums), str(faults), f"{peak:.0f}"]
    missed = [f"{faults} files"] if faults else [] if peak < LIMIT_MB else [f"{peak:.0f} MB"]
    if not asked.kind:
        report(
            __file__, Claim("Damaged recordings", text, ["files", *names, "broke a claim", "peak MB"], [row], missed)
        )
    sys.exit(0 if not missed else "MISSED")


if __name__ == "__main__":
    main()
