"""The wheel: built from a clean copy, installed where no checkout is in sight, and run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PARTS = ("streamgp", "pipelines", "cli", "data", "pyproject.toml", "README.md", "LICENSE")


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, env={"PATH": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no old build folder can leak into it."""
    folder = tmp_path_factory.mktemp("wheel")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / part, folder / part)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", ".", cwd=folder)
    return next((folder / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment that holds the wheel alone and borrows its dependencies from the test environment.

    The borrowed folder is a plain entry of sys.path: its .pth files, and with them the editable install of the
    checkout, are not read.
    """
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder, with_pip=False)
    run(sys.executable, "-m", "pip", "--python", folder, "install", "-q", "--no-deps", wheel, cwd=folder)
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_the_wheel_holds_what_it_should(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"streamgp", "streamgp_pipelines", "streamgp_cli", f"streamgp-{VERSION}.dist-info"}
    for wanted in (
        "streamgp/py.typed",
        "streamgp_pipelines/py.typed",
        "streamgp_cli/py.typed",
        "streamgp_pipelines/recipes/elecdemand.csv",
        "streamgp_pipelines/recipes/demo.toml",
        "streamgp_pipelines/recipes/README.md",
        f"streamgp-{VERSION}.dist-info/licenses/LICENSE",
        f"streamgp-{VERSION}.dist-info/licenses/data/GPL-3.0.txt",
    ):
        assert wanted in names


def test_the_installed_command_runs_without_the_checkout(bare: Path) -> None:
    assert run(bare / "bin" / "streamgp", "--version", cwd=bare).split() == ["streamgp", VERSION]
    for package in ("streamgp", "streamgp_pipelines", "streamgp_cli"):
        code = f"import {package}; print({package}.__file__)"
        assert run(bare / "bin" / "python", "-c", code, cwd=bare).startswith(str(bare))
