"""The command `streamgp` itself: help, version, completion, and how errors end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamgp.errors import DataError, ServiceError, StateError, UsageError
from streamgp_cli.app import app
from streamgp_cli.errors import explain, report
from tests.words import names

COMMANDS = (
    "ingest",
    "describe",
    "models",
    "tune",
    "train",
    "compare",
    "forecast",
    "serve",
    "check",
    "doctor",
    "compact",
    "vacuum",
    "report",
    "ui",
    "demo",
)
HEAVY = ("torch", "mlflow", "polars", "pyarrow", "pandas", "numpy", "pydantic", "pydantic_settings", "ray", "rich")
LATER = ("evaluate",)


def test_the_root_page_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom streamgp_cli.app import app\n"
        "try:\n app(['--help'])\nfinally:\n print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=_environment(), capture_output=True, text=True, check=True)
    assert all(command in done.stdout for command in COMMANDS)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded.intersection(HEAVY)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_with_examples(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"streamgp {command}" in result.stdout and "--json" in result.stdout


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_what_does_not_work_yet_is_not_offered(command: str) -> None:
    page = CliRunner().invoke(app, [*command.split(), "--help"]).stdout
    assert not [word for word in LATER if word in page.split()]


def test_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"streamgp {version('streamgp')}\n")


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(name, marks=pytest.mark.slow) for name in ("zsh", "fish"))])
def test_the_shell_completes_commands(shell: str) -> None:
    words = {"COMP_WORDS": "streamgp fore", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "streamgp fore"}
    environment = _environment() | words | {"_STREAMGP_COMPLETE": f"complete_{shell}"}
    environment["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    code = "from streamgp_cli.app import app; app(prog_name='streamgp')"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "forecast" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["trian"], "trian train"),
        (["train", "--horizn", "3"], "--horizn"),
        (["train", "--horizon", "many"], "--horizon"),
        (["train", "--table", "t", "--horizon"], "--horizon"),
        (["models", "svdgp", "more"], "more"),
    ],
)
def test_a_wrong_word_is_a_usage_error(words: list[str], says: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2 and result.stdout == ""
    assert names(result.stderr, says)
    as_json = CliRunner().invoke(app, [words[0], "--json", *words[1:]])
    assert as_json.exit_code == 2
    assert as_json.stdout == ""
    document = json.loads(as_json.stderr)
    assert document["error"] == "UsageError" and names(document["message"], says) and document["hint"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("a", hint="b"), 2),
        (DataError("a", hint="b"), 3),
        (StateError("a", hint="b"), 4),
        (ServiceError("a", hint="b"), 5),
        (OSError(28, "No space left on device", "t"), 5),
        (OSError(30, "Read-only file system", "t"), 5),
        (ValueError("a"), 1),
        (MemoryError(), 5),
    ],
)
def test_every_error_has_a_message_a_hint_and_a_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, as_json=True, debug=False) == code == explain(error).code
    document = json.loads(capsys.readouterr().err)
    assert set(document) == {"error", "message", "hint", "code"} and document["message"] and document["hint"]
    assert report(error, as_json=False, debug=True) == code
    told = capsys.readouterr().err
    assert "Traceback" in told or type(error).__name__ in told
    assert document["message"] in told and document["hint"] in told


@pytest.mark.parametrize("command", COMMANDS)
def test_out_of_memory_names_options_that_the_command_has(command: str) -> None:
    hint = explain(MemoryError(), command).hint
    help_page = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    assert all(option in help_page for option in re.findall(r"--[a-z-]+", hint)), hint


def test_the_installed_script_ends_with_the_code(tmp_path: Path) -> None:
    code = "from streamgp_cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "describe", "--table", str(tmp_path / "none"), "--json"],
        env=_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert done.stdout == "" and json.loads(done.stderr)["error"] == "TableError"


def test_a_reader_that_goes_away_is_no_defect() -> None:
    code = "from streamgp_cli.app import main; main()"
    shell = f'"{sys.executable}" -c "{code}" models --json | head -c 1'
    done = subprocess.run(["sh", "-c", shell], env=_environment(), capture_output=True, text=True)
    assert done.stdout == "{" and "Traceback" not in done.stderr


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
