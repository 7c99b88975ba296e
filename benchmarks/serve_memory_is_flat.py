"""`streamgp serve` keeps its memory while rows and questions come.

The command line itself with the default model on half-hourly electricity demand, a day ahead: two requests with two
rows each and four questions every second, on loopback; each of the rows is learned and shown.

    python benchmarks/serve_memory_is_flat.py [--minutes 10]
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


def resident(process: subprocess.Popen[str]) -> float:
    """MB that a process has in memory."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def memory(process: subprocess.Popen[str], url: str, rows: Any, minutes: float) -> list[tuple[float, int, float]]:
    """Minutes, rows sent so far, and MB, while two requests with two rows each and four questions come each second."""
    began, found, sent = time.monotonic(), [], 0
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    while (gone := time.monotonic() - began) < 60 * minutes:
        if len(found) <= gone / 60 / max(minutes / 10, 1e-9):
            found.append((gone / 60, sent, resident(process)))
        once(connection, "/rows", next(rows))
        sent += 2
        for _ in range(2):
            once(connection, f"/forecast?horizon={random.randrange(1, 49)}")
        time.sleep(max(0.0, began + sent / 4 - time.monotonic()))
    return [*found, (gone / 60, sent, resident(process))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        year = day_ahead(Path(folder))
        newest = iter([{"rows": year[at : at + 2]} for at in range(0, len(year) - 1, 2)])
        process, url = start(Path(folder) / "day-ahead")
        flat = memory(process, url, newest, asked.minutes)
        process.terminate()
        process.wait()
    later = [point for point in flat if point[0] >= 0.2 * asked.minutes]
    grown = later[-1][2] / later[0][2]
    for point in flat:
        print(*point, flush=True)
    report(
        __file__,
        Claim(
            "Memory of the service",
            f"Four rows and four questions a second to the default model for {asked.minutes:g} minutes, not an hour. "
            "Claimed: from a fifth of the time on memory grows by at most 5 %.",
            ["minute", "rows sent", "resident MB"],
            [[f"{minute:.0f}", f"{rows:,}", f"{mb:.0f}"] for minute, rows, mb in (flat[0], *later)],
            [] if grown <= 1.05 else [f"it grew by {grown - 1:.0%}"],
        ),
    )


if __name__ == "__main__":
    main()
