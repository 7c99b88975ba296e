"""What a benchmark measured, as JSON, from which docs/make_results.py writes the results pages.

A benchmark calls `report` at its end. Nothing is written unless the environment variable BENCHMARK_RESULTS names a
folder, as `make bench` does; so a trial run with other options leaves the pages as they are.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

BUSY = os.getloadavg()[0] > 0.5  # before the benchmark itself adds to it


@dataclass(frozen=True)
class Claim:
    """One heading, paragraph and table of a results page.

    Attributes:
        title: of at most ten words.
        text: one paragraph: what is claimed, on what data, what the columns are where their names do not say so.
        columns, rows: the table, its cells as they are printed.
        missed: what was claimed and does not hold, empty where all holds; None where the table claims nothing.
    """

    title: str
    text: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    missed: Sequence[str] | None = ()


def conditions() -> str:
    """When and where this process runs: month, processor, cores, memory, whether other work runs beside it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    shared = "shared with other work" if BUSY else "otherwise idle"
    machine = f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, CPU only, {shared}"
    return f"{time.strftime('%B %Y')}; {machine}"


def _processor() -> str:
    """The processor's name as Linux has it, or the machine's architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else os.uname().machine


def report(file: str, *claims: Claim) -> None:
    """Write NAME.json into the folder that BENCHMARK_RESULTS names, if it does.

    Args:
        file: `__file__` of the benchmark.
        claims: what its page says, in this order.
    """
    folder = os.environ.get("BENCHMARK_RESULTS")
    if not folder:
        return
    name = Path(file).stem
    words = ["PATH" if Path(word).is_absolute() else word for word in sys.argv[1:]]  # no folder of this machine
    found = {
        "command": " ".join(["python", f"benchmarks/{name}.py", *words]),
        "measured": conditions(),
        "claims": [asdict(claim) for claim in claims],
    }
    (Path(folder) / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
