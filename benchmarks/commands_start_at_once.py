"""Commands cost little more than the imports that they need: multiples of `import polars` and `import torch`.

Measured is processor time (user and system) of whole processes, which a busy machine inflates less than wall-clock
time; commands and imports take turns, and the smallest of several rounds counts. Beside it: wall-clock seconds, which
mean something on an idle machine only. The table has 99 rows, so next to nothing of it is work.

Claimed, of `import polars` (p) and `import torch` (t):

    ingest, describe --table            at most 5 p
    forecast --checkpoint --output      at most 1.8 t
    train --online, untracked           at most 1.8 t
    train --online, MLflow store there  at most 4 t
    train --online, new MLflow store    at most 4 t

    python benchmarks/commands_start_at_once.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from _report import Claim, report

ROWS = 99
LEARN = ["train", "--online", "--table", "table", "--target", "y", "--model", "linear", "--lags", "2"]
LEARN += ["--warmup", "20", "--batch", "8", "--fresh"]


class Spent(NamedTuple):
    processor: float  # seconds, user and system
    wall: float


def spend(words: list[str], room: Path) -> Spent:
    """What one process costs."""
    began = time.perf_counter()
    with (room / "err").open("w") as errors:
        process = subprocess.Popen(words, cwd=room, stdout=subprocess.DEVNULL, stderr=errors, env=_environment())
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)}: {(room / 'err').read_text()}")
    return Spent(used.ru_utime + used.ru_stime, time.perf_counter() - began)


def _environment() -> dict[str, str]:
    """Compiled modules are kept, as on any user's machine."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_TRACKING_URI": ""}


def _remove(*paths: Path) -> None:
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def main(rounds: int) -> int:
    script = Path(sys.executable).with_name("streamgp")
    if not script.exists():
        print("streamgp is not installed here")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        lines = [f"2024-01-{1 + row // 24:02d}T{row % 24:02d}:00:00,{math.sin(row / 4):.4f}" for row in range(ROWS)]
        (room / "rows.csv").write_text("\n".join(["ds,y", *lines]) + "\n")

        def command(*words: str) -> list[str]:
            return [str(script), *words]

        def python(code: str) -> list[str]:
            return [sys.executable, "-c", code]

        nothing: Callable[[], None] = lambda: None  # noqa: E731
        cases: dict[str, tuple[list[str], Callable[[], None], str, float]] = {
            "import polars": (python("import polars"), nothing, "", 0),
            "import torch": (python("import torch"), nothing, "", 0),
            "ingest": (command("ingest", "rows.csv", "--table", "table"), lambda: _remove(room / "table"), "p", 5),
            "describe": (command("describe", "--table", "table"), nothing, "p", 5),
            "train, untracked": (command(*LEARN, "--checkpoint", "c0", "--tracking-uri", "none"), nothing, "t", 1.8),
            "forecast": (command("forecast", "--checkpoint", "c0", "--output", "f.parquet"), nothing, "t", 1.8),
            "train, new store": (
                command(*LEARN, "--checkpoint", "c1"),
                lambda: _remove(room / "mlflow.db", room / "mlartifacts"),
                "t",
                4,
            ),
            "train, store there": (command(*LEARN, "--checkpoint", "c2"), nothing, "t", 4),
        }
        least = dict.fromkeys(cases, Spent(math.inf, math.inf))
        for turn in range(rounds + 1):
            for name, (words, before, _, _) in cases.items():
                before()
                spent = spend(words, room)
                if turn:  # the first round compiles files and fills caches
                    least[name] = Spent(*map(min, zip(least[name], spent, strict=True)))
    units = {"p": least["import polars"].processor, "t": least["import torch"].processor}
    print(f"{'':<20} {'CPU s':>6} {'wall s':>7} {'x polars':>9} {'x torch':>8}  limit")
    missed, rows = [], []
    for name, (_, _, unit, limit) in cases.items():
        processor, wall = least[name]
        if unit and processor > limit * units[unit]:
            missed.append(f"{name} {processor / units[unit]:.2f} {unit}")
        claim = f"{limit:g} {unit}" if unit else ""
        ratios = [f"{processor / units['p']:.1f}", f"{processor / units['t']:.2f}"]
        print(f"{name:<20} {processor:>6.2f} {wall:>7.2f} {ratios[0]:>9} {ratios[1]:>8}  {claim}")
        rows.append([name, f"{processor:.2f}", f"{wall:.2f}", *ratios, claim])
    print("holds" if not missed else "does not hold")
    text = (
        "Commands on a table of 99 rows cost little more than the imports that they need: least of "
        f"{rounds} starts, in multiples of `import polars` (p) and `import torch` (t) by processor time."
    )
    columns = ["process", "CPU-s", "wall s", "over p", "over t", "limit"]
    report(__file__, Claim("Start of a command", text, columns, rows, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    sys.exit(main(parser.parse_args().rounds))
