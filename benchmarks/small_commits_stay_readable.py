"""A table of many small commits, as a service leaves it, is read about as quickly as one of a single commit.

Rows of a time and a value are committed one by one, merged as `streamgp serve` does, and not merged; a third table has
them in one commit. Then each is opened, and all of its rows are read, by a process that has not seen it.

    python benchmarks/small_commits_stay_readable.py [--commits 10000]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from _report import Claim, report

from streamgp_data.compaction import Compaction
from streamgp_data.table import Table, TableMeta

SCHEMA = pa.schema([("t", pa.int64()), ("y", pa.float64())])
READ = """
import sys, time
from streamgp_data.table import Table
began = time.process_time()
table = Table.open(sys.argv[1])
opened = time.process_time()
rows = sum(chunk.rows.num_rows for chunk in table.read())
print(opened - began, time.process_time() - opened, rows)
"""


def rows(first: int, count: int) -> pa.Table:
    times = np.arange(first, first + count)
    return pa.table({"t": times, "y": np.sin(times / 8)}, schema=SCHEMA)


def written(path: Path, commits: int, size: int, merging: bool) -> list[str]:
    """CPU milliseconds of a commit in the first and the last tenth, files, CPU seconds to open and to read."""
    table = Table.create(path, SCHEMA, TableMeta(time="t", clock=False, every_ns=1))
    compaction, tenth, took = Compaction(table), max(commits // 10, 1), []
    for commit in range(commits):
        if commit in (0, tenth, commits - tenth):
            took.append(time.process_time())
        table.commit(rows(commit * size, size), {})
        if merging:
            compaction.committed()
    took.append(time.process_time())
    files = len(table.log.file_uris())
    line = [sys.executable, "-c", READ, str(path)]
    opened, read, found = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    assert int(found) == commits * size
    ends = (took[1] - took[0], took[-1] - took[-2]) if len(took) == 4 else (took[-1] - took[0],) * 2
    return [*(f"{1e3 * seconds / tenth:.1f}" for seconds in ends), f"{files:,}", opened, read]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--commits", type=int, default=10_000)
    asked = parser.parse_args()
    shown, seconds = [], []
    with tempfile.TemporaryDirectory() as folder:
        cases = [("merged", asked.commits, 1, True), ("not merged", asked.commits, 1, False)]
        for name, commits, size, merging in [*cases, ("one commit", 1, asked.commits, False)]:
            *ends, opened, read = written(Path(folder) / name, commits, size, merging)
            shown.append([name, f"{commits:,}", *ends, f"{float(opened):.2f}", f"{float(read):.2f}"])
            seconds.append(float(opened) + float(read))
            print(*shown[-1], flush=True)
    more = seconds[0] - seconds[2]
    report(
        __file__,
        Claim(
            "Tables of many small commits",
            f"{asked.commits:,} rows, committed one by one and merged every 64 commits as `serve` does, or not, or in "
            "one commit; CPU milliseconds of a commit in the first and last tenth, CPU seconds of a fresh process. "
            "Claimed: opening and reading a merged table takes at most 0.5 s longer than one of a single commit.",
            ["table", "commits", "ms, first", "ms, last", "files", "s to open", "s to read"],
            shown,
            [] if more <= 0.5 else [f"it takes {more:.2f} s longer"],
        ),
    )


if __name__ == "__main__":
    main()
