"""The pages keep their word: their Python runs, their commands run, their options exist.

In a page, a block marked `python` is a doctest. A block marked `sh` is executed, and the blocks of one page follow one
another in one empty folder, beside `data`. A block marked `shell` installs, opens a browser or asks a server, and
may hold nothing else: of its commands only the options and the targets of make are checked here.
"""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import pytest
from typer.testing import CliRunner

from streamgp import registry
from streamgp_cli.app import app
from streamgp_cli.models import options_of
from tests.needs import needs

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
TRACKED = ("README.md", "operations.md")  # MLflow takes longer than the runs: the other pages go without
FOR_PEOPLE = re.compile(
    r"make |streamgp (ui|serve|ingest '\w+://|train .*--follow|\w+ .*--engine ray)|python3\.11 -m venv|"
    r"\.venv/bin/pip |pip install|"
    r"export MLFLOW_|mlflow |curl |    -"
)
COMMAND = re.compile(r"\bstreamgp ([a-z]+)((?:\\\n|[^\n])*)")
LEFT = re.compile(
    r"make |streamgp (ui|serve|ingest '\w+://|train .*--follow|\w+ .*--engine ray)|python3\.11 -m venv|"
    r"\.venv/bin/pip |pip install"
)


def blocks(page: Path, *languages: str) -> list[str]:
    fence = re.compile(r"^```(" + "|".join(languages) + r")\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [text for _, text in fence.findall(page.read_text())]


@cache
def options(command: str) -> set[str]:
    """Every option that the help page of a command names."""
    done = CliRunner().invoke(app, [command, "--help-all"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    assert done.exit_code == 0, f"there is no command {command}: {done.output}"
    return set(re.findall(r"--[a-z][a-z-]*", done.stdout))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_exist(page: Path) -> None:
    for command, rest in (hit for text in blocks(page, "sh", "shell") for hit in COMMAND.findall(text)):
        assert set(re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)) <= options(command), f"streamgp {command}{rest}"


@cache
def settings(model: str) -> set[str]:
    """Every option that --set takes with a model."""
    return {str(one["option"]) for one in options_of(registry.load("models", model).Config)}


def named_model(heading: str) -> str | None:
    return next((word for word in re.findall(r"\w+", heading) if word in registry.names("models")), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_of_models_exist(page: Path) -> None:
    """Those of commands, and those of tables, which are of the model that the heading above them names last."""
    for command, rest in (hit for text in blocks(page, "sh") for hit in COMMAND.findall(text)):
        found = re.search(r"--model (\w+)", rest)
        if command == "train" and "--model $" not in rest:
            named = set(re.findall(r"--set '?([\w.]+)=", rest))
            assert named <= settings(found[1] if found else "svdgp") | (set() if found else settings("ensemble")), (
                f"streamgp {command}{rest}"
            )
    model, inside = None, False
    for line in page.read_text().splitlines():
        model = (named_model(line) or model) if line.startswith("#") else model
        inside = re.match(r"\| ?option ?\|", line) is not None or (inside and line.startswith("|"))
        if inside and model:
            named = set(re.findall(r"`([\w.]+)`", line.split("|")[1]))
            assert named <= settings(model), f"{model}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_only_what_cannot_run_here_is_left_to_people(page: Path) -> None:
    text = page.read_text()
    files = {"dockerfile", "ini", "yaml"} if page.name == "recipes.md" else set()  # tests/test_project_recipes.py
    allowed = {"sh", "shell", "python", "toml", "text", "json"} | files
    assert set(re.findall(r"^```(\w+)$", text, re.MULTILINE)) <= allowed
    lines = [line for block in blocks(page, "shell") for line in block.splitlines()]
    assert [line for line in lines if not FOR_PEOPLE.match(line)] == []


@needs("make")
@pytest.mark.parametrize("page", [PAGES[0], ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_targets_of_make_exist(page: Path) -> None:
    targets = sorted(set(re.findall(r"(?:^\s*|`)make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE)))
    assert {"setup", "test"} <= set(targets)
    done = subprocess.run(["make", "--dry-run", *targets], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("STREAMGP_MAX_ROWS", "1536")  # flags come before the environment: the commands are as printed
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)  # MLflow sets it where a test in this process used a store
    if page.name not in TRACKED:
        monkeypatch.setenv("STREAMGP_TRACKING_URI", "none")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(ROOT / "data")
    for text in blocks(page, "sh"):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    test = doctest.DocTestParser().get_doctest("\n".join(blocks(page, "python")), {}, page.name, str(page), 0)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.DocTestRunner(optionflags=flags).run(test).failed == 0


BASES = {  # a mixin is no base that a reader can look up
    "streamgp_pipelines.forecaster.Forecaster": [],
    "streamgp_pipelines.estimators.StreamRegressor": ["RegressorMixin", "BaseEstimator"],
    "streamgp.errors.SchemaError": ["DataError"],
    "streamgp.kernels.matern.Matern": ["Stationary"],
}


def test_the_reference_reads_without_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make docs` is strict, and what it says of a docstring is known within seconds."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    site_pages = importlib.import_module("site_pages")
    pages = [site_pages.reference(title, names) for title, names in site_pages.REFERENCE.items()]
    shown = re.findall(r"^::: (\S+)$", "\n".join(pages), re.MULTILINE)
    extensions = griffe.load_extensions(ROOT / "docs" / "docstrings.py")
    loader = griffe.GriffeLoader(extensions=extensions, search_paths=[ROOT, ROOT / "pipelines"])
    for package in {module.partition(".")[0] for module in shown}:
        loader.load(package)
    loader.resolve_aliases(external=False)
    read = set()

    def parse(item: Any) -> None:
        item = item.final_target if item.is_alias else item
        if item.canonical_path in read:
            return
        read.add(item.canonical_path)
        if item.docstring is not None:
            item.docstring.parse("google", warn_missing_types=False)
        if item.is_module or item.is_class:
            for member in item.members.values():
                if member.is_public and not (item.is_module and member.is_module):
                    parse(member)

    for module in shown:
        parse(loader.modules_collection[module])
    assert len(read) > 1_000
    bases = {name: list(map(str, loader.modules_collection[name].bases)) for name in BASES}
    assert bases == BASES
    assert not [record.getMessage() for record in caplog.records]
