"""Tests say what they need in one way, and what CI has to have fails there where it is absent."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests import conftest
from tests.needs import EXTRAS, PROGRAMS, absent

TESTS = Path(__file__).parent
OTHER_WAYS = re.compile(r"importorskip|skipif|mark\.skip\b|pytest\.skip\(")


def test_there_is_no_other_way() -> None:
    own = {"conftest.py", "test_needs.py"}
    files = [path for path in TESTS.rglob("*.py") if path.relative_to(TESTS).as_posix() not in own]
    assert [str(path) for path in files if OTHER_WAYS.search(path.read_text())] == []


def test_a_name_that_nothing_has_is_an_error() -> None:
    for name in (*EXTRAS, *PROGRAMS, "gpu", "linux", "raw/a.csv"):
        assert (absent(name) or "needs").startswith("needs")
    with pytest.raises(ValueError, match="rey"):
        absent("rey")


@pytest.mark.parametrize(
    ("name", "data", "fails"),
    [("raw/none.csv", None, False), ("raw/none.csv", "/data", True), ("gpu", None, False), ("ray", None, True)],
)
def test_a_skip_fails_in_ci(name: str, data: str | None, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(EXTRAS, "ray", ["nobody-has-this>=1"])
    monkeypatch.delenv("STREAMGP_TEST_DATA", raising=False)
    if data:
        monkeypatch.setenv("STREAMGP_TEST_DATA", data)
    reason = absent.__wrapped__(name)
    said: list[str] = []
    report = SimpleNamespace(nodeid="a.py::test", longrepr=("conftest.py", 1, f"Skipped: {reason}"))
    reporter = SimpleNamespace(stats={"skipped": [report]}, write_line=lambda line, **_: said.append(line))
    plugins = SimpleNamespace(get_plugin=lambda _: reporter)
    session: Any = SimpleNamespace(config=SimpleNamespace(pluginmanager=plugins), exitstatus=0)
    conftest.pytest_sessionfinish(session)
    assert (session.exitstatus != 0, "a.py::test" in "".join(said)) == (fails, fails)
