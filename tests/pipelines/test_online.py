"""One pass over a stream: what is counted, what is told, and how a run follows its table."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from streamgp.base import Progress
from streamgp.errors import ServiceError, StateError, TableError
from streamgp.models.linear import DirectRegression
from streamgp.windows.windows import WindowSpec
from streamgp_data.table import Table
from streamgp_pipelines import fit_stream, load
from streamgp_pipelines.learning.predictions import Predictions
from streamgp_pipelines.learning.session import open_session, remarks
from streamgp_pipelines.learning.survey import Survey
from streamgp_pipelines.training import online
from streamgp_pipelines.training.train import train
from tests.pipelines.worlds import (
    Diary,
    append,
    assert_same_state,
    config_of,
    frame_of,
    make_table,
    run,
    scores_of,
    tensors_of,
)
from tests.words import names

SMALL = {"basis": "32", "reservoir": "256", "rebuild": "400", "evidence_rows": "64"}


def test_a_run_is_named_after_the_model_that_auto_stands_for(tmp_path: Path) -> None:
    options = config_of(make_table(tmp_path / "t", frame_of(300)), tmp_path / "c", model="auto", set={"svdgp": SMALL})
    diaries = list[Diary]()

    def tracker(directory: Path, title: str) -> Diary:
        diaries.append(Diary(directory, title))
        return diaries[0]

    found = train(options, tracker)
    assert diaries[0].title == f"{found['model']} y h3" != "auto y h3"


def test_the_summary_has_what_it_promises(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(500))
    found = run(table, tmp_path / "c")
    assert found["rows"] == 500 and found["table_version"] == table.version and found["warnings"] == []
    assert found["model"] == "linear" and found["checkpoint"] == str(tmp_path / "c") and found["run_id"] == ""
    assert set(found["seconds"]) == {"total", "predict", "update"} and found["rows_per_second"] > 0
    assert found["update_ms"]["p50"] <= found["update_ms"]["p99"] and found["peak_mb"] > 50
    assert found["update_ms"]["row"] == pytest.approx(1e3 * found["seconds"]["update"] / 500)
    assert set(found["coverage"]) == set(found["width"]) == set(found["raw_coverage"]) == {"80", "95"}
    assert 0.7 < found["coverage"]["80"] < 0.9 and 0.9 < found["coverage"]["95"] < 0.99
    assert found["mase"] < 0.7 and found["rmse"] > found["mae"] > found["crps"] > 0


def test_the_python_api_is_the_same_run(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(300))
    options = {"model": "linear", "lags": 6, "horizon": 3, "season": 24, "warmup": 150, "batch": 64, "level": [80, 95]}
    found = fit_stream(table.path, "y", checkpoint=tmp_path / "c", **options)
    assert scores_of(found) == scores_of(run(table, tmp_path / "d", **options))
    assert load(tmp_path / "c").forecast().frame.height == 3


# several series


def test_windows_of_one_series_never_hold_another_s_values(tmp_path: Path) -> None:
    """Series a lies around 0, b around 10 000; both are asked and learned in the same micro-batches."""
    data = frame_of(300, ("a", "b")).with_columns(
        pl.col("y", "x") + 10_000.0 * (pl.col("unique_id") == "b").cast(pl.Float64)
    )
    session = open_session(config_of(make_table(tmp_path / "t", data), tmp_path / "c", inputs="x"))
    learner = session.learner
    store, learn, seen = learner.ledger.add, learner.model.update, [0, 0]

    def check(series: torch.Tensor | None, x: Any, y: torch.Tensor | None) -> None:
        values = torch.cat([x.past.flatten(1), x.future.flatten(1), *([] if y is None else [y])], 1)
        values = values[:, ~torch.isnan(values).any(0)]
        of_b = values > 5_000
        assert bool((of_b.all(1) | ~of_b.any(1)).all())
        if series is not None:
            assert (of_b.all(1) == (series == 1)).all()

    def issued(asks: Any, predictive: Any) -> None:
        check(asks.series, asks.x, None)
        seen[0] += len(asks.origin)
        store(asks, predictive)

    def learned(x: Any, y: torch.Tensor, *more: Any) -> Any:
        check(None, x, y)
        seen[1] += len(y)
        return learn(x, y, *more)

    learner.ledger.add, learner.model.update = issued, learned  # type: ignore[method-assign]
    for chunk in session.source.read({}):
        for start in range(0, 576, 64):
            learner.advance(chunk.rows.slice(start, 64))
    assert min(seen) > 300


def test_two_series_are_forecast_as_each_alone(tmp_path: Path) -> None:
    """The seasonal naive's mean looks at nothing but the window."""
    data = frame_of(300, ("a", "b"))
    options = {"model": "seasonal_naive", "warmup": 0, "batch": 96}
    run(make_table(tmp_path / "t", data), tmp_path / "c", predictions=tmp_path / "p.parquet", **options)
    both = pl.read_parquet(tmp_path / "p.parquet")
    for name in ("a", "b"):
        own = data.filter(pl.col("unique_id") == name)
        run(
            make_table(tmp_path / name, own), tmp_path / f"{name}c", predictions=tmp_path / f"{name}.parquet", **options
        )
        alone = pl.read_parquet(tmp_path / f"{name}.parquet").select("unique_id", "ds", "cutoff", "y", "seasonal_naive")
        shared = both.filter(pl.col("unique_id") == name).select(alone.columns)
        joined = alone.join(shared, on=["unique_id", "ds", "cutoff"])
        assert joined.height == alone.height > 500
        assert joined["seasonal_naive"].equals(joined["seasonal_naive_right"])


