"""`--log json`: every line on standard error is a document, whatever happens."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from .conftest import World, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def documents(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    assert all({"time", "level", "command", "message"} <= one.keys() for one in found)
    return found


def test_progress_is_documents(world: World, tmp_path: Path) -> None:
    words = [*world.line(checkpoint=tmp_path / "c", tracking_uri="none"), "--log", "json"]
    result = run(*words)
    assert result.exit_code == 0
    found = documents(result.stderr)
    assert {one["level"] for one in found} == {"info"}
    stages = [one for one in found if "stage" in one]
    assert stages and all(one["done"] >= 0 and one["command"] == "train" for one in stages)


def test_an_error_is_one_document_and_has_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGP_LOG", "json")
    result = run("train", "--table", tmp_path / "none", "--online")
    (found,) = documents(result.stderr)
    assert (found["level"], found["code"], result.exit_code) == ("error", 4, 4) and found["hint"]
    assert run("train", "--log", "xml", "--table", "t").exit_code == 2
    monkeypatch.setenv("STREAMGP_LOG", "xml")
    assert run("train", "--table", "t").exit_code == 2


def test_notes_of_ingest_are_documents(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ds,y\n2024-01-01,1\n2024-01-02,x\n2024-01-03,2\n2024-01-04,3\n2024-01-05,half")
    result = run("ingest", tmp_path / "a.csv", "--table", tmp_path / "t", "--log", "json")
    assert result.exit_code == 0 and any(one["level"] == "note" for one in documents(result.stderr))


def test_what_the_packages_log_is_said(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run("models")
    logging.getLogger("streamgp").warning("the %s is full", "disk")
    assert capfd.readouterr().err == "warning: the disk is full\n"
    run("models", "--log", "json")
    logging.getLogger("streamgp").warning("still")
    (found,) = documents(capfd.readouterr().err)
    assert (found["level"], found["message"], found["command"]) == ("warning", "still", "models")
