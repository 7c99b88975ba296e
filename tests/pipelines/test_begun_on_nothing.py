"""Runs that begin on an empty or short table: the seasons that they take, and what is said of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from streamgp import Forecaster
from streamgp.errors import CheckpointError, StreamgpWarning
from streamgp_data import checkpoint
from streamgp_data.table import Table
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.health import Health
from streamgp_pipelines.learning.restored import read_checkpoint, recipe_of
from streamgp_pipelines.serving.host import resume
from streamgp_pipelines.training import online
from streamgp_pipelines.training.train import train
from tests.pipelines.killed import Crash, code_of, start, train_apart
from tests.pipelines.worlds import HOUR_NS, append, assert_same_state, config_of, frame_of, make_table, run, scores_of
from tests.words import names

CLOCK: dict[str, Any] = {"season": "clock", "lags": None, "batch": 64}
OWN_BATCH = CLOCK | {"batch": None}
DAY, WEEK = (24,), (24, 168)
FEW = 480
"""Fewer rows than three weeks have: however late a run looks, it takes the day."""


def seasons(home: Path) -> tuple[int, ...]:
    return recipe_of(read_checkpoint(home)).spec.seasons


@contextmanager
def filled(table: Table, data: pl.DataFrame, first: int, pause: float = 0.03) -> Iterator[None]:
    """Rows come meanwhile: a few, one at a time, and then the rest."""

    def feed() -> None:
        mine = Table.open(table.path)
        for stop in (*range(first + 1, first + 16), len(data)):
            time.sleep(pause)
            append(mine, data[mine.rows : stop])

    writer = threading.Thread(target=feed)
    writer.start()
    try:
        yield
    finally:
        writer.join()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "POLL_SECONDS", 0.01)


def told_of(summary: dict[str, Any]) -> list[str]:
    return [one for one in summary["warnings"] if "season" in one and "nothing was scored" not in one]


@pytest.mark.sampled
@pytest.mark.parametrize("every", [None, HOUR_NS])
@pytest.mark.parametrize("first", [0, 10])
def test_a_table_followed_from_nothing_gives_the_model_of_the_whole_table(
    tmp_path: Path, first: int, every: int | None
) -> None:
    data = frame_of(FEW)
    table = make_table(tmp_path / "t", data[:first], every_ns=every)
    with filled(table, data, first):
        followed = run(table, tmp_path / "c", follow=True, max_rows=FEW - 10, **OWN_BATCH)
    whole = run(table, tmp_path / "d", max_rows=FEW - 10, **OWN_BATCH | {"season": DAY})
    assert followed["seasons"] == [*DAY] and whole["warnings"] == []
    (told,) = followed.pop("warnings")
    assert names(told, "24 --season none 24,168")
    assert scores_of(followed) == scores_of({name: one for name, one in whole.items() if name != "warnings"})
    assert_same_state(tmp_path / "c", tmp_path / "d")


@pytest.mark.slow
def test_a_panel_followed_from_nothing_has_the_micro_batch_of_its_series(tmp_path: Path) -> None:
    data = frame_of(300, ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"))
    table, options = make_table(tmp_path / "t", data[:0]), OWN_BATCH | {"warmup": 1700, "max_rows": 3500}
    with filled(table, data, 140):
        run(table, tmp_path / "c", follow=True, **options)
    run(table, tmp_path / "d", **options | {"season": DAY})
    assert recipe_of(read_checkpoint(tmp_path / "c")).schedule.batch == 288
    assert_same_state(tmp_path / "c", tmp_path / "d")


WAITING = "streamgp_pipelines.training.train", "is_undecided"


@pytest.mark.parametrize(
    ("first", "crash"),
    [
        pytest.param(0, Crash(*WAITING, 1), marks=pytest.mark.slow),
        pytest.param(5, Crash(*WAITING, 3), marks=pytest.mark.slow),
        (5, Crash("streamgp_pipelines.training.online", "OnlineRun.between", 9, after=True)),
    ],
    ids=["before a row", "while rows are few", "later"],
)
def test_a_kill_changes_nothing(tmp_path: Path, first: int, crash: Crash) -> None:
    data, later = frame_of(FEW), crash.count == 9
    table = make_table(tmp_path / "t", data[:first], every_ns=None)
    home, options = tmp_path / "c", OWN_BATCH | {"follow": True, "max_rows": FEW - 10, "checkpoint_every": 48}
    killed = start(train_apart, table.path, str(home), options, crash, None)
    with filled(table, data, first) if later else nullcontext():
        assert code_of(killed) == -9
    assert checkpoint.exists(home) == later
    with nullcontext() if later else filled(table, data, first):
        run(table, home, **options)
    run(table, tmp_path / "d", **OWN_BATCH | {"season": DAY}, max_rows=FEW - 10)
    assert seasons(home) == DAY
    assert_same_state(home, tmp_path / "d")


def test_what_waits_for_rows_says_so_and_is_ready(tmp_path: Path) -> None:
    data = frame_of(300)
    table, said, health = make_table(tmp_path / "t", data[:3], every_ns=None), list[str](), Health()
    config = config_of(table, tmp_path / "c", follow=True, max_rows=290, **CLOCK)
    seen = list[str]()

    def look(news: str) -> None:
        said.append(news)
        threading.Timer(0.05, lambda: seen.append(health.line() if health.ready else "")).start()

    with filled(table, data, 3, 0.1):
        train(config, NoTracker, say=look, health=health)
    assert names(said[0], "12 --season") and names(said[1], "24 24,168") and len(said) == 2
    assert seen[0].startswith("0 rows learned")


@pytest.mark.parametrize("most", [5, 11])
def test_a_run_of_a_few_rows_ends(tmp_path: Path, most: int) -> None:
    table = make_table(tmp_path / "t", frame_of(most), every_ns=None)
    found = run(table, tmp_path / "c", follow=True, max_rows=most, **CLOCK)
    assert found["rows"] == most and found["seasons"] == [*DAY]


def test_what_is_wrong_is_refused_before_a_row_comes(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(9)[:0], every_ns=None)
    with pytest.raises(Exception, match="nothing_such"):
        run(table, tmp_path / "c", follow=True, **CLOCK | {"set": {"nothing_such": 1}})


def test_a_named_season_waits_for_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(3), every_ns=None)
    for season, taken in ((None, ()), (24, (24,))):
        found = run(table, tmp_path / str(season), follow=True, max_rows=3, lags=None, season=season)
        assert tuple(found["seasons"]) == taken and not told_of(found)


def test_rows_at_no_interval_have_no_season_and_it_is_said(tmp_path: Path) -> None:
    data = frame_of(300).with_columns(pl.col("t") + pl.duration(minutes=pl.int_range(pl.len()) ** 2))
    found = run(make_table(tmp_path / "t", data, every_ns=None), tmp_path / "c", follow=True, max_rows=299, **CLOCK)
    assert found["seasons"] == [] and names(told_of(found)[0], "interval --season 24,168")


def test_a_run_on_an_empty_table_fixes_no_season(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(9)[:0])
    assert not told_of(run(table, tmp_path / "c", **CLOCK))
    append(table, frame_of(520))
    found = run(table, tmp_path / "c", **CLOCK)
    run(table, tmp_path / "d", **CLOCK)
    assert found["seasons"] == [*WEEK] and not told_of(found)
    assert_same_state(tmp_path / "c", tmp_path / "d")
    run(make_table(tmp_path / "u", frame_of(9)[:0]), tmp_path / "e", **CLOCK)
    with pytest.raises(CheckpointError, match="horizon"):
        run(tmp_path / "u", tmp_path / "e", **CLOCK | {"horizon": 4})


@pytest.mark.parametrize(("season", "told"), [("clock", True), (24, False)])
def test_a_service_keeps_the_checkpoint_of_an_empty_table_and_says_so(
    tmp_path: Path, season: int | str, told: bool
) -> None:
    table = make_table(tmp_path / "t", frame_of(9)[:0])
    run(table, tmp_path / "c", **CLOCK | {"season": season})
    session = resume(tmp_path / "c", {table.id: table}, "cpu", 100)
    assert any(names(one, "--follow --season 24,168") for one in session.warnings) == told


def test_a_short_table_has_no_season_and_it_is_said_then_and_later(tmp_path: Path) -> None:
    data = frame_of(520)
    table = make_table(tmp_path / "t", data[:60])
    options = CLOCK | {"warmup": 30}
    (first,) = told_of(run(table, tmp_path / "c", **options))
    assert names(first, "60 72 --season 24,168")
    assert told_of(run(table, tmp_path / "c", **options)) == []
    append(table, data[60:])
    (later,) = told_of(run(table, tmp_path / "c", **options))
    assert names(later, "--fresh 24,168") and seasons(tmp_path / "c") == ()
    assert told_of(run(table, tmp_path / "d", **options)) == []
    assert told_of(run(table, tmp_path / "e", **options | {"season": None})) == []


def test_a_forecaster_whose_first_frame_is_too_short_says_so() -> None:
    hours = [datetime(2026, 1, 1) + timedelta(hours=hour) for hour in range(80)]
    made = Forecaster("y", model="linear")
    with pytest.warns(StreamgpWarning, match=r"season=\[24, 168\]"):
        made.learn_one({"ds": hours[0], "y": 0.0})
    assert sum("season" in one for one in made.warnings) == 1
    with pytest.warns(StreamgpWarning, match="60 of the 72 rows"):
        Forecaster("y", model="linear").fit({"ds": hours[:60], "y": [0.0] * 60})
    for quiet in (Forecaster("y", model="linear", season="none"), Forecaster("y", model="linear", season=24)):
        assert not any("season" in one for one in quiet.learn_one({"ds": hours[0], "y": 0.0}).warnings)


def test_of_a_batch_and_of_steps_nothing_is_said(tmp_path: Path) -> None:
    given = {"target": "y", "model": "linear", "online": True}
    steps = pl.DataFrame({"t": range(50), "y": [float(at % 7) for at in range(50)]})
    table = make_table(tmp_path / "t", steps, every_ns=1)
    config = TrainConfig.read(given | {"table": table.path, "checkpoint": tmp_path / "c"})
    assert not told_of(train(config, NoTracker))
    table = make_table(tmp_path / "u", frame_of(60))
    config = TrainConfig.read(given | {"table": table.path, "checkpoint": tmp_path / "d", "online": False})
    assert not told_of(train(config, NoTracker))
