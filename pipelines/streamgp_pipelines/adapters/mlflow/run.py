"""Which MLflow run a checkpoint directory belongs to, on disk before the first row is read."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import streamgp
from streamgp.errors import CheckpointError
from streamgp.redaction import redacted
from streamgp_pipelines.adapters.mlflow import view as ui_view
from streamgp_pipelines.adapters.mlflow.store import sqlite_file

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_log = logging.getLogger("streamgp.tracking")
FILE = "run.json"
KEY_TAG = "streamgp.key"


@dataclass(frozen=True)
class RunIdentity:
    """What `run.json` holds.

    Attributes:
        key: a tag of the run, chosen before the run exists: a kill between creating the run and noting its id
            leaves a run that is found again by this tag.
        uri: the tracking store, without user and password.
        experiment: the experiment's name.
        started_ms: start time in ms since 1970. The time stamp of a metric is this plus its step, so that a replay
            after a kill logs identical points.
        run_id: MLflow's id, or "" while there is none.
        state: digest of the state that was logged as the model, or "".
        name, version: of that model in the registry.
        drawn: the state of the run whose artifacts were logged, or "".
        worked_ms: how long the processes that have tracked this run were at work, up to the last one that ended.
    """

    key: str
    uri: str
    experiment: str
    started_ms: int
    run_id: str = ""
    state: str = ""
    name: str = ""
    version: int = 0
    drawn: str = ""
    worked_ms: int = 0


def read(directory: Path) -> RunIdentity | None:
    """The identity stored in a checkpoint directory, or None where there is none.

    Raises:
        CheckpointError: `run.json` is damaged.
    """
    file = directory / FILE
    if not file.exists():
        return None
    try:
        return RunIdentity(**json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        hint = "delete the file to track the rest in a new run"
        raise CheckpointError(f"{file} is damaged", hint=hint) from None


def write(directory: Path, identity: RunIdentity) -> None:
    """Store the identity: whole or not at all, whenever the process is killed."""
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{FILE}.tmp"
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(asdict(identity), stream)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(directory / FILE)


def attach(client: MlflowClient, directory: Path, uri: str, experiment: str, name: str) -> tuple[RunIdentity, Run]:
    """The run of this checkpoint directory: continued where there is one, else begun.

    Another store or another experiment than the stored one begins a new run: tracking may change between restarts. So
    does a run that is gone, with a warning.
    """
    stored, shown = read(directory), redacted(uri)
    if stored is None or (redacted(stored.uri), stored.experiment) != (shown, experiment):
        stored = RunIdentity(uuid.uuid4().hex, shown, experiment, int(time.time() * 1000))
        write(directory, stored)
    experiment_id = _experiment(client, uri, experiment)
    ui_view.prepare(client, experiment_id, stored.started_ms)
    run = _find(client, stored, experiment_id)
    if run is None:
        if stored.run_id:
            gone = f"the MLflow run {stored.run_id} of {directory} is gone from the tracking store"
            _log.warning(f"{gone}: what comes is tracked in a new one")
        tags = {KEY_TAG: stored.key, "streamgp.version": streamgp.__version__}
        tags |= {"mlflow.source.name": "streamgp", "mlflow.source.type": "LOCAL"}
        run = client.create_run(experiment_id, start_time=stored.started_ms, tags=tags, run_name=name or None)
    elif run.info.status != "RUNNING":
        client.update_run(run.info.run_id, status="RUNNING")
    identity = replace(stored, uri=shown, run_id=run.info.run_id)
    write(directory, identity)
    return identity, run


def _find(client: MlflowClient, identity: RunIdentity, experiment_id: str) -> Run | None:
    """The run with this key; a run that was deleted from the store counts as none."""
    found = client.search_runs([experiment_id], f"tags.`{KEY_TAG}` = '{identity.key}'", max_results=1)
    return found[0] if found else None


def _experiment(client: MlflowClient, uri: str, name: str) -> str:
    """The experiment's id. Beside a SQLite file, artifacts are kept in `mlartifacts` next to it."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is not None:
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)
    file = sqlite_file(uri)
    folder = None if file is None else (file.parent / "mlartifacts" / uuid.uuid4().hex[:12]).as_uri()
    try:
        return str(client.create_experiment(name, artifact_location=folder))
    except MlflowException:  # another process was first
        found = client.get_experiment_by_name(name)
        if found is None:
            raise
        return str(found.experiment_id)
