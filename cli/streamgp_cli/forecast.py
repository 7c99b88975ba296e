"""`streamgp forecast`: what comes next, with bands."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn

from streamgp_cli.options import AsJson, Given

if TYPE_CHECKING:
    import polars as pl

    from streamgp_pipelines.config import ForecastConfig
    from streamgp_pipelines.forecasting.forecast import Forecast

_ROWS = 48


def forecast(given: Given[ForecastConfig], json: AsJson = False) -> None:
    """Forecast the next steps, with calibrated bands.

    The forecast starts at the last row of the table, or of the checkpoint.
    All rows of the checkpoint are learned; later rows of the table only move
    the window. With --paths or --plug-in, a model trained with --horizon 1 is
    rolled out on its own output.

    \b
    Examples:
      streamgp forecast --checkpoint checkpoint --plot forecast.png
      streamgp forecast --checkpoint checkpoint --table demand \\
          --horizon 24 --level 80,95 --output forecast.parquet
      streamgp forecast --checkpoint checkpoint --table demand \\
          --future weather.csv --json
      streamgp forecast --checkpoint one-step --horizon 200 --paths 200
      streamgp forecast --checkpoint checkpoint --table demand \\
          --output next.csv --follow
      streamgp forecast --model-uri models:/demand-demand_gw-h48@champion
    """
    from streamgp_cli._lean import leave_pandas_out

    settings = given.read()
    if settings.model_uri is None:  # MLflow needs pandas
        leave_pandas_out()
    from streamgp_cli._output import only_our_output, print_json, warn
    from streamgp_pipelines.forecasting.forecast import forecast as run

    if settings.plot is not None:
        from streamgp_pipelines.adapters.run_plots import FORECASTS
        from streamgp_pipelines.files import check_writable

        check_writable(settings.plot, "--plot", FORECASTS, make=True)
    with only_our_output(), TemporaryDirectory() as folder:
        if settings.model_uri is not None:
            from streamgp_pipelines.adapters.mlflow.registry import fetch
            from streamgp_pipelines.adapters.mlflow.store import store_uri

            fetched = fetch(settings.model_uri, store_uri(settings.tracking_uri), Path(folder))
            settings = settings.model_copy(update={"checkpoint": fetched})
        if settings.follow:
            _follow(settings)
        result = run(settings)
    if not json:
        warn(result.warnings)
    with only_our_output():
        if settings.plot is not None:
            from streamgp_pipelines.adapters.run_plots import draw_forecast

            draw_forecast(result, settings.plot)
    written = {"output": settings.output, "samples": settings.samples, "plot": settings.plot}
    if json:
        about = {"model": result.model, "levels": result.levels, **written, "warnings": result.warnings}
        print_json({**about, "forecast": result.frame.to_dicts()})
        return
    _print(result)
    for name, path in written.items():
        if path is not None:
            print(f"{name}: {path}")


def _follow(settings: ForecastConfig) -> NoReturn:
    """Write forecasts until interrupted; what goes wrong on the way is said on standard error."""
    from streamgp_cli._log import say
    from streamgp_cli._output import warn
    from streamgp_pipelines.forecasting.follow import follow

    def show(result: Forecast) -> None:
        if settings.plot is not None:
            from streamgp_pipelines.adapters.run_plots import draw_forecast

            draw_forecast(result, settings.plot)
        warn(result.warnings)
        say("info", f"forecast from {result.frame['cutoff'].max()!s}")

    follow(settings, show, lambda error: warn([f"no new forecast: {error.message}"]), say=lambda news: warn([news]))
    raise AssertionError("it has no end")


def _print(result: Forecast) -> None:
    """The mean and the calibrated bands, a row a step, with dates for epochs; the file and --json have every column."""
    from streamgp_cli._output import print_table

    model, frame = result.model, result.frame
    keys = [name for name in ("unique_id", "target") if name in frame.columns]
    names = [model, *(f"{model}-{side}-{level:g}" for level in result.levels for side in ("lo", "hi"))]
    apart = _outside(frame, names) if result.point == "mean" else 0
    frame, left = frame.head(_ROWS), max(frame.height - _ROWS, 0)
    rows = frame.with_columns(ds=result.moments.shown(frame["ds"])).select(*keys, "ds", *names).rows()
    middle = "probability of 1" if result.binary else result.point
    print_table([*keys, "ds", middle, *(name.removeprefix(f"{model}-") for name in names[1:])], rows)
    if left:
        print(f"... and {left:,} more rows: see them with --output or --json")
    if apart:
        what = "1 mean is" if apart == 1 else f"{apart:,} means are"
        print(
            f"note: {what} outside of a band, as of a value that comes again and again, or of a skewed distribution; "
            "the medians of train --point median are inside"
        )


def _outside(frame: pl.DataFrame, names: list[str]) -> int:
    """How many forecasts, the first of these columns, lie outside of one of the bands, the others in pairs."""
    import polars as pl

    middle, *ends = map(pl.col, names)
    bands = [middle.is_between(low, high) for low, high in zip(ends[::2], ends[1::2], strict=True)]
    return int(frame.select((~pl.all_horizontal(bands)).sum()).item()) if bands else 0
