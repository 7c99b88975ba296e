"""Measure what an installation takes, and write docs/install.md: seconds and megabytes, without and with each extra.

    python docs/make_install_sizes.py            # measure all again, in new environments: half an hour
    python docs/make_install_sizes.py kafka      # measure an extra that is new, and keep the others
    python docs/make_install_sizes.py --render   # write the page from what was measured

Each environment is new and gets the wheel by uv, with the versions of constraints.txt. A first run fills uv's cache;
what is timed is a second one, as downloads depend on the line. Sizes are of the files in the environment, not of its
Python.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MEASURED = ROOT / "docs" / "install.json"
PAGE = ROOT / "docs" / "install.md"
FOR_DEVELOPERS = ("test", "test-slow", "bench", "docs")
UV = (sys.executable, "-m", "uv", "-q")
FRONT = """# Install

Linux, Python {requires}. Without an NVIDIA GPU, take the CPU build of PyTorch first: it is several gigabytes smaller
than the one that pip finds by itself, and loads in half the time.

```shell
python3.11 -m venv .venv
.venv/bin/pip install torch --index-url https://download.pytorch.org/whl/cpu
.venv/bin/pip install -c constraints.txt -e .
.venv/bin/pip install -c constraints.txt -e '.[serve,formats]'
```

The last line adds extras; `constraints.txt` has the versions that the tests ran with. `make setup` does the same
without choosing a build of PyTorch. For conda there is a recipe, `conda/recipe.yaml`.

## What it takes

Each line is a new environment, Python {python} on Linux ({machine}), with PyTorch {torch}, installed by uv from a
warm cache, on two cores that did other work too: a first installation takes as long as its downloads. pip also compiles
every module, which uv leaves to the first run: {bytecode} MB more. An extra's
megabytes and distributions are those beside the base. Written by `docs/make_install_sizes.py`, which makes the
environments.
"""


def extras() -> list[str]:
    """Those for users."""
    return [name for name in PROJECT["optional-dependencies"] if name not in FOR_DEVELOPERS]


def measure(wanted: list[str]) -> dict[str, Any]:
    """Seconds, megabytes and distributions of an environment with each of these extras; "" is none."""
    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        home = Path(folder)
        _run(*UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", home, cwd=ROOT)
        (wheel,) = home.glob("*.whl")
        for extra in wanted:
            _install(home / "first", wheel, extra)
            seconds = _install(home / "env", wheel, extra)
            found[extra] = {"seconds": round(seconds, 1), **_sizes(home / "env")}
            if not extra:
                found[extra]["bytecode"] = _bytecode(home / "env")
            print(extra or "(none)", found[extra], flush=True)
    versions = {"python": platform.python_version(), "machine": platform.machine(), "torch": _torch(found)}
    return versions | {"installs": found}


def _install(environment: Path, wheel: Path, extra: str) -> float:
    """Make a new environment with the wheel and an extra; seconds of the installation."""
    _run(*UV, "venv", "--clear", "--python", sys.executable, environment, cwd=wheel.parent)
    asked = f"{wheel}[{extra}]" if extra else str(wheel)
    python = environment / "bin" / "python"
    began = time.perf_counter()
    _run(*UV, "pip", "install", "--python", python, "-c", ROOT / "constraints.txt", asked, cwd=wheel.parent)
    return time.perf_counter() - began


def _sizes(environment: Path) -> dict[str, Any]:
    """Megabytes of all files, the distributions, and the version of torch."""
    (room,) = environment.glob("lib/python*/site-packages")
    files = [path for path in environment.rglob("*") if path.is_file() and not path.is_symlink()]
    (torch,) = room.glob("torch-*.dist-info")
    return {
        "megabytes": round(sum(path.stat().st_size for path in files) / 1e6),
        "packages": len([*room.glob("*.dist-info")]),
        "torch": torch.name.removeprefix("torch-").removesuffix(".dist-info"),
    }


def _bytecode(environment: Path) -> int:
    """Megabytes of all modules, compiled; some templates cannot be, which pip passes over too."""
    words = [environment / "bin" / "python", "-m", "compileall", "-qq", environment / "lib"]
    subprocess.run([str(word) for word in words], cwd=environment, check=False)
    return round(sum(path.stat().st_size for path in environment.rglob("*.pyc")) / 1e6)


def _torch(found: dict[str, Any]) -> str:
    """The one version of torch that was installed; it is taken out of the lines."""
    (version,) = {one.pop("torch") for one in found.values()}
    return version


def _run(*command: object, cwd: Path) -> None:
    """Run a command outside of the environment that runs this script."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    subprocess.run([str(word) for word in command], cwd=cwd, env=kept, check=True)


def render() -> str:
    """The page, from what was measured."""
    found = json.loads(MEASURED.read_text("utf-8"))
    base = found["installs"][""]
    lines = [
        "|extra|brings|seconds|MB|distributions|",
        "|-|-|-|-|-|",
        f"|none||{base['seconds']}|{base['megabytes']:,}|{base['packages']}|",
    ]
    for extra in extras():
        one = found["installs"][extra]
        brings = ", ".join(re.split(r"[\[<>=!~; ]", line)[0] for line in PROJECT["optional-dependencies"][extra])
        more = one["megabytes"] - base["megabytes"], one["packages"] - base["packages"]
        lines.append(f"|`{extra}`|{brings}|{one['seconds']}|+{more[0]}|+{more[1]}|")
    front = FRONT.format(
        requires=_spoken(PROJECT["requires-python"]),
        bytecode=base["bytecode"],
        **{k: v for k, v in found.items() if k != "installs"},
    )
    return f"{front}\n" + "\n".join(lines) + "\n"


def _spoken(requires: str) -> str:
    """
    Example:
        >>> _spoken(">=3.11")
        '3.11 or newer'
    """
    return f"{requires.removeprefix('>=')} or newer"


def main(wanted: list[str]) -> None:
    """Measure these extras, or all where none is named, and keep what was measured of others."""
    found = measure(wanted or ["", *extras()])
    if wanted:
        found["installs"] = json.loads(MEASURED.read_text("utf-8"))["installs"] | found["installs"]
    MEASURED.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extra", nargs="*", choices=[[], *extras()], help="measure these alone")
    parser.add_argument("--render", action="store_true", help="write the page from what was measured")
    asked = parser.parse_args()
    if not asked.render:
        main(asked.extra)
    PAGE.write_text(render(), "utf-8")
