"""Messages into a table, each once, whatever happens between two steps."""

from __future__ import annotations

import io
import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import fastavro
import msgpack
import polars as pl
import pyarrow as pa
import pytest

from streamgp.errors import DataError, ServiceError, UsageError
from streamgp_data.feeds.redis import Redis
from streamgp_data.messages import open_feed
from streamgp_data.quarantine import Quarantine
from streamgp_data.table import Table
from streamgp_pipelines.config import ServeConfig, TrainConfig
from streamgp_pipelines.config.settings import AHEAD
from streamgp_pipelines.live import follow as engine
from tests.data.avros import BOMB, CHAIN, LIST, MAP, PRICE, flat, number
from tests.data.protobufs import descriptor_set, meter
from tests.live.feeds import START, Memory, row, take
from tests.pipelines.ingesting import quarantine, rows
from tests.words import naming

TIMELESS = {"time": "row"}


def ys(table: Path) -> list[float]:
    return sorted(rows(table)["y"].to_list())


def test_messages_are_rows_and_are_acknowledged_once_committed(tmp_path: Path) -> None:
    feed = Memory([row(i) for i in range(2500)])
    found = take(tmp_path / "t", feed)
    assert (found["added"], ys(tmp_path / "t")) == (2500, [float(i) for i in range(2500)])
    assert feed.acknowledged == list(range(2500))
    again = take(tmp_path / "t", feed)
    assert (again["added"], again["quarantined"]) == (0, {})


def test_a_message_later_than_the_lateness_is_flagged(tmp_path: Path) -> None:
    found = take(tmp_path / "t", Memory([row(at) for at in (0, 9, 5, 3)]), lateness="5m")
    assert found["late"] == 1 and pl.read_delta(str(tmp_path / "t")).filter("_late")["y"].to_list() == [3.0]


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_a_series_that_no_message_has_is_refused_and_nothing_acknowledged(tmp_path: Path, form: str) -> None:
    payloads, given = [row(0), row(1)], {"series": "plant", "format": form, "time": "ds"}
    if form == "arrow":
        sink, rows_of = pa.BufferOutputStream(), pa.table({"ds": [START], "y": [1.0]})
        with pa.ipc.new_stream(sink, rows_of.schema) as writer:
            writer.write_table(rows_of)
        payloads = [sink.getvalue().to_pybytes()]
    feed = Memory(payloads)
    for _ in range(2):  # a new table, and one that was made of topics
        with pytest.raises(UsageError, match="plant") as refused:
            take(tmp_path / "t", feed, **given)
        assert "--topic plant" in str(refused.value.hint) and not feed.acknowledged
        take(tmp_path / "t", Memory(payloads), **given, topic="plant", as_name="other")


