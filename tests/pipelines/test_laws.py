"""The laws of the stream: ask before answering, micro-batches cut by rows, a checkpoint that forecasts alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from streamgp_data.batches import micro_batches
from streamgp_data.table import Table
from streamgp_pipelines import load
from streamgp_pipelines.learning.session import open_session
from tests.pipelines.worlds import (
    append,
    assert_same_state,
    config_of,
    frame_of,
    make_table,
    run,
    scores_of,
    tensors_of,
)

MODELS: dict[str, dict[str, Any]] = {
    "linear": {},
    "seasonal_naive": {},
    "svdgp": {"set": {"basis": "32", "reservoir": "256", "rebuild": "400", "evidence_rows": "64"}},
    "ensemble": {"set": {"svdgp": {"basis": "32", "reservoir": "256", "rebuild": "400", "evidence_rows": "64"}}},
}
SLOW = {"seasonal_naive", "ensemble"}  # the one has no weights to lose, the other is made of those
each_model = pytest.mark.parametrize(
    "model", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in MODELS]
)


def predictions(table: Table, home: Path, **options: Any) -> pl.DataFrame:
    run(table, home, predictions=home / "predictions.parquet", **options)
    return pl.read_parquet(home / "predictions.parquet")


def altered(data: pl.DataFrame, row: int, *columns: str) -> pl.DataFrame:
    """These columns are other numbers from `row` on."""
    index = pl.int_range(pl.len())
    other = [pl.when(index < row).then(pl.col(name)).otherwise(40 - 3 * pl.col(name) + index % 7) for name in columns]
    return data.with_columns(expression.alias(name) for name, expression in zip(columns, other, strict=True))


def forecasts(frame: pl.DataFrame, until: Any) -> pl.DataFrame:
    """What was issued at or before `until`, without the truths."""
    return frame.filter(pl.col("cutoff") <= until).drop("y").sort("unique_id", "cutoff", "ds")


# Law 1: ask first, answer later


@pytest.mark.slow
@each_model
def test_a_forecast_does_not_change_with_what_comes_after_it(tmp_path: Path, model: str) -> None:
    data, row = frame_of(900), 610
    options = {"model": model, "inputs": "x", **MODELS[model]}
    one = predictions(make_table(tmp_path / "a", data), tmp_path / "one", **options)
    two = predictions(make_table(tmp_path / "b", altered(data, row, "y", "x")), tmp_path / "two", **options)
    until = data["t"][row - 1]
    assert_frame_equal(forecasts(one, until), forecasts(two, until), check_exact=True)
    assert forecasts(one, until).height == 3 * (row - 200) and not one.equals(two)


@pytest.mark.slow
@each_model
def test_known_inputs_beyond_the_horizon_change_no_forecast(tmp_path: Path, model: str) -> None:
    data, row, horizon = frame_of(800), 510, 3
    options = {"model": model, "known": "k", **MODELS[model]}
    one = predictions(make_table(tmp_path / "a", data), tmp_path / "one", **options)
    future = altered(altered(data, row, "y"), row + horizon, "k")
    two = predictions(make_table(tmp_path / "b", future), tmp_path / "two", **options)
    until = data["t"][row - 1]
    assert_frame_equal(forecasts(one, until), forecasts(two, until), check_exact=True)
    if model == "linear":  # and those within it do
        three = predictions(make_table(tmp_path / "c", altered(data, row, "k")), tmp_path / "three", **options)
        before, behind = (frame.filter(pl.col("cutoff") == until) for frame in (one, three))
        assert (before["linear"] != behind["linear"]).all()


@pytest.mark.sampled
@pytest.mark.parametrize("known", [None, "k"])
def test_every_step_is_scored_with_what_was_issued(tmp_path: Path, known: str | None) -> None:
    """The numbers that come back with a truth are those of the question's own micro-batch."""
    session = open_session(config_of(make_table(tmp_path / "t", frame_of(700)), tmp_path / "c", known=known, batch=32))
    learner, issued = session.learner, {}
    seen: list[int] = []
    for rows, _ in micro_batches(session.source, {}, 32):
        store, calibrate = learner.ledger.add, learner.ledger.calibrate
        asked: list[int] = []

        def note(asks: Any, predictive: Any, store: Any = store, asked: list[int] = asked) -> None:
            parameters = predictive.parameters()
            assert asks.position.max() < learner.windows.rows
            for n, position in enumerate(asks.position.tolist()):
                issued[position] = [parameters[:, n].clone()]
                asked.append(position)
            store(asks, predictive)

        def band(quantiles: Any, features: Any, store: Any = calibrate, asked: list[int] = asked) -> None:
            for n, position in enumerate(asked):
                issued[position].append(quantiles[:, n].clone())
            store(quantiles, features)

        learner.ledger.add, learner.ledger.calibrate = note, band  # type: ignore[method-assign]
        _, due = learner.advance(rows)
        learner.ledger.add, learner.ledger.calibrate = store, calibrate  # type: ignore[method-assign]
        for r, (position, column) in enumerate(zip(due.position.tolist(), due.column.tolist(), strict=True)):
            parameters, quantiles = issued[position]
            assert (due.parameters[:, r] == parameters[:, column]).all()
            assert (due.quantiles[:, r] == quantiles[:, column]).all()
            assert (quantiles[:, column].diff() >= 0).all()
            seen.append(3 * position + column)
    assert len(seen) == len(set(seen)) > 900


