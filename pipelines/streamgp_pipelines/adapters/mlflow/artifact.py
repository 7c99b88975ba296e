"""A file logged to the run that a checkpoint directory belongs to, after the run."""

from __future__ import annotations

import os
from pathlib import Path

from streamgp.errors import ServiceError
from streamgp.redaction import HIDDEN, reason, redacted
from streamgp_pipelines.adapters.mlflow import run as run_file
from streamgp_pipelines.adapters.mlflow.store import open_store, sqlite_file, store_uri, tracked


def logs(directory: Path, uri: str | None) -> bool:
    """Whether there is a run to log to: the directory has one, and `uri` is not none."""
    stored = run_file.read(directory)
    return stored is not None and bool(stored.run_id) and tracked(uri)


def log_artifact(directory: Path, path: Path, uri: str | None = None) -> tuple[str | None, list[str]]:
    """Log a file as an artifact of the directory's run.

    Args:
        directory: of a checkpoint or a comparison that was tracked.
        path: of the file.
        uri: of the store; that of the run when left out.

    Returns:
        the run's id, or None and a warning where the store does not take the file.
    """
    stored = run_file.read(directory)
    assert stored is not None
    where = store_uri(uri or _named(stored.uri))
    if HIDDEN in where:
        return None, [f"the page was not logged: name the store {where} with its password in MLFLOW_TRACKING_URI"]
    file = sqlite_file(where)
    if file is not None and not file.exists():
        return None, [f"the page was not logged: there is no {file}"]
    try:
        client = open_store(where)
        client.log_artifact(stored.run_id, str(path))
    except ServiceError as error:
        return None, [error.message]
    except Exception as error:  # whatever a store may raise: the page is written
        return None, [f"the tracking store did not take the page: {reason(error, where)}"]
    return stored.run_id, []


def _named(shown: str) -> str:
    """The store of a run, which is noted without user and password; with them where the environment names it."""
    given = os.environ.get("MLFLOW_TRACKING_URI", "")
    return given if redacted(given) == shown else shown
