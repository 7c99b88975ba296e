"""`streamgp tune`: hyper-parameters from windows of a table, for `streamgp train --init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from streamgp_cli._options import AsJson, ConfigFile, Debug, flags, option

DATA, ROWS, METHOD, OUT = "Data", "Rows", "Method", "Output"


def tune(
    context: typer.Context,
    table: Annotated[str | None, option(DATA, "Table that ingest made.", metavar="DIR")] = None,
    target: Annotated[
        list[str] | None, option(DATA, "Target columns, a,b or repeated; default: y.", metavar="COL")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        option(
            DATA,
            "Columns whose past values are inputs: names or patterns such as 'a,b*'; default: none.",
            metavar="COL",
        ),
    ] = None,
    known: Annotated[list[str] | None, option(DATA, "Inputs whose future values are known.", metavar="COL")] = None,
    calendar: Annotated[
        bool | None,
        option(DATA, "Add hour, weekday and day of the year as inputs; default: no.", names="--calendar/--no-calendar"),
    ] = None,
    lags: Annotated[
        int | None, option(DATA, "Past rows in a window; default: 24, or 0 (regression) for a table without times.")
    ] = None,
    horizon: Annotated[int | None, option(DATA, "Steps ahead; default: 1.")] = None,
    season: Annotated[
        int | None, option(DATA, "Rows in one season, such as 336 for a week of half hours; default: 1 (none).")
    ] = None,
    gaps: Annotated[
        str | None,
        option(
            DATA,
            "At a gap: reset skips windows until they are complete, mask marks the missing lags; default: reset.",
            metavar="reset|mask",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        option(ROWS, "Number of windows, spread evenly over the rows; default: 1000.", metavar="COUNT"),
    ] = None,
    start: Annotated[
        str | None, option(ROWS, "First row or time to use; default: the first of the table.", metavar="ROW|TIME")
    ] = None,
    end: Annotated[
        str | None, option(ROWS, "Use only rows before this row or time; default: all.", metavar="ROW|TIME")
    ] = None,
    test_column: Annotated[
        str | None, option(ROWS, "Leave out the rows where this column is not 0, as train does.", metavar="COL")
    ] = None,
    test_tail: Annotated[
        float | None, option(ROWS, "Leave out this fraction of the rows at the end, as train does.")
    ] = None,
    method: Annotated[
        str | None,
        option(
            METHOD,
            "ml: maximise the marginal likelihood; cv-admm, cv-implicit: minimise the squared error of held-out rows, "
            "without a matrix factorisation; default: ml.",
            metavar="ml|cv-admm|cv-implicit",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        option(
            METHOD, "Option of the kernel or the method, repeatable; see --options.", metavar="KEY=VALUE", names="--set"
        ),
    ] = None,
    options: Annotated[
        bool, option(METHOD, "List every option that --set takes with this method.", names="--options")
    ] = False,
    init: Annotated[
        Path | None, option(METHOD, "Start from the hyper-parameters in an earlier file.", metavar="FILE")
    ] = None,
    seed: Annotated[int | None, option(METHOD, "Random seed; default: 0.")] = None,
    output: Annotated[
        Path | None, option(OUT, "File of the hyper-parameters; default: tuned.json.", metavar="FILE")
    ] = None,
    experiment: Annotated[str | None, option(OUT, "MLflow experiment; default: streamgp.", metavar="NAME")] = None,
    tracking_uri: Annotated[
        str | None,
        option(OUT, "MLflow store, or none; default: MLFLOW_TRACKING_URI, else ./mlflow.db.", metavar="URI|none"),
    ] = None,
    max_memory: Annotated[
        str | None,
        option(
            OUT,
            "Refuse a run that is estimated to need more memory, such as 4GB; default: half of what is available.",
            metavar="SIZE",
        ),
    ] = None,
    dry_run: Annotated[bool, option(OUT, "Print what would be done, and stop.", names="--dry-run")] = False,
    config: ConfigFile = None,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Find hyper-parameters of a kernel on rows of a table.

    They are written to a file that streamgp train --init starts from.
    --set kernel=NAME chooses the kernel, such as matern, locally_periodic or
    sum (by default a squared exponential and a locally periodic one).

    \b
    Examples:
      streamgp tune --table demand --target demand_gw --horizon 48 \\
          --season 336 --end 2014-03-01
      streamgp train --online --table demand --target demand_gw \\
          --horizon 48 --season 336 --init tuned.json
      streamgp tune --table kin40k --target y --known 'x*' \\
          --test-column split0 --method cv-implicit --rows 4000
      streamgp tune --method cv-admm --options
    """
    from streamgp_cli._output import only_our_output, print_json, print_pairs
    from streamgp_cli._progress import Reporter

    if options:
        _list(method or "ml", as_json=json)
        return
    from streamgp_pipelines.adapters.mlflow.tracker import tracker_of
    from streamgp_pipelines.config import TuneConfig
    from streamgp_pipelines.tuning.tune import Tuning
    from streamgp_pipelines.tuning.tune import tune as run

    settings = TuneConfig.read(flags(context, "dry_run", "options"), config)
    if dry_run:
        planned = Tuning(settings).plan()
        print_json(planned) if json else print_pairs(planned, "would tune (nothing was written):")
        return
    with only_our_output(), Reporter(quiet=json) as progress:
        name = f"tune {settings.method} {Path(settings.table).name}"
        found = run(settings, tracker_of(settings.tracking_uri, settings.experiment, name), progress)
    print_json(found) if json else _print(found)


