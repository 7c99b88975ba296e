"""Tables in an object store: a server that speaks S3 on loopback, and the commands as a user starts them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pytest

from streamgp_data import checkpoint, delta, remote
from streamgp_data.parts import write_parts
from streamgp_data.table import Table, TableMeta
from streamgp_pipelines.config import DescribeConfig, DoctorConfig, VacuumConfig
from streamgp_pipelines.config.serve import ServeConfig
from streamgp_pipelines.doctor import doctor
from streamgp_pipelines.learning.checkpointing import state_digest
from streamgp_pipelines.learning.tail import Tail
from streamgp_pipelines.live.bodies import JsonRows
from streamgp_pipelines.maintenance import vacuum
from streamgp_pipelines.serving.service import serving
from streamgp_pipelines.state import describe
from tests.forked import start
from tests.pipelines.ingesting import take
from tests.pipelines.killed import wait_for
from tests.pipelines.worlds import append, frame_of, scores_of
from tests.pipelines.worlds import run as train_here

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SECRET = "a-secret-that-nobody-prints"


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


class Gate:
    """A port that leads to the server, or to nothing: what the server holds outlives it, which moto's restart ends."""

    def __init__(self, address: str) -> None:
        self._to = int(address.rpartition(":")[2])
        self._open: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.port = 0
        self.up()

    def up(self) -> None:
        listener = self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def down(self) -> None:
        assert self._listener is not None
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, far = listener.accept()[0], socket.create_connection(("127.0.0.1", self._to))
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def bucket(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket; the environment holds the address and the credentials."""
    given = {"ENDPOINT_URL": address, "ALLOW_HTTP": "true", "REGION": "us-east-1", "ACCESS_KEY_ID": "key"}
    for name, value in {**given, "SECRET_ACCESS_KEY": SECRET}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    name = f"rows-{uuid4()}"
    with urlopen(Request(f"{address}/{name}", method="PUT")):
        return f"s3://{name}"


def say(*words: object, code: int = 0) -> str:
    """What the command printed; it must end with `code`, and never have said the secret."""
    process = start(*words)
    said = "".join(process.communicate(timeout=300))
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


def test_a_store_that_goes_away_is_waited_for(
    address: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come meanwhile; the run that follows learns them when the store is back, as one that saw no outage."""
    data, table, gate = frame_of(600).select("t", "y"), f"{bucket}/followed", Gate(address)
    take(table, written(tmp_path / "1.csv", data[:300]), every="1h")
    line = ["--target", "y", "--lags", 6, "--horizon", 3, "--season", 24, "--warmup", 200, "--batch", 64]
    line += ["--model", "linear", "--device", "cpu", "--level", "80,95", "--checkpoint-every", 64, "--checkpoint"]
    train = ["train", "--online", "--table", table, "--tracking-uri", f"sqlite:///{tmp_path}/m.db", *line]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{gate.port}")
    following = start(*train, f"{bucket}/run", "--follow")
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    try:
        wait_for(lambda: rows_learned(bucket, tmp_path) == 300, 120)
        gate.down()
        append(Table.open(table), data[300:450])
        wait_for(lambda: "does not answer" in following.said(), 120)
        append(Table.open(table), data[450:])
        gate.up()
        wait_for(lambda: rows_learned(bucket, tmp_path) == 600, 120)
        following.send_signal(signal.SIGTERM)
        assert following.wait(60) == 143
    finally:
        following.kill()
        gate.down()
    assert "is back" in following.said(), following.said()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    say(*train, tmp_path / "once")
    assert state_digest(checkpoint.read(remote.mirror(f"{bucket}/run"))) == state_digest(
        checkpoint.read(tmp_path / "once")
    )


def rows_learned(bucket: str, place: Path) -> int:
    """Those that the checkpoint in the store holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "look"))
        where = remote.mirror(f"{bucket}/run")
        remote.refresh(where)
        if not checkpoint.exists(where):
            return 0
        saved, tail = checkpoint.read(where), Tail()
        saved.restore({"tail": tail})
        return saved.rows + (0 if tail.rows is None else tail.rows.num_rows)


def test_several_writers_at_once_append_every_row_once(bucket: str, tmp_path: Path) -> None:
    data = frame_of(900, ("a",))
    parts = [written(tmp_path / f"{i}.csv", data.slice(60 * i, 60)) for i in range(15)]
    table = f"{bucket}/shared"
    writers = [start("ingest", *parts[i::3], "--table", table) for i in range(3)]
    for writer in writers:
        assert writer.wait() == 0, writer.said()
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
        ends.append(writer.wait())
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


def test_compact_and_vacuum_keep_every_row_and_who_reads_goes_on(bucket: str, tmp_path: Path) -> None:
    data, url = frame_of(160).select("t", "y"), f"{bucket}/small"
    broken = written(tmp_path / "0.csv", data[:20])
    broken.write_text(broken.read_text() + "never,1.0\n")
    take(url, broken, every="1h")
    for start_at in range(20, 120, 20):
        append(Table.open(url), data[start_at : start_at + 20])
    reader = Table.open(url)
    reading = reader.read(batch_rows=20)
    seen = [next(reading).rows["_seq"].to_pylist()]
    before = rows(url)
    table, aside = json.loads(say("compact", url, "--json"))
    assert (table["files"], table["files_after"], table["rows"], aside["rows"]) == (6, 1, 120, 1)
    killed = [pa.array([120], pa.int64()), *data[120:121].to_arrow().columns]
    write_parts(delta.filesystem(reader.log, url), pa.Table.from_arrays(killed, names=["_seq", "t", "y"]))
    assert [one["deleted"] for one in json.loads(say("vacuum", url, "--json"))] == [0, 0]  # it may be in use
    now = VacuumConfig(table=url).model_copy(update={"keep": 0.0})
    assert [(one.files, one.deleted) for one in vacuum(now)] == [(1, 6 + 1), (1, 0)]
    assert rows(url).equals(before)
    assert [*seen[0], *(seq for chunk in reading for seq in chunk.rows["_seq"].to_pylist())] == [*range(120)]
    take(url, written(tmp_path / "1.csv", data[120:]))
    assert rows(url).height == 160
    assert {one.state for one in doctor(DoctorConfig.read({"table": url}))} == {"ok"}
    assert describe(DescribeConfig.read({"table": url}))["rows"] == 160


def test_a_service_takes_rows_into_a_table_there_and_its_checkpoint_goes_on_elsewhere(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    data, table, runs = frame_of(360).select("t", "y"), f"{bucket}/served", f"{bucket}/runs/served"
    take(table, written(tmp_path / "0.csv", data[:300]), every="1h")
    where = remote.mirror(runs)
    train_here(Table.open(table), where, known=())
    with serving(ServeConfig.read({"checkpoint": [runs]})) as service:
        (intake,), (host,) = service.intakes.values(), service.hosts.values()
        later = data[300:].with_columns(pl.col("t").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).to_dicts()
        for at in (0, 25, 50):
            assert intake.submit(JsonRows(later[at : at + 25], intake.table)).result(60).accepted in (25, 10)
        wait_for(lambda: host.rows == 360)
    assert rows(table).height == 360
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    there = checkpoint.read(remote.mirror(runs))
    train_here(Table.open(table), tmp_path / "again", known=())
    assert state_digest(there) == state_digest(checkpoint.read(tmp_path / "again"))
    assert describe(DescribeConfig.read({"checkpoint": runs}))["checkpoint"] == f"{runs}/{there.path.name}"


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
