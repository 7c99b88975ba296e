"""A checkpoint as an MLflow model: code, artifact, signature, requirements, and a name in the registry."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgp_pipelines.forecast import Forecaster, load

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.models import ModelSignature

REQUIREMENTS = ("streamgp", "torch", "numpy", "pandas", "polars", "pyarrow", "safetensors", "pydantic")


def log_model(client: MlflowClient, uri: str, run_id: str, checkpoint: Path, name: str, alias: str) -> None:
    """Log the checkpoint with the run, register it under a name, and give the new version the alias.

    Args:
        client: of the store, which is also the registry.
        uri: of the store.
        run_id: of the run.
        checkpoint: one checkpoint.
        name: in the registry; signs that MLflow does not allow there become `-`.
        alias: of the newest version, as in `models:/NAME@ALIAS`.
    """
    import mlflow

    registered = re.sub(r"[/:\s]", "-", name)
    with _tracking_at(uri):
        with mlflow.start_run(run_id=run_id, nested=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the missing input example: the signature is written out instead
            info = mlflow.pyfunc.log_model(
                name="model",
                python_model=str(Path(__file__).with_name("_pyfunc.py")),
                artifacts={"checkpoint": str(checkpoint)},
                signature=signature(load(checkpoint)),
                pip_requirements=[f"{package}=={version(package)}" for package in REQUIREMENTS],
            )
        with suppress(mlflow.MlflowException):  # it is there already; anything else is raised by the next line
            client.create_registered_model(registered)
        made = client.create_model_version(registered, info.model_uri, run_id, model_id=info.model_id)
    client.set_registered_model_alias(registered, alias, made.version)


@contextmanager
def _tracking_at(uri: str) -> Iterator[None]:
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
    levels: Any = list(forecaster.trained)
    asked = [ParamSpec("horizon", "long", shape.horizon)]
    if levels:
        asked.append(ParamSpec("levels", "double", levels, shape=(-1,)))
    return ModelSignature(
        inputs=Schema([ColSpec(kind, name, required=False) for name, kind in takes.items()]),
        outputs=Schema([ColSpec(kind, name) for name, kind in gives.items()]),
        params=ParamSchema(asked),
    )
