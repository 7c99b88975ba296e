"""A store that does not answer for a while: it is waited for, the health says so, and every row is there once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import polars as pl
import pytest

from streamgp.errors import ServiceError
from streamgp.streaming import delta
from streamgp.streaming.table import Table
from streamgp_pipelines.config import IngestConfig
from streamgp_pipelines.health import Health
from streamgp_pipelines.live import patience
from streamgp_pipelines.live.follow import follow
from streamgp_pipelines.training.online import OnlineRun
from tests.live.feeds import Memory, row
from tests.pipelines.worlds import append, assert_same_state, frame_of, make_table, run


def unanswered(*_: Any) -> None:
    raise OSError("Generic S3 error: max_retries: 10, retry_timeout: 180s - HTTP error: error sending request")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LONGEST", 0.01)
    monkeypatch.setattr(patience.Patience.__init__, "__defaults__", (0.01,))


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
        away.append(health.taken.store_away)

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


def _interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


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
