"""Runs in MLflow: parameters, the data, metrics over rows seen, artifacts, and the model that forecasts alone."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamgp.base import Json, ModelCard, Tracker
from streamgp.errors import UsageError
from streamgp.redaction import reason, redacted
from streamgp_pipelines.adapters.mlflow import run as run_file
from streamgp_pipelines.adapters.mlflow.metrics import SPILL, MetricBuffer
from streamgp_pipelines.adapters.mlflow.store import open_store, store_uri, tracked
from streamgp_pipelines.api import NoTracker

if TYPE_CHECKING:
    import pyarrow as pa
    from mlflow.entities import Metric
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

_PARAM_LENGTH = 6000
_PARAM_BATCH = 100
RETRY_SECONDS = (1.0, 2.0, 4.0)
_log = logging.getLogger("streamgp.tracking")


def tracker_of(uri: str | None, experiment: str) -> Callable[[Path, str], Tracker]:
    """What `--tracking-uri` asks for: MLflow's tracker, or with `none` one that keeps nothing."""
    return mlflow_tracker(uri, experiment) if tracked(uri) else NoTracker


def mlflow_tracker(uri: str | None, experiment: str, name: str = "") -> Callable[[Path, str], MlflowTracker]:
    """What `train` needs to track in MLflow: a function from its checkpoint directory and title to the run's tracker.

    Args:
        uri: tracking URI; None is MLFLOW_TRACKING_URI, else `mlflow.db` in the working directory.
        experiment: experiment in which the run is listed.
        name: name of the run; its title, such as "ensemble demand_gw h48", when it is empty.
    """
    store = store_uri(uri)  # of this process, also where the tracker is made by a worker
    return lambda directory, title: MlflowTracker(directory, store, experiment, name or title)


