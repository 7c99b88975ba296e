"""The model registry: one name a task, one version a run, a champion that only a better score replaces."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.utils import requirements_utils

from streamgp.base import ModelCard
from streamgp_data import checkpoint
from streamgp_pipelines.adapters.mlflow import registry as _mlflow_registry
from streamgp_pipelines.adapters.mlflow.registry import CHAMPION, STATE, judge, tags
from streamgp_pipelines.adapters.mlflow.store import open_store, store_uri
from streamgp_pipelines.adapters.mlflow.tracker import MlflowTracker
from tests.pipelines.worlds import frame_of, make_table, run
from tests.words import names

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

CARD = ModelCard("linear", "/data/demand", "id", ("gw",), 3, 24, "prequential", "crps", 1.0, 1000, 2000, "s0")


@pytest.mark.parametrize(
    ("change", "moves", "unlike"),
    [
        ({"score": 0.9}, True, False),
        ({"score": 1.0}, False, False),
        ({"score": 1.1}, False, False),
        ({"score": None, "scored": 0}, False, False),
        ({"score": 0.9, "scored": 901}, True, False),
        ({"score": 0.9, "scored": 400}, False, True),
        ({"score": 0.9, "season": 1}, False, True),
        ({"score": 0.9, "horizon": 1}, False, True),
        ({"score": 0.9, "targets": ("other",)}, False, True),
        ({"score": 0.9, "table_id": "a copy"}, False, True),
        ({"score": 0.9, "protocol": "held out"}, False, True),
        ({"score": 0.9, "metric": "log_loss"}, False, True),
        ({"score": 0.9, "model": "svdgp", "rows": 9000, "state": "s1"}, True, False),
    ],
)
def test_another_run_takes_the_alias_by_a_better_score_on_the_same_task_only(
    change: dict[str, object], moves: bool, unlike: bool
) -> None:
    verdict = judge(tags(CARD), "holder", CARD._replace(**change), "other")
    assert (verdict.moves, verdict.unlike) == (moves, unlike)
    assert bool(verdict.reason) != moves


def test_the_first_with_a_score_is_champion_and_its_run_keeps_the_alias() -> None:
    assert judge(None, "", CARD, "a").moves
    assert not judge(None, "", CARD._replace(score=None), "a").moves
    assert judge(tags(CARD), "a", CARD._replace(score=1.5), "a").moves
    by_hand = judge({}, "b", CARD, "a")
    assert not by_hand.moves and by_hand.unlike


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One checkpoint of a small run."""
    room = tmp_path_factory.mktemp("run")
    run(make_table(room / "table", frame_of(600)), room / "c", model="seasonal_naive")
    return checkpoint.read(room / "c").path


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = store_uri(f"sqlite:///{tmp_path_factory.mktemp('registry') / 'mlflow.db'}")
    open_store(uri)
    return uri


def versions(uri: str, name: str) -> dict[int, str]:
    """version -> run."""
    return {int(one.version): str(one.run_id) for one in MlflowClient(uri, uri).search_model_versions(f"name='{name}'")}


def folders(uri: str) -> set[str]:
    """Logged models whose files are on disk."""
    return {path.parent.parent.name for path in Path(uri.removeprefix("sqlite:///")).parent.rglob("MLmodel")}


@pytest.mark.slow
def test_a_worse_run_moves_latest_and_not_champion_and_a_run_has_one_version(
    uri: str, saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    card = CARD._replace(table="/data/one")
    name, client = "one-gw-h3", MlflowClient(uri, uri)
    good, bad = (MlflowTracker(tmp_path / part, uri, "registry") for part in ("good", "bad"))
    assert good.model(saved, lambda: card) == {"name": name, "version": 1, "champion": True}
    assert bad.model(saved, lambda: card._replace(score=2.0)) == {"name": name, "version": 2, "champion": False}
    assert client.get_model_version_by_alias(name, CHAMPION).version == 1
    mlflow.set_tracking_uri(uri)
    assert mlflow.pyfunc.load_model(f"models:/{name}@champion").metadata.run_id == good.run_id
    assert mlflow.pyfunc.load_model(f"models:/{name}/latest").metadata.run_id == bad.run_id
    version = client.get_model_version(name, "1")
    assert (version.tags["metric"], version.tags["score"], version.tags["scored"]) == ("crps", "1.0", "1000")

    again = MlflowTracker(tmp_path / "bad", uri, "registry")  # started again, nothing new
    assert again.model(saved, lambda: card._replace(score=2.0))["version"] == 2
    assert versions(uri, name) == {1: good.run_id, 2: bad.run_id}

    before = folders(uri)
    again.model(saved, lambda: card._replace(score=2.1, state="s1"))  # an hour later
    assert versions(uri, name) == {1: good.run_id, 3: bad.run_id}
    assert len(folders(uri)) == len(before) == 2  # the files of version 2 are gone
    good.model(saved, lambda: card._replace(score=1.2, state="s1"))  # the champion goes on, and keeps the alias
    assert client.get_model_version_by_alias(name, CHAMPION).version == 4
    assert versions(uri, name) == {3: bad.run_id, 4: good.run_id}

    other = MlflowTracker(tmp_path / "other", uri, "registry")
    assert other.model(saved, lambda: card._replace(score=0.1, season=1, state="s2"))["champion"] is False
    assert names(caplog.text, "one-gw-h3@champion 4 24 1")
    for tracker in (good, again, other):
        tracker.finish("FINISHED")


@pytest.mark.slow
def test_old_versions_are_pruned_but_not_those_with_an_alias(
    uri: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_mlflow_registry, "KEPT", 1)
    card = CARD._replace(table="/data/two")
    name, client = "two-gw-h3", MlflowClient(uri, uri)
    client.create_registered_model(name)
    client.create_model_version(name, str(saved))  # by a user
    for index in range(4):
        own = card._replace(score=1.0 + index)
        MlflowTracker(tmp_path / str(index), uri, "pruned").model(saved, lambda own=own: own)  # type: ignore[misc]
        if index == 1:
            client.set_registered_model_alias(name, "production", "3")
    assert sorted(versions(uri, name)) == [1, 2, 3, 4, 5]  # the user's, champion, production, one other, the newest
    MlflowTracker(tmp_path / "last", uri, "pruned").model(saved, lambda: card._replace(score=9.0))
    assert sorted(versions(uri, name)) == [1, 2, 3, 5, 6]


def test_a_model_that_was_logged_before_a_kill_is_not_left_behind(
    uri: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements_utils, "_MODULES_TO_PACKAGES", None)  # as in a process that has logged none
    tracker = MlflowTracker(tmp_path / "c", uri, "killed")
    client = MlflowClient(uri, uri)
    experiment = client.get_experiment_by_name("killed")
    assert experiment is not None
    client.create_logged_model(experiment.experiment_id, "left", tracker.run_id, tags={STATE: "s"})
    tracker.model(saved, lambda: CARD._replace(table="/data/three"))
    logged = client.search_logged_models([experiment.experiment_id])
    assert [model.name for model in logged] == ["linear gw h3"]
    assert requirements_utils._MODULES_TO_PACKAGES is None  # no file lists were read, and whoever needs them will
