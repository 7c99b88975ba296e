"""Learning from data frames: the numbers of the command line, whatever the frames, and what is refused."""

from __future__ import annotations

import copy
import warnings
from datetime import UTC, datetime, timedelta, timezone
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import streamgp
from streamgp.errors import DataError, SchemaError, StateError, UsageError
from streamgp.recalled import RecalledByName
from streamgp_data.ingestion import plan as plans
from streamgp_data.times import decide
from streamgp_pipelines import load as load_checkpoint
from streamgp_pipelines.reporting.fans import forecast_page
from streamgp_pipelines.reporting.page import Fan
from tests.pipelines.worlds import assert_same_state, frame_of, make_table, run, same_bits, scores_of, tensors_of

HOURLY: dict[str, Any] = {"horizon": 3, "season": 24, "known": "k", "lags": 4, "warmup": 150, "batch": 128}


def forecaster(**options: Any) -> streamgp.Forecaster:
    return streamgp.Forecaster("y", **({"every": "1h", "model": "linear", "levels": (80, 95)} | HOURLY | options))


def future_of(data: pl.DataFrame, rows: int) -> pl.DataFrame:
    return data.slice(rows, 3).drop("y")


@pytest.mark.sampled
@pytest.mark.parametrize("series", [(), ("a", "b")])
@pytest.mark.parametrize("model", ["linear", "auto"])
def test_it_gives_the_numbers_of_the_command_line(tmp_path: Path, series: tuple[str, ...], model: str) -> None:
    whole = frame_of(520, series)
    data, rest = whole.head(-6), whole.tail(6)
    make_table(tmp_path / "table", data)
    options = {"set": {"experts": "linear,persistence"}} if model == "auto" else {}
    own = run(tmp_path / "table", tmp_path / "run", model=model, **HOURLY, **options)
    found = forecaster(model=model, options=options.get("set"))
    for at, size in ((0, 200), (200, 1), (201, 313), (514, 10_000)):
        found.learn(data.slice(at, size))
    assert found.rows == len(data)
    scores = scores_of(own)
    assert {name: scores[name] for name in ("rmse", "crps", "coverage", "steps", "mase", "coverage_by")} == {
        name: found.scores[name] for name in ("rmse", "crps", "coverage", "steps", "mase", "coverage_by")
    }
    found.save(tmp_path / "saved")
    left, right = tensors_of(tmp_path / "run"), tensors_of(tmp_path / "saved")
    assert left.keys() == right.keys()
    assert all(same_bits(left[name], right[name]) for name in left if name != "tail/arrow")  # a table numbers its rows
    future = rest.drop("y")
    saved = load_checkpoint(tmp_path / "run").forecast(future=_future_table(future))
    assert_frame_equal(found.forecast(future=future), saved.frame)


def _future_table(future: pl.DataFrame) -> pa.Table:
    return future.with_columns(pl.col("t").dt.convert_time_zone("UTC")).to_arrow()


def test_how_rows_are_cut_into_frames_changes_nothing(tmp_path: Path) -> None:
    data = frame_of(400)
    one = forecaster().learn(data)
    other = forecaster().learn(data.head(170))
    for row in data.slice(170, 30).iter_rows(named=True):
        other.learn_one(row)
    other.learn(data.slice(200).to_arrow()).learn(data.head(0))
    one.save(tmp_path / "one")
    other.save(tmp_path / "other")
    assert_same_state(tmp_path / "one", tmp_path / "other")


def test_a_saved_one_learns_on(tmp_path: Path) -> None:
    data = frame_of(600)
    straight = forecaster().learn(data.head(300)).learn(data.slice(300, 297))
    path = forecaster().learn(data.head(300)).save(tmp_path / "saved")
    again = streamgp.load(path).learn(data.slice(300, 297))
    future = future_of(data, 597)
    assert_frame_equal(straight.forecast(future=future), again.forecast(future=future))
    assert straight.scores == again.scores
    straight.save(tmp_path / "one")
    again.save(tmp_path / "other")
    assert_same_state(tmp_path / "one", tmp_path / "other")


def test_a_run_of_the_command_line_learns_on(tmp_path: Path) -> None:
    data = frame_of(597)
    make_table(tmp_path / "table", data.head(300))
    run(tmp_path / "table", tmp_path / "run", model="linear", **HOURLY)
    again = streamgp.load(tmp_path / "run").learn(data.slice(300))
    straight = forecaster().learn(data)
    assert straight.scores["rmse"] == again.scores["rmse"]


