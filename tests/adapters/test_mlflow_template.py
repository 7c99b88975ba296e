"""A new store is a copy of the one that MLflow made before."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient

from streamgp_pipelines.adapters.mlflow import store as _mlflow_store
from streamgp_pipelines.adapters.mlflow.store import open_store
from streamgp_pipelines.adapters.mlflow.template import cache_folder, new_store

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.mark.slow
def test_the_second_store_is_a_copy_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = open_store(f"sqlite:///{tmp_path / 'a.db'}")
    (kept,) = cache_folder().iterdir()
    monkeypatch.setattr(_mlflow_store, "make_store", lambda file: pytest.fail("made instead of copied"))
    monkeypatch.chdir(tmp_path)
    second = open_store(f"sqlite:///{tmp_path / 'b.db'}")
    assert used(first) == used(second)
    assert list(cache_folder().iterdir()) == [kept]
    assert not list(tmp_path.glob(".*"))


def used(client: MlflowClient) -> tuple[list[str], float]:
    """What a run in a new experiment leaves: the names of all experiments, and the run's metric."""
    run = client.create_run(client.create_experiment("mine"))
    client.log_metric(run.info.run_id, "m", 0.5)
    return sorted(one.name for one in client.search_experiments()), client.get_run(run.info.run_id).data.metrics["m"]


def test_a_kept_store_that_was_altered_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made: list[Path] = []

    def make(file: Path) -> None:
        made.append(file)
        import sqlite3

        connection = sqlite3.connect(file)
        connection.execute("CREATE TABLE experiments (a)")
        connection.commit()
        connection.close()

    new_store(tmp_path / "a.db", make)
    (kept,) = cache_folder().iterdir()
    new_store(tmp_path / "b.db", make)
    assert made == [tmp_path / "a.db"]
    kept.write_bytes(kept.read_bytes()[:-100])
    new_store(tmp_path / "c.db", make)
    assert made == [tmp_path / "a.db", tmp_path / "c.db"]
    assert (tmp_path / "c.db").read_bytes() and [path.name for path in cache_folder().iterdir()] == [kept.name]


def test_without_a_cache_stores_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    made: list[Path] = []
    new_store(tmp_path / "a.db", lambda file: (made.append(file), file.write_bytes(b""))[0])
    assert made == [tmp_path / "a.db"]