def test_a_series_that_begins_late_is_taken_up(tmp_path: Path) -> None:
    early, late = frame_of(500, ("a",)), frame_of(500, ("b",), seed=1)[300:]
    data = pl.concat([early, late]).sort("t", maintain_order=True)
    found = run(make_table(tmp_path / "t", data), tmp_path / "c", predictions=tmp_path / "p.parquet")
    scored = pl.read_parquet(tmp_path / "p.parquet").group_by("unique_id").agg(pl.col("cutoff").min())
    at = dict(scored.iter_rows())
    assert at["b"] == late["t"][29] and at["a"] == early["t"][200]  # b has a whole window after 24 + 6 rows
    assert found["rows"] == 700


# rows that are not as they should be


def test_late_rows_are_counted_and_not_learned(tmp_path: Path) -> None:
    data = frame_of(500)
    rows = pl.concat([data[:300], data[250:270], data[300:]])
    found = run(make_table(tmp_path / "t", rows), tmp_path / "c", predictions=tmp_path / "p.parquet")
    assert found["late"] == 20 and found["rows"] == 520
    assert any(names(warning, "20") for warning in found["warnings"])
    pairs = pl.read_parquet(tmp_path / "p.parquet")
    assert pairs.unique(["ds", "cutoff"]).height == pairs.height == found["scored"]


@pytest.mark.parametrize("gaps", ["reset", "fill"])
def test_gaps_in_windows_and_truths(tmp_path: Path, gaps: str) -> None:
    """No truth is invented in the hole; forecasts are made in it (fill), or once the window has left it (reset)."""
    index = pl.int_range(pl.len())
    data = frame_of(600).with_columns(y=pl.when((index >= 400) & (index < 403)).then(None).otherwise("y"))
    data = pl.concat([data[:450], data[455:]])
    found = run(make_table(tmp_path / "t", data), tmp_path / "c", gaps=gaps, predictions=tmp_path / "p.parquet")
    pairs = pl.read_parquet(tmp_path / "p.parquet")
    times = frame_of(600)["t"]
    hole = set(times[400:403]) | set(times[450:455])
    assert not hole & set(pairs["ds"])
    asked = {400, 402, 400 + 3 + 1, 455 + 1}
    assert {times[row] in set(pairs["cutoff"]) for row in asked} == {gaps == "fill"}
    assert not set(times[450:455]) & set(pairs["cutoff"]), "a row that is not there asks nothing"
    assert found["late"] == 0 and np.isfinite(found["rmse"])


def test_a_table_without_rows(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(200)[:0])
    found = run(table, tmp_path / "c", predictions=tmp_path / "p.parquet")
    assert found["rows"] == found["scored"] == 0 and found["rmse"] is None
    (warning,) = found["warnings"]
    assert names(warning, "0 200 ingest")
    assert pl.read_parquet(tmp_path / "p.parquet").is_empty()
    append(table, frame_of(500))
    whole = run(make_table(tmp_path / "u", frame_of(500)), tmp_path / "d")
    assert scores_of(run(table, tmp_path / "c")) == scores_of(whole)


def test_a_target_without_values(tmp_path: Path) -> None:
    data = frame_of(300).with_columns(y=pl.lit(None, pl.Float64))
    found = run(make_table(tmp_path / "t", data), tmp_path / "c")
    assert found["scored"] == 0 and len(found["warnings"]) == 1


# how far a run goes


