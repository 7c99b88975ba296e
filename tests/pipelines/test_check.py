"""What `check` says of a run: stale, worse than before, bands that no longer hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from streamgp.errors import CheckpointError, UsageError
from streamgp.windows.windows import WindowSpec
from streamgp_data import checkpoint
from streamgp_pipelines.check import CheckResult, _newest, check
from streamgp_pipelines.config import CheckConfig
from streamgp_pipelines.learning.curves import Curves
from streamgp_pipelines.learning.making import learner_of
from streamgp_pipelines.learning.recipe import Recipe, Schedule
from streamgp_pipelines.learning.tail import Tail
from tests.pipelines.ingesting import take
from tests.pipelines.worlds import frame_of, make_table, run

LAST = datetime(2024, 1, 1, tzinfo=UTC)


def findings(home: Path, now: datetime | None = None, **options: Any) -> dict[str, CheckResult]:
    found = check(CheckConfig.read({"checkpoint": home, **options}), now)
    return {one.name: one for one in found}


def trained(tmp_path: Path, data: pl.DataFrame, **options: Any) -> tuple[Path, datetime]:
    make_table(tmp_path / "table", data)
    given = {"model": "linear", "horizon": 1, "season": (), "lags": 4, "batch": 100, "warmup": 400, "known": "k"}
    run(tmp_path / "table", tmp_path / "run", **(given | options))
    return tmp_path / "run", data["t"].dt.convert_time_zone("UTC").max()  # type: ignore[return-value]


@pytest.mark.slow
def test_a_steady_run_raises_no_alarm_and_a_change_does(tmp_path: Path) -> None:
    steady, last = trained(tmp_path, frame_of(5000))
    limits = {"max_age": "3h", "max_crps_ratio": 1.2, "min_coverage": 0.9}
    found = findings(steady, last + timedelta(hours=2), **limits)
    assert not any(one.alarm for one in found.values())
    assert found["age"].value == 7200.0

    noise = np.where(np.arange(5000) >= 4000, 3.0, 0.0) * np.random.default_rng(0).standard_normal(5000)
    (tmp_path / "other").mkdir()
    changed, last = trained(tmp_path / "other", frame_of(5000).with_columns(y=pl.col("y") + noise))
    found = findings(changed, last + timedelta(hours=4), **limits)
    assert found["age"].alarm and found["crps_ratio"].alarm
    assert found["crps_ratio"].value is not None and found["crps_ratio"].value > 2
    assert not any(one.alarm for one in findings(changed, last).values())  # without limits nothing is


def test_the_newest_rows_are_those_that_are_asked_for(tmp_path: Path) -> None:
    home, _ = trained(tmp_path, frame_of(5000))
    assert "4,000 to 5,000" in findings(home)["crps_ratio"].about
    assert "2,000 to 5,000" in findings(home, recent=2500)["crps_ratio"].about
    assert findings(home, recent=10_000)["crps_ratio"].value is None


def test_rows_since_the_last_point_count_among_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in the 900 rows after the last point of the curves is found.

    The model, which may be of a package that is not installed here, is not needed.
    """
    noise = np.where(np.arange(2900) >= 2000, 3.0, 0.0) * np.random.default_rng(0).standard_normal(2900)
    data = frame_of(2900).with_columns(y=pl.col("y") + noise)
    home, _ = trained(tmp_path, data, predictions=tmp_path / "scored.parquet")
    monkeypatch.setattr(Recipe, "build", None)
    found = findings(home, max_crps_ratio=1.2)["crps_ratio"]
    assert found.alarm and "1,000 to 2,900" in found.about
    rows = pl.read_parquet(tmp_path / "scored.parquet").filter(pl.col("cutoff") >= data["t"][999])
    inside = (rows["y"] >= rows["linear-lo-95"]) & (rows["y"] <= rows["linear-hi-95"])
    assert findings(home)["coverage"].value == pytest.approx(inside.mean(), abs=0.002)


def test_little_that_was_scored_is_no_alarm(tmp_path: Path) -> None:
    home, _ = trained(tmp_path, frame_of(900))
    found = findings(home, max_crps_ratio=0.1, min_coverage=0.99)
    assert "1,000" in found["coverage"].about  # the rows that are needed
    assert found["crps_ratio"].value is None and not any(one.alarm for one in found.values())


