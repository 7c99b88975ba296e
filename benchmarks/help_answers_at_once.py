"""`streamgp --help` takes at most 1.6 times as long as `python -c "import typer"`.

Both are started as processes of their own, in turns, so that a busy machine slows both alike; the medians of the
wall-clock times are compared. Printed: seconds of each, and the ratio.

    python benchmarks/help_answers_at_once.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _report import Claim, report

LIMIT = 1.6


def seconds(words: list[str]) -> float:
    """Wall-clock seconds of one process."""
    began = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main(rounds: int) -> int:
    beside = Path(sys.executable).with_name("streamgp")
    script = str(beside) if beside.exists() else shutil.which("streamgp")
    if script is None:
        print("streamgp is not installed here")
        return 1
    lines = {"import typer": [sys.executable, "-c", "import typer"], "streamgp --help": [script, "--help"]}
    for words in lines.values():
        seconds(words)  # compiled files and disk caches
    taken: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(rounds):
        for name, words in lines.items():
            taken[name].append(seconds(words))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    for name, value in medians.items():
        print(f"{name:<16} {value:.3f} s")
    ratio = medians["streamgp --help"] / medians["import typer"]
    print(f"ratio {ratio:.2f} (limit {LIMIT}): {'holds' if ratio <= LIMIT else 'does not hold'}")
    missed = [] if ratio <= LIMIT else [f"{ratio:.2f} times"]
    rows = [[f"`{name}`", f"{value:.3f}", f"{value / medians['import typer']:.2f}"] for name, value in medians.items()]
    text = f"`streamgp --help` takes at most {LIMIT} times as long as importing typer: medians of {rounds} starts each."
    report(__file__, Claim("Help", text, ["process", "seconds", "ratio"], rows, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    sys.exit(main(parser.parse_args().rounds))