def test_a_frame_is_given_back_as_it_came() -> None:
    data = frame_of(300)
    future = future_of(frame_of(303), 300)
    polars = forecaster().learn(data).forecast(future=future)
    pandas_frame = data.to_pandas().set_index("t")
    pandas = forecaster().learn(pandas_frame).forecast(future=future.to_pandas().set_index("t"), levels=90)
    arrow = forecaster().learn(data.to_arrow()).forecast(future=future, horizon=2)
    assert isinstance(polars, pl.DataFrame) and isinstance(pandas, pd.DataFrame) and isinstance(arrow, pa.Table)
    np.testing.assert_array_equal(polars["linear"], pandas["linear"])
    assert arrow.num_rows == 2 and "linear-hi-90" in pandas.columns and "linear-hi-95" not in pandas.columns


def test_the_future_may_have_a_fixed_offset() -> None:
    data = frame_of(303).to_pandas()
    data["t"] = data["t"].dt.tz_convert(timezone(timedelta(hours=10)))
    fitted = forecaster().learn(data.head(300))
    future = data.iloc[300:].drop(columns="y")
    found = fitted.forecast(future=future)
    there = future.assign(t=future["t"].dt.tz_convert("UTC"))
    pd.testing.assert_frame_equal(found, fitted.forecast(future=there))
    assert (found["ds"].array == future["t"].array).all()


def test_rows_out_of_order_are_warned_of_once() -> None:
    data = frame_of(400)
    fitted = forecaster()
    with pytest.warns(UserWarning, match="sort the frame") as told:
        fitted.learn(pl.concat([data[50:200], data[:50]]))
    assert len(told) == 1 and told[0].filename == __file__ and any("sort" in text for text in fitted.warnings)
    assert "lateness=" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.learn(pl.concat([data[230:300], data[200:230]]))
    with pytest.warns(UserWarning, match="later than the lateness"):
        forecaster(lateness="2h").learn(data.head(100)).learn(data.slice(150, 50)).learn(data.slice(100, 50))


def test_times_may_be_text(tmp_path: Path) -> None:
    data = frame_of(300, zone=None)
    text = data.with_columns(t=pl.col("t").dt.strftime("%Y-%m-%d %H:%M"))
    assert forecaster(time="t").learn(text).scores == forecaster().learn(data).scores
    ours = data.with_columns(t=pl.col("t").dt.strftime("%d.%m.%Y %H:%M"))
    written = forecaster(time="t", time_format="%d.%m.%Y %H:%M").learn(ours.head(250))
    again = streamgp.load(written.save(tmp_path / "saved"))
    assert again.learn(ours[250:]).scores == forecaster().learn(data).scores


def test_times_without_an_offset_show_the_clock_of_the_stream() -> None:
    """Also in the hour that occurs twice."""
    begin, end = pl.datetime(2024, 10, 20), pl.datetime(2024, 12, 1)
    hours = pl.datetime_range(begin, end, "1h", time_zone="Europe/London", eager=True)
    data = frame_of(303).with_columns(t=hours.head(303))
    naive = data.with_columns(pl.col("t").dt.replace_time_zone(None))
    found = forecaster().learn(data.head(100)).learn(naive[100:200]).learn(naive[200:260]).learn(data[260:300])
    wanted = forecaster().learn(data.head(300))
    assert found.scores == wanted.scores
    assert found.forecast(future=future_of(naive, 300)).equals(wanted.forecast(future=future_of(data, 300)))


