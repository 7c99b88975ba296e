"""Write docs/scaling.md: what a cluster holds, computed from the JSON of the benchmarks (docs/results/data).

python docs/make_scaling.py    (make_results.py does it too)
"""

from __future__ import annotations

import json
import math
from pathlib import Path

DATA = Path(__file__).parent / "results" / "data"
ROWS, SERIES, FORECASTS = 10**9, 10**5, 10**3
MACHINE = 24
"""GiB of one machine; half of it is used."""
TEXT = """# Scaling

What one core does, measured, and what a plan needs that was not run. Each cost is that of the benchmark named, on the
machine of its page; costs in proportion are extrapolated, nothing else. Written by `docs/make_scaling.py`.

## Costs

|work|cost|benchmark|
|-|-|-|
|ingest a row of CSV|{ingest:.2f} CPU-µs|`ingest_keeps_pace_with_polars`|
|learn a row, `linear`, 3 steps ahead|{linear:.0f} CPU-µs, flat in the rows|`state_stays_flat`|
|the same, the default model|{mixed:.0f} CPU-µs|`state_stays_flat`|
|learn a row, `linear`, 48 steps ahead with seasons|{ahead:.0f} CPU-µs|`rows_a_second`|
|learn a row, `svdgp`, 48 steps ahead|{svdgp:.0f} CPU-µs|`svdgp_beats_weekly_naive_on_electricity`|
|a step of a series of a fleet, `linear`|{step:.1f} CPU-µs|`fleet_costs_a_fraction_of_single_runs`|
|memory of a series of a fleet, `linear`|{memory:.0f} kB|`fleet_costs_a_fraction_of_single_runs`|
|a step of a series of a fleet, `svdgp`, shared|{shared_step:.1f} CPU-µs|`fleet_costs_a_fraction_of_single_runs`|
|memory of a series of a fleet, `svdgp`, shared|{shared_memory:.0f} kB|`fleet_costs_a_fraction_of_single_runs`|
|answer a question of 48 steps|{answer:.2f} ms of one process|`serve_answers_under_load`|
|a step of `qsgp` with 10⁷ functions|{flat:.2f} times one with 10⁴|`step_cost_is_flat_in_the_basis`|
|memory of `qsgp` with 10⁷ functions|{wide:.2f} times that with 10⁴|`qsgp_trains_ten_million_functions`|
{laws}

The checkpoint of a stream does not grow with its rows, but for score curves of at most 512 points.

## 10⁹ rows

One stream is learned in order, by one process: ingest takes {ingest_hours:.1f} core hours, `linear` {linear_hours:.0f},
the default model {mixed_hours:.0f}, `svdgp` 48 steps ahead {svdgp_hours:.0f}. **The bottleneck is the order of the
rows**: more cores do nothing for one stream. Several series go to as many processes, each with its own table and
checkpoint; 16 of them take {linear_sixteen:.1f} hours with `linear`.

## 10⁵ series

A fleet of `linear` models needs {fleet_memory:.0f} GB (machines of {gib} GiB, half of it used: {machines}), and
{fleet_step:.1f} CPU-s for a new row of each series: with a row an hour, {fleet_share:.2g} % of one core. **The
bottleneck is memory.** The cost a step grew by {growth:.2f} times from {least} to {most} series; it is taken from the
latter. Divide the series among processes by name, a table and a checkpoint each.

## 10³ forecasts a second

One process answers {per_second:.0f} questions a second of states that it has computed, so that one is enough for
{forecasts} as long as rows come less often than questions. A new row makes the state new: the first answer after it is
computed, which takes a forecast of the model. **The bottleneck is rows posted**: one process took {posted:.0f} a second
until they were learned. Services share an object store ([checkpoints](guides/operations.md#in-an-object-store)); one of
them writes.

## Not measured

No cluster was at hand: all the above is of one machine, shared with other work. Transfers between machines, and the
rate at which an object store takes small commits, are in no figure.
"""


