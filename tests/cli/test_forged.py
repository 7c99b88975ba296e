"""Checkpoints that somebody has forged, with checksums that fit: exit code 4, and never 1; nothing hangs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from streamgp.errors import CheckpointError
from streamgp.forecasting.calibration import Calibration
from streamgp.windows.fitting import check_fits
from streamgp.windows.windows import WindowSpec
from streamgp_data import checkpoint
from streamgp_data.disk import load_file
from streamgp_data.moments import Moments
from streamgp_pipelines.learning import restored
from streamgp_pipelines.learning.recipe import Recipe, Schedule
from streamgp_pipelines.serving.host import resume
from tests.cli.conftest import LINE, run, write_rows
from tests.faults import forged
from tests.faults.forged import Place

FINE = 0, 3, 4
Forge = Callable[[Path], object]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 420 rows, `t`, and a checkpoint `c` that has read 300 of them; no test changes them."""
    room = tmp_path_factory.mktemp("forged")
    write_rows(room / "d.csv", 0, 420)
    line = [*LINE, "--table", room / "t", "--tracking-uri", "none", "--checkpoint", room / "c", "--max-rows", 300]
    for words in (["ingest", room / "d.csv", "--table", room / "t", "--every", "1h"], ["train", *line]):
        assert (found := run(*words)).exit_code == 0, found.stderr
    return room


@pytest.fixture
def one(home: Path, tmp_path: Path) -> Path:
    """The checkpoint alone in a home, where it may be changed."""
    newest = max(path for path in (home / "c").iterdir() if path.name.isdigit())
    shutil.copytree(newest, tmp_path / "c" / newest.name)
    return tmp_path / "c" / newest.name


def commands(table: Path, home: Path) -> Iterator[tuple[str, tuple[int, ...], list[str]]]:
    """Every command that reads a checkpoint, and how it may end."""
    out = home.parent
    yield "describe", FINE, ["describe", "--checkpoint", str(home)]
    yield "forecast", FINE, ["forecast", "--checkpoint", str(home), "--output", str(out / "f.csv")]
    yield "check", (*FINE, 6), ["check", "--checkpoint", str(home), "--max-age", "1h"]
    yield "doctor", FINE, ["doctor", "--checkpoint", str(home)]
    report = ["report", "--checkpoint", str(home), "--tracking-uri", "none", "--output", str(out / "r.html")]
    yield "report", FINE, report
    line = ["--table", str(table), "--tracking-uri", "none", "--checkpoint", str(home)]
    yield "train", FINE, ["train", *LINE, *line]


def replaced(at: Place, name: str) -> Forge:
    return lambda path: forged.forge(path, forged.changed(forged.state(path), at, forged.VALUES[name]))


def reshaped(key: str, name: str) -> Forge:
    def forge(path: Path) -> None:
        found = forged.tensors(path)
        new = forged.TENSORS[name](found.pop(key))
        forged.forge_tensors(path, found if new is None else found | {key: new})

    return forge


@pytest.mark.slow
def test_open_questions_without_features_are_no_defect(home: Path, one: Path) -> None:
    for command, allowed, line in commands(home / "t", one.parent.with_name("d")):
        shutil.rmtree(one.parent.with_name("d"), ignore_errors=True)
        shutil.copytree(one.parent, one.parent.with_name("d"))
        reshaped("ledger/features", "nan")(one.parent.with_name("d") / one.name)
        ended: Any = run(*line)
        assert ended.exit_code in allowed, f"{command}: {ended.stderr[-300:]}"