def _list(method: str, as_json: bool) -> None:
    """Every option of `--set`."""
    from streamgp.errors import UsageError
    from streamgp_cli._output import print_json, print_table
    from streamgp_cli.models import options_of
    from streamgp_pipelines.tuning.methods import METHODS

    if method not in METHODS:
        raise UsageError(f"--method: there is no {method!r}", hint=f"there are: {', '.join(METHODS)}")
    found = options_of(METHODS[method].options)
    if as_json:
        print_json({"name": method, "options": found})
        return
    columns = ["option", "type", "default", "meaning"]
    print_table(columns, [[option[column] for column in columns] for option in found])


def _print(found: dict[str, Any]) -> None:
    """Hyper-parameters in the units of the table, how they were found, and what to do with them."""
    from streamgp_cli._output import print_pairs, print_table
    from streamgp_pipelines.numbers import number

    channels, targets = found["channels"], found["targets"]
    if channels:
        names = [name for name in channels[0] if name not in ("channel", "when", "unit", "sd")]
        columns = ["channel", "", "unit", *names, "its sd"]
        print_table(columns, [[c["channel"], c["when"], c["unit"], *(c[n] for n in names), c["sd"]] for c in channels])
    steps = max(one["step"] for one in targets)
    shown = [one for one in targets if one["step"] in (1, (steps + 1) // 2, steps)]
    names = [name for name in targets[0] if name not in ("target", "step", "unit", "sd")]
    rows = [[one["target"], str(one["step"]), one["unit"], *(one[name] for name in names), one["sd"]] for one in shown]
    print_table(["target", "step ahead", "unit", *names, "what is learned, sd"], rows)
    before = "-" if found["loss_before"] is None else number(found["loss_before"])
    pairs = {
        **found["others"],
        "method": found["method"],
        "loss": f"{before} -> {number(found['loss'])} ({found['loss_is']})",
        "windows": found["rows"],
        "iterations": f"{found['iterations']} ({found['evaluations']} evaluations)",
        "CPU seconds": found["cpu_seconds"],
        "MLflow run": found["run_id"] or "none: not tracked",
        "output": found["output"],
        "next": found["next"],
    }
    print_pairs(pairs)
    for failure in found["failures"]:
        print(f"note: {failure}")
    if found["capped"]:
        own = found["method"].removeprefix("cv-")
        print(f"note: it stopped at its limit of iterations, before it had settled: --set {own}.iterations gives more")
