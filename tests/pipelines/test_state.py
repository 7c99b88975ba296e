"""A checkpoint goes on only with what fits it, and a run never damages another's."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from streamgp.errors import CheckpointError, ServiceError, StateError, TableError
from streamgp_data import checkpoint
from streamgp_pipelines import load
from streamgp_pipelines.learning import restored
from streamgp_pipelines.learning.checkpointing import held, set_aside
from streamgp_pipelines.learning.recipe import Schedule
from tests.pipelines.killed import Crash, code_of, start, train_apart, wait_for
from tests.pipelines.worlds import assert_same_state, frame_of, make_table, run, scores_of
from tests.words import naming


class World:
    """A table and a finished run over it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.table = make_table(home / "t", frame_of(450))
        self.summary = run(self.table, home / "c", predictions=home / "p.parquet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("state"))


@pytest.fixture
def copied(finished: World, tmp_path: Path) -> World:
    shutil.copytree(finished.home / "c", tmp_path / "c")
    found = World.__new__(World)
    found.home, found.table, found.summary = tmp_path, finished.table, finished.summary
    return found


def checkpoints(home: Path) -> list[str]:
    return sorted(path.name for path in home.glob("[0-9]*"))


def test_a_finished_run_prints_the_same_summary(copied: World) -> None:
    before = checkpoints(copied.home / "c")
    again = run(copied.table, copied.home / "c")
    assert scores_of(again) == scores_of(copied.summary) and again["rows"] == 450
    assert again["seconds"] == copied.summary["seconds"] and again["offset"] == copied.summary["offset"]
    assert checkpoints(copied.home / "c") == before


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"lags": 7}, "lags 6 7"),
        ({"horizon": 2}, "horizon 3 2"),
        ({"season": 12, "warmup": 200}, "season 24 12"),
        ({"model": "seasonal_naive"}, "linear seasonal_naive"),
        ({"set": {"ridge": "2"}}, "ridge 2"),
        ({"inputs": "x"}, "inputs x"),
        ({"known": "k"}, "known k"),
        ({"target": "x"}, "target y x"),
        ({"seed": 3}, "seed 0 3"),
        ({"batch": 32}, "batch 64 32"),
        ({"warmup": 201}, "warmup 200 201"),
        ({"gaps": "reset"}, "gaps fill reset"),
        ({"calendar": True}, "calendar off on"),
        ({"level": "80"}, "level 80.0 95.0"),
        ({"score_from": "300"}, "score-from 300"),
        ({"lags": 7, "seed": 1}, "lags 6 7 seed 0 1"),
        ({"online": False, "warmup": None, "checkpoint_every": None, "test_tail": 0.5}, "mode online batch"),
    ],
)
def test_other_options_are_named_with_both_values(copied: World, option: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=naming(message)) as caught:
        run(copied.table, copied.home / "c", **option)
    assert "--fresh" in caught.value.hint and caught.value.exit_code == 4


def test_a_part_that_was_chosen_by_name_belongs_to_the_run(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(300))
    small = {"gradient.mean_basis": 8, "gradient.covariance_basis": 8, "gradient.steps": 1}
    given = small | {"encoder": "rnn", "encoder.hidden": 4}
    first = run(table, tmp_path / "c", model="svdgp", set=given)
    again = run(table, tmp_path / "c", model="svdgp", set=given)
    assert scores_of(again) == scores_of(first)
    model: Any = load(tmp_path / "c").learner.model
    assert type(model.posterior.encoder).__name__ == "Rnn" and model.posterior.encoder.hidden == 4
    with pytest.raises(CheckpointError, match=naming("encoder rnn gru")):
        run(table, tmp_path / "c", model="svdgp", set=given | {"encoder": "gru"})


def test_what_does_not_shape_state_may_change(copied: World) -> None:
    found = run(
        copied.table, copied.home / "c", max_rows=450, checkpoint_every=64, predictions=copied.home / "q.parquet"
    )
    assert scores_of(found) == scores_of(copied.summary)


