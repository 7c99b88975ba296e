"""`--tracking-uri none`: no MLflow at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import World, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_nothing_of_mlflow_is_imported_or_written(world: World, tmp_path: Path, environment: dict[str, str]) -> None:
    words = world.line(checkpoint=tmp_path / "c", tracking_uri="none")
    code = (
        "import sys\n"
        "from streamgp_cli.app import app\n"
        "try:\n    app()\n"
        "finally:\n    print(sorted({'mlflow', 'matplotlib', 'sqlalchemy'} & sys.modules.keys()), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--json"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
    found = json.loads(done.stdout)
    assert found["run_id"] == "" and found["registered"] == {} and found["scored"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["c"] and not list(tmp_path.rglob("run.json"))


def test_what_is_printed_and_what_cannot_be_shown(world: World, tmp_path: Path) -> None:
    words = world.line(checkpoint=tmp_path / "c", tracking_uri="none")
    page = run(*words)
    assert page.exit_code == 0
    shown = run("ui", "--tracking-uri", "none")
    assert shown.exit_code == 2 and "none" in shown.stderr
