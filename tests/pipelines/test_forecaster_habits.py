"""What users of Nixtla, Darts, scikit-learn and river type first: fit, predict, update, cross_validation."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from pathlib import Path
from pprint import pformat
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import streamgp
from streamgp.errors import DataError, StateError, UsageError
from tests.pipelines.worlds import frame_of
from tests.words import names, naming

SMALL: dict[str, Any] = {"horizon": 3, "season": 24, "lags": 4, "warmup": 150, "batch": 128}
KEYS = ["unique_id", "ds", "cutoff", "step"]


def forecaster(**options: Any) -> streamgp.Forecaster:
    return streamgp.Forecaster("y", **({"every": "1h", "model": "linear", "levels": (80, 95)} | SMALL | options))


def test_fit_starts_anew_and_update_goes_on() -> None:
    data = frame_of(400)
    fitted = forecaster()
    assert fitted.fit(data.head(300)) is fitted and fitted.rows == 300
    assert_frame_equal(fitted.predict(), forecaster().learn(data.head(300)).forecast())
    assert fitted.update(data[300:]) is fitted and fitted.rows == 400
    assert_frame_equal(fitted.predict(2, levels=95), forecaster().learn(data).forecast(2, levels=95))
    assert_frame_equal(fitted.fit(data.head(300)).predict(), forecaster().learn(data.head(300)).forecast())
    assert forecaster().update(data).scores == forecaster().fit(data).scores


def test_a_fit_that_fails_changes_nothing() -> None:
    data = frame_of(320)
    fitted = forecaster().fit(data)
    before, scores = fitted.predict(), fitted.scores
    for wrong in (data.drop("y"), data.with_columns(y=pl.lit("x"))):
        with pytest.raises((UsageError, DataError)):
            fitted.fit(wrong)
    assert fitted.rows == 320 and fitted.scores == scores
    assert_frame_equal(fitted.predict(), before)


def test_a_frame_of_which_nothing_is_learned_is_told() -> None:
    data = frame_of(320)
    with pytest.warns(streamgp.StreamgpWarning, match="no row") as told:
        assert forecaster().fit(data[:0]).rows == 0
    empty = pl.DataFrame({"ds": [], "y": []})
    with pytest.warns(streamgp.StreamgpWarning, match="no row") as told_of_none:
        forecaster(every=None).fit(empty)
    assert len(told) == len(told_of_none) == 1
    fitted = forecaster().fit(data[:300])
    assert not any("no row" in one for one in fitted.warnings)
    with pytest.warns(streamgp.StreamgpWarning, match="no row .* new"):
        assert fitted.update(data[200:300]).rows == 300
    assert fitted.learn(data[250:320]).rows == 320 and sum("no row" in one for one in fitted.warnings) == 1


@pytest.mark.sampled
@pytest.mark.parametrize("times", [True, False])
def test_the_rows_of_a_panel_may_stand_series_by_series(times: bool) -> None:
    """As Nixtla has them; `learn` takes the order of the frame."""
    options = {} if times else {"time": "row", "every": None, "series": "unique_id"}
    data = frame_of(200, ("a", "b"))
    data = data if times else data.drop("t")
    apart = data.sort("unique_id", maintain_order=True)
    wanted = forecaster(**options).learn(data[:360]).learn(data[360:])
    found = forecaster(**options).fit(apart.group_by("unique_id", maintain_order=True).head(180))
    found.update(apart.group_by("unique_id", maintain_order=True).tail(20))
    assert_frame_equal(found.predict(), wanted.forecast())
    assert found.scores == wanted.scores and not any("follow one another" in one for one in found.warnings)


def test_a_frame_is_given_back_as_it_came() -> None:
    data = frame_of(300)
    kinds = {pd.DataFrame: data.to_pandas(), pa.Table: data.to_arrow(), pl.DataFrame: data}
    for kind, frame in kinds.items():
        assert isinstance(forecaster().fit(frame).predict(), kind)
        assert isinstance(forecaster().cross_validation(frame, h=2), kind)


def test_a_step_beyond_the_horizon_names_it() -> None:
    fitted = forecaster().fit(frame_of(300))
    for ask in (lambda: fitted.predict(4), lambda: fitted.cross_validation(frame_of(300), h=4)):
        with pytest.raises(UsageError) as refused:
            ask()
        assert names(f"{refused.value.message} {refused.value.hint}", "h=4 horizon=3 horizon=4")
    with pytest.raises(UsageError, match="h=0"):
        fitted.predict(0)
    for given in (2.5, "2", float("nan")):
        for name, ask in {"h": fitted.predict, "horizon": fitted.forecast}.items():
            with pytest.raises(UsageError, match=naming(f"{name}={given!r} whole number")):
                ask(given)
    assert fitted.predict(h=2.0).equals(fitted.predict(np.int64(2)))


def test_the_forecaster_that_is_saved_last_is_read(tmp_path: Path) -> None:
    data = frame_of(300)
    for count in (300, 200):
        assert str(count) in str(streamgp.load(forecaster().fit(data.head(count)).save(tmp_path / "c")))


def test_a_loaded_forecaster_is_updated_and_not_fitted(tmp_path: Path) -> None:
    data = frame_of(400)
    again = streamgp.load(forecaster().fit(data.head(300)).save(tmp_path / "saved"))
    for start in (lambda: again.fit(data), lambda: again.cross_validation(data)):
        with pytest.raises(StateError) as refused:
            start()
        assert names(refused.value.hint, "update Forecaster")
    assert_frame_equal(again.update(data[300:]).predict(), forecaster().fit(data).predict())


def test_no_forecast_has_seen_a_row_after_its_cutoff() -> None:
    data, options = frame_of(420, ("a", "b")), {"known": "k", "inputs": "x"}
    found = forecaster(**options).cross_validation(data, h=3, n_windows=3, step_size=5)
    changed = data.with_columns(
        pl.when(pl.col("t") > found["cutoff"].min()).then(pl.col(name) * 3 - 100).otherwise(name).alias(name)
        for name in ("y", "x")
    )
    other = forecaster(**options).cross_validation(changed, h=3, n_windows=3, step_size=5)
    first = pl.col("cutoff") == found["cutoff"].min()
    assert found.filter(first).height == 6
    assert_frame_equal(found.filter(first).drop("y"), other.filter(first).drop("y"))
    assert (found.filter(first)["y"] - other.filter(first)["y"]).abs().min() > 10
    assert (found.filter(~first)["linear"] - other.filter(~first)["linear"]).abs().min() > 1e-3


@pytest.mark.sampled
@pytest.mark.parametrize("known", [(), "k"])
@pytest.mark.parametrize("model", ["linear", "svdgp"])
def test_a_window_is_what_a_fit_up_to_its_cutoff_predicts(known: Any, model: str) -> None:
    data = frame_of(300, ("a", "b"))
    whole = forecaster(known=known, model=model)
    found = whole.cross_validation(data.sort("unique_id", maintain_order=True), h=3, n_windows=3)
    assert whole.rows == 0
    assert found.columns[:5] == [*KEYS, "y"] and found.height == 3 * 2 * 3
    for cutoff in found["cutoff"].unique().to_list():
        past = data.filter(pl.col("t") <= cutoff)
        future = data.filter(pl.col("t") > cutoff, pl.col("t") <= cutoff + pl.duration(hours=3)).drop("y")
        alone = forecaster(known=known, model=model).fit(past).predict(future=future if known else None)
        own = found.filter(cutoff=cutoff)
        assert_frame_equal(own.drop("step", "y"), alone, abs_tol=1e-9, rel_tol=1e-9)
        truth = own.join(data, left_on=["unique_id", "ds"], right_on=["unique_id", "t"], maintain_order="left")
        assert (truth["y"] == truth["y_right"]).all() and own["step"].to_list() == [1, 2, 3] * 2
    ends = sorted(found["cutoff"].unique().to_list())
    assert all(later - sooner == ends[1] - ends[0] for sooner, later in pairwise(ends))
    assert ends[-1] == data["t"].max() - 3 * (ends[1] - ends[0]) / 3


def test_a_future_that_lacks_a_series_is_refused_by_predict_and_forecast_leaves_it_out() -> None:
    data = frame_of(300, ("a", "b", "c"))
    end = data["t"].max() - pl.duration(hours=3)
    fitted = forecaster(known="k").fit(data.filter(pl.col("t") <= end))
    future = data.filter(pl.col("t") > end, pl.col("unique_id") == "b").drop("y")
    with pytest.raises(DataError, match=r"^future has no row of series 'a' \(nor 1 others\)"):
        fitted.predict(future=future)
    assert fitted.forecast(future=future)["unique_id"].unique().to_list() == ["b"]


def test_windows_end_with_the_newest_row_and_overlap_where_the_step_is_short() -> None:
    data = frame_of(300)
    newest = data["t"].max()
    found = forecaster().cross_validation(data, h=2, n_windows=3, step_size=1)
    hours = [(newest - cutoff).total_seconds() / 3600 for cutoff in found["cutoff"].unique().sort().to_list()]
    assert hours == [4, 3, 2] and found["ds"].max() == newest
    assert forecaster().cross_validation(data)["step"].to_list() == [1, 2, 3]


def test_series_may_begin_late_end_early_and_have_gaps() -> None:
    data = frame_of(300, ("a", "b", "c", "d"))
    hours = (data["t"] - data["t"].min()).dt.total_hours()
    at = data.with_columns(hour=hours)
    kept = (
        (pl.col("unique_id") == "a")
        | ((pl.col("unique_id") == "b") & (pl.col("hour") < 294))  # ends within the second window of three
        | ((pl.col("unique_id") == "c") & ~pl.col("hour").is_between(288, 291))  # a gap that covers a cutoff
        | ((pl.col("unique_id") == "d") & (pl.col("hour") >= 297))  # begins after the last cutoff
    )
    for known in ((), "k"):
        found = forecaster(known=known, warmup=500).cross_validation(at.filter(kept).drop("hour"), n_windows=3)
        counts = dict(found.group_by("unique_id").len().iter_rows())
        assert counts["a"] == 9 and "d" not in counts
        assert found["y"].is_not_null().all() and found["y"].is_not_nan().all()
        assert found.select(pl.struct("unique_id", "cutoff", "step").is_unique().all()).item()
        truth = found.join(data, left_on=["unique_id", "ds"], right_on=["unique_id", "t"])
        assert truth.height == found.height and (truth["y"] == truth["y_right"]).all()
        assert found.filter(unique_id="b")["ds"].max() <= at.filter(unique_id="b", hour=293)["t"].item()


def test_series_of_unequal_intervals_are_counted_each_by_itself() -> None:
    """Where rows are counted, the next ones of a series may be far, and so may its known inputs."""
    data = frame_of(390, ("a", "b"))
    rare = pl.concat([data.filter(unique_id="a"), data.filter(unique_id="b").gather_every(3)])
    for known, count in (((), 7), ("k", 6)):  # at the last cutoff b has one row more, which is not all of a window
        found = forecaster(every=None, known=known).cross_validation(rare, n_windows=3, step_size=9)
        assert dict(found.group_by("unique_id").len().iter_rows()) == {"a": 9, "b": count}
        truth = found.join(rare, left_on=["unique_id", "ds"], right_on=["unique_id", "t"], how="left")
        assert (truth["y"] == truth["y_right"]).all() and truth["y_right"].null_count() == 0


def test_rows_without_a_clock_and_without_lags_are_cut_by_their_number() -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-3, 3, 300)
    data = pl.DataFrame({"x": x, "y": np.sin(x) + 0.1 * generator.normal(size=300)})
    whole = streamgp.Forecaster("y", inputs="x", time="row", lags=0, model="exact", warmup=200)
    found = whole.cross_validation(data, h=20, n_windows=2)
    assert found.height == 40 and (found["y"] == data["y"][260:]).all()
    assert found["step"].to_list() == [*range(1, 21)] * 2
    assert found["ds"].to_list() == [*range(260, 300)] and found["cutoff"].unique().sort().to_list() == [259, 279]
    assert np.abs(found["y"] - found["exact"]).mean() < 0.15
    alone = streamgp.Forecaster("y", inputs="x", time="row", lags=0, model="exact", warmup=200).fit(data[:280])
    np.testing.assert_allclose(found["exact"][20:], alone.predict(future=data[280:])["exact"], rtol=1e-9)
    counted = forecaster(time="row", every=None).cross_validation(frame_of(300).drop("t"), n_windows=2)
    assert counted["y"].to_list() == frame_of(300)["y"][294:].to_list()


def test_several_targets_have_a_row_each() -> None:
    data = frame_of(300).with_columns(z=-2 * pl.col("y"))
    options: dict[str, Any] = {"every": "1h", "model": "linear", **SMALL}
    found = streamgp.Forecaster(["y", "z"], **options).cross_validation(data, n_windows=2)
    assert found.height == 12 and found.columns[:6] == [*KEYS, "target", "y"]
    both = found.pivot("target", index=["ds", "cutoff"], values="y")
    assert (both["z"] == -2 * both["y"]).all()


def test_windows_that_cannot_be_are_refused() -> None:
    data = frame_of(300)
    for wrong in ({"n_windows": 0}, {"step_size": 0}, {"h": 0}, {"n_windows": 1.5}):
        with pytest.raises(UsageError) as refused:
            forecaster().cross_validation(data, **wrong)
        assert names(refused.value.message, next(iter(wrong)))
    with pytest.raises(DataError) as short:
        forecaster().cross_validation(data, n_windows=100)
    assert names(f"{short.value.message} {short.value.hint}", "300 n_windows")
    with pytest.raises(StateError, match="warm-up"):
        forecaster().cross_validation(data, n_windows=80)
    with pytest.raises(UsageError) as known:
        forecaster(known="k").cross_validation(data, h=2)
    assert names(f"{known.value.message} {known.value.hint}", "h=3 horizon=2")


def test_no_row_is_learned_twice_in_one_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten windows cost one pass."""
    from streamgp_pipelines.learning.learner import Learner

    learned, advance = list[int](), Learner.advance
    monkeypatch.setattr(Learner, "advance", lambda own, rows: (learned.append(rows.num_rows), advance(own, rows))[1])
    forecaster().cross_validation(frame_of(400), n_windows=10)
    assert sum(learned) <= 400 - 3


def test_scores_are_a_dict_that_is_printed_short() -> None:
    frames = [frame_of(400).with_columns(unique_id=pl.lit(name)) for name in ("north", "south")]
    scores = forecaster(series="unique_id").fit(pl.concat(frames)).scores
    printed = str(scores)
    assert len(printed) < 2000 and "3 entries of step, scored" in printed and "80: 0." in printed
    assert printed.count("\n") + 1 == len(scores) and pformat(scores) == printed
    assert "<td>rmse</td>" in scores._repr_html_()
    assert json.loads(json.dumps(scores)) == scores == pickle.loads(pickle.dumps(scores)) == dict(scores)
    assert [one["step"] for one in scores["steps"]] == [1, 2, 3]


def test_a_pickled_forecaster_learns_on() -> None:
    made = pickle.loads(pickle.dumps(forecaster()))
    learned = made.fit(frame_of(300))
    copied = pickle.loads(pickle.dumps(learned))
    for one in (learned, copied):
        one.update(frame_of(330).tail(30))
    assert copied.predict(h=3).equals(learned.predict(h=3)) and copied.scores == learned.scores
    assert copied.fit(frame_of(300)).rows == 300