def test_another_table(copied: World, tmp_path: Path) -> None:
    other = make_table(tmp_path / "u", frame_of(450))
    with pytest.raises(TableError) as caught:
        run(other, copied.home / "c")
    assert caught.value.exit_code == 4


def test_a_table_that_was_rolled_back(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(450), cuts=[300])
    run(table, tmp_path / "c")
    log = tmp_path / "t" / "_delta_log"
    max(log.glob("*.json")).unlink()
    with pytest.raises(TableError, match=naming("300 392")):
        run(tmp_path / "t", tmp_path / "c")
    with pytest.raises(TableError):
        load(tmp_path / "c").observe(type(table).open(tmp_path / "t"))


# two processes, and --fresh


def test_two_processes_on_one_checkpoint(finished: World, tmp_path: Path) -> None:
    """The second is refused, fresh or not; the first is not disturbed."""
    options = {"follow": True}
    process = start(train_apart, finished.table.path, str(tmp_path / "c"), options, None, None)
    wait_for(lambda: checkpoint.exists(tmp_path / "c"))
    for fresh in (False, True):
        with pytest.raises(StateError) as caught:
            run(finished.table, tmp_path / "c", fresh=fresh)
        assert caught.value.exit_code == 4 and not (tmp_path / "c.1").exists()
    process.kill()
    assert code_of(process) == -signal.SIGKILL
    assert scores_of(run(finished.table, tmp_path / "c")) == scores_of(finished.summary)


def test_the_lock_goes_with_its_holder(tmp_path: Path) -> None:
    with held(tmp_path / "c"), pytest.raises(StateError), held(tmp_path / "c"):
        pass
    with held(tmp_path / "c"), open(tmp_path / "c" / ".lock") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with held(tmp_path / "c"):
        pass


def test_fresh_sets_the_old_run_aside(copied: World) -> None:
    before = checkpoints(copied.home / "c")
    found = run(copied.table, copied.home / "c", fresh=True, lags=5)
    assert found["rows"] == 450 and checkpoints(copied.home / "c.1") == before
    assert load(copied.home / "c").spec.lags == 5 and load(copied.home / "c.1").spec.lags == 6
    run(copied.table, copied.home / "c", fresh=True)
    assert load(copied.home / "c.2").spec.lags == 5
    assert_same_state(copied.home / "c", copied.home / "c.1")


def test_there_may_be_nothing_to_set_aside(tmp_path: Path) -> None:
    assert set_aside(tmp_path / "none") is None
    with held(tmp_path / "c"):
        pass
    assert set_aside(tmp_path / "c") is None  # only the lock is there
    run(make_table(tmp_path / "t", frame_of(100)), tmp_path / "c", fresh=True)
    assert not (tmp_path / "c.1").exists()


# damage


def newest(home: Path) -> Path:
    return checkpoint.read(home).path