def test_max_rows_counts_over_all_restarts(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(600))
    whole = {rows: run(table, tmp_path / str(rows), max_rows=rows) for rows in (300, 392, 394)}
    for rows in (300, 392, 394):
        assert scores_of(run(table, tmp_path / "c", max_rows=rows)) == scores_of(whole[rows])
        assert whole[rows]["rows"] == rows
        assert_same_state(tmp_path / "c", tmp_path / str(rows))
    again = run(table, tmp_path / "c", max_rows=394)
    assert scores_of(again) == scores_of(whole[394]) and again["run_id"] == ""
    with_fewer = run(table, tmp_path / "c", max_rows=100)
    assert with_fewer["rows"] == 392
    assert any(names(warning, "392 --max-rows 100") for warning in with_fewer["warnings"])


def test_follow_is_the_same_as_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "POLL_SECONDS", 0.02)
    data = frame_of(450)
    table = make_table(tmp_path / "t", data[:100])

    def feed() -> None:
        mine = Table.open(table.path)
        for start in range(100, 450, 75):
            time.sleep(0.03)
            append(mine, data[start : start + 75])

    writer = threading.Thread(target=feed)
    writer.start()
    followed = run(table, tmp_path / "c", follow=True, max_rows=440, predictions=tmp_path / "p.parquet")
    writer.join()
    whole = run(table, tmp_path / "d", max_rows=440, predictions=tmp_path / "q.parquet")
    assert scores_of(followed) == scores_of(whole)
    assert_same_state(tmp_path / "c", tmp_path / "d")
    one, two = pl.read_parquet(tmp_path / "p.parquet"), pl.read_parquet(tmp_path / "q.parquet")
    assert_frame_equal(one, two, check_exact=True)


def test_a_table_replaced_while_it_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(tmp_path / "t", frame_of(300))

    def replace(_: float) -> None:
        (tmp_path / "t").rename(tmp_path / "old")
        make_table(tmp_path / "t", frame_of(400, seed=1))

    monkeypatch.setattr(online.time, "sleep", replace)
    with pytest.raises(TableError):
        run(table, tmp_path / "c", follow=True)


# what the tracker is told


def test_metrics_come_at_rows_seen_and_are_those_of_the_stretch(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(2200))
    diary = Diary(tmp_path / "c")
    found = run(table, tmp_path / "c", diary, predictions=tmp_path / "p.parquet", set={"ridge": "2"})
    laps = [(step, values) for step, values in diary.points if "scored" in values]
    assert [step for step, _ in laps] == [1032, 2056] and diary.status == "FINISHED"
    rows = pl.read_parquet(tmp_path / "p.parquet").with_columns(
        row=((pl.col("ds") - frame_of(1)["t"][0]).dt.total_hours())
    )
    for (last, values), (first, _) in zip(laps, [(0, {}), *laps], strict=False):
        own = rows.filter((pl.col("row") >= first) & (pl.col("row") < last))
        assert values["scored"] == own.height
        assert values["rmse"] == pytest.approx(((own["y"] - own["linear"]) ** 2).mean() ** 0.5)
        assert values["coverage_95"] == pytest.approx(
            own["y"].is_between(own["linear-lo-95"], own["linear-hi-95"]).mean()
        )
    final = {name: value for step, values in diary.points for name, value in values.items() if step == 2200}
    assert final["overall_rmse"] == found["rmse"] and final["overall_coverage_95"] == found["coverage"]["95"]
    assert diary.told["set.ridge"] == "2" and diary.told["lags"] == 6 and diary.told["target"] == ["y"]


@pytest.mark.slow
def test_metrics_of_an_interrupted_run_are_told_again_alike(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(2500))
    whole, first, second = (Diary(tmp_path) for _ in range(3))
    run(table, tmp_path / "c", whole)

    def interrupt(progress: Progress) -> None:
        if progress.stage == "train" and progress.done >= 2048:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config_of(table, tmp_path / "d"), lambda *_: first, interrupt)
    assert first.status == "KILLED"
    run(table, tmp_path / "d", second)

    def laps(diary: Diary) -> dict[int, Any]:
        return {step: values for step, values in diary.points if "scored" in values}

    assert laps(first) | laps(second) == laps(whole) and laps(first)[2056] == laps(second)[2056]
    assert_same_state(tmp_path / "c", tmp_path / "d")


def test_a_failed_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diary = Diary(tmp_path)

    def full(*_: object) -> None:
        raise ServiceError("no space left")

    monkeypatch.setattr(Predictions, "write_part", full)
    with pytest.raises(ServiceError):
        run(make_table(tmp_path / "t", frame_of(300)), tmp_path / "c", diary, predictions=tmp_path / "p.parquet")
    assert diary.status == "FAILED"


