"""The distribution: built from a clean copy, installed where no checkout is in sight, and run; and its release."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PARTS = ("streamgp", "pipelines", "cli", "tests", "data", "pyproject.toml", "MANIFEST.in", "constraints.txt")
PAGES = ("README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE")
RELEASE = ROOT / ".github" / "workflows" / "release.yml"
UV = (sys.executable, "-m", "uv", "-q")


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """Its standard output; nothing of the checkout and of the environment of the tests is in sight."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, env=kept | more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`make dist` in a copy, so that no old build folder can leak into it: the sdist, and the wheel made of it."""
    folder = tmp_path_factory.mktemp("source")
    for part in (*PARTS, *PAGES):
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / part, folder / part)
    run(*UV, "build", "--no-build-isolation", "--python", sys.executable, cwd=folder)
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, and links to what it asks for, which is installed beside the tests."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    run(*UV, "venv", "--python", sys.executable, folder, cwd=folder.parent)
    run(*UV, "pip", "install", "--python", folder / "bin" / "python", "--no-deps", wheel, cwd=folder)
    (room,) = folder.glob("lib/python*/site-packages")
    for found in map(
        importlib.metadata.distribution, {name for name, _ in required("streamgp", "", set())} - {"streamgp"}
    ):
        for top in {file.parts[0] for file in found.files or [] if file.parts[0] != ".."}:
            if not (room / top).exists():
                (room / top).symlink_to(found.locate_file(top))
    return folder


def required(name: str, extra: str, known: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """A distribution with an extra, or with "" for none, and all that it leads to."""
    if (name, extra) not in known:
        known.add((name, extra))
        for one in map(Requirement, importlib.metadata.requires(name) or []):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                for asked in {"", *one.extras}:
                    required(one.name, asked, known)
    return known


@pytest.mark.slow
def test_the_sdist_holds_what_it_should(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"constraints.txt", "data/elecdemand.csv", "streamgp/base.py", "cli/streamgp_cli/app.py", *PAGES} <= names
    assert not any(name.startswith("tests/") for name in names)


@pytest.mark.slow
def test_the_wheel_holds_what_it_should(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"streamgp", "streamgp_data", "streamgp_pipelines", "streamgp_cli", f"streamgp-{VERSION}.dist-info"}
    for wanted in (
        "streamgp/py.typed",
        "streamgp_data/py.typed",
        "streamgp_pipelines/py.typed",
        "streamgp_cli/py.typed",
        "streamgp_pipelines/recipes/elecdemand.csv",
        "streamgp_pipelines/recipes/demo.toml",
        "streamgp_pipelines/recipes/README.md",
        f"streamgp-{VERSION}.dist-info/licenses/LICENSE",
        f"streamgp-{VERSION}.dist-info/licenses/data/GPL-3.0.txt",
    ):
        assert wanted in names


@pytest.mark.slow
def test_the_installed_command_runs_without_the_checkout(bare: Path) -> None:
    assert run(bare / "bin" / "streamgp", "--version", cwd=bare).split() == ["streamgp", VERSION]
    for package in ("streamgp", "streamgp_data", "streamgp_pipelines", "streamgp_cli"):
        code = f"import {package}; print({package}.__file__)"
        assert run(bare / "bin" / "python", "-c", code, cwd=bare).startswith(str(bare))


@pytest.mark.slow
def test_the_installed_demo_learns_and_forecasts(bare: Path) -> None:
    """On the data in the wheel; shortened, and without MLflow."""
    short = {"STREAMGP_MAX_ROWS": "2016", "OMP_NUM_THREADS": "1"}
    made = json.loads(run(bare / "bin" / "streamgp", "demo", "--tracking-uri", "none", "--json", cwd=bare, **short))
    assert made["scores"]["ensemble"]["rows"] == 2016
    assert made["scores"]["ensemble"]["crps"] < made["scores"]["seasonal_naive"]["crps"]
    assert all((bare / path).exists() for path in made["files"].values())


def test_workflows_are_valid_and_their_actions_pinned() -> None:
    """They have the schema of GitHub's workflows, and one job alone can publish."""
    workflows = [str(path) for path in RELEASE.parent.glob("*.yml")]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    actions = [found for path in workflows for found in re.findall(r"uses: (\S+)", Path(path).read_text())]
    assert (
        len(actions) > 5 and [action for action in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []
    )
    jobs = yaml.safe_load(RELEASE.read_text())["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]


def test_links_of_the_published_readme_lead_to_the_tag(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text((ROOT / "README.md").read_text())
    steps = yaml.safe_load(RELEASE.read_text())["jobs"]["build"]["steps"]
    step = next(step["run"] for step in steps if "sed" in step.get("run", ""))
    given = {"GITHUB_SERVER_URL": "https://host", "GITHUB_REPOSITORY": "a/b", "GITHUB_REF_NAME": "v1"}
    run("bash", "-euc", step, cwd=tmp_path, **given)
    links = re.findall(r"\]\(([^)]*)\)", (tmp_path / "README.md").read_text())
    assert links and [link for link in links if not link.startswith("https://")] == []
    paths = [link.split("/v1/", 1)[1] for link in links if link.startswith("https://host/a/b/")]
    assert len(paths) > 10 and all((ROOT / path).is_file() for path in paths)
