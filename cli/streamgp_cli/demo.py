"""`streamgp demo`: ingest, train and forecast on real data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamgp_cli.options import AsJson, Given

if TYPE_CHECKING:
    import polars as pl

    from streamgp_pipelines.config import DemoConfig
    from streamgp_pipelines.demo import Demo
    from streamgp_pipelines.forecasting.forecast import Forecast


def demo(given: Given[DemoConfig], json: AsJson = False) -> None:
    """Ingest, train and forecast on bundled real data.

    A year of half-hourly electricity demand. At every half hour the next day
    is forecast, before it is learned; a seasonal naive model is the baseline.
    At the end the last day, which was held out, is forecast.

    \b
    Examples:
      streamgp demo
      streamgp demo --directory my-demo
    """
    from streamgp.redaction import redacted
    from streamgp_cli._output import only_our_output, print_json
    from streamgp_cli._progress import Reporter
    from streamgp_pipelines.adapters.mlflow.tracker import tracker_of
    from streamgp_pipelines.adapters.run_plots import draw_forecast, draw_run
    from streamgp_pipelines.demo import demo as run

    def picture(found: Forecast, happened: pl.DataFrame, path: Path) -> None:
        draw_forecast(found, path, happened)

    settings = given.read()
    with only_our_output(), Reporter(quiet=json) as progress:
        made = run(settings.directory, tracker_of, draw_run, picture, progress, settings.tracking_uri)
    command = f"streamgp ui --tracking-uri {redacted(made.tracking_uri)}" if made.tracking_uri else None
    if json:
        paths = {name: str(path) for name, path in made.files.items()}
        print_json({"scores": made.scores, "forecast_mae": made.forecast_mae, "files": paths, "ui": command})
        return
    _print(made)
    if command is not None:
        print(f"see the runs with: {command}")


def _print(made: Demo) -> None:
    """Print the scores of both runs, and the path of the forecast."""
    from streamgp_cli._output import print_table
    from streamgp_data.numbers import number

    level = f"{made.forecast.levels[-1]:g}"
    columns = ["model", "rmse", "mae", "mase", "calibrated crps", f"coverage {level} %", f"width {level} %", "seconds"]
    rows = []
    for model, found in made.scores.items():
        coverage, width, seconds = (found[name] for name in ("coverage", "width", "seconds"))
        assert isinstance(coverage, dict) and isinstance(width, dict) and isinstance(seconds, dict)
        scores = [found[name] for name in ("rmse", "mae", "mase", "calibrated_crps")]
        rows.append([model, *scores, coverage[level], width[level], seconds["total"]])
    found = next(reversed(made.scores.values()))
    title = (
        f"{found['scored']:,} forecasts, each made before its truth was seen ({made.forecast.unit or 'target units'})"
    )
    print_table(columns, rows, title)
    print(f"forecast of the held-out day: {made.files['forecast']} (mean absolute error {number(made.forecast_mae)})")
    print(f"picture: {made.files['picture']}")