@pytest.mark.parametrize("poison", [b'{"ds": {"deep": [1]}, "y": {}}', b'{"foo": 1}', b"[[[["])
def test_what_comes_before_there_is_a_table_may_be_anybodys(tmp_path: Path, poison: bytes) -> None:
    feed = Memory([poison, row(0), row(1)], piece=1)
    assert take(tmp_path / "t", feed, time="ds")["added"] == 2
    assert len(quarantine(tmp_path / "t")) == 1 and feed.acknowledged == [0, 1, 2]
    with pytest.raises(DataError, match=r"no message has a row|ds"):
        take(tmp_path / "u", Memory([poison]), time="ds")


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_a_key_that_the_table_has_not_is_left_out_with_one_note(
    tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    def sent(at: int, **more: Any) -> bytes:
        if form == "json":
            return row(at, **more)
        one = pa.table(
            {name: [value] for name, value in {"ds": START + timedelta(minutes=at), "y": at, **more}.items()}
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, one.schema) as writer:
            writer.write_table(one)
        return sink.getvalue().to_pybytes()

    take(tmp_path / "t", Memory([sent(i, load=1.0) for i in range(20)]), format=form)
    later = [sent(i, load=2.0, fw=7) for i in range(20, 40)] + [sent(i, load=2.0, site="b") for i in range(40, 42)]
    found = take(tmp_path / "t", Memory(later), format=form, as_name="later")
    assert (found["added"], found["quarantined"]) == (22, {})
    assert not {"fw", "site"} & set(rows(tmp_path / "t").columns)
    (note,) = [record.getMessage() for record in caplog.records]
    assert "left out 'fw', which the table has not" in note
    renamed = [sent(42, Load=2.0), sent(43, fw=7, load=3.0)]  # the one may be a column that the row lacks
    found = take(tmp_path / "t", Memory(renamed), format=form, as_name="renamed")
    assert found["added"] == 1 and "renamed" in quarantine(tmp_path / "t")["detail"][0]


class Killed(BaseException):
    """The process, as by SIGKILL: nothing is put in order."""


@pytest.mark.sampled
@pytest.mark.parametrize("width", [0, 1])
@pytest.mark.parametrize("step", ["quarantine", "before", "after", "acknowledge"])
def test_a_crash_between_any_two_steps_is_repaired_on_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, width: int
) -> None:
    table, feed = tmp_path / "t", Memory([row(i) if i % 10 else b"broken" for i in range(300)], width, piece=100)
    calls = {"left": 2}

    def last() -> bool:
        calls["left"] -= 1
        return not calls["left"]

    def around(name: str, real: Any, before: bool) -> Any:
        def call(self: Any, *given: Any) -> Any:
            end = (not hasattr(self, "path") or not self.path.endswith("_quarantine")) and last()
            if end and before:
                raise Killed
            found = real(self, *given)
            if end:
                raise Killed
            return found

        return call

    with monkeypatch.context() as patch:
        if step == "quarantine":
            real = Quarantine.add
            patch.setattr(Quarantine, "add", lambda self, *given: (real(self, *given), (_ for _ in ()).throw(Killed)))
        elif step == "acknowledge":
            patch.setattr(Memory, "acknowledge", around("acknowledge", Memory.acknowledge, before=True))
        else:
            patch.setattr(Table, "commit", around("commit", Table.commit, before=step == "before"))
        with pytest.raises(Killed):
            take(table, feed)
    take(table, feed)
    assert ys(table) == [float(i) for i in range(300) if i % 10]
    assert width or set(feed.acknowledged) == set(range(300))
    aside = quarantine(table)
    assert set(aside["reason"]) == {"ragged"} or set(aside["reason"]) == {"unparsable"}
    if width:
        assert aside["line"].to_list() == [i for i in range(300) if not i % 10]
    else:
        assert aside.height >= 30  # at least once: there is no position to know it by


def test_a_table_without_a_time_is_exact_by_positions_and_refused_without(tmp_path: Path) -> None:
    feed = Memory([b'{"y": 1.0}'] * 50)
    assert take(tmp_path / "t", feed, **TIMELESS)["added"] == 50
    assert take(tmp_path / "t", feed, **TIMELESS)["added"] == 0
    with pytest.raises(UsageError, match=naming("time column")):
        take(tmp_path / "u", Memory([b'{"y": 1.0}'], width=0), **TIMELESS)


def test_what_comes_again_without_a_position_is_counted_and_what_is_sent_twice_is_quarantined(tmp_path: Path) -> None:
    feed = Memory([row(0), row(1), row(1)], width=0)
    found = take(tmp_path / "t", feed)
    assert (found["added"], found["quarantined"]) == (2, {"duplicate": 1})
    feed.acknowledged.clear()
    found = take(tmp_path / "t", feed)
    assert (found["added"], found["quarantined"], found["sources"][0]["redelivered"]) == (0, {}, 3)


def test_messages_that_cannot_be_read_are_quarantined_whole_with_their_position(tmp_path: Path) -> None:
    payloads = [
        row(0),
        b"",
        b"\xff\xfe",
        b'{"ds": 1}]',
        b"[1, 2]",
        b'{"ds": "2026-01-01T00:01:00", "z": 3}',
        row(2) + b" " * 5000,
        row(3, y="many"),
        b'{"y": 5}',
        b"[" * 100_000 + row(9),
        row(4),
    ]
    assert take(tmp_path / "t", Memory(payloads[:1]), as_name="first")["added"] == 1
    found = take(tmp_path / "t", Memory([row(10), *payloads[1:]]), max_line=2000)
    aside = quarantine(tmp_path / "t")
    assert ys(tmp_path / "t") == [0.0, 4.0, 10.0] and found["added"] == 2
    assert dict(aside.select("line", "reason").rows()) == {
        **dict.fromkeys([1, 2, 3, 4, 7], "unparsable"), 5: "ragged", 6: "too long", 8: "no time", 9: "too long"
    }  # fmt: skip
    assert len(aside["row"][-1]) == 4096


