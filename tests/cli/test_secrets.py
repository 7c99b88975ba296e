"""Passwords in URLs: no message, log, answer or file of a command has them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamgp.errors import ServiceError
from streamgp_pipelines.adapters.mlflow import run as run_file
from streamgp_pipelines.adapters.mlflow.artifact import log_artifact
from streamgp_pipelines.adapters.mlflow.store import open_store

from .conftest import run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SECRET = "hunter2"
STORES = [
    (f"postgresql://me:{SECRET}@127.0.0.1:1/runs", 5),
    (f"mysql+nothing://me:{SECRET}@127.0.0.1:1/runs", 5),
    (f"mssql+pyodbc:///?odbc_connect=PWD%3D{SECRET}", 5),
    (f"http://me:{SECRET}@127.0.0.1:1", 5),
    (f"http://me:{SECRET}/@127.0.0.1:1", 5),  # which its own library takes for a port
    (f"http://me:4{SECRET}#@127.0.0.1:1", 5),
    (f"http://127.0.0.1:1/?access_token={SECRET}", 5),
    pytest.param(f"databricks://me:{SECRET}@nowhere", 5, marks=pytest.mark.slow),  # its library waits
    (f"ftp://me:{SECRET}@host/runs", 2),
]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server that does not answer is asked once, and there is no other configuration."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(("uri", "code"), STORES)
def test_the_password_of_a_store_is_not_said(tmp_path: Path, uri: str, code: int) -> None:
    done = run("forecast", "--model-uri", "models:/a@champion", "--tracking-uri", uri, "--json", "--debug")
    assert done.exit_code == code and SECRET not in done.output, done.output
    if uri.startswith(("http", "ftp")):
        done = run("ui", "--tracking-uri", uri)
        assert done.exit_code == code and SECRET not in done.output, done.output


@pytest.mark.parametrize(
    "words",
    [
        ["forecast", "--model-uri", f"http://me:{SECRET}@host/model"],
        ["serve", "--model-uri", f"models://me:{SECRET}@host/model"],
        ["ingest", f"ftp://me:{SECRET}@host/a.csv", "--table", "t"],
        ["ingest", f"mqtt://me:{SECRET}@host:x/t", "--table", "t"],
        ["ingest", f"mqtt://me:{SECRET}@host/t?nothing=1", "--table", "t"],
        ["ingest", f"kafka://me:{SECRET}@/t", "--table", "t"],
        ["ingest", f"redis://me:{SECRET}@127.0.0.1:1/t", "--table", "t"],
        ["doctor", "--source", f"redis://me:{SECRET}@127.0.0.1:1/t"],
        ["describe", "--table", f"s3://me:{SECRET}@bucket/t"],
        ["train", "--table", f"s3://me:{SECRET}@bucket/t", "--checkpoint", "c", "--horizon", "1", "--target", "y"],
        ["train", "--table", "t", "--checkpoint", f"s3://me:{SECRET}@bucket/c", "--horizon", "1", "--target", "y"],
        ["train", "--table", "t", "--checkpoint", "c", "--on-alarm", f"https://me:{SECRET}@/x", "--horizon", "1"],
        ["train", "--engine", "ray", "--address", f"ray://me:{SECRET}@x:y", "--table", "t", "--horizon", "1"],
    ],
)
def test_the_password_of_a_source_or_a_table_is_not_said(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*words, "--json", "--debug")
    assert done.exit_code in (2, 3, 4, 5) and SECRET not in done.output, done.output


def test_a_run_notes_its_store_without_the_password(tmp_path: Path) -> None:
    uri, home, client = (
        f"postgresql://me:{SECRET}@db/runs",
        tmp_path / "c",
        open_store(f"sqlite:///{tmp_path / 'm.db'}"),
    )
    first, again = (run_file.attach(client, home, uri, "one", "")[0] for _ in range(2))
    assert first.run_id == again.run_id and first.uri == "postgresql://***@db/runs"
    assert [str(path) for path in home.rglob("*") if path.is_file() and SECRET in path.read_text()] == []
    assert log_artifact(home, tmp_path / "m.db")[0] is None  # nobody says the password any more


def test_what_a_library_writes_on_standard_error_has_no_password(tmp_path: Path) -> None:
    code = """
import logging, sys, warnings
from streamgp_cli import start
start.signals.install = lambda: None
def app():
    logging.error("cannot reach postgresql://me:hunter2@db/runs")
    warnings.warn("http://me:hunter2@host is slow")
    print("mysql://me:hunter2@db/runs", file=sys.stderr)
    raise ValueError("mqtt://me:hunter2@broker/t")
sys.modules["streamgp_cli.app"] = type(sys)("app")
sys.modules["streamgp_cli.app"].app = app
start.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert SECRET not in done.stderr and done.stderr.count("***@") == 4, done.stderr


def test_errors_of_the_library_have_none() -> None:
    error = ServiceError(f"http://me:{SECRET}@host does not answer", hint=f"is mysql://me:{SECRET}@db/runs right?")
    assert SECRET not in str(error) + error.message + error.hint and "host" in str(error)