@pytest.mark.slow
def test_progress_counts_rows(tmp_path: Path) -> None:
    table, told = make_table(tmp_path / "t", frame_of(2500)), []
    train(config_of(table, tmp_path / "c"), Diary, told.append)
    trained = [(item.done, item.total) for item in told if item.stage == "train"]
    assert trained == [(1032, 2500), (2056, 2500)] and told[-1] == Progress("artifacts", 1, 1)


# the seed


def test_another_seed_is_another_svdgp(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(320))
    options = {"model": "svdgp", "set": {"basis": "16", "evidence_rows": "60"}}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run(table, tmp_path / name, seed=seed, **options)
    states = [tensors_of(tmp_path / name)["model/posterior.points"] for name in ("a", "b", "c")]
    assert torch.equal(states[0], states[1]) and not torch.equal(states[0], states[2])


@pytest.mark.slow
def test_a_run_warns_of_series_that_follow_one_another(tmp_path: Path) -> None:
    """However the table is cut into pieces; rows that come late are no restart of the clock, not even early on."""
    mixed = frame_of(600, ("a", "b", "c"))
    stacked = mixed.sort("unique_id", maintain_order=True)
    delayed = np.arange(mixed.height) + 40 * (np.arange(mixed.height) % 50 == 9)
    late = mixed[np.argsort(delayed, kind="stable")]
    away = pl.concat([mixed[:300], mixed[600:1500], mixed[300:600], mixed[1500:]])  # what a killed member held
    given = (("stacked", stacked, True), ("mixed", mixed, False), ("late", late, False), ("away", away, False))
    for name, data, expected in given:
        for cuts in ([], [5, 12, 60, 61, 900]):
            table = make_table(tmp_path / f"{name} {len(cuts)}", data, cuts)
            spec = WindowSpec(targets=("y",), time="t", series="unique_id")
            assert Survey.of(table, spec).order.one_after_another == expected
    found = run(table := make_table(tmp_path / "t", stacked), tmp_path / "c", max_rows=500)
    assert table.rows == 1800 and len(found["warnings"]) == 1
    (why,) = run(make_table(tmp_path / "u", away), tmp_path / "d")["warnings"]
    assert names(why, "300") and "--lateness" in why and "--sort" not in why


def test_a_run_that_goes_on_says_how_many_rows_are_new(tmp_path: Path) -> None:
    data = frame_of(700)
    table = make_table(tmp_path / "t", data[:600])
    counts = [run(table, tmp_path / "c", max_rows=500)["new_rows"], run(table, tmp_path / "c")["new_rows"]]
    append(table, data[600:])
    counts += [run(tmp_path / "t", tmp_path / "c")["new_rows"] for _ in range(2)]
    assert counts == [500, 100, 100, 0]


def test_a_run_warns_of_what_was_not_learned_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, learned = make_table(tmp_path / "t", frame_of(700)), DirectRegression.learned
    assert not run(table, tmp_path / "a", inputs="x")["warnings"]
    calls = []

    def failing_once(model: DirectRegression, *given: Any) -> tuple[list[str], Any]:
        calls.append(model)
        why, keep = learned(model, *given)
        return ["no factor"] if len(calls) == 4 else why, keep

    monkeypatch.setattr(DirectRegression, "learned", failing_once)
    assert len(run(table, tmp_path / "b", inputs="x", max_rows=500)["warnings"]) == 1
    assert len(run(table, tmp_path / "b", inputs="x")["warnings"]) == 1


GLITCHES = list(product(["linear", "svdgp"], [100, 500], [1e6, 1e9, 1e200, float("inf")], ["y", "x"]))
QUICK = {
    ("linear", 500, 1e6, "y"),
    ("linear", 100, 1e200, "y"),
    ("linear", 100, float("inf"), "x"),
    ("linear", 500, 1e9, "x"),
    ("svdgp", 500, 1e200, "y"),
    ("svdgp", 100, 1e6, "y"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "at", "value", "column"),
    [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in GLITCHES],
)
def test_a_glitch_does_little_harm(tmp_path: Path, model: str, at: int, value: float, column: str) -> None:
    data = frame_of(1100)
    spoilt = data.with_columns(pl.when(pl.int_range(pl.len()) == at).then(value).otherwise(column).alias(column))
    small = {"basis": "48", "evidence_rows": "60", "rebuild": "200"} if model == "svdgp" else {}
    options = {"model": model, "set": small, "inputs": "x", "score_from": "700"}
    clean = run(make_table(tmp_path / "t", data), tmp_path / "a", **options)
    found = run(make_table(tmp_path / "u", spoilt), tmp_path / "b", **options)
    assert found["mae"] < 1.1 * clean["mae"] and found["crps"] < 1.1 * clean["crps"]
    assert abs(found["coverage"]["95"] - clean["coverage"]["95"]) < 0.03
    assert found["width"]["95"] < 1.3 * clean["width"]["95"]


