"""What cannot be done: each with its exit code, its message and its hint, and nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from tests.words import names

from .conftest import World, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Case(NamedTuple):
    """A command line that fails: its words from a world and an empty directory, the exit code, and the words in the
    message and in the hint."""

    name: str
    words: Callable[[World, Path], list[object]]
    code: int
    says: str
    hint: str


def damaged(world: World, room: Path) -> Path:
    """A copy of the checkpoint directory in which every tensor file has lost its end."""
    copy = room / "damaged"
    shutil.copytree(world.checkpoint, copy)
    for file in copy.rglob("*.safetensors.zst"):
        file.write_bytes(file.read_bytes()[:-100])
    return copy


def copied(world: World, room: Path) -> Path:
    return Path(shutil.copytree(world.checkpoint, room / "copy"))


def toml(room: Path, text: str) -> Path:
    file = room / "run.toml"
    file.write_text(text)
    return file


def future(room: Path, text: str) -> Path:
    file = room / "future.csv"
    file.write_text(text)
    return file


def sealed(room: Path) -> Path:
    """A path in which no directory can be made, even by root: its parent is a file."""
    (room / "file").write_text("")
    return room / "file" / "checkpoint"


CASES = [
    Case("no table", lambda w, r: w.line(table=r / "none", checkpoint=r / "c"), 4, "none", "ingest"),
    Case("table not given", lambda w, r: ["train", "--target", "y"], 2, "--table", "--help"),
    Case("near target", lambda w, r: w.line(target="yy", checkpoint=r / "c"), 2, "yy", "y"),
    Case("far target", lambda w, r: w.line(target="demand", checkpoint=r / "c"), 2, "demand", ""),
    Case("target of text", lambda w, r: w.line(target="text", checkpoint=r / "c"), 3, "", ""),
    Case("no input like it", lambda w, r: w.line(inputs="q*", checkpoint=r / "c"), 2, "", ""),
    Case("unknown model", lambda w, r: w.line(model="svdpg", checkpoint=r / "c"), 2, "svdpg", "svdgp"),
    Case("unknown option", lambda w, r: w.line(set="memry=3", checkpoint=r / "c"), 2, "memry", "memory"),
    Case("wrong value", lambda w, r: w.line(set="memory=much", checkpoint=r / "c"), 2, "--set memory", "models"),
    Case("no value", lambda w, r: w.line(set="memory", checkpoint=r / "c"), 2, "key=value", "--help"),
    Case("level", lambda w, r: w.line(level="195", checkpoint=r / "c"), 2, "--level", "--help"),
    Case("level of text", lambda w, r: w.line(level="wide", checkpoint=r / "c"), 2, "--level", "--help"),
    Case("horizon 0", lambda w, r: w.line(horizon=0, checkpoint=r / "c"), 2, "--horizon", "--help"),
    Case("batch flags", lambda w, r: w.line(test_tail=0.2, checkpoint=r / "c"), 2, "", "--help"),
    Case("score time", lambda w, r: w.line(score_from="monday", checkpoint=r / "c"), 2, "", ""),
    Case("no such file", lambda w, r: w.line(config=r / "no.toml"), 2, "", "--config"),
    Case("bad TOML", lambda w, r: w.line(config=toml(r, "horizon = = 3")), 2, "run.toml", "TOML"),
    Case("misspelt key", lambda w, r: w.line(config=toml(r, "horizn = 3")), 2, "horizn", "--help"),
    Case("tracking store", lambda w, r: w.line(tracking_uri="ftp://h/x", checkpoint=r / "c"), 2, "ftp://h/x", "sqlite"),
    Case(
        "tracking server",
        lambda w, r: w.line(tracking_uri="http://127.0.0.1:9", checkpoint=r / "c"),
        5,
        "",
        "",
    ),
    Case("other options", lambda w, r: w.line(season=12, checkpoint=copied(w, r)), 4, "season", "--fresh"),
    Case("damaged", lambda w, r: w.line(checkpoint=damaged(w, r)), 4, "", ""),
    Case("unwritable", lambda w, r: w.line(checkpoint=sealed(r)), 4, "", "--checkpoint"),
    Case("regression ahead", lambda w, r: w.line(table=w.row_table, lags=0), 2, "--lags 0", ""),
    Case("no such checkpoint", lambda w, r: ["forecast", "--checkpoint", r], 4, "checkpoint", "train"),
    Case("beyond", lambda w, r: ["forecast", "--checkpoint", w.checkpoint, "--horizon", 4], 2, "", "3"),
    Case("no future", lambda w, r: ["forecast", "--checkpoint", w.known], 2, "", "--future"),
    Case(
        "short future",
        lambda w, r: [
            "forecast", "--checkpoint", w.known, "--future", future(r, "ds,w\n2020-02-07T12:00:00,1\n"),
        ],
        3,
        "w 2",
        "3",
    ),
    Case(
        "future of no time",
        lambda w, r: ["forecast", "--checkpoint", w.known, "--future", future(r, "ds,w\nmonday,1\n")],
        3,
        "monday",
        "ISO 8601",
    ),
    Case("damaged forecast", lambda w, r: ["forecast", "--checkpoint", damaged(w, r)], 4, "", ""),
    Case(
        "output suffix",
        lambda w, r: ["forecast", "--checkpoint", w.checkpoint, "--output", r / "f.docx"],
        2,
        "parquet csv json",
        "f.parquet",
    ),
    Case(
        "picture suffix",
        lambda w, r: ["forecast", "--checkpoint", w.checkpoint, "--plot", r / "f.gif"],
        2,
        "f.gif",
        "f.png",
    ),
    Case(
        "output directory",
        lambda w, r: ["forecast", "--checkpoint", w.checkpoint, "--output", sealed(r) / "f.csv"],
        2,
        "",
        "",
    ),
    Case("two of one", lambda w, r: ["describe", "--table", w.table, "--checkpoint", r], 2, "", "describe"),
    Case("no such table", lambda w, r: ["describe", "--table", r / "none"], 4, "none", ""),
    Case("no such state", lambda w, r: ["describe", "--checkpoint", r / "none"], 4, "none", ""),
    Case("no store", lambda w, r: ["ui", "--tracking-uri", f"sqlite:///{r}/x.db"], 4, "", "train"),
    Case("port", lambda w, r: ["ui", "--tracking-uri", w.uri, "--port", 70000], 2, "--port", "--help"),
    Case("no UI there", lambda w, r: ["ui", "--tracking-uri", "http://127.0.0.1:9"], 5, "", ""),
    Case("model of models", lambda w, r: ["models", "linaer"], 2, "linaer", "linear"),
    Case("source", lambda w, r: ["ingest", r / "none.csv", "--table", r / "t"], 3, "none.csv", ""),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_cannot_be_done_says_why_and_what_to_try(
    case: Case, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    result = run(*case.words(world, tmp_path), "--json")
    assert result.exit_code == case.code, result.stderr
    assert result.stdout == ""
    document = json.loads(result.stderr)
    assert names(document["message"], case.says) and names(document["hint"], case.hint), document
    assert document["hint"] and document["code"] == case.code and "Traceback" not in result.stderr


def test_a_target_without_values_scores_nothing_and_says_so(world: World, tmp_path: Path) -> None:
    result = run(*world.line(target="empty", checkpoint=tmp_path / "c"), "--json")
    if result.exit_code:
        assert result.exit_code == 3 and "empty" in result.stderr
        return
    found = json.loads(result.stdout)
    assert found["scored"] == 0 and found["rmse"] is None and found["warnings"]


@pytest.mark.parametrize("command", ["train", "forecast"])
def test_cuda_without_a_gpu(world: World, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = {"train": world.line(checkpoint=tmp_path / "c"), "forecast": ["forecast", "--checkpoint", world.checkpoint]}
    result = run(*words[command], "--device", "cuda", "--json")
    assert result.exit_code == 5
    document = json.loads(result.stderr)
    assert names(document["hint"], "--device cpu")


def test_a_port_that_is_taken(world: World) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run("ui", "--tracking-uri", world.uri, "--port", taken.getsockname()[1], "--json")
    assert result.exit_code == 5
    document = json.loads(result.stderr)
    assert names(document["hint"], "--port")


def test_after_all_this_nothing_is_lost(world: World) -> None:
    found = run("describe", "--table", world.table, "--json")
    assert found.exit_code == 0 and json.loads(found.stdout)["rows"] == 900
    ahead = run("forecast", "--checkpoint", world.checkpoint, "--json")
    assert ahead.exit_code == 0 and len(json.loads(ahead.stdout)["forecast"]) == 3
