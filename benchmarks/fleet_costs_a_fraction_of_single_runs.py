"""A fleet of thousands of series costs a fraction of a loop over single runs, in proportion to the series.

Hourly series are simulated: a day of their own size and phase, and an autoregressive rest. Each is learned online with
a model of its own, one step ahead, from 24 lags, micro-batches of 256 rows, 200 rows of warm-up, on one thread.
CPU-seconds are user and system time of learning alone, without imports and the making of tables; memory that is freed
is kept, as commands keep it. Beside them, on some of the same series: loops over runs on one series each, in one
process that has imported everything; and AutoETS of statsforecast (season of 24), fitted again every 256 rows to the
last 500. `linear` is run without seasons and with a season of 24; svdgp has a basis of 64: its models are learned one
after another, what is around them together, but with shared=true, where they share kernel and basis and are batched.

Claimed: a fleet of `linear` costs at most a twentieth of the loop, a fleet of svdgp too; the exponent of the cost in
the number of series is below 1.1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import Claim, report

BATCH, WARMUP, LAGS = 256, 200, 24
SVDGP = {"basis": "64", "reservoir": "512", "evidence_rows": "100"}
SINGLE, ETS = 20, 4
"""Series of the loops, and of AutoETS."""
LEAST, MOST = 20.0, 1.1
SHARES = {"linear": (8, 4, 2, 1), "shared": (8, 4, 2, 1), "season": (64, 32, 16), "svdgp": (128, 64, 32)}
"""Which parts of all series each fleet has; those of one size for which the others would take too long."""
TITLES = {"linear": "`linear`", "season": "`linear --season 24`", "svdgp": "`svdgp`", "shared": "`svdgp`, shared"}


def simulated(series: int, steps: int) -> Any:
    """(steps, series)"""
    import numpy as np

    random, hours = np.random.default_rng(0), np.arange(steps)[:, None]
    noise, y = random.normal(size=(steps, series)), np.zeros((steps, series))
    for step in range(1, steps):
        y[step] = 0.8 * y[step - 1] + noise[step]
    return y + random.uniform(1, 5, series) * np.sin(2 * np.pi * (hours + random.uniform(0, 24, series)) / 24)


def generate(path: Path, y: Any, several: bool) -> None:
    """A table with the columns unique_id where there are several, t and y."""
    import numpy as np
    import pyarrow as pa

    from streamgp_data.table import Table, TableMeta

    steps, series = y.shape
    names = pa.array([f"s{code}" for code in range(series)])
    table = None
    for start in range(0, steps, 100):
        part = y[start : start + 100]
        hours = np.repeat(start + np.arange(len(part)), series)
        times = pa.array(1_000_000_000_000_000 + hours * 3_600_000_000, pa.timestamp("us", "UTC"))
        columns = {"t": times, "y": part.reshape(-1)}
        if several:
            columns = {"unique_id": names.take(pa.array(np.tile(np.arange(series), len(part)))), **columns}
        data = pa.table(columns)
        meta = TableMeta(time="t", zone="UTC", every_ns=3_600 * 10**9, series="unique_id" if several else None)
        table = table or Table.create(path, data.schema, meta)
        table.append(data, "generated", start)


def resident() -> float:
    """Largest resident memory of this process, MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def learn(what: str, series: int, steps: int, folder: Path) -> dict[str, float]:
    """CPU-seconds of one way, the memory that it took and the bytes of its checkpoint."""
    import torch

    from streamgp_cli import _memory
    from streamgp_data import checkpoint
    from streamgp_pipelines import fit_stream

    torch.set_num_threads(1)
    _memory.spend()
    y = simulated(series, steps)
    options: dict[str, Any] = {
        "lags": LAGS,
        "device": "cpu",
        "batch": BATCH,
        "warmup": WARMUP,
        "checkpoint_every": 10**6,
    }
    generate(folder / "warm", y[:, :1], several=False)
    fit_stream(folder / "warm", "y", model="linear", checkpoint=folder / "warm-run", **options)
    model, _, loop = what.partition(" ")
    tables = [folder / f"t{code}" for code in range(series if loop else 1)]
    if loop:
        for code, table in enumerate(tables):
            generate(table, y[:, code : code + 1], several=False)
    elif what != "autoets":
        generate(tables[0], y, several=True)
    before, began, size = resident(), time.process_time(), 0
    if what == "autoets":
        from statsforecast.models import AutoETS

        for code in range(series):
            for end in range(WARMUP, steps, BATCH):
                AutoETS(season_length=24).forecast(y[max(end - 500, 0) : end, code], h=1, level=[95])
    else:
        own: dict[str, Any] = {"model": "linear"}
        if model in ("svdgp", "shared"):
            own = {"model": "svdgp", "set": SVDGP | ({"shared": "true"} if model == "shared" and not loop else {})}
        if model == "season":
            own, options = own | {"season": "24"}, {name: options[name] for name in options if name != "lags"}
        for table in tables:
            home = folder / f"run-{table.name}"
            fit_stream(table, "y", checkpoint=home, fleet=not loop, **own, **options)
            size += sum(file.stat().st_size for file in checkpoint.read(home).path.iterdir())
    spent = time.process_time() - began
    return {"series": series, "cpu": spent, "memory": resident() - before, "checkpoint": size / 1e6}


