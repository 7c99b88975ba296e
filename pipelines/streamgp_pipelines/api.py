"""The Python API: train and compare from a program, tracked or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa

from streamgp.base import Json, ModelCard, Progress, Tracker
from streamgp.errors import UsageError
from streamgp_pipelines import tasks
from streamgp_pipelines.comparing.compare import Comparison
from streamgp_pipelines.comparing.compare import compare as compare_models
from streamgp_pipelines.config import CompareConfig, TrainConfig
from streamgp_pipelines.frame_stream import check_targets
from streamgp_pipelines.learning.checkpointing import set_aside
from streamgp_pipelines.memory import Frame, as_arrow, stored
from streamgp_pipelines.options import CompareOptions, TrainOptions
from streamgp_pipelines.showing import Overview
from streamgp_pipelines.training.train import Cluster, Sharing, train
from streamgp_pipelines.wording import checked, in_python, warn


class NoTracker:
    """A base.Tracker that keeps nothing; its run has no id."""

    def __init__(self, directory: Path, title: str = "") -> None:
        self.run_id = ""

    def params(self, values: Mapping[str, Json]) -> None:
        """Nothing is kept."""

    def tags(self, values: Mapping[str, str]) -> None:
        """Nothing is kept."""

    def dataset(self, name: str, uri: str, version: int, schema: pa.Schema) -> None:
        """Nothing is kept."""

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Nothing is kept."""

    def flush(self) -> None:
        """Nothing waits."""

    def artifact(self, path: Path, folder: str = "") -> None:
        """Nothing is kept."""

    def once(self, state: str, work: Callable[[], None]) -> None:
        """What was done is not known: do it."""
        work()

    def model(self, checkpoint: Path, card: Callable[[], ModelCard]) -> dict[str, Json]:
        """Nothing is kept; the checkpoint stays where it is."""
        return {}

    def finish(self, status: str) -> None:
        """Nothing is open."""


@checked
def fit_stream(
    table: str | Path,
    target: str | tuple[str, ...] = (),
    *,
    tracker: Callable[[Path, str], Tracker] = NoTracker,
    progress: Callable[[Progress], None] = lambda _: None,
    cluster: Cluster | None = None,
    sharing: Sharing | None = None,
    **options: Unpack[TrainOptions],
) -> dict[str, Json]:
    """Train online on a table, as `streamgp train --online` does; called again, it continues.

    Args:
        table: directory that ingest made.
        target: columns to forecast.
        tracker: makes the run's tracker; none by default. `adapters.mlflow.mlflow_tracker(uri, experiment)` makes
            MLflow's.
        progress: called with how far the run is.
        cluster: of `train`; `adapters.ray.workers.ray_workers` for engine="ray" and fleet=True.
        sharing: of `train`; `adapters.ray.sums.ray_sums` for engine="ray" and online=False.
        options: as the flags of `streamgp train`, with underscores: lags, horizon, season, known, model, set, ...

    Returns:
        the summary of `train`.

    Raises:
        StreamgpError: as `train`.
        UsageError: rows in the place of the directory.
    """
    if not isinstance(table, str | Path):
        hint = "Forecaster(target=...).fit(frame) learns rows in memory; `streamgp ingest` makes a table"
        raise UsageError(f"fit_stream takes the directory of a table, not a {type(table).__name__}", hint=hint)
    config = TrainConfig.read({"table": table, "target": target or None, "online": True, **options})
    summary = train(config, tracker, progress, cluster=cluster, sharing=sharing)
    found: Any = summary.get("warnings", [])
    texts = [in_python(text, "fit_stream") for text in found]
    warn(texts)
    return Overview(summary | {"warnings": list(texts)})


@checked
def compare(
    table: str | Path | Frame,
    target: str | tuple[str, ...] = (),
    models: str | tuple[str, ...] = (),
    *,
    tracker: Callable[[Path, str], Tracker] = NoTracker,
    progress: Callable[[Progress], None] = lambda _: None,
    time: str | None = None,
    series: str | None = None,
    every: str | None = None,
    timezone: str | None = None,
    tolerance: str | None = None,
    time_format: str | None = None,
    cluster: tasks.Cluster | None = None,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Train several models on a table and score them on the same forecasts, as `streamgp compare` does.

    Args:
        table: directory that ingest made, or a data frame, of which a table is made in `comparison`. What that holds of
            another frame is set aside, as `comparison` with .1, .2, ... after its name.
        target: columns to forecast.
        models: names of models, or NAME=MODEL.
        tracker: of `fit_stream`.
        progress: of `fit_stream`.
        time: of a data frame, as that of `Forecaster`.
        series: likewise.
        every: likewise.
        timezone: likewise.
        tolerance: likewise.
        time_format: likewise.
        cluster: of `compare`; `adapters.ray.tasks.ray_tasks` for engine="ray".
        options: as the flags of `streamgp compare`, with underscores: comparison, horizon, season, against, ...

    Raises:
        StreamgpError: as `compare`.
        DataError: a cell of the data frame cannot be read.

    Example:
        >>> import polars as pl
        >>> from tempfile import mkdtemp
        >>> rows = pl.DataFrame({"step": range(400), "y": [row % 7 for row in range(400)]})
        >>> made = compare(rows, "y", ("seasonal_naive", "persistence"), time="step", season=7, lags=7,
        ...                comparison=mkdtemp())
        >>> made.scores.filter(by="all").select("model", "mae").row(0)
        ('seasonal_naive', 0.0)
    """
    given = {"target": target or None, "models": models or None, **options}
    columns = {"time": time, "series": series, "every": every}
    columns |= {"timezone": timezone, "tolerance": tolerance, "time_format": time_format}
    if isinstance(table, str | Path):
        if named := [name for name, value in columns.items() if value is not None]:
            raise UsageError(f"{named[0]}= is of a data frame: the table has its own", hint="leave it out")
        return _told(compare_models(CompareConfig.read({"table": table, **given}), tracker, progress, cluster=cluster))
    asked = CompareConfig.read({"table": "memory", **given})
    directory = asked.comparison
    rows, kind = as_arrow(table)
    check_targets(asked.target, rows, kind, columns)
    hints = stored(rows, directory / "table", columns, partial(set_aside, directory))
    config = CompareConfig.read({"table": directory / "table", **given})
    made = compare_models(config, tracker, progress, cluster=cluster)
    return _told(replace(made, warnings={"the data frame": hints, **made.warnings}) if hints else made)


def _told(made: Comparison) -> Comparison:
    """With warnings in the words of Python, issued."""
    found = {name: [in_python(text, "compare") for text in texts] for name, texts in made.warnings.items()}
    warn(dict.fromkeys(text for texts in found.values() for text in texts))
    return replace(made, warnings=found)
