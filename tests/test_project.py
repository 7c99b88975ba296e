"""The project as a newcomer finds it: versions, licences, data, file sizes, names, links."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import streamgp
from streamgp import registry
from streamgp.forecasting.metrics import METRICS
from tests.needs import needs

ROOT = Path(__file__).parents[1]
PACKAGES = ("streamgp", "pipelines/streamgp_data", "pipelines/streamgp_pipelines", "cli/streamgp_cli")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = sorted(
    path for top in (*PACKAGES, "tests", "benchmarks", "data", "docs") for path in (ROOT / top).rglob("*.py")
)
PAGES = sorted([*ROOT.glob("*.md"), *(path for top in ("docs", "data") for path in (ROOT / top).rglob("*.md"))])


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_version_stands_in_one_place() -> None:
    version = PROJECT["version"]
    assert streamgp.__version__ == version
    assert [relative(path) for path in SOURCES if f'"{version}"' in path.read_text()] == []


def test_the_changelog_speaks_of_this_version() -> None:
    assert re.search(rf"^## {re.escape(PROJECT['version'])}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_code_is_under_the_apache_licence() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_bytes()
    assert hashlib.sha1(text).hexdigest() == "2b8b815229aa8a61e483fb4ba0588b8b6c491890", "not the text as published"


def test_the_data_is_what_its_page_says() -> None:
    page = (ROOT / "data" / "README.md").read_text()
    for path in sorted((ROOT / "data").glob("*.csv")):
        assert f"## {path.name}" in page
        assert hashlib.sha256(path.read_bytes()).hexdigest() in page
    recipes = ROOT / "pipelines" / "streamgp_pipelines" / "recipes"
    assert (recipes / "elecdemand.csv").read_bytes() == (ROOT / "data" / "elecdemand.csv").read_bytes()


@needs("data")
def test_the_data_is_rebuilt_byte_for_byte() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "data" / "rebuild.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("same") == 3


def test_nothing_is_left_unfinished() -> None:
    marks = r"\b(Not" r"ImplementedError|TO" r"DO|FIX" r"ME)\b"
    assert [relative(path) for path in SOURCES if re.search(marks, path.read_text())] == []


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{relative(page)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_a_decision_is_short() -> None:
    found = {page.name: page.read_text() for page in (ROOT / "docs" / "decisions").glob("0*.md")}
    assert [name for name, text in found.items() if len(text.split()) > (200 if "Two choices" in text else 150)] == []


def test_a_page_lists_every_model() -> None:
    page = (ROOT / "docs" / "guides" / "models.md").read_text()
    assert [name for name in registry.names("models") if f"`{name}`" not in page] == []


GUIDES_OF_MODELS = {
    **{name: name for name in ("ensemble", "svdgp", "svgp", "qsgp", "rvm", "wiski", "finite_rkhs")},
    **dict.fromkeys(("gp_lstm", "gp_gru", "gp_rnn", "gp_narx", "lstm", "gru", "rnn", "narx"), "deep"),
    **dict.fromkeys(("linear", "linear_short", "iterated", "persistence", "seasonal_naive"), "baselines"),
    "exact": "svgp",
}


@pytest.mark.parametrize("name", registry.names("models"))
def test_a_model_has_equations_costs_options_and_papers(name: str) -> None:
    page = (ROOT / "docs" / "guides" / f"{GUIDES_OF_MODELS[name]}.md").read_text("utf-8")
    assert name in page and page.count("$$") >= 2 and "<!-- options: " in page
    assert re.search(r"^(## Cost|\*\*Cost\.\*\*)", page, re.MULTILINE)
    assert "bibliography.md#" in page and re.search(r"\b[Oo]urs?\b", page)


def test_a_page_explains_every_score() -> None:
    pages = "".join((ROOT / "docs" / "guides" / page).read_text() for page in ("metrics.md", "binary.md"))
    assert [metric.name for metric in METRICS if f"`{metric.name}`" not in pages] == []


def test_the_notation_table_names_things_that_exist() -> None:
    page = (ROOT / "docs" / "notation.md").read_text()
    names = sorted(set(re.findall(r"`((?:streamgp|streamgp_data|streamgp_pipelines)\.[\w.]+)`", page)))
    assert len(names) > 20
    assert [name for name in names if not _exists(name)] == []


def test_a_newcomer_finds_the_file_of_every_task() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text().partition("## Where is it done?")[2]
    rows = [line for line in page.splitlines() if line.startswith("|") and "`" in line.split("|")[2]]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`([^`]+)`", row.split("|")[2])
        files = [ROOT / _folder(name) / name for name in named if "/" in name]
        assert 1 <= len(files) <= 4 and all(path.exists() for path in files), row
        text = "\n".join(path.read_text() for path in files if path.is_file())
        symbols = {name for name in named if "/" not in name} - {"Config"}
        assert {one for one in symbols if not re.search(rf"(?m)^(class |def |){one}\b", text)} == set(), row


def _folder(path: str) -> str:
    """Where a package of the repository lies, from a path that begins with its name."""
    return next((place.partition("/")[0] for place in PACKAGES if path.startswith(place.partition("/")[2] or "-")), "")


def _exists(dotted: str) -> bool:
    """Whether `package.module.attribute.attribute` can be reached."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            fields = getattr(thing, "__annotations__", {}) | getattr(thing, "model_fields", {})
            if not hasattr(thing, name) and name not in fields:
                return False
            thing = getattr(thing, name, None)
        return True
    return False
