"""A forecast has learned every row read, though a checkpoint only ever holds full micro-batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from streamgp_data import checkpoint
from streamgp_data.table import Table
from streamgp_pipelines import load
from streamgp_pipelines.forecasting.forecast import Forecaster
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.tail import Tail
from streamgp_pipelines.training import online
from tests.pipelines.worlds import append, assert_same_state, frame_of, make_table, run, same_bits, tensors_of

MODELS: dict[str, dict[str, Any]] = {
    "linear": {},
    "svdgp": {"set": {"basis": "32", "reservoir": "256", "rebuild": "400", "evidence_rows": "64"}},
}
each_model = pytest.mark.parametrize("model", MODELS)


def learned_state(learner: Learner, of: tuple[str, ...] = ("model", "bands")) -> dict[str, torch.Tensor]:
    """Rows that are only seen move the volatility of the bands, and nothing of the model."""
    parts = {name: learner.parts()[name].state()[0] for name in of}
    return {f"{part}/{name}": tensor.clone() for part, named in parts.items() for name, tensor in named.items()}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(same_bits(one[name], two[name]) for name in one)


def moved(home: Path) -> Forecaster:
    """A forecaster that has learned the rows behind the last full micro-batch."""
    forecaster = load(home)
    forecaster.observe()
    return forecaster


@each_model
def test_the_last_rows_are_learned_as_a_full_micro_batch_would_be(tmp_path: Path, model: str) -> None:
    options = {"model": model, **MODELS[model]}
    run(make_table(tmp_path / "t", frame_of(560)), tmp_path / "c", **options)  # 200 + 5 · 64 + 40
    oracle = load(tmp_path / "c")
    assert oracle.tail is not None and oracle.tail.num_rows == 40
    before = learned_state(oracle.learner)
    oracle.learner.advance(oracle.tail)
    after, learner = learned_state(oracle.learner), moved(tmp_path / "c").learner
    assert same(learned_state(learner, ("bands",)), {name: after[name] for name in after if name.startswith("bands")})
    if model == "linear":  # svdgp leaves out rows that would only wait
        assert same(learned_state(learner), after)
    forecasts = [one.model.predict(one.windows.ask_last().x).parameters() for one in (learner, oracle.learner)]
    assert same_bits(*forecasts)
    changed = {name.split("/")[0] for name in after if name not in before or not same_bits(before[name], after[name])}
    assert changed == {"model", "bands"}


def test_rows_that_wait_for_known_inputs_are_learned_too(tmp_path: Path) -> None:
    """At the end of the table there are no known values to wait for: the truths of the last rows are there."""
    run(make_table(tmp_path / "t", frame_of(560)), tmp_path / "c", known="k", horizon=5)
    oracle, learned = load(tmp_path / "c"), []
    learner, update = oracle.learner, oracle.learner.model.update
    assert oracle.tail is not None
    learner.model.update = lambda x, y, issued: learned.append(y.clone()) or update(x, y, issued)  # type: ignore[assignment, method-assign, func-returns-value]
    learner.branch(oracle.tail)
    assert len(learned) == 1 and len(learned[0]) == 5 + 40  # five rows waited at row 520
    assert learned[0][-1].tolist() == frame_of(560)["y"][-5:].to_list()


@pytest.mark.slow
def test_a_row_an_hour_forecasts_as_one_pass(tmp_path: Path) -> None:
    data, options = frame_of(480), {"model": "linear", "warmup": 150}  # 150 + 5 · 64 = 470
    table = make_table(tmp_path / "t", data[:460])
    for rows in range(460, 480):
        if rows > 460:
            append(table, data[rows - 1 : rows])
        run(table, tmp_path / "c", **options)
        hourly = load(tmp_path / "c").forecast().frame
        if rows in (460, 469, 470, 471, 479):
            run(make_table(tmp_path / f"t{rows}", data[:rows]), tmp_path / f"c{rows}", **options)
            assert_frame_equal(load(tmp_path / f"c{rows}").forecast().frame, hourly, check_exact=True)
            assert_same_state(tmp_path / "c", tmp_path / f"c{rows}")


@pytest.mark.slow
@each_model
def test_forecasts_in_between_leave_training_alone(tmp_path: Path, model: str) -> None:
    data, options = frame_of(800), {"model": model, "known": "k", **MODELS[model]}
    table = make_table(tmp_path / "t", data[:250])
    future = data.select("t", "k").to_arrow()
    for start, stop in ((250, 333), (333, 334), (334, 641), (641, 800)):
        run(table, tmp_path / "c", **options)
        kept = _files(tmp_path / "c")
        one, two = (load(tmp_path / "c").forecast(future=future[start:]).frame for _ in range(2))
        assert_frame_equal(one, two, check_exact=True)
        assert _files(tmp_path / "c") == kept
        append(table, data[start:stop])
    run(table, tmp_path / "c", **options)
    run(make_table(tmp_path / "u", data), tmp_path / "d", **options)
    assert_same_state(tmp_path / "c", tmp_path / "d")


def _files(home: Path) -> dict[str, bytes]:
    return {str(file.relative_to(home)): file.read_bytes() for file in home.rglob("*") if file.is_file()}


def test_a_longer_table_moves_the_windows_only(tmp_path: Path) -> None:
    data = frame_of(600)
    table = make_table(tmp_path / "t", data[:560])
    run(table, tmp_path / "c")
    alone = moved(tmp_path / "c")
    append(table, data[560:590])
    ahead = load(tmp_path / "c")
    ahead.observe(table)
    assert same(learned_state(ahead.learner, ("model",)), learned_state(alone.learner, ("model",)))
    assert ahead.learner.windows.rows == 590 and ahead.learner.windows.late == 0
    assert ahead.forecast().frame["cutoff"][0] == data["t"][589]
    append(table, data[590:])
    ahead.observe(table)  # goes on where it was
    again = load(tmp_path / "c")
    again.observe(Table.open(tmp_path / "t"))
    assert ahead.learner.windows.rows == again.learner.windows.rows == 600
    assert_frame_equal(ahead.forecast().frame, again.forecast().frame, check_exact=True)


def test_rows_without_a_clock_are_read_once(tmp_path: Path) -> None:
    data = frame_of(560).drop("t")
    table = make_table(tmp_path / "t", data[:530])
    run(table, tmp_path / "c", lags=6)
    append(table, data[530:])
    ahead = load(tmp_path / "c")
    ahead.observe(table)
    ahead.observe(table)
    assert ahead.forecast().frame["ds"].to_list() == [560, 561, 562]


def test_a_checkpoint_of_batch_training_learns_nothing_more(tmp_path: Path) -> None:
    data = frame_of(560)
    batch = {"online": None, "warmup": None, "checkpoint_every": None, "test_tail": 0.2, "known": "k"}
    run(make_table(tmp_path / "t", data[:557]), tmp_path / "c", **batch)
    forecaster = load(tmp_path / "c")
    before = learned_state(forecaster.learner)
    forecaster.forecast(future=data[557:].select("t", "k").to_arrow())
    assert same(learned_state(forecaster.learner), before)


def test_the_last_rows_may_end_the_warm_up(tmp_path: Path) -> None:
    """No window is whole in the first 200 rows, so that the warm-up lasts until one is."""
    data = frame_of(260).with_columns(y=pl.when(pl.int_range(pl.len()) < 205).then(None).otherwise("y"))
    run(make_table(tmp_path / "t", data), tmp_path / "c", season=None)
    assert checkpoint.read(tmp_path / "c").rest["warmup"]["done_at"] is None
    assert load(tmp_path / "c").forecast().frame["linear"].is_between(0, 20).all()


def test_a_table_that_is_followed_has_its_newest_rows_in_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = frame_of(315)
    table, held = make_table(tmp_path / "t", data[:300]), []

    def hour(_: float) -> None:
        newest, tail = checkpoint.read(tmp_path / "c"), Tail()
        newest.restore({"tail": tail})
        held.append(newest.rows + (0 if tail.rows is None else tail.rows.num_rows))
        append(table, data[300 + len(held) - 1 :][:1])

    monkeypatch.setattr(online.time, "sleep", hour)
    monkeypatch.setattr(online, "SAVING_SHARE", 0)
    run(table, tmp_path / "c", follow=True, max_rows=315)
    assert held == [*range(300, 315)]


def test_a_table_that_is_followed_is_not_saved_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = frame_of(315)
    table, told = make_table(tmp_path / "t", data[:300]), []

    def hour(_: float) -> None:
        told.append(checkpoint.read(tmp_path / "c").path.name)
        append(table, data[300 + len(told) - 1 :][:1])

    monkeypatch.setattr(online.time, "sleep", hour)
    monkeypatch.setattr(online, "SAVING_SHARE", 1e9)
    run(table, tmp_path / "c", follow=True, max_rows=315)
    assert len(set(told)) == 1 and tensors_of(tmp_path / "c")
    assert load(tmp_path / "c").forecast().frame["cutoff"][0] == data["t"][314]
