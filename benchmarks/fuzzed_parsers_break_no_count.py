"""Every parser, fed inputs that are odd or damaged: no crash, no hang, no error of a library, no row lost.

A case is a small file, message or cell that is made by random numbers: a valid structure with odd values, types, names
and lengths, or with damaged bytes (`_fuzz_text.py`, `_fuzz_tables.py`, ...). It is parsed in a forked
process, to its end; some files are ingested too, twice.
Claimed of each case:

- nothing is raised but the errors of `streamgp.errors` that a source has (exit codes 2 and 3), each with a remedy;
- where the number of rows is known (it is counted by the benchmark itself), that many are read or set aside;
- no case takes more than ten seconds of CPU time, no process dies of a signal, memory stays below a limit.

A process that dies or hangs costs that case. SciPy (MATLAB), h5py, asammdf (MDF) and fastexcel (.xls, .xlsb, .ods) are
used in a process of their own by streamgp too: their deaths are counted, and end no process of streamgp, which is
tried. A process for each file would take a hundred times as long: both ends of its pipe run in one process here
(`_fuzz_here.py`), forked from one that has imported the libraries; `--apart` cases of each such kind have their own
processes, as users have them.

    python benchmarks/fuzzed_parsers_break_no_count.py [--cases 100000] [--seconds 600] [--seed 0] [--kind CSV]
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import mmap
import os
import pkgutil
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ["RUST_BACKTRACE"] = "0"  # nobody reads it, and a panic costs 60 ms with it
sys.path.insert(0, str(Path(__file__).parents[1]))

import _fuzz
import _fuzz_apart as apart
import _fuzz_recordings as recordings
import _fuzz_tables as tables
import _fuzz_text as text
from _fuzz import OUTCOMES, Found
from _report import Claim, report

from streamgp_data import sources
from streamgp_data.reading import process

KINDS = {**text.KINDS, **tables.KINDS, **recordings.KINDS, **apart.KINDS}
FILES = ("CSV", "JSON Lines", "CSV in gzip", "CSV in zstd", "Arrow stream", "Feather", "Parquet", "Excel (.xlsx)",
         "Excel (.xls)", "Excel (.xlsb)", "OpenDocument (.ods)",
         "ULog", "BLF", "HDF5", "MCAP", "ROS 1 bag", "ROS 2 bag")  # fmt: skip
INGESTED = {f"{kind}, ingested": kind for kind in FILES}
APART = tuple(apart.KINDS)
"""Read in a process of their own by streamgp."""
WHOLE = {f"{kind}, apart": kind for kind in APART}
"""The same, each with its own process here too."""
_SOURCES, _RECORDINGS = "streamgp_data.sources", "streamgp_data.recordings"
IMPORTED = {
    "MATLAB 5": ("scipy.io", f"{_SOURCES}.matlab", f"{_RECORDINGS}.matlab"),
    "HDF5": ("h5py", f"{_SOURCES}.hdf5", f"{_RECORDINGS}.hdf5"),
    "MDF": ("asammdf", f"{_SOURCES}.mdf", f"{_RECORDINGS}.mdf"),
    **dict.fromkeys(("Excel (.xls)", "Excel (.xlsb)", "OpenDocument (.ods)"), ("fastexcel", f"{_SOURCES}.excel")),
}
FIRST = [f"{_SOURCES}.{found.name}" for found in pkgutil.iter_modules(sources.__path__)]
FIRST += ["streamgp_data.reading.files", *(["pandas"] if importlib.util.find_spec("pandas") else [])]
"""Imported for each kind: the first file looks for the source of its suffix, and pyarrow for pandas."""
TRIED, TRIED_LATE = 100, 20
"""Of their deaths and of their hangs, those that are tried with streamgp itself."""
WANTED = 100_000
"""Cases of each kind."""
WANTED_APART = 2000
"""Cases of each kind that is read apart, with processes of their own."""
STEP, STEP_SLOW = 5000, 100
"""Cases behind which results are written; the second where each needs a process."""
PATIENCE, PATIENCE_APART, WALL = 10.0, 1.5, 600.0
"""Seconds of CPU for a case; for one whose library streamgp has apart; and seconds of the clock."""
LIMIT_MB = 2000


class Result(NamedTuple):
    """Of one kind: cases by outcome, crashes, hangs, what broke a claim, CPU seconds, largest memory, calls so far."""

    counts: dict[str, int]
    died: int
    hung: int
    faults: list[str]
    seconds: float
    peak: float
    calls: int = 0

    @property
    def cases(self) -> int:
        return sum(self.counts.values()) + self.died + self.hung


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=WANTED, help="of each kind")
    parser.add_argument("--ingested", type=int, default=100, help="of each kind of files, ingested")
    parser.add_argument("--apart", type=int, default=WANTED_APART, help="of each kind read apart, with own processes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of each kind, by the clock")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kind", choices=[*KINDS, *WHOLE, *INGESTED], action="append", help="one alone; may be repeated"
    )
    parser.add_argument("--first", type=int, default=0, help="call to begin with, to see one case again")
    parser.add_argument("--results", type=Path, help="JSON of results; a run goes on where the last one stopped")
    asked = parser.parse_args()
    found = _kept(asked.results)
    for kind in asked.kind or [*KINDS, *WHOLE, *INGESTED]:
        cases = asked.cases if kind in KINDS else asked.apart if kind in WHOLE else asked.ingested
        one, end = found.get(kind, NOTHING._replace(calls=asked.first)), time.monotonic() + asked.seconds
        step = STEP if kind in KINDS else STEP_SLOW
        while True:
            one = found[kind] = run(kind, asked.seed, one, min(cases, one.cases + step), end)
            if asked.results:
                asked.results.write_text(json.dumps(found))
            if one.cases >= cases or time.monotonic() > end or HOPELESS in one.faults:
                break
        rate = one.cases / max(one.seconds, 1e-9)
        print(
            f"{kind:20} {one.cases:9,} {one.counts} died {one.died}, hung {one.hung}, {rate:.0f} a s, {one.peak:.0f} MB"
        )
        for fault in one.faults[:8]:
            print(f"    {fault}")
        sys.stdout.flush()
    if not asked.kind:
        write_tables(found)
    elif any(found[kind].faults for kind in asked.kind):
        sys.exit("MISSED")


def _kept(file: Path | None) -> dict[str, Result]:
    return {kind: Result(*one) for kind, one in json.loads(file.read_text()).items()} if file and file.exists() else {}


NOTHING = Result(dict.fromkeys(OUTCOMES, 0), 0, 0, [], 0.0, 0.0)
HOPELESS = "nearly every call dies"


def run(kind: str, seed: int, before: Result, cases: int, end: float) -> Result:
    """Cases of a kind behind those of `before`, in one process after the other, until there are so many in all."""
    shared = memoryview(mmap.mmap(-1, 8 * (2 + len(OUTCOMES)))).cast("q")  # call, cases, outcomes
    shared[0], shared[1] = before.calls - 1, sum(before.counts.values())
    for at, name in enumerate(OUTCOMES):
        shared[2 + at] = before.counts[name]
    died, hung, peak, faults = before.died, before.hung, before.peak, list(before.faults)
    for module in (*FIRST, *IMPORTED.get(kind, ())):
        importlib.import_module(module)  # once, not in each process
    gc.collect()
    gc.freeze()  # what is imported is never collected in the forked ones
    began = os.times()
    room = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=room) as home, tempfile.TemporaryFile("w+") as log:
        while shared[1] + died + hung < cases and time.monotonic() < end:
            inside = Path(home) / str(died + hung)
            inside.mkdir()
            left = cases - shared[1] - died - hung
            pid = os.fork()
            if pid == 0:
                work(kind, seed, left, end, shared, inside, log.fileno())
            _, status, used = os.wait4(pid, 0)
            peak = max(peak, used.ru_maxrss / 1e3)
            shutil.rmtree(inside)
            if status:
                sign = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                late = sign in (signal.SIGPROF, signal.SIGALRM)
                hung, died = hung + late, died + (not late)
                tries = hung <= TRIED_LATE if late else died <= TRIED
                if kind not in APART:
                    faults.append(f"call {shared[0]}: {'no end' if late else f'status {status}'}")
                elif tries and (fault := as_streamgp(kind, seed, shared[0])) != "":
                    faults.append(f"call {shared[0]}: {fault}")
            if died + hung > 200 and shared[0] < 1000:
                faults.append(HOPELESS)
                break
        log.seek(0)
        faults += [line.rstrip("\n")[:500] for line in log]
    now = os.times()
    used_s = before.seconds + sum(now[:4]) - sum(began[:4])
    counts = {name: shared[2 + at] for at, name in enumerate(OUTCOMES)}
    return Result(counts, died, hung, faults, used_s, peak, shared[0] + 1)


def work(kind: str, seed: int, cases: int, end: float, shared: memoryview, home: Path, log: int) -> None:
    """In the child: calls behind the last one, until there are so many cases."""
    try:
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_AS, (5 * LIMIT_MB * 10**6, 5 * LIMIT_MB * 10**6))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if kind in APART:
            resource.setrlimit(resource.RLIMIT_DATA, (process.LEAST, process.LEAST))
        tempfile.tempdir = str(home)
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)  # what libraries print
        _fuzz.INGESTED, _fuzz.APART = kind in INGESTED, kind in WHOLE
        check, stop = KINDS[(INGESTED | WHOLE).get(kind, kind)](home), shared[1] + cases
        named = WHOLE.get(kind, kind)  # the same cases
        patience = PATIENCE_APART if kind in APART else PATIENCE
        while shared[1] < stop and time.monotonic() < end:
            shared[0] += 1
            signal.setitimer(signal.ITIMER_PROF, patience)
            signal.setitimer(signal.ITIMER_REAL, WALL)
            found: Found = check(random.Random(f"{seed}/{named}/{shared[0]}"))
            for name, count in found.counts.items():
                shared[2 + OUTCOMES.index(name)] += count
            shared[1] += sum(found.counts.values())
            if found.fault:
                os.write(log, f"call {shared[0]}: {found.fault!a}\n".encode())
    except BaseException:
        import traceback

        os.write(log, f"call {shared[0]}: the benchmark itself: {traceback.format_exc()!a}\n".encode())
        os._exit(3)
    os._exit(0)


def as_streamgp(kind: str, seed: int, call: int) -> str:
    """What streamgp makes of a file that ended the process which read it: "" for rows or a clear error."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return "" if status == 0 else f"status {status} behind a process of its own"
    fault = 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 3 * WALL)
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        process.PATIENCE = PATIENCE  # who waits; the process ends itself by its own
        _fuzz.APART = True
        with tempfile.TemporaryDirectory() as home:
            seen = KINDS[kind](Path(home))(random.Random(f"{seed}/{kind}/{call}"))
        fault = int(bool(seen.fault))
    finally:
        os._exit(fault)


