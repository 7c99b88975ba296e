"""The MLflow tracking store: which one, opened or created safely, and MLflow's own habits tamed."""

from __future__ import annotations

import logging
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from streamgp.errors import ServiceError, UsageError
from streamgp.redaction import reason, redacted
from streamgp_pipelines.adapters.mlflow.template import new_store

if TYPE_CHECKING:
    from mlflow import MlflowClient

DEFAULT_FILE = "mlflow.db"
NONE = "none"
"""In place of a URI: no tracking, so that MLflow is not even imported."""

_SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql", "databricks", "databricks-uc")
_HABITS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # its one look-up outside
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # of 7: a run must not stand still for minutes when a server has gone
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # standard output is the command's answer
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "GIT_PYTHON_REFRESH": "quiet",
}


def tame() -> None:
    """Set MLflow's defaults that suit a command line, where the user has not; before mlflow is imported."""
    for name, value in _HABITS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints what it raises


def tracked(asked: str | None = None) -> bool:
    """Whether there is tracking: neither the URI asked for nor MLFLOW_TRACKING_URI is `none`.

    Example:
        >>> tracked("none"), tracked("sqlite:///mlflow.db")
        (False, True)
    """
    return (asked or os.environ.get("MLFLOW_TRACKING_URI")) != NONE


def store_uri(asked: str | None = None) -> str:
    """The tracking URI in use: the one asked for, MLFLOW_TRACKING_URI, or a SQLite file in the working directory.

    Paths of SQLite files are made absolute, so that a run can be continued from another directory.

    Raises:
        UsageError: MLflow has no such store.

    Example:
        >>> store_uri("sqlite:////data/mlflow.db"), store_uri("http://127.0.0.1:5000")
        ('sqlite:////data/mlflow.db', 'http://127.0.0.1:5000')
    """
    uri = asked or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{DEFAULT_FILE}"
    scheme = uri.partition(":")[0].partition("+")[0]
    if scheme not in _SCHEMES or ("://" not in uri and not scheme.startswith("databricks")):
        raise UsageError(
            f"--tracking-uri '{redacted(uri)}' is not a tracking store",
            hint="give sqlite:///FILE.db, http://HOST:PORT, the URI of a database that MLflow knows, or none",
        )
    file = sqlite_file(uri)
    return uri if file is None else f"sqlite:///{file}"


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite URI, absolute; None for any other store."""
    head, separator, path = uri.partition(":///")
    if not separator or head.partition("+")[0] != "sqlite" or not path:
        return None
    return Path(path).absolute()


def open_store(uri: str) -> MlflowClient:
    """A client of the store, which is created when it is a SQLite file that does not exist yet.

    Raises:
        ServiceError: the store does not answer, or it is not an MLflow store.
    """
    tame()
    from mlflow import MlflowClient

    file = sqlite_file(uri)
    try:
        if file is not None:
            _prepare(file)
        client = MlflowClient(uri, uri)
        client.search_experiments(max_results=1)
    except Exception as error:  # MLflow, SQLAlchemy, alembic, sqlite3 and requests each have their own
        raise ServiceError(
            f"the tracking store {uri} does not answer: {reason(error, uri)}", hint=_advice(uri)
        ) from None
    return client


def _prepare(file: Path) -> None:
    """Create the SQLite store if need be, and let readers and the writer work side by side.

    The tables are made in a file with a temporary name, since a kill half way through would leave a store that MLflow
    refuses for ever. Of two processes that create at once, the second finds the first one's file.
    """
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        for left in file.parent.glob(f".{file.name}.*.tmp*"):  # by a process that was killed while it created
            if not _alive(int(left.name.split(".")[-2])):
                left.unlink(missing_ok=True)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
        try:
            new_store(temporary, make_store)
            os.link(temporary, file)
        except FileExistsError:
            pass
        finally:
            temporary.unlink(missing_ok=True)
    connection = sqlite3.connect(file, timeout=30.0)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()


def make_store(file: Path) -> None:
    """Let MLflow make its tables, and close the file."""
    from mlflow import MlflowClient

    uri = f"sqlite:///{file}"
    MlflowClient(uri, uri).search_experiments(max_results=1)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _advice(uri: str) -> str:
    file = sqlite_file(uri)
    if file is None:
        return "check that the server runs and that --tracking-uri is right"
    return f"check that {file} can be written and is an MLflow store, or name another with --tracking-uri"
