"""A command spends memory to save time, and a process that imports the library does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASK = "import gc; print(gc.get_threshold()[0], gc.get_freeze_count() > 0)"


@pytest.mark.parametrize(
    ("first", "seen"),
    [
        ("from streamgp_cli import _memory; _memory.spend(); _memory.leave()", "50000 True"),
        ("import streamgp", "700 False"),
    ],
)
def test_only_a_command_searches_seldom_for_garbage(first: str, seen: str) -> None:
    found = subprocess.run([sys.executable, "-c", f"{first}; {ASK}"], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == seen
