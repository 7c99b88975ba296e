"""Two hours of commits in eight minutes: the memory of `ingest --follow` does not grow with them.

Messages come from this process, a hundred a commit, as fast as they are committed. What the table and its log forget
with time is forgotten as much sooner.

    python benchmarks/commits_leave_memory_flat.py [--seconds 480]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from _report import Claim, report

sys.path.insert(0, str(Path(__file__).parents[1]))

from streamgp_data import compaction
from streamgp_data.messages import Marks, Message, Pending
from streamgp_pipelines.config import IngestConfig
from streamgp_pipelines.live.follow import follow
from streamgp_pipelines.live.garbage import collect_seldom

HOURS, FLAT = 2.0, 1.02
START, PIECE, EVERY = datetime(2026, 1, 1), 100, 50


class Endless:
    """A Feed that always has a piece of messages; it counts commits, and looks at the memory now and then."""

    width = 1

    def __init__(self, seconds: float) -> None:
        self.commits, self.resident = 0, list[float]()
        self._next, self._end = 0, time.monotonic() + seconds

    def connect(self, marks: Marks) -> None:
        """There is nothing to connect to."""

    def poll(self, most: int, timeout: float) -> list[Message]:
        if time.monotonic() > self._end:
            return []
        places = range(self._next, self._next + PIECE)
        self._next += PIECE
        return [Message(self._row(at), "plant", "", (at,), False, None) for at in places]

    def acknowledge(self, messages: Sequence[Message]) -> None:
        self.commits += 1
        if self.commits % EVERY == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.resident.append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)

    def pending(self) -> Pending | None:
        return None

    def look(self) -> Pending | None:
        return None

    def close(self) -> None:
        """Nothing is open."""

    def _row(self, at: int) -> bytes:
        return b'{"ds": "%s", "y": %d.5}' % ((START + timedelta(seconds=at)).isoformat().encode(), at % 97)


def ingested(folder: str, seconds: float, answer: Connection) -> None:
    """In a process of its own: commits, and MB in memory after every EVERY of them."""
    speed = seconds / (HOURS * 3600)
    compaction.KEPT = kept = round(compaction.KEPT * speed)
    compaction.PROPERTIES |= {"delta.deletedFileRetentionDuration": f"interval {kept} seconds"}
    compaction.PROPERTIES |= {"delta.logRetentionDuration": f"interval {120 * speed:.0f} seconds"}
    collect_seldom()  # as the command does
    feed = Endless(seconds)
    given = {"source": ("memory://plant",), "table": f"{folder}/table", "poll": 0.01, "linger": 0.0, "every": "1s"}
    follow(IngestConfig.read(given), feed=feed)
    answer.send((feed.commits, feed.resident))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=480.0)
    asked = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as home:
        here, there = context.Pipe()
        process = context.Process(target=ingested, args=(home, asked.seconds, there))
        process.start()
        there.close()
        commits, resident = here.recv()
        process.join()
    means = [part.mean() for part in np.array_split(np.array(resident), 4)]
    ratio = means[3] / means[1]
    row = [f"{commits:,}", *(f"{mean:.0f}" for mean in means), f"{ratio:.3f}"]
    print(*row)
    missed = [f"{ratio:.3f} times"] if ratio > FLAT else []
    report(
        __file__,
        Claim(
            "Memory over many commits",
            f"`ingest --follow` of {PIECE} messages a commit for {asked.seconds / 60:g} minutes, in which all that a "
            f"table forgets with time is forgotten as if they were {HOURS:g} hours: mean resident MB by quarter. "
            f"Claimed: the mean of the last quarter is at most {FLAT} times that of the second.",
            ["commits", "1", "2", "3", "4", "last / second"],
            [row],
            missed,
        ),
    )
    if missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
