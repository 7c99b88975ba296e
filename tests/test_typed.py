"""A user's script is typed, and mistakes in it are found. mypy --strict reads it with the packages (`make check`)."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

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


def checked(script: Path) -> list[str]:
    """The lines with an error, by pyright."""
    paths = [str(ROOT / folder) for folder in ("", "pipelines", "cli")]  # as it is installed editable
    config = {"typeCheckingMode": "standard", "extraPaths": paths}
    (script.parent / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "basedpyright", "--level", "error", "--pythonpath", sys.executable, str(script)]
    result = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, check=False)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    return [line for line in result.stdout.splitlines() if " error" in line and script.name in line]


@needs("test-slow")
@pytest.mark.slow
def test_a_users_script_is_typed(tmp_path: Path) -> None:
    text = SCRIPT.read_text()
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(text)
    assert checked(right) == []
    for before, after in MISTAKES.items():
        assert before in text
        text = text.replace(before, after)
    wrong.write_text(text)
    assert len(checked(wrong)) >= len(MISTAKES)
