"""The Python API: train and compare from a program, tracked or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Unpack

import pyarrow as pa

from streamgp.base import Json, ModelCard, Progress, Tracker
from streamgp_pipelines.comparing.compare import Comparison
from streamgp_pipelines.comparing.compare import compare as compare_models
from streamgp_pipelines.config import CompareConfig, TrainConfig
from streamgp_pipelines.options import CompareOptions, TrainOptions
from streamgp_pipelines.training.train import train


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

    def model(self, checkpoint: Path, card: ModelCard) -> dict[str, Json]:
        """Nothing is kept; the checkpoint stays where it is."""
        return {}

    def finish(self, status: str) -> None:
        """Nothing is open."""


def fit_stream(
    table: str | Path,
    target: str | tuple[str, ...] = (),
    *,
    tracker: Callable[[Path, str], Tracker] = NoTracker,
    progress: Callable[[Progress], None] = lambda _: None,
    **options: Unpack[TrainOptions],
) -> dict[str, Json]:
    """Train online on a table, as `streamgp train --online` does; called again, it continues.

    Args:
        table: directory that ingest made.
        target: columns to forecast.
        tracker: makes the run's tracker; none by default. `adapters.mlflow.mlflow_tracker(uri, experiment)` makes
            MLflow's.
        progress: called with how far the run is.
        options: as the flags of `streamgp train`, with underscores: lags, horizon, season, known, model, set, ...

    Returns:
        the summary of `train`.

    Raises:
        StreamgpError: as `train`.
    """
    config = TrainConfig.read({"table": table, "target": target or None, "online": True, **options})
    return train(config, tracker, progress)


def compare(
    table: str | Path,
    target: str | tuple[str, ...] = (),
    models: str | tuple[str, ...] = (),
    *,
    tracker: Callable[[Path, str], Tracker] = NoTracker,
    progress: Callable[[Progress], None] = lambda _: None,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Train several models on a table and score them on the same forecasts, as `streamgp compare` does.

    Args:
        table: directory that ingest made.
        target: columns to forecast.
        models: names of models, or NAME=MODEL.
        tracker: of `fit_stream`.
        progress: of `fit_stream`.
        options: as the flags of `streamgp compare`, with underscores: directory, horizon, season, against, ...

    Raises:
        StreamgpError: as `compare`.
    """
    config = CompareConfig.read({"table": table, "target": target or None, "models": models or None, **options})
    return compare_models(config, tracker, progress)
