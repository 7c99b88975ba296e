"""The container files, as far as they can be checked where none can be built: what they copy, and what they run."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from streamgp_cli.app import app

ROOT = Path(__file__).parents[1]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
OURS = [name for name, about in SERVICES.items() if "entrypoint" not in about]


@pytest.mark.parametrize("name", OURS)
def test_the_commands_are_of_the_command_line(name: str) -> None:
    group: Any = typer.main.get_command(app)
    command, *words = SERVICES[name]["command"]
    made = group.commands[command]
    with made.make_context(command, list(words), typer.Context(group)) as context:
        assert context.params["config"] is None


def test_services_share_the_image_and_wait_for_those_there_are() -> None:
    assert {about["image"] for about in SERVICES.values()} == {"streamgp"}
    for about in SERVICES.values():
        assert set(about.get("depends_on", {})) <= set(SERVICES)
        assert not re.search(r"TOKEN.*[0-9a-f]{16}", str(about))  # no secret in the file


def test_the_image_has_what_the_build_reads() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    wanted = [project["project"]["readme"], *project["project"]["license-files"], "constraints.txt", "pyproject.toml"]
    wanted += ["streamgp/base.py", "cli/streamgp_cli/start.py", "pipelines/streamgp_pipelines/config.py"]
    for path in wanted:
        assert (ROOT / path).exists()
        assert any(path == one or fnmatch(path, f"{one}/*") for one in kept), path
    lines = (ROOT / "Dockerfile").read_text()
    assert "serve" in project["project"]["optional-dependencies"] and "'.[serve]' -c constraints.txt" in lines
    stages = re.findall(r"^FROM (\S+)", lines, re.MULTILINE)
    assert len(set(stages)) == 1 and ":" in stages[0]
    users = re.findall(r"^USER (\S+)", lines, re.MULTILINE)
    assert users and users[-1] not in ("root", "0")