def apart(what: str, series: int, steps: int) -> dict[str, float]:
    """`learn` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, __file__, "--what", what, "--series", str(series), "--steps", str(steps)]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run([*own, "--folder", folder], env=env, check=True, stderr=subprocess.DEVNULL)
        found: dict[str, float] = json.loads((Path(folder) / "found.json").read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--what", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.what:
        found = learn(asked.what, asked.series, asked.steps, asked.folder)
        (asked.folder / "found.json").write_text(json.dumps(found))
        return
    measured = {"autoets": [apart("autoets", ETS, asked.steps)]}
    for model, shares in SHARES.items():
        measured[f"{model} loop"] = [apart(f"{model} loop", SINGLE, asked.steps)]
        measured[model] = [apart(model, asked.series // share, asked.steps) for share in shares]
        print(model, measured, flush=True)

    def cost(found: dict[str, float]) -> float:
        """CPU-seconds of a million series-steps."""
        return found["cpu"] / found["series"] / asked.steps * 1e6

    rows, missed, exponents = list[list[str]](), list[str](), list[str]()
    for model in SHARES:
        loop, fleets = cost(measured[f"{model} loop"][0]), measured[model]
        first, last = fleets[0], fleets[-1]
        exponent = math.log(last["cpu"] / first["cpu"]) / math.log(last["series"] / first["series"])
        ratio = loop / cost(last)
        exponents.append(f"{exponent:.2f} ({TITLES[model]})")
        if ratio < LEAST:
            missed.append(f"{TITLES[model]}: {ratio:.1f} times less than the loop, not {LEAST:.0f}")
        if exponent > MOST:
            missed.append(f"{TITLES[model]}: exponent {exponent:.2f}")
        rows.append([f"{TITLES[model]}, a loop over single runs", f"{SINGLE}", f"{loop:.1f}", "1.0", "", ""])
        rows += [
            [
                f"{TITLES[model]}, a fleet",
                f"{found['series']:,.0f}",
                f"{cost(found):.1f}",
                f"{loop / cost(found):.1f}",
                f"{1e3 * found['memory'] / found['series']:.0f}",
                f"{1e3 * found['checkpoint'] / found['series']:.0f}",
            ]
            for found in fleets
        ]
    ets = cost(measured["autoets"][0])
    rows.append(["AutoETS, fitted again every 256 rows", f"{ETS}", f"{ets:.1f}", "", "", ""])
    text = (
        f"Simulated hourly series of {asked.steps:,} steps, each with a model of its own, learned online one step "
        "ahead, with bands. The loop has imported everything before; as commands, each run starts Python too. AutoETS "
        "forecasts only where it is fitted. `svdgp` has a basis of 64: two thirds of a fleet's time is the evidence "
        "of its thinned rows, of which a run on one series has as much; shared=true estimates one kernel for all. "
        "Memory is the largest that was resident; part of it does not grow with the series. Claimed: a fleet costs at "
        f"most 1/{LEAST:.0f} of the loop, and in proportion to the series: exponents {', '.join(exponents)}, claimed "
        f"below {MOST}."
    )
    columns = [
        "way",
        "series",
        "CPU-s a million series-steps",
        "loop over it",
        "kB of memory a series",
        "checkpoint kB",
    ]
    report(__file__, Claim("A fleet of series", text, columns, rows, missed))
    print(rows)
    if missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
