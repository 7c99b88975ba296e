"""`--tracking-uri none`: no MLflow at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import World, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_nothing_is_tracked(world: World, tmp_path: Path) -> None:
    """That MLflow is not imported either: `test_imports.py`."""
    done = run(*world.line(checkpoint=tmp_path / "c", tracking_uri="none"), "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["run_id"] == "" and found["registered"] == {} and found["scored"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["c"] and not list(tmp_path.rglob("run.json"))


def test_what_is_printed_and_what_cannot_be_shown(world: World, tmp_path: Path) -> None:
    words = world.line(checkpoint=tmp_path / "c", tracking_uri="none")
    page = run(*words)
    assert page.exit_code == 0
    shown = run("ui", "--tracking-uri", "none")
    assert shown.exit_code == 2 and "none" in shown.stderr
