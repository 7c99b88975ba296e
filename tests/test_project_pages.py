"""The pages keep their word: their Python runs, their commands run, their options exist.

In a page, a block marked `python` is a doctest. A block marked `sh` is executed, and the blocks of one page follow one
another in one empty folder, beside `data`. A block marked `shell` is for people (it installs, opens a browser or runs
for long); of it only the options are checked.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
COMMAND = re.compile(r"\bstreamgp ([a-z]+)((?:\\\n|[^\n])*)")


def blocks(page: Path, *languages: str) -> list[str]:
    fence = re.compile(r"^```(" + "|".join(languages) + r")\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [text for _, text in fence.findall(page.read_text())]


@cache
def options(command: str) -> set[str]:
    """Every option that the help page of a command names."""
    environment = os.environ | {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
    script = Path(sys.executable).with_name("streamgp")
    done = subprocess.run([script, command, "--help"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"there is no command {command}: {done.stderr}"
    return set(re.findall(r"--[a-z][a-z-]*", done.stdout))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_exist(page: Path) -> None:
    for command, rest in (hit for text in blocks(page, "sh", "shell") for hit in COMMAND.findall(text)):
        assert set(re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)) <= options(command), f"streamgp {command}{rest}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("STREAMGP_MAX_ROWS", "1536")  # flags come before the environment: the commands are as printed
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(ROOT / "data")
    for text in blocks(page, "sh"):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    test = doctest.DocTestParser().get_doctest("\n".join(blocks(page, "python")), {}, page.name, str(page), 0)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.DocTestRunner(optionflags=flags).run(test).failed == 0
