"""A checkpoint as an MLflow model: code, artifact, signature, requirements and an input example."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streamgp.base import ModelCard
from streamgp.windows import calendar
from streamgp_pipelines.adapters.mlflow import registry
from streamgp_pipelines.forecasting.forecast import Forecaster, load
from streamgp_pipelines.titles import logged_name, task_name, title

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.models import ModelSignature

REQUIREMENTS = ("streamgp", "torch", "numpy", "pandas", "polars", "pyarrow", "safetensors", "pydantic")
_log = logging.getLogger("streamgp.tracking")


def log_model(client: MlflowClient, uri: str, run_id: str, checkpoint: Path, card: ModelCard) -> ModelVersion:
    """Log the checkpoint with the run and make it the newest version of its task's name.

    The champion of the name moves if this version is better, and old versions are deleted with their files.

    Args:
        client: of the store, which is also the registry.
        uri: of the store.
        run_id: of the run.
        checkpoint: one checkpoint.
        card: what it is for, and how it scored.

    Returns:
        the new version.
    """
    from mlflow.exceptions import MlflowException

    name = task_name(card.table, card.targets, card.horizon)
    about = registry.tags(card)
    with tracking_at(uri):
        logged = _logged(client, run_id, checkpoint, card, about)
        try:
            client.create_registered_model(name, description=_DESCRIPTION)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        made = client.create_model_version(
            name, f"models:/{logged.model_id}", run_id, tags=about, model_id=logged.model_id
        )
        holder, verdict = registry.crown(client, made, card)
        if verdict.unlike:
            _log.warning(
                "%s@champion stays at version %d: %s. To move it by hand: "
                'MlflowClient().set_registered_model_alias("%s", "champion", "%s")',
                *(name, holder, verdict.reason, name, made.version),
            )
        registry.prune(client, made)
    return made


def _logged(client: MlflowClient, run_id: str, checkpoint: Path, card: ModelCard, about: dict[str, str]) -> LoggedModel:
    """What mlflow.pyfunc.log_model does, without what takes it seconds and shows nobody anything: it reads the whole
    history of every metric for the newest values, and loads the model once more to forecast its example."""
    import mlflow
    from mlflow.entities import LoggedModelOutput, Metric
    from mlflow.models import Model

    run, forecaster = client.get_run(run_id), load(checkpoint)
    logged = client.create_logged_model(
        run.info.experiment_id,
        logged_name(title(card.model, card.targets, card.horizon)),
        run_id,
        tags=about | {key: value for key, value in run.data.tags.items() if key in _SOURCE},
        params=run.data.params,
    )
    status: Literal["READY", "FAILED"] = "FAILED"
    try:
        client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=card.rows)])
        newest = [one for one in run.to_proto().data.metrics if one.step >= card.rows]
        client.log_batch(
            run_id,
            metrics=[Metric(one.key, one.value, one.timestamp, one.step, model_id=logged.model_id) for one in newest],
        )
        with TemporaryDirectory() as folder, _no_file_lists():
            mlflow.pyfunc.save_model(
                f"{folder}/model",
                mlflow_model=Model(
                    artifact_path=logged.artifact_location,
                    run_id=run_id,
                    model_uuid=logged.model_id,
                    model_id=logged.model_id,
                ),
                python_model=str(Path(__file__).with_name("pyfunc.py")),
                artifacts={"checkpoint": str(checkpoint)},
                signature=signature(forecaster),
                input_example=example(forecaster),
                pip_requirements=[f"{package}=={version(package)}" for package in REQUIREMENTS],
            )
            client.log_model_artifacts(logged.model_id, f"{folder}/model")
        status = "READY"
    finally:
        client.finalize_logged_model(logged.model_id, status)
    return logged


_SOURCE = ("mlflow.source.name", "mlflow.source.type", "mlflow.user")


@contextmanager
def _no_file_lists() -> Iterator[None]:
    """Spare MLflow the file lists of all installed packages, a second and more: it wants to know which module belongs
    to a package that is required and not installed, and ours are pinned to what is installed.

    MLflow has no public switch. A version of it that keeps the map elsewhere reads the lists.
    """
    from mlflow.utils import requirements_utils

    where: Any = requirements_utils
    unread = getattr(where, "_MODULES_TO_PACKAGES", ()) is None
    if unread:
        where._MODULES_TO_PACKAGES = {}
    try:
        yield
    finally:
        if unread:
            where._MODULES_TO_PACKAGES = None


_DESCRIPTION = (
    "Forecasts of a target of a table, its horizon ahead. `@champion` is the version with the best score (its tags "
    "`metric`, `score` and `scored`); the newest version is `/latest`."
)


@contextmanager
def tracking_at(uri: str) -> Iterator[None]:
    """Point MLflow's global tracking URI, which logging a model needs, to a store for a while."""
    import mlflow

    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None  # type: ignore[no-untyped-call]
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]  # None unsets it


