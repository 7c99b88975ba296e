"""A service that begins as a model of the registry: what it learns into, what a restart goes on from, what it tells."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from streamgp.base import ModelCard
from streamgp.errors import StateError, UsageError
from streamgp_data import checkpoint
from streamgp_pipelines.adapters.mlflow.origin import FILE, adopt, name_of
from streamgp_pipelines.adapters.mlflow.store import store_uri
from streamgp_pipelines.adapters.mlflow.tracker import MlflowTracker
from streamgp_pipelines.config.serve import ServeConfig
from streamgp_pipelines.learning.checkpointing import state_digest
from streamgp_pipelines.serving.service import serving
from tests.pipelines.killed import wait_for
from tests.serving.conftest import ROWS, as_objects, config_of, new_rows
from tests.serving.test_service import taken

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

CARD = ModelCard("linear", "/data/table", "id", ("y",), 4, 24, "prequential", "crps", 1.0, 1000, 2000, "s0")
CHAMPION = "models:/table-y-h4@champion"


@pytest.mark.slow
def test_it_begins_as_the_champion_and_goes_on_from_its_own_checkpoint(home: Path, tmp_path: Path) -> None:
    uri = store_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    first, second = (MlflowTracker(tmp_path / name, uri, "served") for name in ("first", "second"))
    with pytest.raises(UsageError):
        adopt(CHAMPION, uri, home / "served")
    assert not (home / "served").exists()
    trained = checkpoint.read(home / "plain")
    assert first.model(trained.path, lambda: CARD)["champion"]

    origin = adopt(CHAMPION, uri, home / "served")
    assert (origin.version, origin.news()) == (1, "")
    assert state_digest(checkpoint.read(home / "served")) == state_digest(trained)
    with serving(config_of(home, "served")) as service:
        host = service.hosts["served"]
        taken(service.intake(host), as_objects(new_rows(30)))
        wait_for(lambda: host.rows == ROWS + 30)
    learned = checkpoint.read(home / "served")
    assert learned.rows > trained.rows

    assert second.model(trained.path, lambda: CARD._replace(score=0.5, state="s1"))["champion"]
    again = adopt(CHAMPION, uri, home / "served")
    assert (again, checkpoint.read(home / "served").path) == (origin, learned.path)  # nothing was fetched
    assert "version 2" in again.news() and "version 1" in again.news()
    assert adopt(CHAMPION, uri, home / "other").version == 2
    assert adopt("models:/table-y-h4/latest", uri, home / "newest").version == 2
    assert adopt("models:/table-y-h4/1", uri, home / "old").news() == ""
    shutil.move(tmp_path / "mlflow.db", tmp_path / "gone.db")
    assert adopt(CHAMPION, uri, home / "served").title == f"{CHAMPION}, version 1"  # the registry is not needed
    for tracker in (first, second):
        tracker.finish("FINISHED")


def test_a_directory_with_another_checkpoint_is_refused(home: Path) -> None:
    uri = store_uri(f"sqlite:///{home / 'mlflow.db'}")
    with pytest.raises(StateError):
        adopt(CHAMPION, uri, home / "plain")
    (home / "plain" / FILE).write_text(f'{{"model_uri": "{CHAMPION}", "store": "{uri}", "version": 3}}')
    assert adopt(CHAMPION, uri, home / "plain").version == 3
    with pytest.raises(StateError):
        adopt("models:/table-y-h4/3", uri, home / "plain")
    (home / "plain" / FILE).write_text("{")
    with pytest.raises(StateError):
        adopt(CHAMPION, uri, home / "plain")


@pytest.mark.parametrize("uri", ["runs:/a/b", "models:/a", "models:/a@", "models:/a/newest", "a"])
def test_what_names_no_registered_model_is_refused(uri: str) -> None:
    with pytest.raises(UsageError):
        name_of(uri)


@pytest.mark.parametrize("given", [{}, {"model_uri": CHAMPION, "checkpoint": ["a", "b"]}])
def test_options_that_do_not_go_together_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ServeConfig.read(given)
    assert ServeConfig.read({"model_uri": CHAMPION}).checkpoint == ()


def test_a_store_in_the_environment_is_of_no_concern_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGP_TRACKING_URI", "none")
    assert ServeConfig.read({"checkpoint": ["a"]}).model_uri is None
