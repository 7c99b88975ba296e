"""A store that does not answer for a while: it is waited for, the health says so, and every row is there once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import polars as pl
import pytest

from streamgp.errors import ServiceError
from streamgp_data import delta, retry
from streamgp_data.ingestion.ingest import ingest
from streamgp_data.ingestion.taken import TakenRows
from streamgp_data.table import Table
from streamgp_pipelines.adapters.web.exporter import exporting
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import ForecastConfig, IngestConfig, ServeConfig
from streamgp_pipelines.forecasting.follow import follow as follow_forecasts
from streamgp_pipelines.health import Health, Learned
from streamgp_pipelines.live.follow import follow
from streamgp_pipelines.serving.service import serving
from streamgp_pipelines.training.online import OnlineRun
from streamgp_pipelines.training.train import train
from tests.live.feeds import Memory, row
from tests.live.test_health import scrape
from tests.pipelines.worlds import append, assert_same_state, config_of, frame_of, make_table, run


def unanswered(*_: Any) -> None:
    raise OSError("Generic S3 error: max_retries: 10, retry_timeout: 180s - HTTP error: error sending request")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "LONGEST", 0.01)
    monkeypatch.setattr(retry.Retry.__init__, "__defaults__", (0.01,))


@pytest.mark.sampled
@pytest.mark.parametrize("width", [0, 1])
@pytest.mark.parametrize("there", [False, True])
def test_what_was_not_answered_is_committed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, there: bool
) -> None:
    """Whether the commit is `there`, though nobody said so, or not: rows come once, and none is called late."""
    feed, said, ending, health = Memory([row(at) for at in range(60)], width, 7), list[str](), Event(), Health()
    commit, asked, away = delta.commit, [0], list[bool]()

    def asked_thrice(*arguments: Any) -> None:
        asked[0] += 1
        if asked[0] % 3 == 0:
            if there:
                commit(*arguments)
            unanswered()
        commit(*arguments)

    def acknowledge(messages: Any) -> None:
        feed.acknowledged += [message.tag for message in messages]
        if len(feed.acknowledged) == 60:
            ending.set()

    def heard(line: str) -> None:
        assert health.taken is not None
        said.append(line)
        away.append(health.taken.away > 0)

    monkeypatch.setattr(delta, "commit", asked_thrice)
    monkeypatch.setattr(feed, "acknowledge", acknowledge)
    given = {"source": ("memory://p",), "table": str(tmp_path / "t"), "poll": 0.01, "linger": 0.0, "follow": True}
    given |= {"lateness": "1m", "every": "1m"}
    follow(IngestConfig.read(given), say=heard, feed=feed, ending=ending, health=health)
    assert health.taken is not None and health.taken.quarantined == 0
    table = Table.open(tmp_path / "t")
    found = pl.concat([pl.DataFrame(pl.from_arrow(chunk.rows)) for chunk in table.read({}, ("y", "_late"))])
    assert sorted(found["y"].to_list()) == list(range(60)) and not found["_late"].any()
    assert sorted(feed.acknowledged) == list(range(60))
    assert "does not answer" in said[0] and "is back" in said[1] and away[:2] == [True, False]


def test_the_end_does_not_wait_for_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not committed is not acknowledged, so that it comes again."""
    table, said = str(tmp_path / "t"), list[str]()
    given = {"source": ("memory://p",), "table": table, "poll": 0.01, "linger": 0.0, "follow": True}
    feed = Memory([row(at) for at in range(10)], 0)

    def interrupted(line: str) -> None:
        said.append(line)
        feed.poll = _interrupt  # type: ignore[method-assign]

    monkeypatch.setattr(delta, "commit", unanswered)
    with pytest.raises(KeyboardInterrupt):
        follow(IngestConfig.read(given), say=interrupted, feed=feed)
    assert feed.acknowledged == [] and "comes again" in said[-1]
    monkeypatch.undo()
    again = Memory(feed.payloads, 0)
    follow(IngestConfig.read(given | {"follow": False}), feed=again)
    assert Table.open(table).rows == 10 == len(again.acknowledged)


@pytest.mark.parametrize("there", [False, True])
def test_files_that_are_followed_are_committed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Also where a commit is `there`, though nobody said so: its rows are counted, and are no other's."""
    commit, asked, said = delta.commit, [0], list[str]()

    def asked_twice(*arguments: Any) -> None:
        asked[0] += 1
        if asked[0] % 2:
            if there:
                commit(*arguments)
            unanswered()
        commit(*arguments)

    monkeypatch.setattr(delta, "commit", asked_twice)
    source = tmp_path / "a.csv"
    frame_of(40).write_csv(source)
    config = {"source": (str(source),), "table": str(tmp_path / "t"), "follow": True, "poll": 0.01}
    looks = iter([False, True])

    def stop() -> bool:
        if not (done := next(looks)):
            with source.open("a") as file:
                frame_of(60)[40:].write_csv(file, include_header=False)
        return done

    health = Health()
    found = ingest(IngestConfig.read(config), stop=stop, health=health, say=said.append)
    table = Table.open(tmp_path / "t")
    assert found["added"] == 60 == table.rows and not found["quarantined"]
    assert len(said) >= 2 and health.taken is not None and health.taken.away == 0