REFUSED: dict[str, Forge] = {
    "rows gone": replaced(("rows",), "gone"),
    "rows mixed": replaced(("rows",), "mixed"),
    "manifest list": replaced(("manifest",), "list"),
    "lags huge": replaced(("manifest", "recipe", "spec", "lags"), "huge"),
    "horizon large": replaced(("manifest", "recipe", "spec", "horizon"), "large"),
    "lags gone": replaced(("manifest", "recipe", "spec", "lags"), "gone"),
    "levels nan": replaced(("manifest", "recipe", "calibration", "levels", 0), "nan"),
    "model text": replaced(("manifest", "recipe", "model"), "text"),
    "seed huge": replaced(("manifest", "recipe", "seed"), "huge"),
    "set list": replaced(("manifest", "recipe", "options"), "list"),
    "season true": replaced(("manifest", "recipe", "spec", "season"), "true"),
    "deep": replaced(("manifest", "unit"), "deep"),
    "counts null": replaced(("rest", "counts", "before"), "null"),
    "size large": replaced(("tensors_bytes",), "large"),
    "ledger longer": reshaped("ledger/target", "longer"),
    "windows turned": reshaped("windows/step", "turned"),
    "scores nan": reshaped("scores/naive", "nan"),
    "scores of fewer counts": reshaped("scores/past", "shorter"),
    "ledger of more keys": reshaped("ledger/keys", "longer"),
    "scores turned": reshaped("scores/own", "turned"),
    "bands turned": reshaped("bands/all.counts", "turned"),
    "series without a name": replaced(("rest", "windows", "names", 0), "gone"),
    "ledger of another kind": reshaped("ledger/keys", "other kind"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_forged_state_is_refused_by_what_makes_something_of_it(one: Path, name: str) -> None:
    REFUSED[name](one)
    found = run("forecast", "--checkpoint", one.parent)
    assert found.exit_code == 4 and one.name in found.stderr, found.stderr
    with pytest.raises(CheckpointError):
        resume(one.parent, {}, "cpu", 100)


@pytest.mark.parametrize("name", ["state.json pipe", "state.json zero", "state.json sparse", "state.json deep"])
def test_what_is_no_file_is_not_waited_for_and_not_read_without_end(home: Path, one: Path, name: str) -> None:
    forged.files(one)[name]()
    for _, _, line in commands(home / "t", one.parent):
        assert run(*line).exit_code == 4, line


def test_only_files_are_read_and_no_more_than_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert load_file(tmp_path / "b", 5) == b"12345"
    for path, most in ((tmp_path / "a", 4), (tmp_path, 9), (Path("/dev/zero"), 9)):
        with pytest.raises(OSError, match=re.escape(str(path))):
            load_file(path, most)


def test_what_a_fresh_part_has_not_may_be_anything() -> None:
    fresh = {"a": torch.zeros(0, 2)}, {"loss": None, "n": 1, "inner": {"on": True}}
    check_fits(
        {"a": torch.ones(3, 2), "b": torch.ones(1)}, {"loss": 0.5, "n": 2, "inner": {"on": False, "x": []}}, fresh
    )
    for rest in ({"n": True}, {"n": 1.5}, {"n": 2**63}, {"inner": [True]}, {"inner": {"on": 1}}, {"loss": 1e200}):
        with pytest.raises(ValueError, match=r"\w"):
            check_fits({"a": torch.ones(3, 2)}, rest, fresh)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fields of JSON", "tensors", "files"])
def test_no_command_takes_a_forged_checkpoint_for_a_defect_of_its_own(home: Path, one: Path, kind: str) -> None:
    """One in nineteen of all fields with all values, and of all tensors with all changes, by every other command."""
    cases: dict[str, Forge] = {}
    if kind == "fields of JSON":
        found = list(forged.places(forged.state(one)))
        cases = {f"{at} {name}": replaced(at, name) for at in found for name in forged.VALUES}
    elif kind == "tensors":
        cases = {f"{key} {name}": reshaped(key, name) for key in sorted(forged.tensors(one)) for name in forged.TENSORS}
    else:
        cases = {name: lambda path, name=name: forged.files(path)[name]() for name in forged.files(one)}
    wrong, step = [], 1 if kind == "files" else 19
    for at, (name, forge) in enumerate(cases.items()):
        if at % step:
            continue
        every = list(commands(home / "t", one.parent.with_name("d")))
        for command, allowed, line in every if step == 1 else every[at % 2 :: 2]:
            shutil.rmtree(one.parent.with_name("d"), ignore_errors=True)
            shutil.copytree(one.parent, one.parent.with_name("d"))
            forge(one.parent.with_name("d") / one.name)
            ended: Any = run(*line)
            if ended.exit_code not in allowed:
                wrong.append((name, command, ended.exit_code, ended.stderr[-200:]))
    assert not wrong, json.dumps(wrong, indent=1)


def test_what_a_checkpoint_says_is_checked_field_by_field(one: Path) -> None:
    said = forged.state(one)["manifest"]
    parts = {"spec": WindowSpec, "calibration": Calibration, "schedule": Schedule, "recipe": Recipe, "moments": Moments}
    for name, part in parts.items():
        checked, own = restored.CHECKED[name].model_fields, {**said, **said["recipe"]}[name]
        assert set(checked) == set(own) == {field.name for field in fields(part)}


def test_the_checksum_of_a_forgery_fits(one: Path) -> None:
    forged.forge(one, forged.state(one))
    forged.forge_tensors(one, forged.tensors(one))
    assert checkpoint.read(one).rows == forged.state(one)["rows"]