def write_tables(found: dict[str, Result]) -> None:
    """Write the tables, and end with what was missed."""
    parsed = {kind: found[kind] for kind in KINDS}
    text = (
        f"Inputs made by random numbers, {WANTED:,} cases of each kind: valid structures with odd values, types, names "
        "and lengths, and damaged bytes. Each is read, set aside or refused with an error that names a remedy; no "
        f"process dies, no case takes more than {PATIENCE:.0f} s of CPU time, known numbers of rows are met, memory "
        f"stays below {LIMIT_MB} MB. A case is a file, a message or a cell, and processes run many cases, one after "
        "the other. SciPy (MATLAB), h5py, asammdf (MDF) and fastexcel (.xls, .xlsb, .ods) are in processes of their "
        "own in streamgp and end no other. Here both ends of the pipe, the one that reads the file and the one that "
        "makes rows of what it writes, are in one process, which is forked from one that has imported the library: it "
        f"may die, or hang for more than {PATIENCE_APART} s of CPU time, and costs a fork. The first {TRIED} files "
        f"on which it died, and the first {TRIED_LATE} on which it hung, were tried with streamgp's own processes, "
        f"which are given up after {PATIENCE:.0f} s without a word. Cases a second are of CPU time."
    )
    few = [f"{kind} {one.cases:,} cases" for kind, one in parsed.items() if one.cases < WANTED]
    claims = [_claim("Fuzzed parsers", text, parsed, few)]
    text = (
        "The first cases of the kinds that are read apart once more, each file with a new process of its own, as users "
        "have it: the library's deaths and hangs are errors that say so, and end nothing else."
    )
    claims.append(_claim("Fuzzed files with processes of their own", text, {kind: found[kind] for kind in WHOLE}, []))
    text = (
        "The same files, ingested into a table, and again: rows taken and rows set aside are those of the file where "
        "their number is known, none is set aside twice, and the second run adds none."
    )
    claims.append(_claim("Damaged files, ingested twice", text, {kind: found[kind] for kind in INGESTED}, []))
    report(__file__, *claims)
    missed = [what for claim in claims for what in claim.missed or ()]
    sys.exit(f"MISSED {missed}" if missed else 0)