def test_the_quarantine_has_the_ids_of_redis_and_the_field_that_is_no_json(tmp_path: Path) -> None:
    _, redis = open_feed("redis://localhost/0?stream=plant", "t")
    assert isinstance(redis, Redis)
    sent = {b"1719-0": {b"v": row(0)}, b"1719-1": {b"temp": b"21.5"}, b"1720-0": {b"ds": b"2026-01-01", b"y": b"many"}}
    feed = Memory([row(at) for at in range(3)], width=2)
    entries = [redis._message(number, fields, False) for number, fields in sent.items()]
    feed.poll = lambda *_: [entries.pop(0)] if entries else []  # type: ignore[method-assign]
    take(tmp_path / "t", feed)
    whole, cell = quarantine(tmp_path / "t")["detail"].to_list()
    assert whole.startswith("no json: a row is an object") and whole.endswith(
        "; message 1719-1; its only field is temp"
    )
    assert cell.endswith("; message 1720-0")


@pytest.mark.parametrize("bad", [b'{"ds": "yesterday", "y": 1.0}', b"no"])
def test_a_first_message_that_cannot_be_read_ends_nothing(tmp_path: Path, bad: bytes) -> None:
    assert take(tmp_path / "t", Memory([bad, row(1)]))["added"] == 1
    feed = Memory([bad, row(1), bad, row(2)])
    assert (take(tmp_path / "t", feed)["added"], quarantine(tmp_path / "t").height) == (1, 2)
    with pytest.raises(DataError):
        take(tmp_path / "u", Memory([bad]))


def test_lists_lines_and_several_series_of_topics(tmp_path: Path) -> None:
    many = b"[" + b",".join(row(i) for i in range(3)) + b"]"
    lines = b"\n".join(row(i) for i in range(3, 5)) + b"\n"
    feed = Memory([many, lines])
    feed.payloads += [row(4), row(1)]
    found = take(tmp_path / "t", feed, topic="meter", series="meter")
    assert (found["added"], found["quarantined"]) == (7, {})
    by = rows(tmp_path / "t").sort("meter", "ds").select("meter", "y").rows()
    assert by == [*(("plant/0", y) for y in (0.0, 1.0, 2.0, 4.0)), *(("plant/1", y) for y in (1.0, 3.0, 4.0))]


def test_formats_make_the_same_rows(tmp_path: Path) -> None:
    objects = [json.loads(row(i)) for i in range(4)]
    frame = pl.DataFrame(objects).with_columns(pl.col("ds").str.to_datetime())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, frame.to_arrow().schema) as writer:
        writer.write_table(frame.to_arrow())
    bare = "".join(f"{one['ds']},{one['y']}\n" for one in objects)
    fields = [{"name": "ds", "type": "string"}, {"name": "y", "type": "double"}]
    (tmp_path / "row.avsc").write_text(json.dumps({"type": "record", "name": "row", "fields": fields}))

    def avro(one: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads((tmp_path / "row.avsc").read_text())), one)
        return out.getvalue()

    given: dict[str, tuple[list[bytes], dict[str, Any]]] = {
        "json": ([row(i) for i in range(4)], {}),
        "csv": ([("ds,y\n" + bare).encode()], {}),
        "bare": ([line.encode() for line in bare.splitlines()], {"format": "csv", "columns": ("ds", "y")}),
        "msgpack": ([msgpack.packb(one) for one in objects] + [b"\xc1"], {}),
        "arrow": ([sink.getvalue().to_pybytes(), b"ARROW"], {}),
        "avro": ([avro(one) for one in objects] + [b"\x01"], {"message_schema": str(tmp_path / "row.avsc")}),
    }
    for form, (payloads, options) in given.items():
        table = tmp_path / form
        found = take(table, Memory(payloads), **{"format": form, **options})
        assert rows(table).select("ds", "y").rows() == frame.rows(), form
        assert sum(found["quarantined"].values()) == (form in ("msgpack", "arrow", "avro")), form