def signature(forecaster: Forecaster) -> ModelSignature:
    """What the model takes and gives, by column. Every input column may be left out: so may all of them."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    spec, shape = forecaster.spec, forecaster.learner.windows.shape
    moments = forecaster.moments
    time = "datetime" if not moments.numbers else "long" if moments.whole or not moments.clock else "double"
    takes: dict[str, str] = {} if spec.time is None else {spec.time: time}
    takes |= {} if spec.series is None else {spec.series: "string"}
    takes |= dict.fromkeys(spec.columns, "double")
    gives: dict[str, str] = {"unique_id": "string", "ds": time, "cutoff": time}
    gives |= {"target": "string"} if shape.outputs > 1 else {}
    gives |= dict.fromkeys(forecaster.naming().columns(), "double")
    calibration = forecaster.calibration
    asked = [ParamSpec("horizon", "long", shape.horizon)]
    for name, values in (("levels", calibration.levels), ("quantiles", calibration.quantiles)):
        if not calibration.none:
            trained: Any = list(values)
            asked.append(ParamSpec(name, "double", trained, shape=(-1,)))
    return ModelSignature(
        inputs=Schema([ColSpec(kind, name, required=False) for name, kind in takes.items()]),
        outputs=Schema([ColSpec(kind, name) for name, kind in gives.items()]),
        params=ParamSchema(asked),
    )


def example(forecaster: Forecaster) -> pd.DataFrame | None:
    """Rows that the model can be asked with, after the newest row of the first series; None before any row.

    With known inputs, or without lags: the rows that are to be forecast, without a target; their inputs are those of
    the newest rows. Else one more row of the stream, equal to the newest.
    """
    import pandas as pd

    forecaster.observe()
    spec, windows = forecaster.spec, forecaster.learner.windows
    state = windows.state()[0]
    if not windows.names or not len(state["step"]):
        return None
    steps, stamps, values = (state[name][0].numpy() for name in ("step", "ds", "values"))
    order = np.argsort(steps)
    asked = bool(spec.known) or not spec.lags
    count = spec.horizon if asked else 1
    last = order[steps[order] >= 0][-count:]
    if len(last) < count:
        return None
    columns: dict[str, Any] = {}
    if spec.time is not None:
        newest = stamps[last[-1:]]
        every = spec.every_ns or int(newest[0] - stamps[order[-2]])
        when = calendar.ahead(newest, np.arange(1, count + 1), every, spec.zone)[0]
        columns[spec.time] = (
            forecaster.moments.write(when).to_numpy() if forecaster.moments.numbers else pd.to_datetime(when)
        )
    if spec.series is not None:
        columns[spec.series] = [windows.names[0]] * count
    columns |= {name: values[last, channel] for channel, name in enumerate(spec.columns)}
    if asked:
        columns |= {name: np.full(count, np.nan) for name in spec.columns if name not in _given(forecaster)}
    return pd.DataFrame(columns)


def _given(forecaster: Forecaster) -> tuple[str, ...]:
    """Columns whose values are known at the rows that are forecast."""
    spec = forecaster.spec
    return spec.known if spec.lags else spec.columns[len(spec.targets) :]