class MlflowTracker:
    """base.Tracker on MLflow. One run per checkpoint directory, continued after every restart.

    Before the first row a store that does not answer is an error; afterwards it is a warning: metrics are kept on disk,
    the rest is tried again, and the training continues.

    Args:
        directory: the checkpoint directory; `run.json` in it holds the run's identity.
        uri: tracking URI, also of the model registry.
        experiment: name of the experiment.
        name: name of the run, or "".

    Raises:
        ServiceError: the store does not answer.
        CheckpointError: `run.json` is damaged.
        UsageError: system metrics are asked for and psutil is missing.
    """

    def __init__(self, directory: Path, uri: str, experiment: str, name: str = "") -> None:
        self._directory, self._uri, self._experiment = directory, uri, experiment
        self.client = open_store(uri)
        self._identity, run = run_file.attach(self.client, directory, uri, experiment, name)
        newest = {metric.key: metric.step for metric in run.to_proto().data.metrics}
        self._known = dict(run.data.params)
        self._metrics = MetricBuffer(self._send, directory, self._identity.started_ms, newest)
        self._again: list[tuple[str, Callable[[], object]]] = []  # what failed and is still to be done
        self.began, self._worked_before = time.monotonic(), self._identity.worked_ms
        self._idle = False
        self._system = _system_metrics(self.run_id, uri)

    @property
    def run_id(self) -> str:
        """MLflow's id of the run."""
        return self._identity.run_id

    @property
    def uri(self) -> str:
        """The tracking store, as `streamgp ui --tracking-uri` takes it."""
        return self._uri

    def params(self, values: Mapping[str, Json]) -> None:
        """Log parameters, nested ones under dotted names.

        MLflow's parameters are final: a value that differs after a restart is kept as the tag `resumed.NAME`.
        """
        from mlflow.entities import Param

        flat = {key: value[:_PARAM_LENGTH] for key, value in _flatten(values).items()}
        new = [Param(key, value) for key, value in flat.items() if key not in self._known]
        for start in range(0, len(new), _PARAM_BATCH):
            batch = new[start : start + _PARAM_BATCH]
            self._do("parameters", partial(self.client.log_batch, self.run_id, params=batch))
        self.tags({f"resumed.{key}": value for key, value in flat.items() if self._known.get(key, value) != value})
        self._known |= {param.key: param.value for param in new}

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags."""
        from mlflow.entities import RunTag

        tags = [RunTag(key, str(value)[:_PARAM_LENGTH]) for key, value in values.items()]
        if tags:
            self._do("tags", lambda: self.client.log_batch(self.run_id, tags=tags))

    def dataset(self, name: str, uri: str, version: int, schema: pa.Schema) -> None:
        """Log the table that the run reads, with its version and its columns."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        columns = [{"type": str(field.type), "name": field.name, "required": not field.nullable} for field in schema]
        data = Dataset(
            name=name,
            digest=f"v{version}-{hashlib.sha256(uri.encode()).hexdigest()[:8]}",
            source_type="delta_table",
            source=json.dumps({"path": uri, "delta_table_version": version}),
            schema=json.dumps({"mlflow_colspec": columns}),
        )
        inputs = [DatasetInput(data, [InputTag("mlflow.data.context", "training")])]
        self._do("the dataset", lambda: self.client.log_inputs(self.run_id, inputs))
        self.tags({"table": uri, "table_version": str(version)})

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Take metrics at a step, which is rows seen; sent in batches."""
        self._metrics.add(values, step)

    def flush(self) -> None:
        """Send what waits. Called before every checkpoint: what a kill then loses will be logged by the replay."""
        self._retry()
        self._metrics.flush()
        self._note_work()

    def artifact(self, path: Path, folder: str = "") -> None:
        """Log a file, or a directory with all that is in it."""
        log = self.client.log_artifacts if path.is_dir() else self.client.log_artifact
        self._do(f"the artifact {path.name}", lambda: log(self.run_id, str(path), folder or None))

    def once(self, state: str, work: Callable[[], None]) -> None:
        """Do `work`, which logs artifacts, unless it was done at this state of the run, and all of them arrived."""
        about = f"{self.run_id} {state}"
        if self._identity.drawn == about:
            return
        work()
        self._retry()
        if not self._again:
            self.note(drawn=about)

    def model(self, checkpoint: Path, card: Callable[[], ModelCard]) -> dict[str, Json]:
        """Log the checkpoint as a pyfunc that forecasts alone, and register it; nothing is done for an unchanged state.

        Returns:
            name and version in the registry, and whether this version is the champion of the name; {} where the store
            did not answer.
        """
        from streamgp_pipelines.adapters.mlflow import model as logged
        from streamgp_pipelines.adapters.mlflow import registry

        about = card()

        def log() -> None:
            made = logged.log_model(self.client, self._uri, self.run_id, checkpoint, about)
            self.note(state=about.state, name=made.name, version=int(made.version))

        found: dict[str, Json] = {}

        def look() -> None:
            name, version = self._identity.name, self._identity.version
            best = registry.champion(self.client, name)
            found.update(name=name, version=version, champion=best == version)

        self._idle = self._identity.state == about.state
        if not self._idle:
            self._metrics.flush()  # the model takes the final scores with it
            self._do("the model", log)
        if self._identity.state == about.state:
            self._do("the champion", look)
        return found

    def finish(self, status: str) -> None:
        """Send everything and close the run as FINISHED, FAILED or KILLED.

        Its duration, as MLflow shows it, is the time that the processes which trained it were at work: not that between
        them, nor that of a start which found nothing to do.

        A store that does not answer is asked again for a few seconds, unless the run was interrupted; then a warning
        says what is missing, and the next start with the same checkpoint directory sends it.
        """
        if self._system is not None:
            self._system.finish()  # type: ignore[no-untyped-call]
        self._metrics.flush(now=True)
        if self._idle:  # a finished run that found nothing new keeps its duration
            self.note(worked_ms=self._worked_before)
        else:
            self._note_work()
        ended = self._identity.started_ms + self._identity.worked_ms
        self._do("the end of the run", lambda: self.client.set_terminated(self.run_id, status, ended))
        for pause in RETRY_SECONDS if status == "FINISHED" else ():
            if not self._again and not self._metrics.waiting:
                return
            time.sleep(pause)
            self._retry()
            self._metrics.flush(now=True)
        if not self._again and not self._metrics.waiting:
            return
        missing = [f"{self._metrics.waiting} metrics (kept in {SPILL})"] if self._metrics.waiting else []
        missing += [what for what, _ in self._again]
        _log.warning("the tracking store %s did not take: %s", redacted(self._uri), ", ".join(missing))

    def _note_work(self) -> None:
        self.note(worked_ms=self._worked_before + round(1000 * (time.monotonic() - self.began)))

    def note(self, **changes: str | int) -> None:
        self._identity = replace(self._identity, **changes)  # type: ignore[arg-type]  # by the fields' own types
        run_file.write(self._directory, self._identity)

    def _send(self, metrics: list[Metric]) -> None:
        self.client.log_batch(self.run_id, metrics=metrics)

    def _do(self, what: str, action: Callable[[], object]) -> None:
        """Do it now, or note it to be done at the next flush."""
        try:
            action()
        except Exception as error:  # whatever a store may raise: tracking must not stop the training
            why = reason(error, self._uri)
            _log.warning("the tracking store did not take %s, it will be tried again: %s", what, why)
            self._again.append((what, action))

    def _retry(self) -> None:
        again, self._again = self._again, []
        for index, (what, action) in enumerate(again):
            try:
                action()
            except FileNotFoundError as error:  # a file of a folder that is gone by now
                _log.warning("%s cannot be logged any more: %s", what, error)
            except Exception:  # said once already, by _do
                self._again = again[index:]
                return


def _system_metrics(run_id: str, uri: str) -> SystemMetricsMonitor | None:
    """MLflow's thread that logs CPU, memory, disk, network and GPU, if MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING is true."""
    from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING

    if not MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get():  # type: ignore[no-untyped-call]
        return None
    try:
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
    except ModuleNotFoundError as error:
        hint = "pip install 'streamgp[system]', or unset MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING"
        raise UsageError(f"system metrics need {error.name}", hint=hint) from None
    monitor = SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=uri)  # type: ignore[no-untyped-call]
    monitor.start()  # type: ignore[no-untyped-call]
    return monitor


def _flatten(values: Mapping[str, Json], prefix: str = "") -> dict[str, str]:
    """Dotted names and texts.

    Example:
        >>> _flatten({"a": {"b": 1}, "c": [1, 2], "d": None})
        {'a.b': '1', 'c': '1,2', 'd': ''}
    """
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            flat[prefix + key] = ",".join(str(item) for item in value)
        else:
            flat[prefix + key] = "" if value is None else str(value)
    return flat
