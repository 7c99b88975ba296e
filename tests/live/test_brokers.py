"""Each broker as it is: killed readers, a broker that starts again, refused passwords."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest
from redis import Redis

from streamgp_data.feeds import redis as feed
from streamgp_data.messages import open_feed
from streamgp_data.table import Table
from streamgp_pipelines.config import DoctorConfig
from streamgp_pipelines.doctor import doctor
from tests.live.brokers import BROKERS, PASSWORD, Followers, kafka, over, running
from tests.live.feeds import row
from tests.needs import needs
from tests.pipelines.ingesting import quarantine, rows

pytestmark = pytest.mark.slow

SIZE, TIMEOUT = 3000, 60.0

REBALANCING = 120.0
"""Seconds until others read the partitions of a dead member of a group of Kafka: 10 to 15 on an idle machine, 37 on a
busy one."""


@pytest.fixture
def follower() -> Iterator[Followers]:
    """Starts `streamgp ingest URL`; what still runs at the end is killed."""
    started = Followers()
    yield started
    started.end()


def until(met: Callable[[], bool], what: str, timeout: float = TIMEOUT) -> None:
    end = time.monotonic() + timeout
    while not met():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def count(table: Path) -> int:
    return Table.open(table).rows if Table.exists(table) else 0


@over(*sorted(BROKERS.keys() - {"mqtts"}))
def test_kills_and_a_restart_of_the_broker_lose_and_double_nothing(
    name: str, tmp_path: Path, follower: Followers
) -> None:
    table, wanted = tmp_path / "table", SIZE
    payloads = [b"broken" if i % 300 == 7 else row(i) for i in range(SIZE)]
    with running(name, tmp_path) as (broker, publish):
        url = broker.url.format(f":{PASSWORD}")
        publish(payloads[:1])  # it makes the stream of NATS: a reader that comes before ends
        process = follower(url, table, "--follow", "--linger", "0.02")
        until(lambda: count(table) > 0, "the first row")
        publish(payloads[1:1000])
        until(lambda: count(table) > 1, "the first rows")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        publish(payloads[1000:1500])
        process = follower(url, table, "--follow", "--linger", "0.02")
        publish(payloads[1500:2000])
        until(lambda: count(table) > 1100, "the rows behind the first kill")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        process = follower(url, table, "--follow", "--linger", "0.02")
        publish(payloads[2000:2500])
        until(lambda: count(table) > 2100, "the rows behind the second kill")
        broker.stop()
        time.sleep(0.5)
        broker.start()
        publish(payloads[2500:])
        wanted -= sum(payload == b"broken" for payload in payloads)
        until(lambda: count(table) >= wanted, f"the rest: {count(table)} of {wanted}")
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 143 and said.count("is away") == 1 and said.count("is back") == 1, said
    assert sorted(rows(table)["y"].to_list()) == [float(i) for i in range(SIZE) if payloads[i] != b"broken"]
    aside = quarantine(table)
    # a broker that lost what a group had acknowledged delivers it again: rows that are there are duplicates
    assert set(aside.filter(pl.col("reason") != "duplicate")["row"]) == {"broken"}
    assert aside.height == 10 or (name in ("mqtt", "nats-group", "redis-group") and aside.height >= 10)
    for text in (out, said, str(list(table.rglob("*"))), *(file.read_text() for file in table.rglob("*.json"))):
        assert PASSWORD not in text


@over("mqtt", "nats", "redis")
def test_a_wrong_password_ends_with_5_and_is_not_printed(name: str, tmp_path: Path, follower: Followers) -> None:
    with running(name, tmp_path) as (broker, _):
        for url, given in (
            (broker.url.format(":s3cret-wrong"), {}),
            (broker.url.format(""), {"PASSWORD": "s3cret-wrong"}),
        ):
            environment = os.environ | {f"STREAMGP_SOURCE_{key}": value for key, value in given.items()}
            process = follower(url, tmp_path / "t", "--follow", "--json", environment=environment)
            out, said = process.communicate(timeout=TIMEOUT)
            assert process.returncode == 5, said
            assert "s3cret" not in out + said and "refuses" in said


def test_kafka_with_kills_and_a_group_loses_and_doubles_nothing(tmp_path: Path, follower: Followers) -> None:
    """On librdkafka's mock of a cluster, which has four partitions and cannot be started again."""
    table, payloads = tmp_path / "table", [b"broken" if i % 300 == 7 else row(i) for i in range(SIZE)]
    with kafka() as (url, publish):
        publish(payloads[:1000])
        for group, high in (("", 500), ("", 1500), ("?group=tables", 2500)):
            process = follower(url + group, table, "--follow", "--linger", "0.02")
            until(lambda high=high: count(table) > high - 100, f"rows up to {high}")
            publish(payloads[high + 500 : high + 1500])
            until(lambda high=high: count(table) > min(high + 100, SIZE - 20), f"rows behind {high}")
            process.send_signal(signal.SIGKILL if high < 2000 else signal.SIGTERM)
            process.communicate(timeout=TIMEOUT)
        assert process.returncode == 143
    assert sorted(rows(table)["y"].to_list()) == [float(i) for i in range(SIZE) if payloads[i] != b"broken"]
    assert quarantine(table)["row"].to_list() == ["broken"] * 10


