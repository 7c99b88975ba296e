"""A damaged newest checkpoint, files that must not or cannot be written, numbers out of range: exit codes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from streamgp_pipelines.adapters.plots import SUFFIXES
from tests.cli.conftest import World, run


@pytest.fixture
def damaged(world: World, tmp_path: Path) -> Path:
    """A copy of a checkpoint whose newest state has one byte changed; an older one is whole."""
    shutil.copytree(world.checkpoint, tmp_path / "c")
    newest = max(path for path in (tmp_path / "c").iterdir() if path.name.isdigit())
    shutil.copytree(newest, newest.with_name(f"{int(newest.name) + 10:012d}"))
    broken = newest.with_name(f"{int(newest.name) + 10:012d}") / "state.json"
    broken.write_bytes(broken.read_bytes().replace(b'"seed": 0', b'"seed": 1'))
    return tmp_path / "c"


def test_a_damaged_checkpoint_is_told_and_with_strict_refused(damaged: Path) -> None:
    for words in (["forecast", "--checkpoint", damaged], ["describe", "--checkpoint", damaged]):
        told = run(*words)
        assert told.exit_code == 0 and damaged.name in told.stderr
        as_json = run(*words, "--json")
        assert as_json.exit_code == 0 and len(json.loads(as_json.stdout)["warnings"]) == 1
        refused = run(*words, "--strict")
        assert refused.exit_code == 4


def test_a_whole_checkpoint_warns_of_nothing(world: World) -> None:
    for words in (["forecast", "--checkpoint", world.checkpoint], ["describe", "--checkpoint", world.checkpoint]):
        found = run(*words, "--strict", "--json")
        assert found.exit_code == 0 and json.loads(found.stdout)["warnings"] == []


def test_a_run_that_goes_on_from_an_older_checkpoint_says_so(world: World, damaged: Path) -> None:
    found = run(*world.line(checkpoint=damaged, tracking_uri="none"), "--json")
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["warnings"]


@pytest.mark.parametrize("flag", ["--output", "--plot", "--samples"])
def test_a_forecast_replaces_no_device_and_no_folder(world: World, tmp_path: Path, flag: str) -> None:
    suffix = SUFFIXES[0] if flag == "--plot" else ".csv"
    pipe, folder = tmp_path / f"pipe{suffix}", tmp_path / f"folder{suffix}"
    os.mkfifo(pipe)
    folder.mkdir()
    line = ["forecast", "--checkpoint", world.checkpoint, *(["--plug-in"] if flag == "--samples" else [])]
    for target in (pipe, folder, Path("/dev/null"), tmp_path / "a.xyz"):
        found = run(*line, flag, target)
        assert found.exit_code == 2 and str(target) in found.stderr
    assert pipe.is_fifo() and folder.is_dir() and Path("/dev/null").is_char_device()


def test_predictions_and_tuned_parameters_replace_no_device_and_no_folder(world: World, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.parquet"
    os.mkfifo(pipe)
    for target in (pipe, tmp_path):
        line = world.line(checkpoint=tmp_path / "c", predictions=target)
        for words in (line, [*line, "--dry-run"], [*line, "--fresh"]):
            assert run(*words).exit_code == 2
        tuned = run("tune", "--table", world.table, "--target", "y", "--output", target, "--dry-run")
        assert tuned.exit_code == 2
    assert pipe.is_fifo() and not (tmp_path / "c").exists()


HUGE = "100000000000000000000"
NUMBERS = ["seed", "horizon", "lags", "batch", "warmup", "season", "max-rows", "checkpoint-every", "epochs"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "text"), [*((name, HUGE) for name in NUMBERS), ("seed", "1e20"), ("horizon", "-1"), ("batch", "nan")]
)
def test_numbers_out_of_range_in_flags_file_and_environment(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    key = name.replace("-", "_")
    (tmp_path / "c.toml").write_text(f"{key} = {text}\n")
    plain = ["train", "--table", world.table, "--target", "y", "--checkpoint", tmp_path / "c", "--dry-run"]
    assert run(*plain, f"--{name}={text}").exit_code == 2
    assert run(*plain, "--config", tmp_path / "c.toml").exit_code == 2
    monkeypatch.setenv(f"STREAMGP_{key.upper()}", text)
    found = run(*plain)
    assert found.exit_code == 2 and f"--{name}" in found.stderr


@pytest.mark.parametrize(
    "words",
    [["--level", "1e400"], ["--level", "100"], ["--level", "nan"], ["--time-budget", "inf"], ["--score-from", "9" * 30],
     ["--online", "--score-from", HUGE], ["--test-tail", "1e20"], ["--seed", "9" * 5000]],
)  # fmt: skip
def test_other_numbers_out_of_range(world: World, tmp_path: Path, words: list[str]) -> None:
    line = ["train", "--table", world.table, "--target", "y", "--checkpoint", tmp_path / "c", "--dry-run"]
    assert run(*line, *words).exit_code == 2


@pytest.mark.parametrize("words", [["--horizon", HUGE], ["--paths", HUGE], ["--seed", "1e20"], ["--level", "1e20"]])
def test_numbers_out_of_range_of_a_forecast(world: World, words: list[str]) -> None:
    assert run("forecast", "--checkpoint", world.checkpoint, *words).exit_code == 2
