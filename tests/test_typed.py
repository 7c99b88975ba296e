"""A user's script is typed, and mistakes in it are found. mypy --strict reads it with the packages (`make check`)."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from shutil import copy

import pytest

from streamgp import registry
from tests.needs import needs

ROOT = Path(__file__).parents[1]
SCRIPT = Path(__file__).with_name("users_script.py")
MISTAKES = {
    'horizon=48, season=[48, 336], known=["workday"]': 'horizon="48", season=[48, 336]',
    'horizon=48, season=(48, 336), model="linear"': 'horison=48, model="linear"',
    "levels=[95])": 'levels="95%")',
    "made.left_out + 1": "made.leftout + 1",
}


def test_options_are_typed_as_the_flags_are_declared() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_options.py"))
    assert made["FILE"].read_text("utf-8") == made["render"](), "python docs/make_options.py"


def test_guides_have_the_options_that_the_models_declare() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_options.py"))
    pages = {path: path.read_text("utf-8") for path in made["guides"]()}
    assert [path.name for path, text in pages.items() if made["with_tables"](text) != text] == [], (
        "docs/make_options.py"
    )
    listed = {found[2] for text in pages.values() for found in made["TABLE"].finditer(text)}
    same = {"gp_gru", "gp_rnn", "gp_narx", "gru", "rnn", "narx", "linear_short", "seasonal_naive"}
    """Beside `gp_lstm`, `lstm`, `linear` and `persistence`, whose options they have."""
    assert listed | same == set(registry.names("models")) and not listed & same


def checked(folder: Path, *scripts: Path) -> list[str]:
    """The lines of scripts with an error, by pyright."""
    paths = [str(ROOT / folder) for folder in ("", "pipelines", "cli")]  # as it is installed editable
    config = {"typeCheckingMode": "standard", "extraPaths": paths}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "basedpyright", "--level", "error", "--pythonpath", sys.executable, *scripts]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    names = [script.name for script in scripts]
    return [line for line in result.stdout.splitlines() if " error" in line and any(name in line for name in names)]


@needs("test-slow")
@pytest.mark.slow
def test_a_users_script_is_typed(tmp_path: Path) -> None:
    text = SCRIPT.read_text()
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(text)
    assert checked(tmp_path, right) == []
    for before, after in MISTAKES.items():
        assert before in text
        text = text.replace(before, after)
    wrong.write_text(text)
    assert len(checked(tmp_path, wrong)) >= len(MISTAKES)


@needs("test-slow")
@pytest.mark.slow
def test_the_tutorials_are_typed(tmp_path: Path) -> None:
    """By pyright; by mypy --strict in `make check`, which reads the same files."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"] and "docs/tutorials" in settings["files"]
    copies = [copy(path, tmp_path) for path in sorted((ROOT / "docs" / "tutorials").glob("*.py"))]
    assert len(copies) == 6 and checked(tmp_path, *map(Path, copies)) == []
    broken = tmp_path / "broken.py"
    broken.write_text(Path(copies[0]).read_text().replace("season=[48, 336]", 'season="48h", horison=1'))
    assert checked(tmp_path, broken)
