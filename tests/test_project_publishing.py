"""What is published and cited is what pyproject.toml says: citation, conda recipe, metadata, sizes of installations."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
RECIPE = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text("utf-8"))
PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text("utf-8").split())
CONDA = {"torch": "pytorch", "matplotlib": "matplotlib-base", "tzdata": "python-tzdata"}
"""Distribution -> its name on conda-forge, where that is another."""
PACKAGES = ("streamgp", "pipelines/streamgp_data", "pipelines/streamgp_pipelines", "cli/streamgp_cli")


def test_the_citation_is_valid() -> None:
    """By the schema of the Citation File Format 1.2.0."""
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.citation-file-format"]
    done = subprocess.run([*words, str(ROOT / "CITATION.cff")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert CITATION["cff-version"] == "1.2.0"


def test_the_citation_says_what_the_project_says() -> None:
    assert (CITATION["title"], CITATION["version"], CITATION["license"], CITATION["keywords"]) == (
        PROJECT["name"], PROJECT["version"], PROJECT["license"], PROJECT["keywords"],
    )  # fmt: skip
    assert [one["name"] for one in CITATION["authors"]] == [one["name"] for one in PROJECT["authors"]]


def test_the_papers_of_the_citation_are_those_of_the_systems() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_bibliography.py"))
    listed = {paper.title: paper for paper in made["papers"]()}
    for one in CITATION["references"]:
        paper = listed[one["title"]]
        assert [author["family-names"] for author in one["authors"]] == paper.surnames
        assert (one["year"], one["url"]) == (paper.year, f"https://arxiv.org/abs/{paper.arxiv}")
    titles = runpy.run_path(str(ROOT / "streamgp" / "papers" / "systems.py"))["TITLES"].values()
    cited = [found for title in titles for _, several in made["cited"](title) for found in several]
    assert {paper.title for paper in cited} == {one["title"] for one in CITATION["references"]}


def test_the_recipe_needs_what_the_project_needs() -> None:
    wanted = [re.fullmatch(r"([\w.-]+)(.*)", line) for line in PROJECT["dependencies"]]
    lines = [f"{CONDA.get(found[1], found[1])} {found[2]}" for found in wanted if found]
    assert RECIPE["requirements"]["run"] == [f"python {PROJECT['requires-python']}", *lines]
    assert RECIPE["requirements"]["host"][1:] == ["pip", f"setuptools =={PINNED['setuptools']}"]


def test_the_recipe_installs_what_the_project_installs() -> None:
    scripts = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == scripts
    assert (RECIPE["context"]["version"], RECIPE["about"]["license"]) == (PROJECT["version"], PROJECT["license"])
    assert RECIPE["about"]["license_file"] == PROJECT["license-files"]
    assert all((ROOT / path).is_file() for path in RECIPE["about"]["license_file"])
    assert (ROOT / "conda" / RECIPE["source"]["path"]).resolve() == ROOT
    assert RECIPE["tests"][0]["python"]["imports"] == [Path(package).name for package in PACKAGES]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed(package: str) -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]
    assert (ROOT / package / "py.typed").is_file() and "py.typed" in data[Path(package).name]
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_a_release_names_its_repository(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"))
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    step = next(one["run"] for one in workflow["jobs"]["build"]["steps"] if "project.urls" in one.get("run", ""))
    given = {"GITHUB_SERVER_URL": "https://host", "GITHUB_REPOSITORY": "a/b", "GITHUB_REF_NAME": "v1"}
    subprocess.run(["bash", "-euc", step], cwd=tmp_path, check=True, env=os.environ | given)
    made: dict[str, Any] = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]
    named = made.pop("urls")
    assert named["Source"] == "https://host/a/b" and named["Changelog"] == "https://host/a/b/blob/v1/CHANGELOG.md"
    assert made == {name: value for name, value in PROJECT.items() if name != "urls"}
    linked = [address.split("/v1/")[1] for address in named.values() if "/v1/" in address]
    assert linked and all((ROOT / path).is_file() for path in linked)


def test_the_page_of_installations_has_every_extra() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_install_sizes.py"))
    assert set(made["extras"]()) < set(PROJECT["optional-dependencies"])
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert page == made["render"](), "python docs/make_install_sizes.py, or with --render"
    block = page.split("```")[1]
    assert "torch --index-url https://download.pytorch.org/whl/cpu" in block
    assert "torch --index-url" in (ROOT / "docs" / "index.md").read_text("utf-8").split("```")[1]