def _away(monkeypatch: pytest.MonkeyPatch, times: int, what: str = "error sending request") -> list[str]:
    """The store of tables gives no answer at first; who asked."""
    asked = list[str]()
    for name in ("exists", "open"):
        method: Any = getattr(Table, name)

        def asking(*arguments: Any, name: str = name, method: Any = method, **named: Any) -> Any:
            if len(asked) < times and "c2" not in str(arguments):
                asked.append(name)
                raise ServiceError(f"s3://b/t: HTTP error: {what}", hint="")
            return method(*arguments, **named)

        monkeypatch.setattr(Table, name, asking)
    return asked


def _begins(command: str, home: Path, table: str, checkpoint: Path, say: Any) -> None:
    """One command that follows, until it has begun."""
    if command == "ingest":
        source = home / "more.csv"
        frame_of(310)[300:].write_csv(source)
        config = IngestConfig.read({"source": (str(source),), "table": table, "follow": True, "poll": 0.01})
        assert ingest(config, stop=lambda: True, say=say)["added"] == 10
    elif command == "broker":
        ending, feed = Event(), Memory([row(0)])
        feed.acknowledge = lambda messages: ending.set()  # type: ignore[method-assign,assignment]
        given = {"source": ("memory://p",), "table": str(home / "new"), "poll": 0.01, "linger": 0.0, "follow": True}
        follow(IngestConfig.read(given), say=say, feed=feed, ending=ending)
    elif command == "train":
        train(config_of(table, home / "c2", follow=True, max_rows=300), NoTracker, say=say)
    elif command == "forecast":
        given = {"checkpoint": checkpoint, "table": table, "output": home / "f.csv", "follow": True}
        with pytest.raises(KeyboardInterrupt):
            follow_forecasts(ForecastConfig.read(given), lambda _: None, lambda _: None, _interrupt, say)
        assert (home / "f.csv").exists()
    else:
        config = ServeConfig.read({"checkpoint": (checkpoint,)})
        with serving(config, say=say) as service:
            assert service.hosts


@pytest.mark.sampled
@pytest.mark.parametrize("command", ["ingest", "broker", "train", "forecast", "serve"])
def test_a_store_that_is_away_at_the_start_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """But not where there are no credentials for it, or they are refused."""
    table = make_table(tmp_path / "t", frame_of(300)).path
    run(table, tmp_path / "c")
    said = list[str]()
    asked = _away(monkeypatch, 3)
    _begins(command, tmp_path, table, tmp_path / "c", said.append)
    assert len(asked) == 3 and "does not answer" in said[0] and "is back" in said[1] and len(said) == 2
    for refused in ("169.254.169.254 - error sending request", "after 2 retries, retry_timeout: 180s - 403 Forbidden"):
        _away(monkeypatch, 1, refused)
        with pytest.raises(ServiceError):
            _begins(command, tmp_path, table, tmp_path / "c", said.append)
    assert len(said) == 2


def test_the_health_says_for_how_long_the_store_is_away() -> None:
    health = Health(taken=TakenRows(), learned=Learned())
    with exporting("0", health) as port:
        assert scrape(port)["streamgp_store_away_seconds"] == 0 and health.ready
        for part in (health.taken, health.learned, health.opening):
            assert part is not None
            part.away_since = time.monotonic() - 75
            assert 75 <= scrape(port)["streamgp_store_away_seconds"] < 80
            assert "the store has not answered for 1:15" in health.line()
            assert health.ready == (part is not health.opening)
            part.away_since = None


def _interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_run_that_follows_waits_and_learns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = frame_of(500)
    run(make_table(tmp_path / "one", data), tmp_path / "c")
    table = make_table(tmp_path / "two", data[:300])
    steps: list[Callable[[], None]] = [lambda: append(table, data[300:420]), lambda: append(table, data[420:])]

    def wait(self: OnlineRun) -> bool:
        flaky.set()
        if not steps:
            return True
        steps.pop(0)()
        return False

    failed, flaky = list[int](), Event()
    failing = {name: _seldom(getattr(Table, name), flaky, failed) for name in ("refresh", "read")}
    for name, method in failing.items():
        monkeypatch.setattr(Table, name, method)
    monkeypatch.setattr(OnlineRun, "wait", wait)
    found = run(table, tmp_path / "d", follow=True)
    assert found["rows"] == 500 and len(failed) >= 4
    assert_same_state(tmp_path / "c", tmp_path / "d")
    with pytest.raises(ServiceError):  # without --follow it is said at once
        monkeypatch.setattr(Table, "read", _refused)
        run(make_table(tmp_path / "three", data), tmp_path / "e")


def _refused(*_: Any, **__: Any) -> Any:
    raise ServiceError("s3://b/t: HTTP error: error sending request", hint="")


def _seldom(method: Callable[..., Any], flaky: Event, failed: list[int]) -> Callable[..., Any]:
    """Every second call is not answered, once it is `flaky`."""
    asked = [0]

    def asking(self: Table, *arguments: Any, **named: Any) -> Any:
        asked[0] += flaky.is_set()
        if asked[0] % 2:
            failed.append(asked[0])
            unanswered()
        return method(self, *arguments, **named)

    return asking