def test_a_glitch_spoils_no_forecast_of_the_default_mix(tmp_path: Path) -> None:
    data = frame_of(700)
    spoilt = data.with_columns(pl.when(pl.int_range(pl.len()) == 500).then(1e6).otherwise("y").alias("y"))
    options = {"model": "ensemble", "set": {"svdgp.basis": "48", "svdgp.evidence_rows": "60"}, "score_from": "400"}
    run(make_table(tmp_path / "t", spoilt), tmp_path / "c", predictions=tmp_path / "p.parquet", **options)
    found = pl.read_parquet(tmp_path / "p.parquet").filter(pl.col("y") < 1e5)
    assert (found["y"] - found["ensemble"]).abs().max() < 30


def test_a_run_that_forecasts_seldom_for_want_of_whole_windows_says_how_to_forecast_more(tmp_path: Path) -> None:
    data = frame_of(900).with_columns(pl.when(pl.int_range(pl.len()) % 40 == 7).then(None).otherwise("y").alias("y"))
    table = make_table(tmp_path / "t", data)
    assert any("--gaps fill" in note for note in run(table, tmp_path / "a", gaps="reset")["warnings"])
    assert not any("--gaps" in note for note in run(table, tmp_path / "b")["warnings"])


def test_a_model_in_its_warm_up_does_not_forecast(tmp_path: Path) -> None:
    run(make_table(tmp_path / "t", frame_of(300)), tmp_path / "c", warmup=1000)
    with pytest.raises(StateError):
        load(tmp_path / "c").forecast()


@pytest.mark.sampled
@pytest.mark.parametrize(("given", "most"), [({"checkpoint_every": 10_000}, 2), ({"checkpoint_every": None}, 99)])
def test_a_minute_of_work_is_kept_unless_the_rows_between_checkpoints_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], most: int
) -> None:
    table, saved, save = make_table(tmp_path / "t", frame_of(600)), list[int](), online.OnlineRun._save

    def counted(own: online.OnlineRun) -> None:
        saved.append(own.session.learner.rows)
        save(own)

    monkeypatch.setattr(online.OnlineRun, "_save", counted)
    run(table, tmp_path / "a", **given)
    assert len(saved) == 2  # before the first row and at the end, as it took less than a minute
    saved.clear()
    monkeypatch.setattr(online, "UNSAVED", 0.0)
    monkeypatch.setattr(online, "SAVING_SHARE", 0)
    run(table, tmp_path / "b", **given)
    assert 2 <= len(saved) <= most and (len(saved) > 5) == (most > 2)
    assert_same_state(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(("model", "season", "told"), [("linear", 24, 1), ("linear", None, 0), ("svdgp", 24, 0)])
def test_a_calendar_that_the_model_has_anyway_is_told(
    tmp_path: Path, model: str, season: int | None, told: int
) -> None:
    options = {"set": SMALL} if model == "svdgp" else {}
    table = make_table(tmp_path / "t", frame_of(300))
    found = run(table, tmp_path / "c", model=model, season=season, calendar=True, **options)
    assert sum(names(one, f"--calendar {model}") for one in found["warnings"]) == told


def test_a_run_in_batch_that_scores_nothing_says_what_would(tmp_path: Path) -> None:
    batch = {"online": None, "warmup": None, "checkpoint_every": None}
    found = run(make_table(tmp_path / "t", frame_of(300)), tmp_path / "c", **batch)
    assert any(names(one, "--online --test-tail") for one in found["warnings"])


@pytest.mark.parametrize(("kind", "told"), [("elapsed-s", False), ("iso", True)])
def test_series_that_follow_one_another_are_told_but_where_each_has_its_own_start(
    tmp_path: Path, kind: str, told: bool
) -> None:
    stacked = frame_of(300, ("a", "b")).sort("unique_id", maintain_order=True)
    table = make_table(tmp_path / "t", stacked)
    meta = replace(table.meta, time_format=kind)
    survey = Survey(table, WindowSpec(targets=("y",), time="t", series="unique_id", lags=4, horizon=1))
    survey.finish(100)
    survey.table.meta = meta
    config = config_of(table, tmp_path / "c")
    spec = WindowSpec(targets=("y",), time="t", series="unique_id", lags=4, horizon=1)
    assert any("follow one another" in one for one in remarks(config, spec, survey)) == told
