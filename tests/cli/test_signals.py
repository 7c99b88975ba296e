"""SIGINT and SIGTERM at any moment: the exit code of the signal, and no traceback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

RAISE = "import os, sys; sys.argv = ['streamgp', *sys.argv[1:]]; from streamgp_cli import signals, start\n"
IN_AN_IMPORT = (
    RAISE
    + """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            try:
                os.kill(os.getpid(), NUMBER)
            except BaseException:
                raise ImportError('made of an interruption') from None
sys.meta_path.insert(0, Finder())
start.main()
"""
)


def ended(code: str, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


SLOW = pytest.mark.slow  # each is a process that imports everything


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder that passes for the home of a checkpoint, so that libraries are imported to read it."""
    made = tmp_path_factory.mktemp("home") / f"{1:012d}"
    made.mkdir()
    return str(made.parent)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=SLOW)])
@pytest.mark.parametrize("module", ["typer", "polars", pytest.param("torch", marks=SLOW)])
def test_a_signal_in_an_import(number: int, module: str, environment: dict[str, str], home: str) -> None:
    code = IN_AN_IMPORT.replace("NUMBER", str(int(number))).replace("MODULE", repr(module))
    done = ended(code, environment, "forecast", "--checkpoint", home, "--json")
    assert done.returncode == 128 + number, done.stderr
    assert done.stdout == "" and json.loads(done.stderr)["code"] == 128 + number


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=SLOW)])
@pytest.mark.parametrize(
    "swallowed", [pytest.param("pass", marks=SLOW), "raise ValueError('made of an interruption') from None"]
)
def test_a_signal_that_a_library_makes_another_error_of(
    number: int, swallowed: str, environment: dict[str, str], home: str
) -> None:
    code = (
        RAISE
        + f"""
from streamgp_pipelines import state
def interrupted(config):
    signals.working()
    try:
        os.kill(os.getpid(), {int(number)})
    except BaseException:
        {swallowed}
    class Late:
        def __del__(self):
            os.kill(os.getpid(), {int(number)})
    Late()
    return {{}}
state.describe = interrupted
start.main()
"""
    )
    done = ended(code, environment, "describe", "--checkpoint", home)
    assert done.returncode == 128 + number, done.stderr
    assert "Traceback" not in done.stderr