def test_warm_up_rows_are_never_scored(tmp_path: Path) -> None:
    data = frame_of(500)
    table = make_table(tmp_path / "t", data)
    found = predictions(table, tmp_path / "c", warmup=200)
    assert found["cutoff"].min() == data["t"][200]  # the first row behind it, though a micro-batch has 64 rows
    later = predictions(table, tmp_path / "rows", score_from="301")
    assert later["cutoff"].min() == data["t"][301]
    at = data["t"][333]
    timed = predictions(table, tmp_path / "time", score_from=at.isoformat())
    assert timed["cutoff"].min() == at
    assert_frame_equal(timed, found.filter(pl.col("cutoff") >= at), check_exact=True)


# Law 2: micro-batches are cut by rows


@pytest.mark.slow
@each_model
def test_the_same_rows_in_other_chunks_give_the_same_run(tmp_path: Path, model: str) -> None:
    data = frame_of(700)
    odd = sorted(np.random.default_rng(3).choice(np.arange(1, 700), 25, replace=False).tolist())
    options = {"model": model, "inputs": "x", **MODELS[model]}
    scores, frames = [], []
    for name, cuts in (("whole", []), ("odd", odd), ("ones", [*range(1, 40), 64, 65, 127, 128, 129])):
        table = make_table(tmp_path / name, data, cuts)
        frames.append(predictions(table, tmp_path / f"{name}-run", **options))
        scores.append(scores_of(run(table, tmp_path / f"{name}-run", **options)))
        assert_same_state(tmp_path / "whole-run", tmp_path / f"{name}-run")
    assert scores[0] == scores[1] == scores[2]
    assert_frame_equal(frames[0], frames[1], check_exact=True)
    assert_frame_equal(frames[0], frames[2], check_exact=True)


@pytest.mark.slow
def test_a_compacted_table_goes_on_where_it_was(tmp_path: Path) -> None:
    """Compaction moves rows to other files in the middle of a run; offsets stay good."""
    data = frame_of(900)
    table = make_table(tmp_path / "t", data, list(range(50, 900, 70)))
    run(table, tmp_path / "c", max_rows=500)
    table.log.optimize.compact()
    found = run(table, tmp_path / "c")
    assert scores_of(found) == scores_of(run(make_table(tmp_path / "u", data), tmp_path / "d"))
    assert_same_state(tmp_path / "c", tmp_path / "d")


@pytest.mark.sampled
@each_model
def test_a_partial_micro_batch_is_scored_but_not_learned(tmp_path: Path, model: str) -> None:
    data = frame_of(700)  # 200 + 7 · 64 + 52
    table, options = make_table(tmp_path / "t", data), {"model": model, **MODELS[model]}
    found = predictions(table, tmp_path / "c", **options)
    assert found["ds"].max() == data["t"][699] and found["cutoff"].max() == data["t"][698]
    summary = run(table, tmp_path / "c", **options)
    assert summary["rows"] == 700 and summary["scored"] == found.height
    whole = run(table, tmp_path / "d", max_rows=648, **options)
    assert whole["rows"] == 648
    one, two = _model(tmp_path / "c"), _model(tmp_path / "d")
    assert all((one[name] == two[name]).all() for name in one)


