"""`streamgp check`, as cron runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import World, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_an_alarm_is_an_exit_code(world: World) -> None:
    calm = run("check", "--checkpoint", world.checkpoint)
    assert calm.exit_code == 0
    (age,) = [line for line in calm.stdout.splitlines() if line.strip().startswith("age")]
    assert "no limit" in age and " ok " not in age
    found = run("check", "--checkpoint", world.checkpoint, "--max-age", "1h", "--json")
    assert found.exit_code == 6 and json.loads(found.stdout)["alarms"] == ["age"]
    assert "ALARM" in run("check", "--checkpoint", world.checkpoint, "--max-age", "1h").stdout
    assert run("check", "--checkpoint", world.table).exit_code == 4
    assert run("check", "--checkpoint", world.checkpoint, "--max-age", "soon").exit_code == 2
    assert "2h" in run("check", "--checkpoint", world.checkpoint, "--max-age", "foo").stderr


def test_an_alarm_is_passed_on(world: World, tmp_path: Path) -> None:
    words = ("check", "--checkpoint", world.checkpoint, "--max-age", "1h", "--on-alarm")
    assert run(*words, f"tee {tmp_path / 'got.json'}").exit_code == 6
    got = json.loads((tmp_path / "got.json").read_text())
    assert got["alarms"] == ["age"] and got["findings"][0]["limit"] == 3600
    failed = run(*words, "false")
    assert failed.exit_code == 6 and "--on-alarm" in failed.stderr
    assert run(*words, "gopher://example.org").exit_code == 2