@pytest.mark.sampled
@pytest.mark.parametrize("damage", ["cut", "flipped", "no state", "other state", "empty"])
def test_a_damaged_checkpoint_is_passed_over(copied: World, damage: str) -> None:
    """The run goes on from the one before, says so, and ends with the same numbers."""
    path = newest(copied.home / "c")
    tensors, state = path / "tensors.safetensors.zst", path / "state.json"
    if damage == "cut":
        tensors.write_bytes(tensors.read_bytes()[:-100])
    elif damage == "flipped":
        data = bytearray(tensors.read_bytes())
        data[len(data) // 2] ^= 1
        tensors.write_bytes(data)
    elif damage == "no state":
        state.unlink()
    elif damage == "other state":
        state.write_text(state.read_text().replace('"rows"', '"rowz"'))
    else:
        state.write_text("")
    found = run(copied.table, copied.home / "c", predictions=copied.home / "p.parquet")
    assert any(path.name in warning for warning in found["warnings"])
    assert scores_of(found) | {"warnings": []} == scores_of(copied.summary)
    again = run(copied.table, copied.home / "c")
    assert again["warnings"] == [] and pl.read_parquet(copied.home / "p.parquet").height == again["scored"]


def test_all_damaged(copied: World) -> None:
    for name in checkpoints(copied.home / "c"):
        (copied.home / "c" / name / "state.json").write_text("{}")
    with pytest.raises(CheckpointError) as caught:
        run(copied.table, copied.home / "c")
    assert "--fresh" in caught.value.hint
    with pytest.raises(CheckpointError):
        load(copied.home / "c")


def test_another_format(copied: World) -> None:
    for name in checkpoints(copied.home / "c"):
        state = copied.home / "c" / name / "state.json"
        state.write_text(json.dumps(json.loads(state.read_text()) | {"format": 99}))
    with pytest.raises(CheckpointError, match=naming("99")):
        run(copied.table, copied.home / "c")


def test_a_checkpoint_without_a_part(copied: World) -> None:
    saved = checkpoint.read(copied.home / "c")
    state = saved.path / "state.json"
    whole = json.loads(state.read_text())
    del whole["body"]["rest"]["bands"]
    whole["sha256"] = checkpoint.digest(whole["body"])
    state.write_text(json.dumps(whole))
    with pytest.raises(CheckpointError, match=naming("bands")):
        run(copied.table, copied.home / "c")


def test_a_place_that_cannot_be_written(finished: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "file" / "c"):
        with pytest.raises(StateError):
            run(finished.table, home)
        with pytest.raises(StateError):
            run(finished.table, home, fresh=True)


def test_a_full_disk(finished: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third write finds no room; with room again the run goes on."""
    store, calls = checkpoint.store_file, [0]

    def full(path: Path, data: bytes) -> None:
        calls[0] += 1
        if calls[0] > 2:
            raise OSError(28, "No space left on device")
        store(path, data)

    with monkeypatch.context() as patched, pytest.raises(ServiceError) as caught:
        patched.setattr(checkpoint, "store_file", full)
        run(finished.table, tmp_path / "c")
    assert caught.value.exit_code == 5 and len(checkpoints(tmp_path / "c")) == 1
    assert scores_of(run(finished.table, tmp_path / "c")) == scores_of(finished.summary)


def test_only_the_newest_are_kept(finished: World, tmp_path: Path) -> None:
    run(finished.table, tmp_path / "c", checkpoint_every=64)
    assert checkpoints(tmp_path / "c") == ["000000000392", "000000000392-1"]


def test_the_thread_count_of_the_run_is_taken_up(finished: World, tmp_path: Path) -> None:
    run(finished.table, tmp_path / "c", max_rows=300)
    process = start(train_apart, finished.table.path, str(tmp_path / "c"), {}, None, str(tmp_path / "s"))
    assert code_of(process) == 0
    torch.set_num_threads(2)
    from streamgp_pipelines.learning.session import open_session
    from tests.pipelines.worlds import config_of

    open_session(config_of(finished.table, tmp_path / "c"))
    assert torch.get_num_threads() == 1


def test_the_manifest_names_what_was_read(copied: World) -> None:
    about = checkpoint.read(copied.home / "c").manifest
    assert about["table"] == {"path": copied.table.path, "id": copied.table.id, "version": copied.table.version}
    made = restored.recipe_of(checkpoint.read(copied.home / "c"))
    assert about["rows"] == 392 and made.model == "linear" and made.schedule == Schedule(64, 200)


def test_set_aside_after_a_kill_keeps_both(finished: World, tmp_path: Path) -> None:
    crash = Crash("streamgp_pipelines.learning.learner", "Learner.learn", 5)
    options = {"checkpoint_every": 64}
    process = start(train_apart, finished.table.path, str(tmp_path / "c"), options, crash, None)
    assert code_of(process) == -signal.SIGKILL
    assert scores_of(run(finished.table, tmp_path / "c", fresh=True)) == scores_of(finished.summary)
    assert scores_of(run(finished.table, tmp_path / "c.1", **options)) == scores_of(finished.summary)
