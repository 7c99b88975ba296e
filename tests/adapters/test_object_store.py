"""Tables in an object store: a server that speaks S3 on loopback, and the commands as a user starts them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen
from uuid import uuid4

import polars as pl
import pytest

from streamgp.streaming.table import Table, TableMeta
from tests.pipelines.ingesting import take
from tests.pipelines.killed import wait_for
from tests.pipelines.worlds import frame_of, scores_of
from tests.pipelines.worlds import run as train_here

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SECRET = "a-secret-that-nobody-prints"
CODE = "from streamgp_cli.app import main; main()"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server in a process of its own: reading from a store holds the interpreter's lock."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: answers(port), 60)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def bucket(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket; the environment holds the address and the credentials."""
    given = {"ENDPOINT_URL": address, "ALLOW_HTTP": "true", "REGION": "us-east-1", "ACCESS_KEY_ID": "key"}
    for name, value in {**given, "SECRET_ACCESS_KEY": SECRET}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    name = f"rows-{uuid4()}"
    with urlopen(Request(f"{address}/{name}", method="PUT")):
        return f"s3://{name}"


def start(*words: object) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    line = [sys.executable, "-c", CODE, *map(str, words)]
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def say(*words: object, code: int = 0) -> str:
    """What the command printed; it must end with `code`, and never have said the secret."""
    process = start(*words)
    said = process.communicate(timeout=300)[0]
    assert process.returncode == code, said
    assert SECRET not in said
    return said


def written(path: Path, frame: pl.DataFrame) -> Path:
    frame.write_csv(path)
    return path


def rows(table: str) -> pl.DataFrame:
    batches = [pl.DataFrame(pl.from_arrow(chunk.rows)) for chunk in Table.open(table).read()]
    return pl.concat(batches)


def test_the_whole_road_gives_the_numbers_of_a_local_table(bucket: str, tmp_path: Path) -> None:
    data = frame_of(600, ("a", "b"))
    one, two = written(tmp_path / "1.csv", data.head(900)), written(tmp_path / "2.csv", data.tail(300))
    far, near = f"{bucket}/deep/demand", tmp_path / "near"
    for source in (one, two):
        say("ingest", source, "--table", far, "--series", "unique_id")
        take(near, source, series="unique_id")
    assert rows(far).equals(rows(str(near)))

    line = ["--target", "y", "--lags", 6, "--horizon", 3, "--season", 24, "--warmup", 200, "--batch", 64]
    line += ["--model", "linear", "--device", "cpu", "--level", "80,95", "--tracking-uri", f"sqlite:///{tmp_path}/m.db"]
    train = ["train", "--online", *line, "--table", far, "--checkpoint", tmp_path / "far"]
    say(*train, "--max-rows", 700)
    say(*train)
    here = train_here(near, tmp_path / "near-run")
    there = train_here(Table.open(far), tmp_path / "far-run")
    assert scores_of(here) == scores_of(there)
    future = ["--checkpoint", tmp_path / "far", "--table", far, "--output", tmp_path / "f.parquet"]
    say("forecast", *future)
    assert pl.read_parquet(tmp_path / "f.parquet").height == 6
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert kept == []


def test_several_writers_at_once_append_every_row_once(bucket: str, tmp_path: Path) -> None:
    data = frame_of(900, ("a",))
    parts = [written(tmp_path / f"{i}.csv", data.slice(60 * i, 60)) for i in range(15)]
    table = f"{bucket}/shared"
    writers = [start("ingest", *parts[i::3], "--table", table) for i in range(3)]
    for writer in writers:
        said = writer.communicate(timeout=300)[0]
        assert writer.returncode == 0, said
    found = rows(table)
    assert found["_seq"].to_list() == list(range(900)) and found["t"].n_unique() == 900


def test_a_writer_that_is_killed_leaves_no_row_out_and_none_twice(bucket: str, tmp_path: Path) -> None:
    data = frame_of(3000)
    parts = [written(tmp_path / f"{i:02d}.csv", data.slice(100 * i, 100)) for i in range(30)]
    table = f"{bucket}/killed"
    line = ("ingest", *parts, "--table", table)
    ends, seen = [], 0
    for _ in range(5):
        writer = start(*line)
        end = time.monotonic() + 120
        while writer.poll() is None and time.monotonic() < end:
            if Table.exists(table) and Table.open(table).rows > seen:  # it is in the middle of its commits
                writer.kill()
                break
        writer.communicate()
        ends.append(writer.returncode)
        seen = Table.open(table).rows
    say(*line)
    found = rows(table)
    assert -9 in ends
    assert found["_seq"].to_list() == list(range(3000)) and found["t"].n_unique() == 3000


def test_of_several_who_create_one_does(bucket: str) -> None:
    """A creation that would replace another's table is refused by the store itself: it writes on a condition."""
    from streamgp.errors import TableError

    data = frame_of(3)
    schema = data.to_arrow().schema
    Table.create(f"{bucket}/once", schema, TableMeta(time="t"))
    with pytest.raises(TableError, match="exists already"):
        Table.create(f"{bucket}/once", schema, TableMeta(time="t"))


@pytest.mark.parametrize(
    ("where", "changed", "says"),
    [
        ("s3://nowhere", {}, "The specified bucket does not exist"),
        ("", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Connection refused"),
        ("", {"AWS_ACCESS_KEY_ID": ""}, "AccessKeyId"),
    ],
)
def test_what_the_store_says_is_told(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, changed: dict[str, str], says: str
) -> None:
    for name, value in changed.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    said = say("ingest", written(tmp_path / "rows.csv", frame_of(10)), "--table", f"{where or bucket}/t", code=5)
    assert says in " ".join(said.split()) and "hint" in said and "\x1b" not in said