@needs("mosquitto", "openssl")
def test_certificates_are_checked(tmp_path: Path, follower: Followers) -> None:
    with running("mqtts", tmp_path) as (broker, publish):
        url, table = broker.url.format(f":{PASSWORD}"), tmp_path / "table"
        process = follower(f"{url}?ca={tmp_path / 'broker' / 'cert.pem'}", table, "--follow")
        publish([row(0)])
        until(lambda: count(table) == 1, "the first row")
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 143
        process = follower(url, table, "--follow")
        out, said = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 5 and "certificate" in said and PASSWORD not in out + said


@over("nats-group", "redis-group")
def test_processes_that_share_a_stream_divide_it(name: str, tmp_path: Path, follower: Followers) -> None:
    table = tmp_path / "table"
    with running(name, tmp_path) as (broker, publish):
        url = broker.url.format(f":{PASSWORD}")
        publish([row(0)])
        pair = [follower(url, table, "--follow", "--linger", "0.02") for _ in range(2)]
        until(lambda: count(table) == 1, "the first row")
        for start in range(1, 2001, 100):
            publish([row(i) for i in range(start, start + 100)])
        pair[0].send_signal(signal.SIGKILL)
        until(lambda: count(table) == 2001, "all rows")
        pair[1].send_signal(signal.SIGINT)
        pair[0].communicate()
        pair[1].communicate(timeout=TIMEOUT)
        assert pair[1].returncode == 130
    assert sorted(rows(table)["y"].to_list()) == [float(i) for i in range(2001)]


@over("nats-group", "redis-group")
def test_what_a_dead_member_holds_is_shown(name: str, tmp_path: Path, follower: Followers) -> None:
    """By the doctor, who takes nothing, and at the end of an ingestion that could not have it."""
    with running(name, tmp_path) as (broker, publish):
        url = broker.url.format(f":{PASSWORD}").replace("claim=2", "claim=40")
        publish([row(at) for at in range(50)])

        def seen() -> list[tuple[str, str]]:
            found = doctor(DoctorConfig.read({"source": (url,)}))
            assert not any(PASSWORD in str(one) for one in found)
            return [(one.what, one.about) for one in found]

        assert seen() == [("broker", "it answers")]
        if name == "redis-group":
            (absent,) = doctor(DoctorConfig.read({"source": (url.replace("stream=", "stream=no-"),)}))
            assert absent.state == "fault" and absent.remedy
        _, dead = open_feed(url, "dead")
        dead.connect(lambda _: ())
        taken = 0
        while taken < 50:
            taken += len(dead.poll(1000, 0.5))
        own = dead.pending()
        assert own is not None and own.messages == 0
        dead.close()
        assert seen()[1] == ("group", "other members hold 50")
        publish([row(50)])
        out, said = follower(url, tmp_path / "table").communicate(timeout=TIMEOUT)
        assert "other members of the group hold 50 messages" in " ".join((out + said).split())
        assert count(tmp_path / "table") == 1


