"""Recipes that nobody has run, as far as they can be checked: commands parse, and files are of their schemas."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from streamgp_cli.app import app
from streamgp_pipelines.config import IngestConfig, ServeConfig, TrainConfig
from tests.needs import needs

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guides" / "recipes.md").read_text()
CONFIGS: dict[str, Any] = {"ingest": IngestConfig, "train": TrainConfig, "serve": ServeConfig}


def fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


(UNIT,), (IMAGE,), (COMPOSE, JOB) = fenced("ini"), fenced("dockerfile"), fenced("yaml")
SERVICES: dict[str, Any] = yaml.safe_load(COMPOSE)["services"]
OURS = [name for name, about in SERVICES.items() if "entrypoint" not in about]


def said(variable: re.Match[str]) -> str:
    """What a variable of the file stands for: its default; a name where the user must give one."""
    return variable[2] if variable[1] == "-" else "y"


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The command of a line, and the options that it names."""
    group: Any = typer.main.get_command(app)
    command, *rest = words
    with group.commands[command].make_context(command, rest, typer.Context(group)) as context:
        named = [key for key in context.params if context.get_parameter_source(key).name == "COMMANDLINE"]
        return command, {key: context.params[key] for key in named}


@pytest.mark.parametrize("name", OURS)
def test_the_services_run_commands(name: str) -> None:
    words = [re.sub(r"\$\{\w+:([?-])([^}]*)\}", said, word) for word in SERVICES[name]["command"]]
    command, options = parsed(words)
    settings = CONFIGS[command].read(options)
    assert command != "train" or settings.target  # which train asks for where a table has several columns


def test_services_share_the_image_and_wait_for_those_there_are() -> None:
    assert {about["image"] for about in SERVICES.values()} == {"streamgp"}
    for about in SERVICES.values():
        assert set(about.get("depends_on", {})) <= set(SERVICES)
        assert not re.search(r"TOKEN.*[0-9a-f]{16}", str(about))  # no secret in the file


def test_the_image_installs_extras_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"brokers", "serve"} <= set(project["optional-dependencies"]) and "'.[brokers,serve]'" in IMAGE
    users = re.findall(r"^USER (\S+)", IMAGE, re.MULTILINE)
    assert users and users[-1] not in ("root", "0")


def test_the_compose_file_is_of_its_schema(tmp_path: Path) -> None:
    checker, file = Path(sys.executable).parent / "check-jsonschema", tmp_path / "compose.yaml"
    file.write_text(COMPOSE)
    command = [str(checker), "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_job_trains_a_fleet_on_ray() -> None:
    job = next(yaml.safe_load_all(JOB))
    program, *words = shlex.split(job["spec"]["entrypoint"])
    command, options = parsed(words)
    assert program == "streamgp" and command == "train" and TrainConfig.read(options).fleet


def command_of(unit: str) -> list[str]:
    """The words of the command that a unit starts."""
    return shlex.split(re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)[0].replace("%%", "%"))


def test_the_unit_runs_a_command_of_the_command_line() -> None:
    assert parsed(command_of(UNIT)[1:])[1]["source"] == "mqtts://broker/meters/%23"


@needs("systemd-analyze")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "streamgp-meters.service"
    unit.write_text(UNIT.replace(command_of(UNIT)[0], str(Path(sys.executable).parent / "streamgp")))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "streamgp-meters" not in done.stderr, done.stderr