def test_rows_behind_the_last_full_micro_batch_count(tmp_path: Path) -> None:
    home, last = trained(tmp_path, frame_of(1150), batch=256)
    assert findings(home, last + timedelta(hours=1))["age"].value == 3600.0
    assert findings(home, last - timedelta(hours=1))["age"].value == -3600.0


def test_a_row_of_the_future_does_not_hide_how_old_the_others_are(tmp_path: Path) -> None:
    data = frame_of(1150, ("a", "b"))
    last = data["t"].dt.convert_time_zone("UTC").max()
    far = data.tail(2).head(1).with_columns(pl.col("t").dt.offset_by("70y"))
    home, _ = trained(tmp_path, pl.concat([data, far]), batch=256)
    found = findings(home, last + timedelta(hours=9), max_age="3h")["age"]  # type: ignore[operator]
    assert found.alarm and found.value == 9 * 3600.0 and "future" in found.about


@pytest.mark.parametrize("fleet", [False, True])
def test_series_that_ended_before_the_others_are_counted_and_named(fleet: bool, tmp_path: Path) -> None:
    """A meter that no longer sends is not seen in the age of the newest row of all."""
    data = frame_of(400, ("a", "b", "c"))
    last: datetime = data["t"].max()  # type: ignore[assignment]
    ended = (pl.col("unique_id") == "b") & (pl.col("t") > last - timedelta(hours=50))
    home, _ = trained(tmp_path, data.filter(~ended), fleet=fleet, warmup=100, batch=64)
    now = last + timedelta(hours=1)
    found = findings(home, now, max_age="3h")
    assert not found["age"].alarm and (found["silent"].value, found["silent"].alarm) == (1.0, False)
    assert "of 3 series" in found["silent"].about and "b since" in found["silent"].about
    assert findings(home, now, max_age="3h", max_silent=0)["silent"].alarm
    assert not findings(home, now, max_age="3h", max_silent=1)["silent"].alarm
    assert findings(home, now, max_age="60h", max_silent=0)["silent"].value == 0.0
    assert findings(home, now + timedelta(hours=9), max_age="3h")["silent"].value == 3.0
    assert "silent" not in findings(home, now)
    with pytest.raises(UsageError, match="--max-age"):
        findings(home, now, max_silent=0)


@pytest.mark.sampled
@pytest.mark.parametrize("lost", [5, 30, 90])
@pytest.mark.parametrize("fleet", [False, True])
def test_rows_without_a_value_do_not_make_a_series_new(lost: int, fleet: bool, tmp_path: Path) -> None:
    """A logger goes on without its sensor, for longer than rows are kept; each of two targets is counted."""
    data = frame_of(300, ("a", "b"))
    last: datetime = data["t"].max()  # type: ignore[assignment]
    ended = (pl.col("unique_id") == "b") & (pl.col("t") > last - timedelta(hours=lost))
    data = data.with_columns(x=pl.when(ended).then(None).otherwise("x"))
    home, _ = trained(tmp_path, data, target="y,x", fleet=fleet, warmup=100, batch=64, season=24, lags=4)
    found = findings(home, last, max_age="3h", max_silent=0)
    since = (last - timedelta(hours=lost)).strftime("%Y-%m-%d %H")
    assert not found["age"].alarm and found["silent"].alarm and found["silent"].value == 1.0
    assert "of 4 targets" in found["silent"].about and f"b, x since {since}" in found["silent"].about.replace("T", " ")
    assert findings(home, last, max_age=f"{lost + 1}h")["silent"].value == 0.0


def test_rows_of_a_fleet_that_wait_for_their_micro_batch_are_seen(tmp_path: Path) -> None:
    """Of a meter that sends every fourth hour, a micro-batch of 48 rows is eight days."""
    data = frame_of(401, ("a", "b", "c"))
    data = data.filter((pl.col("unique_id") != "c") | (pl.col("t").dt.hour() % 4 == 0))
    home, last = trained(tmp_path, data, fleet=True, warmup=100, batch=48)
    found = findings(home, last + timedelta(minutes=5), max_age="6h")
    assert found["silent"].value == 0.0 and found["age"].value == 300.0
    found = findings(home, last - timedelta(days=2), max_age="6h")  # of rows up to a day ahead the newest counts
    assert found["age"].value == -86_400.0 and "future" in found["age"].about