def cell(name: str, claim: str, row: dict[str, str], column: str) -> float:
    """The number in the last row of a table whose cells are as in `row`."""
    claims = json.loads((DATA / f"{name}.json").read_text("utf-8"))["claims"]
    found = next(one for one in claims if one["title"] == claim)
    rows = [dict(zip(found["columns"], cells, strict=True)) for cells in found["rows"]]
    at = [one for one in rows if all(one[key] == value for key, value in row.items())][-1]
    return float(at[column].removesuffix(" MB").replace(",", ""))


def fleet(title: str = "`linear`") -> list[tuple[float, float, float]]:
    """Series, CPU-s a million steps and kB a series of each fleet of a model, smallest first."""
    claims = json.loads((DATA / "fleet_costs_a_fraction_of_single_runs.json").read_text("utf-8"))["claims"]
    rows = [cells for claim in claims for cells in claim["rows"] if cells[0] == f"{title}, a fleet"]
    return sorted((float(cells[1].replace(",", "")), float(cells[2]), float(cells[4])) for cells in rows)


def laws() -> str:
    """A line for each exponent that was measured."""
    claims = json.loads((DATA / "costs_follow_their_laws.json").read_text("utf-8"))["claims"]
    lines = [
        f"|{cells[0]} against {cells[1].split(',')[0]}|exponent {cells[3]}|`costs_follow_their_laws`|"
        for cells in claims[0]["rows"]
    ]
    return "\n".join(lines)


def render() -> str:
    """The page."""
    stream, service = "Long streams", "Requests to the service"
    ingest = cell("ingest_keeps_pace_with_polars", "Ingest", {"run": "streamgp ingest"}, "CPU-s") / 5
    linear = cell("state_stays_flat", stream, {"model": "linear"}, "CPU-µs a row")
    mixed = cell("state_stays_flat", stream, {"model": "auto"}, "CPU-µs a row")
    ahead = 1e6 / cell("rows_a_second", "Rows a second", {"model": "linear"}, "rows a second")
    day = {"known": "workday", "model": "svdgp"}
    electricity = "svdgp_beats_weekly_naive_on_electricity"
    svdgp = 1e6 * cell(electricity, "Electricity demand, day ahead", day, "CPU-s") / 17_520
    asked = {"request": "GET /forecast, 48 steps", "clients": "1"}
    per_second = cell("serve_answers_under_load", service, asked, "requests a second")
    killed = "Rows posted to a service that is killed"
    posted = 100_000 / cell("serve_answers_under_load", killed, {"rows": "100,000"}, "s until learned")
    flat = cell("step_cost_is_flat_in_the_basis", "Cost of a stochastic step", {}, "ratio")
    large, small = (
        cell("qsgp_trains_ten_million_functions", "Ten million functions", {"functions": size}, "peak memory")
        for size in ("10,000,000", "10,000")
    )
    (least, first, _), *_, (most, step, memory) = fleet()
    _, shared_step, shared_memory = fleet("`svdgp`, shared")[-1]
    hours = ROWS * 1e-6 / 3600
    values = {
        "ingest": ingest,
        "linear": linear,
        "mixed": mixed,
        "ahead": ahead,
        "svdgp": svdgp,
        "flat": flat,
        "wide": large / small,
        "laws": laws(),
        "step": step,
        "memory": memory,
        "answer": 1e3 / per_second,
        "per_second": per_second,
        "posted": posted,
        "ingest_hours": ingest * hours,
        "linear_hours": linear * hours,
        "mixed_hours": mixed * hours,
        "svdgp_hours": svdgp * hours,
        "linear_sixteen": linear * hours / 16,
        "shared_step": shared_step,
        "shared_memory": shared_memory,
        "fleet_memory": SERIES * memory * 1e-6,
        "machines": math.ceil(SERIES * memory * 1e3 / (MACHINE * 2**30 / 2)),
        "gib": MACHINE,
        "fleet_step": SERIES * step * 1e-6,
        "fleet_share": 100 * SERIES * step * 1e-6 / 3600,
        "growth": step / first,
        "least": f"{least:,.0f}",
        "most": f"{most:,.0f}",
        "forecasts": f"{FORECASTS:,}",
    }
    return TEXT.format_map(values)


if __name__ == "__main__":
    (Path(__file__).parent / "scaling.md").write_text(render(), "utf-8")
