"""`make` installs what was asked for, once; and CI compares the README's scores with what the demo prints."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import rooms
from tests.needs import needs

ROOT = Path(__file__).parents[1]
LOG = """
771,840 forecasts, each made before its truth was seen (target units)

 model              rmse      mae     mase   calibrated crps   coverage 95 %   width 95 %   seconds
 ──────────────────────────────────────────────────────────────────────────────────────────────────
 seasonal_naive   0.4488   0.2828   0.2085            0.2069          0.9529        1.773     8.346
 linear           0.2766   0.1667   0.1229            0.1204          0.9522        1.041     27.37

forecast of the held-out day: streamgp-demo/forecast.parquet (mean absolute error 0.162)
"""
PAGE = """
Text: 771,840 forecasts, each made
before its truth was seen.

|model|RMSE|MAE|calibrated CRPS|coverage of the 95 % band|width of the 95 % band|
|-|-|-|-|-|-|
|seasonal naive (a week ago)|0.449 GW|0.283 GW|0.207 GW|0.953|1.77 GW|
|`linear`, a text|0.277 GW|0.167 GW|0.120 GW|0.952|1.04 GW|

More.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout whose installers only note what they are asked for."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("uv", "pip"):
        tool = tmp_path / ".venv" / "bin" / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >> installed\n')
        tool.chmod(0o755)
    return tmp_path


def make(folder: Path, *words: str) -> tuple[int, list[str]]:
    """The exit code, and what was installed: `.` is the package, `.[ray]` an extra."""
    noted = folder / "installed"
    noted.unlink(missing_ok=True)
    done = subprocess.run(["make", *words, "PYTHON=true"], cwd=folder, capture_output=True, text=True)
    lines = noted.read_text().splitlines() if noted.exists() else []
    return done.returncode, [line.split()[-1] for line in lines if line.startswith("uv ")]


@needs("make")
def test_an_extra_that_is_asked_for_later_is_installed_later(folder: Path) -> None:
    assert make(folder, "setup") == (0, ["."])
    assert make(folder, "setup") == (0, [])
    assert make(folder, "setup", "EXTRAS=serve,ray") == (0, [".[serve]", ".[ray]"])
    assert make(folder, "setup", "EXTRAS=ray,docs") == (0, [".[docs]"])
    assert make(folder, "setup", "EXTRAS=rey")[0] == 2
    with (folder / "pyproject.toml").open("a") as project:
        project.write("\n")
    assert make(folder, "setup", "EXTRAS=ray") == (0, [".", ".[ray]"])


@needs("make")
def test_users_get_no_tools_of_developers(folder: Path) -> None:
    (folder / ".venv" / "bin" / "streamgp").symlink_to(shutil.which("true") or "true")
    assert make(folder, "demo") == (0, ["."])
    assert make(folder, "check")[1] == [".[test]"]  # and fails, for this checkout has no ruff


@pytest.fixture(scope="module")
def compared() -> Any:
    return runpy.run_path(str(ROOT / ".ci" / "readme_is_true.py"))["differences"]


def test_every_room_has_tests_and_a_wrong_one_is_told_which_there_are() -> None:
    for room in ("data", "pipelines", "cli", *(name.partition(".")[2] for name in rooms.rooms())):
        paths = rooms.asked(room)
        assert all(path.exists() for path in paths) and any(path.name.startswith("test_") for path in paths), room
    places = [rooms.ROOT / "tests" / "kernels", rooms.ROOT / "streamgp" / "kernels"]
    for typed in ("kernels", "streamgp/kernels/", "streamgp.kernels"):
        found = rooms.asked(typed)
        assert {*places[0].glob("test_*.py"), places[1]} <= set(found) and len(found) < 12
    with pytest.raises(ValueError, match=r"(?s)no room 'kernel'.*kernels.*sources.*learning.*forecast"):
        rooms.asked("kernel")
    assert rooms.asked("pipelines/streamgp_data/sources/orc.py") == [
        rooms.ROOT / "tests" / "data" / "sources" / "test_other_sources.py",
        rooms.ROOT / "tests" / "contracts" / "test_sources.py",
        rooms.ROOT / "pipelines" / "streamgp_data" / "sources" / "orc.py",
    ]


@needs("make")
def test_the_tests_of_a_room_come_without_the_checks() -> None:
    def told(*words: str) -> str:
        return subprocess.run(["make", "-n", "test", *words], cwd=ROOT, capture_output=True, text=True).stdout

    assert "rooms.py kernels cli" in told("ROOM=kernels cli") and "mypy" not in told("ROOM=kernels cli")
    assert "mypy" in told() and "rooms.py" not in told()


def test_scores_of_the_readme_are_those_of_the_demo(compared: Any) -> None:
    assert compared(PAGE, LOG) == []
    assert len(compared(PAGE.replace("0.283", "0.282"), LOG)) == 1
    assert len(compared(PAGE, LOG.replace("1.041", "1.201"))) == 1
    assert len(compared(PAGE, LOG.replace("linear ", "other  "))) == 5
    assert len(compared(PAGE.replace("771,840", "771,841"), LOG)) == 1


def test_the_readme_has_the_table_that_is_compared(compared: Any) -> None:
    assert len(compared((ROOT / "README.md").read_text(), LOG)) == 5  # of `ensemble`, which the log above lacks
