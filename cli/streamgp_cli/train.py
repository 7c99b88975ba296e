"""`streamgp train`: train a model on a table, online or in batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgp_cli._options import AsJson, ConfigFile, Debug, flags, option

DATA, MODEL, STREAM, BATCH, OUT = "Data", "Model", "Online", "Batch", "Output"


def train(
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
    known: Annotated[
        list[str] | None,
        option(DATA, "Inputs whose future values are known; in training they are read from the table.", metavar="COL"),
    ] = None,
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
    model: Annotated[
        str | None, option(MODEL, "Model to train, see streamgp models; default: svdgp.", metavar="NAME")
    ] = None,
    set_: Annotated[
        list[str] | None,
        option(MODEL, "Option of the model, repeatable; see streamgp models NAME.", metavar="KEY=VALUE", names="--set"),
    ] = None,
    init: Annotated[
        Path | None, option(MODEL, "Start from the hyper-parameters in a file of streamgp tune.", metavar="FILE")
    ] = None,
    level: Annotated[
        list[str] | None,
        option(MODEL, "Levels of the bands in percent, 80,95 or repeated; default: 80,90,95.", metavar="PERCENT"),
    ] = None,
    seed: Annotated[int | None, option(MODEL, "Random seed; default: 0.")] = None,
    device: Annotated[
        str | None, option(MODEL, "Device to compute on; default: auto.", metavar="auto|cpu|cuda")
    ] = None,
    online: Annotated[
        bool | None,
        option(
            STREAM, "One prequential pass: predict each row, then update; default: no.", names="--online/--no-online"
        ),
    ] = None,
    warmup: Annotated[
        int | None,
        option(
            STREAM,
            "First rows of the table, fitted in batch and not scored; default: three seasons of a series, or 500 "
            "windows, at most a fifth of the table.",
            metavar="ROWS",
        ),
    ] = None,
    batch: Annotated[int | None, option(STREAM, "Rows of a micro-batch; default: 256.", metavar="ROWS")] = None,
    score_from: Annotated[
        str | None,
        option(STREAM, "First row or time that is scored; default: the end of the warm-up.", metavar="ROWS|TIME"),
    ] = None,
    max_rows: Annotated[
        int | None,
        option(STREAM, "Stop after this many rows of the table, counted over restarts; default: all.", metavar="ROWS"),
    ] = None,
    follow: Annotated[
        bool | None,
        option(STREAM, "Wait for new rows at the end of the table; default: no.", names="--follow/--no-follow"),
    ] = None,
    test_column: Annotated[str | None, option(BATCH, "Column that is not 0 in test rows.", metavar="COL")] = None,
    test_tail: Annotated[
        float | None, option(BATCH, "Fraction of the rows to hold out at the end, such as 0.2.")
    ] = None,
    epochs: Annotated[int | None, option(BATCH, "Passes over the table; default: chosen by the model.")] = None,
    time_budget: Annotated[
        str | None, option(BATCH, "Stop training after this time, such as 60s, 5m or 1h.", metavar="TIME")
    ] = None,
    checkpoint: Annotated[
        Path | None, option(OUT, "Directory of the state; default: checkpoint.", metavar="DIR")
    ] = None,
    checkpoint_every: Annotated[
        int | None, option(OUT, "Rows between checkpoints; default: 10000.", metavar="ROWS")
    ] = None,
    fresh: Annotated[
        bool | None,
        option(OUT, "Set the old checkpoint aside and start again; default: no.", names="--fresh/--no-fresh"),
    ] = None,
    predictions: Annotated[
        Path | None, option(OUT, "Write every scored forecast with its truth.", metavar="FILE.parquet")
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
    """Train a model on a table, online or in batch.

    Online, the model predicts each row before it learns from it.
    The same command, run again, continues from its checkpoint.

    \b
    Examples:
      streamgp train --online --table demand --target demand_gw \\
          --horizon 48 --season 336
      streamgp train --online --table demand --target demand_gw \\
          --horizon 48 --season 336 --known workday --level 80,95 \\
          --predictions scored.parquet
      streamgp train --table kin40k --target y --inputs 'x*' \\
          --test-column split0 --time-budget 60s
    """
    from streamgp_cli._lean import leave_pandas_out
    from streamgp_cli._output import only_our_output, print_json, print_pairs
    from streamgp_cli._progress import Reporter
    from streamgp_cli._summary import print_summary
    from streamgp_pipelines.adapters.mlflow.store import tracked
    from streamgp_pipelines.adapters.mlflow.tracker import tracker_of
    from streamgp_pipelines.adapters.run_plots import draw_run
    from streamgp_pipelines.config import TrainConfig
    from streamgp_pipelines.titles import title
    from streamgp_pipelines.training.dry_run import plan
    from streamgp_pipelines.training.train import train as run

    settings = TrainConfig.read(flags(context, "dry_run"), config)
    if dry_run or not tracked(settings.tracking_uri):  # MLflow needs pandas
        leave_pandas_out()
    if dry_run:
        planned = plan(settings)
        print_json(planned) if json else print_pairs(planned, "would train (nothing was written):")
        return
    with only_our_output(), Reporter(quiet=json) as progress:
        name = title(settings.model, settings.target or ("y",), settings.horizon)
        tracker = tracker_of(settings.tracking_uri, settings.experiment, name)
        found = run(settings, tracker, progress, draw_run if tracked(settings.tracking_uri) else None)
    if json:
        print_json(found)
    else:
        print_summary(found)