def test_two_readers_of_one_stream_take_each_message_once(tmp_path: Path) -> None:
    payloads = [row(i) for i in range(400)]

    class Racing(Memory):
        """Another process takes a part of the same stream before the first commit of this one."""

        def poll(self, most: int, timeout: float) -> list[Any]:
            found = super().poll(most, timeout)
            if len(self.polled) == 2:
                take(tmp_path / "t", Memory(payloads[:250], piece=50), **TIMELESS)
            return found

    found = take(tmp_path / "t", Racing(payloads, piece=100), **TIMELESS)
    assert sorted(rows(tmp_path / "t")["y"].to_list()) == [float(i) for i in range(400)]
    assert found["sources"][0]["redelivered"] >= 50


def test_no_more_is_fetched_than_one_commit_beyond_the_one_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "GROUP", 100)
    feed, ahead = Memory([row(i) for i in range(1000)], piece=30), list[int]()
    real = Table.commit

    def commit(self: Table, *given: Any) -> None:
        ahead.append(sum(feed.polled) - len(feed.acknowledged))
        real(self, *given)

    monkeypatch.setattr(Table, "commit", commit)
    assert take(tmp_path / "t", feed)["added"] == 1000
    assert len(ahead) >= 10 and max(ahead) <= 300


def test_a_broker_that_is_away_is_said_once_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SHORTEST", 0.001)
    feed, said = Memory([row(i) for i in range(20)], piece=5), list[str]()
    feed.away = 3

    def ended(_: Any) -> None:
        feed.away += 3 if len(feed.acknowledged) == 0 and feed.next < 10 else 0
        if feed.next >= 20:
            raise KeyboardInterrupt

    config = engine.IngestConfig.read(
        {"source": ("memory://p",), "table": str(tmp_path / "t"), "poll": 0.01, "linger": 0.0, "follow": True}
    )
    with pytest.raises(KeyboardInterrupt):
        engine.follow(config, ended, said.append, feed)
    assert len(rows(tmp_path / "t")) == 20
    assert [("away" in one, "back" in one) for one in said][:2] == [(True, False), (False, True)]
    feed.away = 1
    with pytest.raises(ServiceError):
        take(tmp_path / "t", feed)


def test_an_interruption_commits_what_is_held_and_acknowledges_it(tmp_path: Path) -> None:
    class Signalled(Memory):
        def poll(self, most: int, timeout: float) -> list[Any]:
            if self.next >= 200:
                raise KeyboardInterrupt
            return super().poll(most, timeout)

    feed = Signalled([row(i) for i in range(300)], piece=100)
    with pytest.raises(KeyboardInterrupt):
        take(tmp_path / "t", feed, linger=30, poll=30, follow=True)
    assert ys(tmp_path / "t") == [float(i) for i in range(200)]
    assert feed.acknowledged == list(range(200))
    assert START.year == rows(tmp_path / "t")["ds"][0].year


def test_small_commits_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "GROUP", 1)
    assert take(tmp_path / "t", Memory([row(i) for i in range(70)]))["added"] == 70
    assert len(Table.open(tmp_path / "t").log.file_uris()) < 10
    assert ys(tmp_path / "t") == [float(i) for i in range(70)]


def test_rows_of_more_series_than_allowed_are_quarantined(tmp_path: Path) -> None:
    named = [row(at, unique_id=f"m{at % 5}") for at in range(50)]
    found = take(tmp_path / "t", Memory([row(0, unique_id=None), *named[:7]]), max_series=3, series="unique_id")
    assert (found["added"], found["quarantined"]) == (5, {"no series": 1, "too many series": 2})
    found = take(tmp_path / "t", Memory([*named, *named]), max_series=3, as_name="again")
    assert set(rows(tmp_path / "t")["unique_id"]) == {"m0", "m1", "m2"} and rows(tmp_path / "t").height == 30
    assert found["quarantined"]["too many series"] == 40


def test_a_row_of_the_far_future_is_put_aside_said_at_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    future = json.dumps({"ds": "2130-01-01T00:00:00", "y": -1.0}).encode()
    payloads = [*(row(at) for at in range(10)), future, *(row(at) for at in range(10, 50)), future]
    found = take(tmp_path / "t", Memory(payloads))
    assert (found["added"], found["late"], found["quarantined"]) == (50, 0, {"future": 2})
    (said,) = [one.message for one in caplog.records if "far future" in one.message]
    assert "2130-01-01" in said and "--max-ahead none" in said
    assert take(tmp_path / "any", Memory(payloads), max_ahead="none")["quarantined"] == {"duplicate": 1}
    ticks = [json.dumps({"ds": at, "y": 1.0}).encode() for at in (0.0, 0.5, 1.0, 4e9)]
    assert take(tmp_path / "elapsed", Memory(ticks), time_format="elapsed-s")["quarantined"] == {}
    steps = [json.dumps({"ds": at, "y": 1.0}).encode() for at in (0, 1, 10**12)]
    assert take(tmp_path / "steps", Memory(steps), time_format="step")["quarantined"] == {}


