"""What the packages import is what the distribution asks for, and nothing that it asks for is idle."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tests.sources import names_in

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "streamgp": "streamgp",
    "streamgp_data": "pipelines",
    "streamgp_pipelines": "pipelines",
    "streamgp_cli": "cli",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_IMPORTED = {
    "tzdata",  # data for zoneinfo, where the operating system has none
    "pandas",  # the frames that MLflow hands to a pyfunc, turned by polars and pyarrow
}


def _plain(name: str) -> str:
    """The distribution's name without its version, as package indexes compare names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", name)[0]).lower()


@cache
def _imported() -> dict[str, str]:
    """Top-level module -> a file that imports it, from every import statement, those inside functions too."""
    found: dict[str, str] = {}
    for top in dict.fromkeys(PACKAGES.values()):
        for path in sorted((ROOT / top).rglob("*.py")):
            found |= {name.split(".")[0]: str(path.relative_to(ROOT)) for name in names_in(path).imported}
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names | PACKAGES.keys()}


def _modules(line: str) -> set[str]:
    """Top-level modules of the distribution that a requirement names; of its name, where it is not installed."""
    try:
        files = distribution(_plain(line)).files or []
    except PackageNotFoundError:
        return {_plain(line).replace("-", "_")}
    return {file.parts[0].removesuffix(".py") for file in files if file.suffix in (".py", ".so")}


def test_every_import_is_declared() -> None:
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *extras["serve"], *extras["store"], *extras["ray"]]
    declared = {module for line in lines for module in _modules(line)}
    missing = {name: path for name, path in _imported().items() if name not in declared}
    assert missing == {}, "add them to `dependencies` or an extra of the command that needs them, or do without"


def test_every_dependency_is_imported() -> None:
    idle = {_plain(line) for line in PROJECT["dependencies"] if not _modules(line) & _imported().keys()}
    assert idle - NOT_IMPORTED == set()


def test_constraints_are_exact_and_name_no_build() -> None:
    lines = (ROOT / "constraints.txt").read_text().split()
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    pinned = {_plain(line) for line in lines}
    extras = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    assert {_plain(line) for line in [*PROJECT["dependencies"], *extras]} - pinned == set()