def _claim(title: str, text: str, found: dict[str, Result], few: list[str]) -> Claim:
    rows, missed = [], []
    for kind, one in found.items():
        cases, counts = one.cases, one.counts
        gave = counts["read"] + counts["set aside"] + counts["refused late"]
        shares = [f"{100 * part / max(cases, 1):.0f} %" for part in (counts["refused"], gave)]
        ends = [f"{number:,}" for number in (one.died, one.hung, counts["raised"], counts["miscounted"])]
        rate = f"{cases / max(one.seconds, 1e-9):,.0f}"
        rows.append(
            [
                kind.removesuffix(", ingested").removesuffix(", apart"),
                f"{cases:,}",
                *shares,
                *ends,
                rate,
                f"{one.peak:.0f}",
            ]
        )
        if one.faults:
            missed.append(f"{kind}: {len(one.faults)} cases")
        if one.peak > LIMIT_MB:
            missed.append(f"{kind}: {one.peak:.0f} MB")
    missed += [f"less than {WANTED:,} cases of: {', '.join(few)}"] if few else []
    columns = ["parser", "cases", "refused at once", "gave rows", "died", "hung", "raised", "miscounted", "a second"]
    return Claim(title, text, [*columns, "peak MB"], rows, missed)


if __name__ == "__main__":
    main()
