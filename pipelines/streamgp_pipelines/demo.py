"""The whole road on bundled real data: ingest, train beside baselines, forecast the day that was held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from streamgp.base import Json, Progress, Tracker
from streamgp_data.ingestion.ingest import ingest
from streamgp_pipelines.config import ForecastConfig, IngestConfig, TrainConfig
from streamgp_pipelines.files import replaced
from streamgp_pipelines.forecasting.forecast import Forecast, forecast
from streamgp_pipelines.forecasting.past import recent
from streamgp_pipelines.stages import staged
from streamgp_pipelines.training.train import Draw, train

BASELINES = ("seasonal_naive", "linear")
TIME = "timestamp"
ZONE = "+10:00"

MakeTracker: TypeAlias = Callable[[str, str], Callable[[Path, str], Tracker]]
"""(tracking URI, experiment) -> what `train` needs."""

Picture: TypeAlias = Callable[[Forecast, pl.DataFrame, Path], object]
"""Draws a forecast beside what happened (unique_id, ds, y) into a file."""


@dataclass(frozen=True)
class Demo:
    """What the demo has made.

    Attributes:
        scores: summary of each run, by model.
        forecast: the forecast of the held-out day.
        forecast_mae: its mean absolute error against that day, in target units.
        files: name -> path of everything written.
        tracking_uri: of the store with the runs; "" where nothing was tracked.
    """

    scores: dict[str, dict[str, Json]]
    forecast: Forecast
    forecast_mae: float
    files: dict[str, Path]
    tracking_uri: str


def demo(
    directory: Path,
    tracker: MakeTracker,
    draw: Draw,
    picture: Picture,
    progress: Callable[[Progress], None],
    tracking_uri: str | None = None,
) -> Demo:
    """Run it all in a directory; run again there, everything that is done already is found done.

    The last day of the data is held out: it is forecast at the end, with its known inputs, and drawn beside what
    happened.

    Args:
        directory: where everything goes; made when missing.
        tracker: makes the trackers of the runs.
        draw: draws a run's plots.
        picture: draws the forecast.
        progress: called with how far it is.
        tracking_uri: of the tracking store; none tracks nothing; by default `mlflow.db` in the directory.

    Raises:
        StreamgpError: whatever ingest, train and forecast raise.
    """
    directory.mkdir(parents=True, exist_ok=True)
    room = files("streamgp_pipelines") / "recipes"
    with as_file(room / "demo.toml") as recipe, as_file(room / "elecdemand.csv") as data:
        settings: TrainConfig = TrainConfig.read({"table": directory / "demand"}, recipe)
        held = settings.horizon
        paths = {name: directory / file for name, file in _FILES.items()}
        whole = pl.read_csv(data)
        with replaced(paths["source"]) as temporary:
            whole.head(-held).write_csv(temporary)
        with replaced(paths["future"]) as temporary:
            whole.tail(held).select(TIME, *settings.known).write_csv(temporary)
        progress(Progress("ingest", 0, 1))
        source = {
            "source": (str(paths["source"]),),
            "table": str(paths["table"]),
            "time": TIME,
            "timezone": ZONE,
            "every": "30m",
        }
        ingest(IngestConfig.read(source))
        progress(Progress("ingest", 1, 1))

        uri = tracking_uri or f"sqlite:///{directory.absolute() / 'mlflow.db'}"
        is_tracked = uri != "none"
        scores = {}
        for model in dict.fromkeys((*BASELINES, settings.model)):
            options: dict[str, Any] = {"table": paths["table"], "model": model, "checkpoint": directory / model}
            config = TrainConfig.read(options | {"tracking_uri": uri}, recipe)
            run = tracker(uri, config.experiment)
            scores[model] = train(config, run, staged(progress, model), draw if is_tracked else None)

    asked = {"checkpoint": directory / settings.model, "table": paths["table"], "output": paths["forecast"]}
    found = forecast(ForecastConfig.read(asked | ({"future": paths["future"]} if settings.known else {})))
    happened = found.frame.select("unique_id", "ds").with_columns(y=whole.tail(held)[settings.target[0]])
    picture(replace(found, history=recent(found.history, found.frame.height)), happened, paths["picture"])
    error = (happened["y"] - found.frame[found.model]).abs().mean()
    return Demo(scores, found, float(error), paths, uri if is_tracked else "")  # type: ignore[arg-type]


_FILES = {
    "source": "elecdemand.csv",
    "future": "future.csv",
    "table": "demand",
    "forecast": "forecast.parquet",
    "picture": "forecast.png",
}
