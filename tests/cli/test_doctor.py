"""`streamgp doctor`, as somebody runs it who has a fault."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .conftest import World, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_a_fault_is_an_exit_code(world: World, tmp_path: Path) -> None:
    assert run("doctor", "--table", world.table, "--checkpoint", world.checkpoint).exit_code == 0
    shutil.copytree(world.table, tmp_path / "t")
    next((tmp_path / "t").glob("*.parquet")).unlink()
    found = run("doctor", "--table", tmp_path / "t", "--json")
    assert found.exit_code == 4 and json.loads(found.stdout)["faults"] >= 1
    assert "fault" in run("doctor", "--table", tmp_path / "t").stdout
    assert run("doctor").exit_code == 2