def test_the_way_text_of_times_is_written_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that is written otherwise settles it again; one that cannot be read changes nothing."""
    settled = list[str]()
    monkeypatch.setattr(plans, "decide", lambda *given: (settled.append(given[-1]), decide(*given))[1])
    data = frame_of(230, zone=None)
    learned = forecaster(time="t")
    for start in range(0, 200, 20):
        learned.learn(data[start : start + 20].with_columns(pl.col("t").dt.strftime("%Y-%m-%d %H:%M")))
    assert len(settled) == 3  # twice of the first frame, and of the next, whose zone is known
    with pytest.raises(DataError, match="soon"):
        learned.learn_one({"t": "soon", "y": 1.0, "k": 1.0})
    for row in data[200:210].iter_rows(named=True):
        learned.learn_one(row | {"t": f"{row['t']:%Y%m%dT%H%M%S}"})
    assert len(settled) == 5  # also of the word that is no time
    learned.learn(data[210:])
    assert learned.rows == 230 and learned.scores == forecaster().learn(data).scores


def test_a_frame_that_is_refused_leaves_the_clock_of_the_next() -> None:
    """Its local times of an hour that comes twice were not read."""
    begin = datetime(2024, 10, 20)
    times = [f"{begin + timedelta(minutes=30 * at):%Y-%m-%d %H:%M}" for at in range(342)]  # up to 2:30 of the first run
    learned = forecaster(every="30m", known=(), timezone="Europe/Berlin").learn(
        {"ds": times[:-2], "y": [1.0, 2.0] * 170}
    )
    with pytest.raises(DataError):
        learned.learn({"ds": [*times[-2:], "soon"], "y": [1.0, 2.0, 3.0]})
    learned.learn({"ds": times[-2:], "y": [1.0, 2.0]})
    assert learned.forecast()["cutoff"][0].astimezone(UTC) == datetime(2024, 10, 27, 0, 30, tzinfo=UTC)


def test_decimals_are_numbers() -> None:
    data = frame_of(300).with_columns(pl.col("y").round(3))
    exact = data.with_columns(pl.col("y").cast(pl.Decimal(12, 3)))
    assert forecaster().learn(exact).scores["rmse"] == pytest.approx(forecaster().learn(data).scores["rmse"])


@pytest.mark.slow
def test_the_river_habit() -> None:
    found = forecaster(horizon=1, known=())
    rows = frame_of(260).iter_rows(named=True)
    errors = []
    for at, row in enumerate(rows):
        if at > 200:
            errors.append(found.predict_one()["linear"] - row["y"])
        found.learn_one(row)
    assert np.sqrt(np.mean(np.square(errors))) < 1.5 and found.rows == 260


def test_a_model_of_one_step_is_simulated() -> None:
    found = forecaster(horizon=1, known=(), season=()).learn(frame_of(300)).simulate(10, paths=40)
    assert found.height == 10 and found["linear-lo-95"].is_not_null().all()


def test_what_cannot_be_learned_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    data = frame_of(300)
    with pytest.raises(StateError):
        forecaster().forecast()
    with pytest.raises(UsageError):
        forecaster().learn([1, 2, 3])
    with pytest.raises(UsageError):
        streamgp.Forecaster("y", horizon=0)
    with pytest.raises(UsageError):
        streamgp.Forecaster("y", model="nope")
    with pytest.raises(UsageError):
        streamgp.Forecaster("z", every="1h").learn(data)
    found = forecaster().learn(data.head(250))
    before = found.save(tmp_path / "before")
    broken = data.slice(250).with_columns(t=pl.when(pl.int_range(50) == 7).then(None).otherwise("t"))
    with pytest.raises(DataError, match="258"):
        found.learn(broken)
    with pytest.raises(SchemaError):
        found.learn(data.slice(250).drop("k"))
    with pytest.raises(SchemaError):
        found.learn(data.slice(250).with_columns(y=pl.col("y").cast(pl.String)))
    found.save(tmp_path / "after")
    assert_same_state(before, tmp_path / "after")
    again = found.learn(data.slice(250)).save(tmp_path / "again")
    forecaster().learn(data).save(tmp_path / "whole")
    assert_same_state(again, tmp_path / "whole")


def regression(**options: Any) -> tuple[streamgp.Forecaster, pl.DataFrame]:
    x = np.random.default_rng(0).uniform(-3, 3, 300)
    rows = pl.DataFrame({"x": x, "y": np.sin(x) + 0.1 * np.random.default_rng(1).standard_normal(300)})
    given: dict[str, Any] = {"inputs": "x", "time": "row", "lags": 0, "model": "exact", "warmup": 200} | options
    return streamgp.Forecaster("y", **given).learn(rows), pl.DataFrame({"x": [0.0, 1.5, 40.0, 40.01]})


def test_the_posterior_is_the_models_own_distribution() -> None:
    fitted, rows = regression()
    found, forecast = fitted.posterior(rows, samples=600, seed=3), fitted.forecast(future=rows)
    np.testing.assert_allclose(found["mean"], forecast["exact"], rtol=1e-12)
    np.testing.assert_allclose(found["std_latent"], forecast["exact-std-latent"], rtol=1e-12)
    np.testing.assert_allclose(np.hypot(found["std_latent"], found["std_noise"]), forecast["exact-std"], rtol=1e-9)
    assert (np.abs(found["mean"][:2] - np.sin([0.0, 1.5])) < 0.1).all()
    draws = found.select(pl.col("^sample_.*$")).to_numpy()
    assert draws.shape == (4, 600)
    spread = np.hypot(found["std_latent"], found["std_noise"]).to_numpy()
    assert (np.abs(draws.mean(1) - found["mean"].to_numpy()) < 5 * spread / np.sqrt(600)).all()
    np.testing.assert_allclose(draws.std(1), spread, rtol=5 / np.sqrt(2 * 600))
    assert np.corrcoef(draws)[2, 3] > 0.8  # one function: where nothing is known, neighbours still agree
    assert found.equals(fitted.posterior(rows, samples=600, seed=3))


def test_a_posterior_at_times_leaves_the_frame_as_it_is() -> None:
    """Columns of a frame may not be written: that PyTorch would warn of is an error here."""
    ds = [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(64)]
    rows = pl.DataFrame({"ds": ds, "x": np.sin(np.arange(64.0))}).with_columns(y=pl.col("x") * 2)
    fitted = streamgp.Forecaster("y", known="x", time="ds", every="1h", lags=0, model="exact").fit(rows.head(60))
    found = fitted.posterior(rows.tail(4).drop("y"))
    np.testing.assert_allclose(found["mean"], rows.tail(4)["y"], atol=0.05)


def test_the_posterior_of_a_stream_is_that_of_its_next_steps() -> None:
    data = frame_of(303)
    fitted = forecaster().learn(data.head(300).to_pandas())
    found = fitted.posterior(future_of(data, 300), samples=2)
    assert isinstance(found, pd.DataFrame) and len(found) == 3
    own = fitted.forecast(future=future_of(data, 300))
    np.testing.assert_allclose(found["mean"], own["linear"])
    np.testing.assert_allclose(np.hypot(found["std_latent"], found["std_noise"]), own["linear-std"], rtol=1e-6)
    with pytest.raises(UsageError):
        fitted.posterior()


@pytest.mark.parametrize(("model", "series"), [("linear", ()), ("auto", ("a", "b"))])
def test_contributions_add_up_to_the_forecast(model: str, series: tuple[str, ...]) -> None:
    data = frame_of(403, series)
    streams = max(len(series), 1)
    options = {"experts": "linear,persistence,seasonal_naive"} if model == "auto" else None
    fitted = forecaster(model=model, options=options).learn(data.head(400 * streams))
    future = data.tail(3 * streams).drop("y")
    found, own = fitted.contributions(future), fitted.forecast(future=future)
    name = own.columns[3]
    assert_frame_equal(found.select("unique_id", "ds", "cutoff"), own.select("unique_id", "ds", "cutoff"))
    terms = found.drop("unique_id", "ds", "cutoff", "mean")
    np.testing.assert_allclose(found["mean"], own[name], rtol=1e-12)
    np.testing.assert_allclose(terms.sum_horizontal(), own[name], rtol=1e-10)
    assert {"reference", "own past", "known k", "calendar"} <= set(terms.columns)
    assert ("persistence" in terms.columns) == (model == "auto")
    again = fitted.contributions(future)
    assert_frame_equal(found, again)


@pytest.mark.sampled
@pytest.mark.parametrize("sign", [1, -1])
def test_a_spike_among_the_history_is_drawn_hollow_at_the_edge(sign: int) -> None:
    """And named, in a picture and a page; where a second one makes both a level there is none."""
    import matplotlib

    matplotlib.use("Agg")
    data = frame_of(520)
    moved = data.with_columns(y=pl.col("y") + sign * 1e5 * (pl.int_range(pl.len()) == 510))
    fitted = forecaster(model="linear").learn(moved)
    axes = fitted.plot(future_of(frame_of(523), 520))
    (spike,) = [line for line in axes.lines if "set aside" in str(line.get_label())]
    assert (spike.get_marker(), spike.get_markerfacecolor()) == ("^" if sign > 0 else "v", "none")
    low, high = axes.get_ylim()
    assert high - low < 1e4 and "set aside" in axes.get_legend().get_texts()[-1].get_text()
    stream = fitted._stream
    view = stream.view().forecast(None, None, stream.future(future_of(frame_of(523), 520), stream.view(), None))
    (fan,) = forecast_page(view).sections[0].parts
    assert isinstance(fan, Fan)
    aside = fan.data["panels"][0]["views"][0]["aside"]
    assert len(aside["t"]) == 1 and aside["y"] == pytest.approx([moved["y"][510]], rel=1e-3)
    level = data.with_columns(y=pl.col("y") + sign * 1e5 * (pl.int_range(pl.len()) >= 510))
    other = forecaster(model="linear").learn(level).plot(future_of(frame_of(523), 520))
    assert not [line for line in other.lines if "set aside" in str(line.get_label())]
    for drawn in (axes, other):
        matplotlib.pyplot.close(drawn.figure)


def test_contributions_are_refused_where_there_are_none() -> None:
    data = frame_of(303)
    future = future_of(data, 300)
    with pytest.raises(UsageError, match="no sum"):
        forecaster(model="svdgp").learn(data.head(300)).contributions(future)
    with pytest.raises(UsageError, match="transform"):
        forecaster(transform="log").learn(data.head(300)).contributions(future)


def test_a_plot_shows_history_forecast_and_bands() -> None:
    import matplotlib

    matplotlib.use("Agg")
    data = frame_of(306, ("a", "b"))
    fitted = forecaster().learn(data.head(600))
    future = data.slice(600, 6).drop("y")
    axes = fitted.plot(future, levels=[80], series="b")
    assert len(axes.lines) == 2 and len(axes.collections) == 1
    forecast = fitted.forecast(future=future).filter(unique_id="b")
    np.testing.assert_allclose(axes.lines[1].get_ydata()[-3:], forecast["linear"])
    assert fitted.plot(future, series="a", ax=axes) is axes and len(axes.lines) == 4
    for wrong in ({}, {"series": "c"}):
        with pytest.raises(UsageError):
            fitted.plot(future, **wrong)
    with pytest.raises(UsageError) as refused:
        fitted.plot("next.png")  # type: ignore[arg-type]
    assert "figure.savefig('next.png')" in refused.value.hint
    matplotlib.pyplot.close(axes.figure)


@pytest.mark.parametrize("wrong", [{"levels": ["95"]}, {"levels": "95"}, {"horizon": 0}, {"quantiles": ["0.1"]}])
def test_a_forecast_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    fitted = forecaster(known=()).learn(frame_of(300))
    with pytest.raises(UsageError):
        fitted.forecast(**wrong)


def test_one_step_of_several_with_known_inputs_is_refused() -> None:
    data = frame_of(301)
    fitted = forecaster().learn(data.head(300))
    with pytest.raises(UsageError) as refused:
        fitted.predict_one(data.row(300, named=True))
    assert "horizon=1" in refused.value.hint


def test_a_misspelt_option_names_the_closest() -> None:
    wrong: Any = {"horizn": 2, "modell": "linear"}
    with pytest.raises(UsageError, match=r"'horizn'; did you mean 'horizon'.*'modell'; did you mean 'model'"):
        streamgp.Forecaster("y", **wrong)
    wrong = {"level": (90,)}
    with pytest.raises(UsageError, match="'levels'"):
        forecaster().forecast(**wrong)
    assert str(signature(streamgp.Forecaster)).startswith("(target")


def test_whole_days_of_a_workbook_are_said() -> None:
    days = pl.DataFrame({"day": range(45292, 45592), "y": [float(at % 7) for at in range(300)]})
    options: dict[str, Any] = {"model": "linear", "time": "day", "lags": 4}
    assert any('time_format="excel"' in one for one in streamgp.Forecaster("y", **options).learn(days).warnings)
    counted = streamgp.Forecaster("y", time_format="step", **options).learn(days)
    assert not any("excel" in one for one in counted.warnings)


@pytest.mark.sampled
@pytest.mark.parametrize("known", [(), "k"])
@pytest.mark.parametrize("horizon", [3, 40])
@pytest.mark.parametrize("model", ["auto", "svdgp"])
def test_forecasts_after_each_row_are_those_after_all_at_once(model: str, horizon: int, known: Any) -> None:
    """What is recalled of the rows before changes nothing: missing values, and a micro-batch that fills, among them."""
    data = frame_of(310).with_columns(pl.when(pl.col("t").dt.day() == 24).then(None).otherwise(pl.col("y")).alias("y"))
    data = data if known else data.drop("k")
    options: dict[str, Any] = {"season": 24, "lags": 4, "warmup": 100, "batch": 32, "every": "1h", "known": known}
    one = streamgp.Forecaster("y", horizon, model=model, **options).learn(data[:245])
    for row in range(245, 260):
        future = data[row + 1 : row + 1 + horizon].drop("y") if known else None
        one.learn(data[row : row + 1])
        found = one.forecast(future=future)
        if row % 4 == 0:
            again = copy.copy(one)
            stream = again._stream = copy.copy(one._stream)
            stream.learner, stream._ahead = copy.deepcopy(stream.learner), None
            assert stream.learner is not None
            stream.learner.recalled = RecalledByName()
            assert_frame_equal(found, again.forecast(future=future), rel_tol=1e-9)