def test_series_that_are_numbers_count_once(tmp_path: Path) -> None:
    data = frame_of(440, ("1", "2", "3")).with_columns(pl.col("unique_id").cast(pl.Int64))
    home, last = trained(tmp_path, data, batch=256)
    assert "of 3 series" in findings(home, last, max_age="6h")["silent"].about


def test_rows_whose_clock_was_wrong_are_counted(tmp_path: Path) -> None:
    home, last = trained(tmp_path, frame_of(900))
    assert "leaps" not in findings(home)
    far = frame_of(2).drop("t").with_columns(t=pl.Series(["2198-01-01T00:00Z", "2199-01-01T00:00Z"]))
    far.write_csv(tmp_path / "far.csv")
    take(tmp_path / "table", tmp_path / "far.csv", max_ahead="1d")
    found = findings(home, last)["leaps"]
    assert (found.value, found.limit, found.alarm) == (2.0, None, False) and "2199" in found.about


def test_steps_have_no_age(tmp_path: Path) -> None:
    data = frame_of(1200).with_columns(t=pl.int_range(1200, dtype=pl.Int64))
    make_table(tmp_path / "table", data, every_ns=1)
    run(tmp_path / "table", tmp_path / "run", model="persistence", horizon=1, season=(), lags=2, warmup=100)
    assert findings(tmp_path / "run")["age"].value is None
    with pytest.raises(UsageError):
        findings(tmp_path / "run", max_age="2h")
    with pytest.raises(CheckpointError):
        findings(tmp_path / "nothing")


def test_a_run_far_worse_than_the_naive_forecast_is_an_alarm_without_any_limit(tmp_path: Path) -> None:
    home, _ = trained(tmp_path, frame_of(1150))
    curves = Curves()
    saved = checkpoint.read(home)
    saved.restore({"curves": curves})
    found = findings(home)["naive_ratio"]
    assert found.limit == 2.0 and found.value is not None and not found.alarm
    assert findings(home, max_naive_ratio=0.9 * found.value)["naive_ratio"].alarm


@pytest.mark.slow
def test_a_model_is_measured_against_the_naive_forecast(tmp_path: Path) -> None:
    data = frame_of(3000)
    home, _ = trained(tmp_path, data, season=24)
    y = data["y"].to_numpy()
    found = findings(home, max_naive_ratio=0.001)["naive_ratio"]
    recent = findings(home, recent=1000)["naive_ratio"]
    assert found.alarm and found.value is not None and found.value == recent.value and found.value < 1
    naive = np.abs(y[2000:] - y[1976:-24]).mean()
    curves = Curves()
    checkpoint.read(home).restore({"curves": curves})
    assert curves.get("naive_mae")[-1][1] == pytest.approx(naive, rel=0.05)  # a point ends at a micro-batch
    (tmp_path / "other").mkdir()
    home, _ = trained(tmp_path / "other", data)
    assert findings(home, max_naive_ratio=0.001)["naive_ratio"].value is not None  # the value before, without a season


@pytest.mark.parametrize("buckets", [None, 2])
def test_a_new_series_of_a_fleet_that_only_waits_is_seen(buckets: int | None) -> None:
    """No micro-batch of it was full, so it has no windows."""
    data = frame_of(120, ("a", "b"))
    last: datetime = data["t"].max()  # type: ignore[assignment]
    late = (pl.col("unique_id") == "b") & (pl.col("t") <= last - timedelta(hours=9))
    spec = WindowSpec(targets=("y",), lags=2, time="t", series="unique_id", every_ns=3600 * 10**9, fleet=True)
    made = Recipe.of("persistence", {}, spec, Schedule(48, 24))
    learner = learner_of(replace(made, buckets=buckets, read=24) if buckets else made)
    for one in data.filter(~late).partition_by("unique_id"):
        for part in one.iter_slices(20):
            learner.advance(part.to_arrow().combine_chunks().to_batches()[0])
    found = _newest(_saved(learner), 2**62)[0]
    assert found["b"] == found["a"]


def _saved(learner: Any) -> checkpoint.Saved:
    """As a checkpoint holds it."""
    state = checkpoint.unpack(checkpoint.pack(learner.parts() | {"tail": Tail()}))
    shards = dict(learner.shards())
    about = {"recipe": learner.recipe.to_json()}
    return checkpoint.Saved(Path("x"), learner.rows, about, state.tensors, state.rest, shards=shards)
