"""`streamgp forecast`: what comes next, with bands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamgp_cli._options import AsJson, ConfigFile, Debug, flags, option

if TYPE_CHECKING:
    from streamgp_pipelines.forecasting.forecast import Forecast

WHAT, FREE, OUT = "Forecast", "Simulation", "Output"
_ROWS = 48


def forecast(
    context: typer.Context,
    checkpoint: Annotated[Path | None, option(WHAT, "Checkpoint of a training run.", metavar="DIR")] = None,
    table: Annotated[
        str | None,
        option(WHAT, "Start at the last row of this table; default: at the last row of the checkpoint.", metavar="DIR"),
    ] = None,
    horizon: Annotated[
        int | None, option(WHAT, "Steps ahead; default, and largest without a simulation: the horizon of the training.")
    ] = None,
    level: Annotated[
        list[str] | None,
        option(WHAT, "Levels of the bands in percent, 80,95 or repeated; default: 80,90,95.", metavar="PERCENT"),
    ] = None,
    future: Annotated[
        Path | None,
        option(
            WHAT,
            "Future values of the known inputs (in a simulation: of all inputs), one row for each step ahead, matched "
            "by time: .csv, .parquet or .jsonl; times as in the source, or ISO 8601.",
            metavar="FILE",
        ),
    ] = None,
    device: Annotated[str | None, option(WHAT, "Device to compute on; default: auto.", metavar="auto|cpu|cuda")] = None,
    paths: Annotated[
        int | None,
        option(
            FREE,
            "Monte Carlo rollout of a one-step model along this many sample paths, to any horizon. Bands are quantiles "
            "of the paths and not calibrated; -std-latent is empty.",
            metavar="COUNT",
        ),
    ] = None,
    plug_in: Annotated[
        bool | None,
        option(
            FREE,
            "Feed back the means along one path instead; bands are those of one step, and too narrow; default: no.",
            names="--plug-in/--no-plug-in",
        ),
    ] = None,
    seed: Annotated[int | None, option(FREE, "Random seed; default: 0.")] = None,
    samples: Annotated[
        Path | None, option(FREE, "Write every sample path: .parquet, .csv or .json.", metavar="FILE.parquet")
    ] = None,
    output: Annotated[Path | None, option(OUT, "Write the forecast: .parquet, .csv or .json.", metavar="FILE")] = None,
    plot: Annotated[Path | None, option(OUT, "Plot history, forecast and bands.", metavar="FILE.png")] = None,
    strict: Annotated[
        bool | None,
        option(
            WHAT,
            "Fail if the newest checkpoint is damaged, instead of using the one before; default: no.",
            names="--strict/--no-strict",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        option(
            WHAT,
            "Refuse a run that is estimated to need more memory, such as 4GB; default: half of what is available.",
            metavar="SIZE",
        ),
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Forecast the next steps, with calibrated bands.

    The forecast starts at the last row of the table, or of the checkpoint. All rows of the
    checkpoint are learned; later rows of the table only move the window. With --paths or
    --plug-in, a model trained with --horizon 1 is rolled out on its own output.

    \b
    Examples:
      streamgp forecast --checkpoint checkpoint --plot forecast.png
      streamgp forecast --checkpoint checkpoint --table demand \\
          --horizon 24 --level 80,95 --output forecast.parquet
      streamgp forecast --checkpoint checkpoint --table demand \\
          --future weather.csv --json
      streamgp forecast --checkpoint one-step --horizon 200 --paths 200
    """
    from streamgp_cli._lean import leave_pandas_out

    leave_pandas_out()
    from streamgp_cli._output import only_our_output, print_json, warn
    from streamgp_pipelines.config import ForecastConfig
    from streamgp_pipelines.forecasting.forecast import forecast as run

    settings = ForecastConfig.read(flags(context), config)
    if settings.plot is not None:
        from streamgp_pipelines.adapters.plots import SUFFIXES
        from streamgp_pipelines.files import check_writable

        check_writable(settings.plot, "--plot", SUFFIXES, make=True)
    with only_our_output():
        result = run(settings)
    if not json:
        warn(result.warnings)
    with only_our_output():
        if settings.plot is not None:
            from streamgp_pipelines.adapters.run_plots import draw_forecast

            draw_forecast(result, settings.plot)
    written = {"output": settings.output, "samples": settings.samples, "plot": settings.plot}
    if json:
        told = {"model": result.model, "levels": result.levels, **written, "warnings": result.warnings}
        print_json({**told, "forecast": result.frame.to_dicts()})
        return
    _print(result)
    for name, path in written.items():
        if path is not None:
            print(f"{name}: {path}")


def _print(result: Forecast) -> None:
    """The mean and the calibrated bands, a row a step; the file and --json have every column."""
    import polars as pl

    from streamgp_cli._output import print_table

    model, frame = result.model, result.frame
    keys = [name for name in ("unique_id", "target") if name in frame.columns]
    names = [model, *(f"{model}-{side}-{level:g}" for level in result.levels for side in ("lo", "hi"))]
    ds = (
        pl.col("ds").dt.strftime("%Y-%m-%d %H:%M:%S")
        if frame.schema["ds"].is_temporal()
        else pl.col("ds").cast(pl.String)
    )
    rows = frame.select(*keys, ds, *names).head(_ROWS).rows()
    middle = "probability of 1" if result.binary else "mean"
    print_table([*keys, "ds", middle, *(name.removeprefix(f"{model}-") for name in names[1:])], rows)
    if frame.height > _ROWS:
        print(f"... and {frame.height - _ROWS:,} more rows: see them with --output or --json")