def _model(home: Path) -> dict[str, Any]:
    return load(home).learner.model.state()[0]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("linear", "k"),
        ("svdgp", None),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("linear", None), ("svdgp", "k"), ("seasonal_naive", None)]
        ),
    ],
)
def test_a_table_that_grows_is_the_same_as_the_whole_table(tmp_path: Path, model: str, known: str | None) -> None:
    data = frame_of(520)
    options = {"model": model, "known": known, **MODELS[model]}
    table = make_table(tmp_path / "t", data[:150])
    for start, stop in ((150, 333), (333, 334), (334, 520)):
        early = predictions(table, tmp_path / "c", **options)
        assert early.is_empty() or early["ds"].max() == data["t"][start - 1]
        append(table, data[start:stop])
    grown = predictions(table, tmp_path / "c", **options)
    whole = predictions(make_table(tmp_path / "u", data), tmp_path / "d", **options)
    assert_frame_equal(grown, whole, check_exact=True)
    assert_same_state(tmp_path / "c", tmp_path / "d")
    one, two = (
        run(table, tmp_path / name, **options) for name, table in (("c", table), ("d", Table.open(tmp_path / "u")))
    )
    assert scores_of(one) == scores_of(two)


@pytest.mark.slow
def test_a_target_that_stops_obeys_the_laws_too(tmp_path: Path) -> None:
    """Its distribution has a point mass: the future changes none, and a run that is resumed has the same."""
    stands = np.random.default_rng(0).random(180).repeat(10) < 0.4
    data = frame_of(1800).with_columns(pl.when(pl.Series(stands)).then(0.0).otherwise(pl.col("y").abs() + 3).alias("y"))
    options: dict[str, Any] = {"model": "linear", "season": None}
    whole = predictions(make_table(tmp_path / "a", data), tmp_path / "one", **options)
    assert (whole.filter(pl.col("cutoff") > data["t"][1200])["linear-lo-95"] == 0).mean() > 0.3
    other = predictions(make_table(tmp_path / "b", altered(data, 1500, "y")), tmp_path / "two", **options)
    assert_frame_equal(forecasts(whole, data["t"][1499]), forecasts(other, data["t"][1499]), check_exact=True)
    table = make_table(tmp_path / "c", data[:222])
    for start, stop in ((222, 555), (555, 1111), (1111, 1800)):
        run(table, tmp_path / "three", **options)
        append(table, data[start:stop])
    run(table, tmp_path / "three", **options)
    assert_same_state(tmp_path / "one", tmp_path / "three")


# Law 4 in small: nothing that is kept grows with the stream


@pytest.mark.sampled
@each_model
def test_what_is_kept_does_not_grow(tmp_path: Path, model: str) -> None:
    table = make_table(tmp_path / "t", frame_of(2000))
    options = {"model": model, **MODELS[model], "horizon": 2, "lags": 3, "inputs": "x"}
    sizes = []
    for rows in (1000, 2000):
        run(table, tmp_path / "c", max_rows=rows, **options)
        kept = tensors_of(tmp_path / "c")
        sizes.append(sum(tensor.nbytes for name, tensor in kept.items() if not name.startswith(("tail/", "curves/"))))
    assert sizes[1] <= 1.02 * sizes[0]


# Law 6: a checkpoint forecasts alone


@pytest.mark.sampled
@each_model
def test_a_checkpoint_forecasts_without_its_table(tmp_path: Path, model: str) -> None:
    table, options = make_table(tmp_path / "t", frame_of(400)), {"model": model, **MODELS[model]}
    run(table, tmp_path / "c", **options)
    with_table = load(tmp_path / "c")
    with_table.observe(Table.open(tmp_path / "t"))
    expected = with_table.forecast().frame
    shutil.rmtree(tmp_path / "t")
    alone = load(tmp_path / "c").forecast().frame
    assert_frame_equal(alone, expected, check_exact=True)


@pytest.mark.sampled
@each_model
def test_a_forecast_is_what_the_run_issued_at_that_row(tmp_path: Path, model: str) -> None:
    """At the first row behind a micro-batch a run and its checkpoint know the same, if that row is not learned."""
    data, options = frame_of(700), {"model": model, "inputs": "x", **MODELS[model]}
    issued = predictions(make_table(tmp_path / "t", data), tmp_path / "c", **options)
    table = make_table(tmp_path / "u", data[:521])
    run(table, tmp_path / "d", max_rows=520, **options)  # 200 + 5 · 64
    forecaster = load(tmp_path / "d")
    forecaster.observe(table)
    wanted = issued.filter(pl.col("cutoff") == data["t"][520]).drop("step", "y").sort("ds")
    assert_frame_equal(forecaster.forecast().frame, wanted, rel_tol=1e-9)
    assert wanted.height == 3