def test_the_limit_of_train_and_serve_is_that_of_ingest_and_known_inputs_come_ahead() -> None:
    given: dict[str, Any] = {"table": "t", "source": "mqtt://host/topic", "target": "y", "online": True}
    for options, wanted in (({}, None), ({"max_ahead": "2h"}, 7200.0), ({"known": "k"}, math.inf)):
        intake = TrainConfig.read(given | options).intake("t", follow=True)
        assert intake is not None and intake.max_ahead == wanted
    limited = TrainConfig.read(given | {"known": "k", "max_ahead": "1h"}).intake("t", follow=True)
    assert limited is not None and limited.max_ahead == 3600.0
    assert ServeConfig.read({"checkpoint": ["c"]}).max_ahead == AHEAD


@pytest.mark.parametrize("form", ["{}", "[{}]", " {}\n"])
def test_a_message_that_has_a_key_twice_is_put_aside(tmp_path: Path, form: str) -> None:
    """Which of the values was meant, nobody knows; however the message is written."""
    twice = b'{"ds": "2026-01-01T00:05:00", "y": 1.0, "y": 2.0}'
    payloads = [form.replace("{}", part.decode()).encode() for part in (row(1), twice, row(6))]
    take(tmp_path / "t", Memory(payloads))
    aside = quarantine(tmp_path / "t")
    assert Table.open(tmp_path / "t").rows == 2 and aside.height == 1
    assert "'y' comes twice" in str(aside.to_dicts())


LEVELS = 200_000


def harmful(form: str) -> tuple[bytes, bytes, dict[str, Any]]:
    """A message that may be read, one of a few bytes or levels too many, and the options."""
    if form == "msgpack":
        return msgpack.packb(json.loads(row(1))), b"\x81\xa1y" * LEVELS + b"\1", {}
    if form == "protobuf":
        good = meter()(y=1.0, ds={"seconds": 1_767_225_660}).SerializeToString()
        within = b""
        while len(within) < LEVELS:
            within = b"\x12" + flat(len(within)) + within
        return good, good + b"\x32" + flat(len(within)) + within, {"message": "plant.Meter"}
    if form == "json":
        return row(1), b'{"ds": "2026-01-01T00:09", "y": ' + b"[" * LEVELS + b"]" * LEVELS + b"}", {}
    schema, worst = {
        "avro": (CHAIN, b"\2" * LEVELS + b"\0"),
        "avro list": (LIST, b"\2" * LEVELS + b"\0" * (LEVELS + 1)),
        "avro map": (MAP, b"\2\2a" * LEVELS + b"\0" * (LEVELS + 1)),
        "avro of nothing": (BOMB, number(10**7) + b"\0"),
        "avro decimal": (PRICE, number(100_000) + b"\x7f" * 100_000),
    }[form]
    begin = number(len("2026-01-01T00:01")) + b"2026-01-01T00:01"
    return begin + b"\0", begin + b"\2" + worst, {"message_schema": json.dumps(schema)}


@pytest.mark.parametrize(
    "form",
    ["json", "msgpack", "protobuf", "avro", "avro list", "avro map", "avro of nothing", "avro decimal"],
)
def test_a_message_that_would_end_or_fill_the_process_is_quarantined(tmp_path: Path, form: str) -> None:
    good, worst, options = harmful(form)
    if "message_schema" in options:
        (tmp_path / "schema").write_text(options["message_schema"])
    if form == "protobuf":
        (tmp_path / "schema").write_bytes(descriptor_set())
    if (tmp_path / "schema").exists():
        options["message_schema"] = str(tmp_path / "schema")
    found = take(tmp_path / "t", Memory([good, worst, worst]), format=form.split()[0], **options)
    assert (found["added"], sum(found["quarantined"].values())) == (1, 2)
