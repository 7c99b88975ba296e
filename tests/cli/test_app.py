"""The command `streamgp` itself: help, version, completion, and how errors end."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamgp.errors import DataError, ServiceError, StateError, UsageError
from streamgp_cli import _memory
from streamgp_cli.app import app
from streamgp_cli.errors import explain, report
from streamgp_pipelines import config
from streamgp_pipelines.config.settings import LEADING
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


@pytest.mark.parametrize(("command", "meant"), [("compare", "--comparison"), ("train", "--predictions")])
def test_an_option_of_another_command_names_what_is_meant(command: str, meant: str) -> None:
    found = CliRunner().invoke(app, [command, "--output", "x"])
    assert found.exit_code == 2 and meant in found.output and "--inputs" not in found.output


@pytest.mark.parametrize("command", ["train", "forecast"])
def test_an_option_that_tables_are_made_with_names_ingest(command: str) -> None:
    found = CliRunner().invoke(app, [command, "--every", "1h"])
    assert found.exit_code == 2 and "streamgp ingest" in found.output and "Possible" not in found.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_with_examples(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"streamgp {command}" in result.stdout and "--json" in result.stdout


def test_a_group_of_the_whole_help_page_begins_with_what_users_need_most() -> None:
    page = CliRunner().invoke(app, ["train", "--help-all"]).stdout
    found = re.findall(r"─ ([A-Z][\w ]+) ─+╮\n│[ *]+(--[a-z-]+)", page)
    wanted = {"Data": "table", "Model": "model", "Distribution": "level", "Online": "online", "Batch": "epochs"}
    wanted |= {"Test rows": "test-column", "Alarms": "alarm-rate", "Output": "checkpoint", "Run": "experiment"}
    wanted |= {"Messages of a broker": "source", "Cluster": "engine", "Common": "json", "Options": "help-all"}
    assert dict(found) == {group: f"--{name}" for group, name in wanted.items()}
    fields = {name for one in vars(config).values() if hasattr(one, "model_fields") for name in one.model_fields}
    assert fields >= set(LEADING)


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


@pytest.mark.sampled
@pytest.mark.parametrize("command", COMMANDS)
def test_out_of_memory_names_options_that_the_command_has(command: str) -> None:
    hint = explain(MemoryError(), command).hint
    help_page = CliRunner().invoke(app, [command, "--help-all"], env={"COLUMNS": "200"}).stdout
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
    shell = f'{{ "{sys.executable}" -c "{code}" models --json; echo $? >&2; }} | head -c 1'
    done = subprocess.run(["sh", "-c", shell], env=_environment(), capture_output=True, text=True)
    assert done.stdout == "{" and done.stderr in ("0\n", "141\n")  # it depends on which of them is faster
    assert report(BrokenPipeError(errno.EPIPE, "Broken pipe"), as_json=False, debug=False) == 141


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.mark.parametrize("command", [("ingest", "a.csv", "--table"), ("train", "--table"), ("doctor", "--table")])
def test_too_few_addresses_are_refused_before_any_library_starts_a_thread(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_memory, "limit", lambda: 1_000_000)
    found = CliRunner().invoke(app, [*command, str(tmp_path / "t")])
    assert found.exit_code == 5 and names(found.stderr, "ulimit -v"), found.stderr
    assert CliRunner().invoke(app, [command[0], "--help"]).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [100_000, 500_000, 1_000_000, _memory.TABLES + 16_000 * (os.cpu_count() or 1)])
def test_a_limit_of_addresses_ends_a_command_or_is_enough_for_it(tmp_path: Path, kilobytes: int) -> None:
    (tmp_path / "a.csv").write_text("time,y\n" + "".join(f"2024-01-01T{hour:02}:00Z,{hour}\n" for hour in range(24)))
    line = [Path(sys.executable).with_name("streamgp"), "ingest", tmp_path / "a.csv", "--table", tmp_path / "t"]
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (1024 * kilobytes, 1024 * kilobytes))  # noqa: E731
    ended = subprocess.run(line, preexec_fn=limit, capture_output=True, text=True, timeout=60)
    assert ended.returncode == (0 if kilobytes > 1_000_000 else 5), ended.stderr
