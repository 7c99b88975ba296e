"""`streamgp forecast`: what comes next, with bands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgp_cli._options import AsJson, ConfigFile, Debug, flags, option

WHAT, OUT = "Forecast", "Output"


def forecast(
    context: typer.Context,
    checkpoint: Annotated[Path | None, option(WHAT, "Checkpoint of a training run.", metavar="DIR")] = None,
    table: Annotated[
        Path | None,
        option(WHAT, "Table whose last row to start at; default: the checkpoint's own last row.", metavar="DIR"),
    ] = None,
    horizon: Annotated[int | None, option(WHAT, "Steps ahead; default and largest: the trained horizon.")] = None,
    level: Annotated[
        list[str] | None, option(WHAT, "Bands in percent, 80,95 or repeated; default: 80,90,95.", metavar="PERCENT")
    ] = None,
    future: Annotated[
        Path | None,
        option(WHAT, "Future values of the known inputs: a table of them, CSV or Parquet.", metavar="FILE"),
    ] = None,
    device: Annotated[str | None, option(WHAT, "Where to compute; default: auto.", metavar="auto|cpu|cuda")] = None,
    output: Annotated[Path | None, option(OUT, "Write the forecast: .parquet, .csv or .json.", metavar="FILE")] = None,
    plot: Annotated[Path | None, option(OUT, "Draw history, forecast and bands.", metavar="FILE.png")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Forecast the next steps, with calibrated bands.

    It starts at the last row of the table, or at the checkpoint's own last row.

    \b
    Examples:
      streamgp forecast --checkpoint checkpoint --plot forecast.png
      streamgp forecast --checkpoint checkpoint --table demand \\
          --horizon 24 --level 80,95 --output forecast.parquet
      streamgp forecast --checkpoint checkpoint --table demand \\
          --future weather.csv --json
    """
    from streamgp_cli._output import only_our_output, print_json, print_table
    from streamgp_pipelines.config import ForecastConfig
    from streamgp_pipelines.forecast import forecast as run

    settings = ForecastConfig.read(flags(context), config)
    with only_our_output():
        result = run(settings)
        if settings.plot is not None:
            from streamgp_pipelines.adapters.plots import plot_forecast

            plot_forecast(result.frame, result.history, settings.plot, model=result.model, levels=result.levels)
    written = {"output": settings.output, "plot": settings.plot}
    if json:
        print_json({"model": result.model, "levels": result.levels, **written, "forecast": result.frame.to_dicts()})
        return
    print_table(result.frame.columns, result.frame.rows())
    for name, path in written.items():
        if path is not None:
            print(f"{name}: {path}")