@needs("redis-server")
def test_dead_members_that_hold_nothing_leave_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "FORGOTTEN", 0.3)
    with running("redis-group", tmp_path) as (broker, publish), Redis(port=broker.port, password=PASSWORD) as client:
        publish([row(at) for at in range(3)])
        client.xgroup_create("plant", "tables", "0")

        def names() -> set[bytes]:
            return {one["name"] for one in client.xinfo_consumers("plant", "tables")}

        def start() -> None:
            _, one = open_feed(broker.url.format(f":{PASSWORD}"), "t")
            one.connect(lambda _: ())
            one.close()

        for name in ("streamgp-gone-1", "streamgp-my-host.2-77", "streamgp-viewer", "theirs-3", "gone-1"):
            client.xgroup_createconsumer("plant", "tables", name)
        client.xreadgroup("tables", "streamgp-holds-2", {"plant": ">"}, 1)
        before = names()
        start()
        assert names() == before  # they have been seen a moment ago
        time.sleep(0.4)
        start()
        assert before - names() == {b"streamgp-gone-1", b"streamgp-my-host.2-77"}
        assert client.xpending("plant", "tables")["pending"] == 1
        client.acl_setuser("plain", True, nopass=True, categories=["+@all", "-@scripting"], keys=["*"])
        client.xgroup_createconsumer("plant", "tables", "streamgp-gone-1")
        time.sleep(0.4)
        _, one = open_feed(broker.url.format("plain:any"), "t")
        one.connect(lambda _: ())  # who may run no script leaves them
        assert len(one.poll(10, 1.0)) == 2
        one.close()


@over("mqtt", "kafka")
def test_the_doctor_reaches_a_broker_and_leaves_it_as_it_is(name: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        if name == "kafka":
            url, publish = stack.enter_context(kafka())
        else:
            broker, publish = stack.enter_context(running(name, tmp_path))
            url = broker.url.format(f":{PASSWORD}")
        publish([row(0)])
        (found,) = doctor(DoctorConfig.read({"source": (url,)}))
        assert (found.state, found.about) == ("ok", "it answers")
    if name == "mqtt":
        (found,) = doctor(DoctorConfig.read({"source": (url,)}))
        assert found.state == "fault" and "refused" in found.about and found.remedy


@over("kafka", "mqtt")
def test_members_of_a_group_write_one_table_and_one_that_was_killed_comes_back(
    name: str, tmp_path: Path, follower: Followers
) -> None:
    """What a killed member of MQTT was sent waits for it: a session of its own, by its client=NAME."""
    table = tmp_path / "table"
    with ExitStack() as stack:
        if name == "kafka":
            url, publish = stack.enter_context(kafka())
            urls = [f"{url}?group=tables"] * 2
        else:
            broker, publish = stack.enter_context(running(name, tmp_path))
            urls = [f"{broker.url.format(f':{PASSWORD}')}?group=tables&client={member}" for member in "ab"]
        pair = [follower(one, table, "--follow", "--linger", "0.02") for one in urls]
        sent = 0

        def more(count: int) -> None:
            nonlocal sent
            publish([row(at) for at in range(sent, sent + count)])
            sent += count

        until(lambda: more(20) or count(table) > 0, "the first row")  # MQTT keeps nothing before the first session
        first = 0 if name == "kafka" else sent
        for _ in range(10):
            more(100)
        pair[0].send_signal(signal.SIGKILL)
        pair[0].communicate()
        for _ in range(5):
            more(100)
        pair.append(follower(urls[0], table, "--follow", "--linger", "0.02"))
        more(100)
        until(lambda: {*range(first, sent)} <= {*rows(table)["y"].to_list()}, "all rows", REBALANCING)
        for process in pair[1:]:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=TIMEOUT)
            assert process.returncode == 143, said
    found = rows(table)["y"].to_list()
    assert len(found) == len(set(found)) and (name == "mqtt" or len(found) == sent)


@over("kafka", "nats", "redis")
def test_a_stream_that_was_made_again_is_refused(name: str, tmp_path: Path, follower: Followers) -> None:
    """Its positions have begun again: new messages would be taken for those that the table has."""
    with ExitStack() as stack:
        if name == "kafka":
            url, publish = stack.enter_context(kafka())
            marks = [f"{url}#{partition}" for partition in range(4)]
        else:
            broker, publish = stack.enter_context(running(name, tmp_path))
            url = broker.url.format(f":{PASSWORD}")
            marks = [f"{url.replace(f':{PASSWORD}@', '').replace('plant127', '127')}#position"]
        publish([row(at) for at in range(40)])
        process = follower(url, tmp_path / "t")
        assert process.wait(TIMEOUT) == 0 and count(tmp_path / "t") == 40
        table = Table.open(tmp_path / "t")
        table.commit(None, {next(mark for mark in marks if table.mark(mark, -1) >= 0): 1 << 60})
        process = follower(url, tmp_path / "t")
        _, said = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 3 and "--as" in said
        process = follower(url, tmp_path / "t", "--as", "again")
        assert process.wait(TIMEOUT) == 0 and count(tmp_path / "t") == 40  # the rows are there already
