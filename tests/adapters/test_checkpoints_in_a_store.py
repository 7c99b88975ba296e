"""Checkpoints in an object store: one is written on a condition, and a run goes on from it on another machine."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import obstore
import polars as pl
import pytest
from obstore.store import from_url

from streamgp.errors import CheckpointError, ServiceError, StateError, UsageError
from streamgp_data import checkpoint, remote
from streamgp_pipelines.learning.checkpointing import state_digest
from tests.adapters.test_object_store import SECRET, address, bucket, say
from tests.forked import start
from tests.pipelines.killed import wait_for
from tests.pipelines.worlds import frame_of, make_table
from tests.pipelines.worlds import run as train_here

__all__ = ["address", "bucket"]  # fixtures

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Counter:
    """A part of a checkpoint."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {"count": self.count}

    def restore(self, tensors: dict[str, Any], rest: dict[str, Any]) -> None:
        self.count = rest["count"]


def elsewhere(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str = "other") -> Path:
    """The mirror of another machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
    return remote.mirror(url)


def counted(directory: Path) -> int:
    counter = Counter()
    checkpoint.read(directory).restore({"counter": counter})
    return counter.count


def test_another_machine_reads_what_was_written(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = remote.mirror(f"{bucket}/runs/one")
    assert here.name == "one" and remote.shown(here) == f"{bucket}/runs/one"
    for rows in (100, 200):
        checkpoint.write(here, rows, {"counter": Counter(rows)}, {})
    there = elsewhere(f"{bucket}/runs/one", tmp_path, monkeypatch)
    assert there != here and checkpoint.exists(there) and counted(there) == 200
    checkpoint.write(here, 300, {"counter": Counter(300)}, {})
    assert counted(there) == 300
    assert [item["path"] for part in from_url(f"{bucket}/runs/one").list() for item in part] == [remote.OBJECT]


def test_of_two_writers_one_wins(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{bucket}/contested"
    here, there = remote.mirror(url), elsewhere(url, tmp_path, monkeypatch)
    checkpoint.write(here, 100, {"counter": Counter(1)}, {})
    with pytest.raises(StateError, match="another process"):  # which believes that there is nothing yet
        checkpoint.write(there, 100, {"counter": Counter(2)}, {})
    remote.pull(there)
    checkpoint.write(there, 200, {"counter": Counter(3)}, {})
    with pytest.raises(StateError, match="another process"):  # which believes that its own is the newest
        checkpoint.write(here, 300, {"counter": Counter(4)}, {})
    assert counted(here) == counted(there) == 3


def test_an_answer_that_was_lost_is_no_conflict(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, put = remote.mirror(f"{bucket}/lost"), obstore.put

    def twice(*given: Any, **options: Any) -> Any:
        """What a client does that sees no answer to the first try."""
        put(*given, **options)
        return put(*given, **options)

    monkeypatch.setattr(obstore, "put", twice)
    for rows in (100, 200):
        checkpoint.write(here, rows, {"counter": Counter(rows)}, {})
    assert counted(here) == 200


def test_what_is_no_checkpoint_is_refused(bucket: str) -> None:
    where = remote.mirror(f"{bucket}/strange")
    for name, file in (("", ""), ("../up", ""), ("000000000100", "../x.parquet")):
        strange = io.BytesIO()
        if name:
            with zipfile.ZipFile(strange, "w") as archive:
                archive.writestr("mirror.json", json.dumps({"name": name, "files": {file: "x"} if file else {}}))
        obstore.put(from_url(f"{bucket}/strange"), remote.OBJECT, strange.getvalue())
        with pytest.raises(CheckpointError, match="no checkpoint"):
            checkpoint.read(where)
    with pytest.raises(CheckpointError, match="there is no checkpoint in s3://"):
        checkpoint.read(remote.mirror(f"{bucket}/empty"))
    with pytest.raises(UsageError, match="credentials"):
        remote.mirror("s3://key:secret@bucket/run")


def test_a_store_that_refuses_is_an_outside_fault(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServiceError):
        checkpoint.write(remote.mirror("s3://no-such-bucket/run"), 1, {}, {})
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ServiceError) as refused:
        checkpoint.read(remote.mirror(f"{bucket}/run"))
    assert "\n" not in refused.value.message


def tags(store: Any) -> str:
    """Of the newest checkpoint; none where there is none."""
    try:
        return str(obstore.head(store, remote.OBJECT)["e_tag"])
    except FileNotFoundError:
        return ""


def line(table: Path, where: object, tmp_path: Path) -> list[object]:
    found = ["train", "--online", "--table", table, "--target", "y", "--lags", 6, "--horizon", 3, "--season", 24]
    found += ["--warmup", 200, "--batch", 64, "--checkpoint-every", 200, "--model", "linear", "--device", "cpu"]
    found += ["--level", "80,95", "--tracking-uri", "none", "--checkpoint", where]
    return [*found, "--predictions", tmp_path / "there.parquet"]


def test_a_run_that_is_killed_goes_on_elsewhere_with_the_numbers_of_one(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    data, url = frame_of(3000), f"{bucket}/fleet/demand"
    table = tmp_path / "table"
    make_table(table, data)
    store = from_url(url)
    for _ in range(2):
        before = tags(store)
        process = start(*line(table, url, tmp_path))
        wait_for(lambda: tags(store) != before or process.poll() is not None, 120)  # noqa: B023
        process.kill()
        process.communicate()
        shutil.rmtree(cache)  # another machine
    say(*line(table, url, tmp_path))
    train_here(table, tmp_path / "here", predictions=tmp_path / "here.parquet")
    assert state_digest(checkpoint.read(remote.mirror(url))) == state_digest(checkpoint.read(tmp_path / "here"))
    there = pl.read_parquet(tmp_path / "there.parquet")
    assert there.equals(pl.read_parquet(tmp_path / "here.parquet"))
    shutil.rmtree(cache)  # another machine looks at it
    assert url in say("doctor", "--checkpoint", url, "--json")
    say("check", "--checkpoint", url)
    say("report", "--checkpoint", url, "--output", tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000
    say("forecast", "--checkpoint", url, "--table", table, "--output", tmp_path / "f.parquet")
    assert pl.read_parquet(tmp_path / "f.parquet").height == 3
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert kept == []
