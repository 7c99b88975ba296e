"""What a test needs beyond the extra `test`: `needs("ray")`. Where it is absent, the test is skipped.

In CI (`CI=true`) a skip counts as a failure; see `expected`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

EXTRAS: dict[str, list[str]] = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
PROGRAMS = {  # what PATH must have -> the Debian package; Debian puts some servers in /usr/sbin
    "chromium": "chromium",
    "make": "make",
    "mosquitto": "mosquitto",
    "nats-server": "nats-server",
    "openssl": "openssl",
    "redis-server": "redis-server",
    "systemd-analyze": "systemd",
}
ALSO = {"chromium": ("chromium-browser",)}  # other names of a program


def needs(*names: str) -> pytest.MarkDecorator:
    """A mark: the test is skipped where one of these is absent.

    Args:
        names: an extra of pyproject.toml (`"ray"`), a program (`"chromium"`), `"gpu"`, `"linux"`, or a file of the
            public data sets that are not bundled (`"raw/a.csv"`; `STREAMGP_TEST_DATA` is their folder).
    """
    return pytest.mark.needs(*names)


@cache
def absent(name: str) -> str | None:
    """Why a test that needs this is skipped; None where it is here.

    Raises:
        ValueError: `name` is nothing that a test can need.
    """
    if "." in name:
        if "STREAMGP_TEST_DATA" not in os.environ:
            return "needs public data sets: STREAMGP_TEST_DATA names no folder of them"
        return None if public(name).is_file() else f"needs {name}, which STREAMGP_TEST_DATA has not"
    if name in EXTRAS:
        here = all(map(_installed, EXTRAS[name]))
        return None if here else f"needs the extra `{name}`: make setup EXTRAS=test,{name}"
    if name in PROGRAMS:
        here = any(map(shutil.which, (name, *ALSO.get(name, ()))))
        return None if here else f"needs {name} on PATH: apt-get install {PROGRAMS[name]}"
    if name == "gpu":
        import torch

        return None if torch.cuda.is_available() else "needs a GPU"
    if name == "linux":
        return None if sys.platform.startswith("linux") else "needs Linux"
    raise ValueError(f"{name!r} is no extra, none of {', '.join(PROGRAMS)}, not gpu, not linux, and no file")


def expected(reason: str) -> bool:
    """Whether CI may lack this: no machine of it has to have a GPU, nor the public data sets if it names no folder."""
    return reason == "needs a GPU" or reason.startswith("needs public data sets")


def public(name: str) -> Path:
    """The path of a file of the public data sets."""
    return Path(os.environ.get("STREAMGP_TEST_DATA", "/nowhere")) / name


def _installed(requirement: str) -> bool:
    try:
        return bool(distribution(re.split(r"[\[<>=!~; ]", requirement)[0]))
    except PackageNotFoundError:
        return False
