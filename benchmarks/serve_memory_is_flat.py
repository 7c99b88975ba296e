"""`streamgp serve` keeps its memory while rows and questions come.

The command line itself with the default model on half-hourly electricity demand, a day ahead: every second one request
with a row and 19 questions of any horizon, on loopback; each of the rows is learned and shown, and is a commit of the
table. Resident memory is looked at every second. It swings by the state that is copied to be shown, so that quarters
of the time are compared by their means.

    python benchmarks/serve_memory_is_flat.py [--minutes 60]
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from _report import Claim, report
from _serving import day_ahead, once, start

QUESTIONS, LEARNED = 19, 8000


def resident(process: subprocess.Popen[str]) -> float:
    """MB that a process has in memory."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def memory(process: subprocess.Popen[str], url: str, rows: list[Any], minutes: float) -> list[float]:
    """MB at every second, while each second a row and QUESTIONS questions come."""
    began, found = time.monotonic(), []
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    for second in range(round(60 * minutes)):
        status, _ = once(connection, "/rows", {"rows": [rows[second]]})
        assert status == 200
        for question in range(QUESTIONS):
            time.sleep(max(0.0, began + second + question / (QUESTIONS + 1) - time.monotonic()))
            once(connection, f"/forecast?horizon={random.randrange(1, 49)}")
        found.append(resident(process))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        year = day_ahead(Path(folder), LEARNED)
        process, url = start(Path(folder) / "day-ahead")
        flat = memory(process, url, year, asked.minutes)
        process.terminate()
        process.wait()
    size = len(flat) // 4
    quarters = [flat[at * size : (at + 1) * size] for at in range(4)]
    means = [sum(quarter) / len(quarter) for quarter in quarters]
    shown = [
        [str(at + 1), f"{(at + 1) * size:,}", f"{mean:.0f}", f"{min(quarter):.0f}", f"{max(quarter):.0f}"]
        for at, (mean, quarter) in enumerate(zip(means, quarters, strict=True))
    ]
    for row in shown:
        print(*row, flush=True)
    grown = means[3] / means[1]
    report(
        __file__,
        Claim(
            "Memory of the service",
            f"Resident MB while a row and {QUESTIONS} questions come every second to the default model, by quarter of "
            f"{asked.minutes:g} minutes; each row is a commit. Claimed: the mean of the last quarter is at most 1.02 "
            f"times that of the second. It is {grown:.3f} times.",
            ["quarter", "rows sent", "mean", "least", "most"],
            shown,
            [] if grown <= 1.02 else [f"{grown:.3f} times"],
        ),
    )


if __name__ == "__main__":
    main()
