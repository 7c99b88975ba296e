"""Does a mean basis larger than the covariance's pay in svdgp's closed form too, in one pass over a stream?

The default has one basis of 1024 for both. Beside it, for each size of the mean's, a covariance of fewer functions
(`covariance_basis`): kin40k and SARCOS (first joint) in micro-batches of 256 rows, forecast and then learned, and
electricity demand (workday known, 48 steps ahead, season 336). Every run is one line of a file of JSON lines, and one
that is there is not done again. No claim was made before: exit status 0.

    python benchmarks/a_larger_mean_basis_in_closed_form.py --streams sarcos --sizes 1024:1024 1024:256
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import polars as pl
import torch
from _report import Claim, report
from _uci import FOLDER, Split, load, path, windows

from streamgp.models import svdgp

BATCH, FIRST, ROWS = 256, 1024, 9000
STREAMS = ("kin40k", "sarcos", "electricity")
SIZES = ("512:512", "1024:1024", "1024:512", "1024:256", "1536:1536", "1536:256")
ROOT = Path(__file__).parents[1]
COLUMNS = ("stream", "mean basis", "covariance basis", "RMSE", "NLPD", "raw 95 % coverage", "CPU-s")


def rows_of(name: str, folder: Path) -> Split:
    """The stream, in random order (SARCOS), or in that of the file; nothing is held out for good."""
    if name == "kin40k":
        return load(path(name, folder))
    values = torch.from_numpy(pl.read_parquet(folder / "sarcos_test.parquet").to_numpy().copy()).double()
    values = values[torch.randperm(len(values), generator=torch.Generator().manual_seed(1))]
    return Split(values[:, :21], values[:, 21:22], values[:0, :21], values[:0, 21:22])


def passed(rows: Split, mean: int, covariance: int) -> list[float]:
    """RMSE, NLPD and coverage of the forecasts from row `FIRST` on, and CPU-seconds of the whole pass."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # loads PyTorch's compiler
    began = time.process_time()
    model = svdgp.build(svdgp.Config(basis=mean, covariance_basis=covariance), rows.shape)
    squares, density, inside = list[torch.Tensor](), list[torch.Tensor](), list[torch.Tensor]()
    x, y = windows(rows.x[:ROWS]), rows.y[:ROWS]
    for start in range(0, len(y), BATCH):
        at = slice(start, start + BATCH)
        if start >= FIRST:
            issued = model.predict(x.rows(at))
            low, high = issued.quantile(torch.tensor([0.025, 0.975], dtype=y.dtype))
            squares.append((issued.mean - y[at]).square())
            density.append(issued.log_prob(y[at]))
            inside.append(((low <= y[at]) & (y[at] <= high)).double())
        model.update(x.rows(at), y[at])
    spent = time.process_time() - began
    error, fit, part = (float(torch.cat(some).mean()) for some in (squares, density, inside))
    return [error**0.5, -fit, part, spent]


def demand(mean: int, covariance: int) -> list[float]:
    """The same of electricity, through the whole pipeline; the RMSE over all steps ahead."""
    from streamgp_data.ingestion.ingest import ingest
    from streamgp_pipelines import fit_stream
    from streamgp_pipelines.config import IngestConfig

    with tempfile.TemporaryDirectory() as work:
        table = Path(work) / "demand"
        source = (str(ROOT / "data" / "elecdemand.csv"),)
        ingest(IngestConfig.read({"source": source, "table": str(table), "timezone": "+10:00"}))
        began = time.process_time()
        found = fit_stream(
            table,
            "demand_gw",
            model="svdgp",
            set=(f"basis={mean}", f"covariance_basis={covariance}"),
            checkpoint=Path(work) / "checkpoint",
            device="cpu",
            horizon=48,
            season=336,
            known="workday",
            score_from="1344",
        )
        spent = time.process_time() - began
    return [found["rmse"], found["nlpd"], found["raw_coverage"]["95"], spent]


def table(known: dict[tuple[str, str], list[float]]) -> Claim:
    """The page's."""
    rows = [
        [name, *size.split(":"), f"{rmse:.4f}", f"{nlpd:.4f}", f"{part:.3f}", f"{spent:.1f}"]
        for (name, size), (rmse, nlpd, part, spent) in known.items()
    ]
    text = (
        f"One pass: forecasts of the next {BATCH} rows (kin40k, its first {ROWS:,} rows; SARCOS, first joint) and day "
        "ahead (electricity, workday known). The default is 1024 of both. NLPD of electricity is of calibrated "
        "forecasts, coverage of raw ones. The covariance's functions are the leading ones of the mean's, so that fewer "
        "of them leave the mean as it is but for winsorising, save time in predictions alone, and widen the bands."
    )
    order = {name: place for place, name in enumerate(STREAMS)}
    rows.sort(key=lambda row: (order[row[0]], int(row[1]), -int(row[2])))
    return Claim("A larger mean basis in closed form", text, COLUMNS, rows, None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the Parquet files")
    parser.add_argument("--runs", type=Path, default=Path("larger_mean.jsonl"), help="file of what was run")
    parser.add_argument("--kept", action="store_true", help="run nothing; report what was run")
    parser.add_argument("--streams", nargs="+", default=list(STREAMS), choices=STREAMS)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="MEAN:COVARIANCE")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines = asked.runs.read_text().splitlines() if asked.runs.exists() else []
    done = {(one["stream"], one["sizes"]): one["found"] for one in map(json.loads, lines)}
    for name in () if asked.kept else asked.streams:
        for size in asked.sizes:
            if (name, size) in done:
                continue
            m, c = map(int, size.split(":"))
            found = demand(m, c) if name == "electricity" else passed(rows_of(name, asked.data), m, c)
            done[name, size] = found
            with asked.runs.open("a") as out:
                out.write(json.dumps({"stream": name, "sizes": size, "found": found}) + "\n")
            print(name, size, *(f"{value:.4f}" for value in found), flush=True)
    shown = table(done)
    print("\n".join("  ".join(row) for row in shown.rows))
    report(__file__, shown)
