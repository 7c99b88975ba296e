"""Claim: SIGINT and SIGTERM, at whatever moment they come, end a command with 130 or 143 and without a traceback.

Each command is started anew for each signal and delay, in a process of its own. While Python itself starts (some 0.05 s
on an idle machine) no handler of ours is there: SIGTERM then ends the process by itself, which a shell shows as 143,
and SIGINT may show a traceback of Python's own start. Such ends are counted apart.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from _report import Claim, report

DELAYS = (0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.2, 3.0)
ROWS = 20_000
EARLY = "while Python started"
OURS = f"{os.sep}streamgp_cli{os.sep}"
"""In a traceback with one line of our code; the script's own line, which looks for that code, is Python's start."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--script", default=str(Path(sys.executable).with_name("streamgp")))
    parser.add_argument("--delays", default=",".join(map(str, DELAYS)))
    options = parser.parse_args()
    delays = [float(text) for text in options.delays.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        return measure(options.script, Path(folder), delays)


def measure(script: str, room: Path, delays: list[float]) -> int:
    """Print one line a command and signal; 1 where an end was not as claimed."""
    write_rows(room / "rows.csv")
    line = ["--target", "y", "--online", "--model", "linear", "--tracking-uri", f"sqlite:///{room}/runs.db"]
    prepare(script, ["ingest", "rows.csv", "--table", "table"], room)
    prepare(script, ["train", *line, "--table", "table", "--max-rows", "2000", "--checkpoint", "made"], room)
    commands = {
        "ingest": ["ingest", "rows.csv", "--table", "new"],
        "describe": ["describe", "--table", "table"],
        "train": ["train", *line, "--table", "table", "--checkpoint", "run"],
        "forecast": ["forecast", "--checkpoint", "made", "--table", "table", "--output", "next.csv"],
    }
    missed: list[str] = []
    rows: list[list[str]] = []
    for name, words in commands.items():
        counts = [0, 0, 0]
        for number in (signal.SIGINT, signal.SIGTERM):
            ends = [end for delay in delays for end in one(script, words, room, number, delay)]
            bad = [end for end in ends if end]
            done = len(delays) - len(ends)
            early = ends.count(EARLY)
            bad = [end for end in bad if end != EARLY]
            missed += [f"{name} at {number.name} {end.partition(',')[0]}" for end in bad]
            counts = [a + b for a, b in zip(counts, (len(ends), early, done), strict=True)]
            print(
                f"{name:9} {number.name:8} {len(ends)} stopped, {early} of them while Python started, "
                f"{done} had finished, {len(bad)} not as claimed"
            )
            for end in bad:
                print(f"    {end}")
        rows.append([name, *map(str, counts)])
    text = (
        "SIGINT and SIGTERM, sent after each of several delays, end a command with exit status 130 or 143 and "
        "without a traceback. While Python itself starts, no handler is there: such ends are counted apart."
    )
    columns = ["command", "stopped", "of these while Python started", "had finished"]
    report(__file__, Claim("Signals", text, columns, rows, missed))
    return 1 if missed else 0


def one(script: str, words: list[str], room: Path, number: signal.Signals, delay: float) -> Iterator[str]:
    """Start, wait, send; "" where it ended as claimed, what it did where not, nothing where it was done before."""
    for made in ("new", "run"):
        shutil.rmtree(room / made, ignore_errors=True)
    process = subprocess.Popen([script, *words], cwd=room, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(delay)
    if process.poll() is not None:
        process.communicate()
        return
    process.send_signal(number)
    told = process.communicate(timeout=60)[1]
    if process.returncode == 0 and "Traceback" not in told:
        return  # it had finished its work in this moment
    if (process.returncode == -number and not told) or ("KeyboardInterrupt" in told and OURS not in told):
        yield EARLY
        return
    bad = "Traceback" in told or "Exception ignored" in told or process.returncode != 128 + number
    yield f"after {delay} s: {process.returncode}, {told.strip()[-300:]!r}" if bad else ""


def prepare(script: str, words: list[str], room: Path) -> None:
    subprocess.run([script, *words], cwd=room, check=True, capture_output=True)


def write_rows(path: Path) -> None:
    lines = [f"{datetime(2020, 1, 1) + timedelta(minutes=row)},{row % 7 + row % 11 / 3:.4f}" for row in range(ROWS)]
    path.write_text("ds,y\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
