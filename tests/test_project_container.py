"""The container files, as far as they can be checked where none can be built: what they copy, and what they run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from streamgp_cli.app import app
from streamgp_pipelines.config import IngestConfig, ServeConfig, TrainConfig
from tests.needs import needs

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "deploy" / "streamgp-meters.service"
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
OURS = [name for name, about in SERVICES.items() if "entrypoint" not in about]


CONFIGS: dict[str, Any] = {"ingest": IngestConfig, "train": TrainConfig, "serve": ServeConfig}


@pytest.mark.parametrize("name", OURS)
def test_the_commands_work_as_they_are_written(name: str) -> None:
    group: Any = typer.main.get_command(app)
    command, *words = [re.sub(r"\$\{\w+:([?-])([^}]*)\}", said, word) for word in SERVICES[name]["command"]]
    made = group.commands[command]
    with made.make_context(command, list(words), typer.Context(group)) as context:
        assert context.params["config"] is None
        named = [key for key in context.params if context.get_parameter_source(key).name == "COMMANDLINE"]
    settings = CONFIGS[command].read({key: context.params[key] for key in named})
    assert command != "train" or settings.target  # which train asks for where a table has several columns


def said(variable: re.Match[str]) -> str:
    """What a variable of the file stands for: its default; a name where the user must give one."""
    return variable[2] if variable[1] == "-" else "y"


def test_services_share_the_image_and_wait_for_those_there_are() -> None:
    assert {about["image"] for about in SERVICES.values()} == {"streamgp"}
    for about in SERVICES.values():
        assert set(about.get("depends_on", {})) <= set(SERVICES)
        assert not re.search(r"TOKEN.*[0-9a-f]{16}", str(about))  # no secret in the file


def test_the_image_has_what_the_build_reads() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    wanted = [project["project"]["readme"], *project["project"]["license-files"], "constraints.txt", "pyproject.toml"]
    wanted += ["streamgp/base.py", "cli/streamgp_cli/start.py", "pipelines/streamgp_pipelines/config/runs.py"]
    for path in wanted:
        assert (ROOT / path).exists()
        assert any(path == one or fnmatch(path, f"{one}/*") for one in kept), path
    lines = (ROOT / "Dockerfile").read_text()
    assert {"brokers", "serve"} <= set(project["project"]["optional-dependencies"])
    assert "'.[brokers,serve]' -c constraints.txt" in lines
    stages = re.findall(r"^FROM (\S+)", lines, re.MULTILINE)
    assert len(set(stages)) == 1 and ":" in stages[0]
    users = re.findall(r"^USER (\S+)", lines, re.MULTILINE)
    assert users and users[-1] not in ("root", "0")


def test_the_compose_file_is_of_its_schema() -> None:
    checker = Path(sys.executable).parent / "check-jsonschema"
    command = [str(checker), "--builtin-schema", "vendor.compose-spec", str(ROOT / "compose.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def command_of(unit: str) -> list[str]:
    """The words of the command that a unit starts."""
    return shlex.split(re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)[0].replace("%%", "%"))


def test_the_unit_runs_a_command_of_the_command_line() -> None:
    words = command_of(UNIT.read_text())[1:]
    group: Any = typer.main.get_command(app)
    command = group.commands[words[0]]
    with command.make_context(words[0], words[1:], typer.Context(group)) as context:
        assert context.params["source"] == "mqtts://broker/meters/%23"


@needs("systemd-analyze")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text()
    program = command_of(text)[0]
    unit = tmp_path / "streamgp-meters.service"
    unit.write_text(text.replace(program, str(Path(sys.executable).parent / "streamgp")))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "streamgp-meters" not in done.stderr, done.stderr
