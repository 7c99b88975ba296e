"""`streamgp tune`: hyper-parameters from windows of a table, for `streamgp train --init`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgp_cli.options import AsJson, DryRun, Given

if TYPE_CHECKING:
    from streamgp_pipelines.config import TuneConfig


def tune(
    given: Given[TuneConfig],
    options: Annotated[
        bool,
        typer.Option(
            "--options",
            help="List every option that --set takes with this method.",
            metavar="",
            rich_help_panel="Method",
        ),
    ] = False,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Find hyper-parameters of a kernel on rows of a table.

    They are written to a file that streamgp train --init starts from.
    --set kernel=NAME chooses the kernel, such as matern, locally_periodic or
    sum (default: the sum of a squared exponential and a locally periodic
    one).

    \b
    Examples:
      streamgp tune --table demand --target demand_gw --horizon 48 \\
          --season 336 --end 2014-03-01
      streamgp train --online --table demand --target demand_gw \\
          --horizon 48 --season 336 --init tuned.json
      streamgp tune --table kin40k --target y --known 'x*' \\
          --test-column split0 --method cv-implicit --rows 4000
      streamgp tune --table demand --target demand_gw --set ml.restarts=7 \\
          --engine ray --workers 4
      streamgp tune --method cv-admm --options
    """
    from streamgp_cli._output import only_our_output, print_json, print_pairs
    from streamgp_cli._progress import Reporter

    if options:
        _list(given.flags.get("method", "ml"), as_json=json)
        return
    from streamgp_pipelines.adapters.mlflow.tracker import tracker_of
    from streamgp_pipelines.adapters.ray.tasks import ray_tasks
    from streamgp_pipelines.tuning.tune import Tuning
    from streamgp_pipelines.tuning.tune import tune as run

    settings = given.read()
    if dry_run:
        planned = Tuning(settings).plan()
        print_json(planned) if json else print_pairs(planned, "would tune (nothing was written):")
        return
    with only_our_output(), Reporter(quiet=json) as progress:
        found = run(settings, tracker_of(settings.tracking_uri, settings.experiment), progress, ray_tasks)
    print_json(found) if json else _print(found)


def _list(method: str, as_json: bool) -> None:
    """Every option of `--set`."""
    from streamgp_cli._output import print_json, print_table
    from streamgp_cli.models import once, options_of
    from streamgp_pipelines.tuning.methods import options_of as set_of

    options = set_of(method)
    if as_json:
        print_json({"name": method, "options": options_of(options)})
        return
    columns = ["option", "type", "default", "meaning"]
    print_table(columns, [[one[column] for column in columns] for one in once(options_of(options, parts=False))])
    print("Options of kernels: streamgp models kernels")


def _print(found: dict[str, Any]) -> None:
    """Hyper-parameters in the units of the table, how they were found, and what to do with them."""
    from streamgp_cli._output import print_pairs, print_table
    from streamgp_data.numbers import number

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
    held = found["held_out"]
    pairs = {
        **found["others"],
        "method": found["method"],
        **({"rows left out": ", ".join(f"{name} {number(score)}" for name, score in held.items())} if held else {}),
        "loss": f"{before} -> {number(found['loss'])} ({found['loss_is']})",
        "windows": found["rows"],
        "iterations": f"{found['iterations']} ({found['evaluations']} evaluations)",
        "CPU seconds": found["cpu_seconds"],
        "MLflow run": found["run_id"] or "none: not tracked",
        "output": found["output"],
        "next": found["next"],
    }
    print_pairs(pairs)
    if found["lost"]:
        print(f"note: workers were lost {found['lost']} times; their starts were tried again in others")
    for failure in found["failures"]:
        print(f"note: {failure}")
    if found["capped"]:
        own = next(iter(held), found["method"]).removeprefix("cv-")
        print(f"note: it stopped at its limit of iterations, before it had settled: --set {own}.iterations gives more")
