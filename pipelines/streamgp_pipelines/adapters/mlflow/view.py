"""What MLflow's page of an experiment shows at first: the scores of the runs as columns of their list.

MLflow keeps a saved view of the list as a tag of the experiment, and a link opens it by its name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from streamgp.forecasting.metrics import Place, shown

if TYPE_CHECKING:
    from mlflow import MlflowClient

ID = "streamgp"
TAG = f"mlflow.sharedViewState.{ID}"
KIND = "mlflow.experimentKind"
PARAMS = ("model", "target", "horizon", "season", "lags")


def prepare(client: MlflowClient, experiment_id: str, now_ms: int) -> None:
    """Give an experiment its saved view, unless it has one; a user's changes to it stay."""
    tags = client.get_experiment(experiment_id).tags
    if TAG not in tags:
        client.set_experiment_tag(experiment_id, TAG, saved_view(now_ms))
    if KIND not in tags:
        client.set_experiment_tag(experiment_id, KIND, "custom_model_development")


def saved_view(now_ms: int) -> str:
    """The tag's value; columns of metrics that no run has are not shown.

    Example:
        >>> json.loads(saved_view(0))["name"]
        'Scores'
    """
    names = [*shown(Place.RUNS), *shown(Place.RUNS, binary=True), "coverage_95", "scored"]
    columns = [f"metrics.`overall/{name}`" for name in names] + [f"params.`{name}`" for name in PARAMS]
    state = {"selectedColumns": columns, "columnOrder": [], "columnWidths": {}}
    return json.dumps({"name": "Scores", "createdAt": now_ms, "state": json.dumps(state)})
