"""The Python API speaks Python: what cannot be is said with arguments, and words of other libraries lead to ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streamgp
from streamgp.errors import DataError, SchemaError, StateError, StreamgpError, StreamgpWarning, UsageError
from streamgp_pipelines.config import CompareConfig, ForecastConfig, IngestConfig, TrainConfig
from streamgp_pipelines.wording import in_python
from tests.words import names

ROWS = 200
TIMES = pd.date_range("2024-01-01", periods=ROWS, freq="h")
Y = np.arange(ROWS) % 24 + 0.1 * np.random.default_rng(0).standard_normal(ROWS)
FRAME = pd.DataFrame({"ds": TIMES, "y": Y})
TWICE = pd.DataFrame(np.c_[Y, Y], columns=["y", "y"], index=TIMES)


def forecaster(**options: Any) -> streamgp.Forecaster:
    given: dict[str, Any] = {"target": "y", "model": "persistence", "every": "1h", "lags": 2, "warmup": 50, "batch": 50}
    return streamgp.Forecaster(**given | options)


def saved(folder: Path) -> Path:
    return forecaster(known="k").learn(FRAME.assign(k=1.0)).save(folder / "saved")


def test_a_loaded_forecaster_needs_its_columns(tmp_path: Path) -> None:
    later = FRAME.assign(ds=TIMES + pd.Timedelta("90D"), k=0.0)
    for column in ("y", "ds", "k"):
        with pytest.raises(SchemaError) as refused:
            streamgp.load(saved(tmp_path)).learn(later.drop(columns=column))
        assert repr(column) in refused.value.message and "ds, y, k" in refused.value.hint
    again = streamgp.load(saved(tmp_path))
    with pytest.raises(SchemaError):
        again.learn(later.drop(columns="y"))
    assert again.learn(later).rows == 2 * ROWS  # what was refused was not learned


@pytest.mark.parametrize("frame", [FRAME, pl.from_pandas(FRAME), pa.Table.from_pandas(FRAME)])
def test_frames_of_a_loaded_forecaster_are_as_those_of_the_saved_one(frame: Any, tmp_path: Path) -> None:
    made = forecaster().learn(frame)
    again = streamgp.load(made.save(tmp_path / "saved"))
    assert type(again.forecast()) is type(made.forecast()) is type(frame)


UNREADABLE: dict[str, tuple[Any, str]] = {
    "two columns": (TWICE, "y"),
    "two columns of Arrow": (pa.table([Y, Y], ["y", "y"]), "y"),
    "an index as a column": (FRAME.set_index(pd.Index(TIMES[::-1], name="ds")), "ds"),
    "levels without names": (pd.DataFrame({"y": Y}, pd.MultiIndex.from_arrays([["a"] * ROWS, TIMES])), "index.names"),
    "periods": (pd.DataFrame({"y": Y}, TIMES.to_period("h")), "to_timestamp"),
    "mixed objects": (FRAME.assign(y=[*Y[:-1], "x"]), f"y row {ROWS} to_numeric"),
    "objects": (FRAME.assign(z=[object()] * ROWS), "z"),
    "complex": (FRAME.assign(y=Y + 1j), "y"),
    "intervals": (FRAME.assign(z=pd.cut(Y, 5)), "z"),
    "text": (FRAME.assign(y=FRAME["y"].astype(str)), "y to_numeric"),
    "polars objects": (pl.DataFrame({"ds": TIMES, "z": pl.Series([object()] * ROWS, dtype=pl.Object)}), "z"),
    "ragged": ({"ds": TIMES, "y": Y[:5]}, "y 5"),
    "mixed": ({"ds": list(TIMES), "y": [*Y[:-1], "x"]}, "x"),
    "no columns": (pd.DataFrame(), "columns"),
    "a series": (FRAME["y"], "to_frame"),
    "a lazy frame": (pl.LazyFrame({"y": Y}), "collect"),
    "an array": (np.c_[Y, Y], "ds y"),
    "records": ([{"y": 1.0}], "DataFrame"),
    "a path": ("rows.csv", "read_csv"),
}


@pytest.mark.parametrize("case", UNREADABLE)
@pytest.mark.parametrize("use", ["learn", "compare"])
def test_what_is_no_readable_frame_is_refused_with_a_hint(case: str, use: str, tmp_path: Path) -> None:
    frame, words = UNREADABLE[case]
    with pytest.raises((DataError, UsageError)) as refused:
        if use == "learn" or case == "a path":  # which is that of a table
            forecaster().learn(frame)
        else:
            streamgp.compare(frame, "y", "persistence", comparison=tmp_path / "c")
    said = f"{refused.value.message} {refused.value.hint}"
    assert names(said, words), said
    assert refused.value.hint and "--" not in said


def test_frames_that_say_the_same_are_read_alike() -> None:
    wanted = forecaster().learn(FRAME).forecast().drop(columns="ds")
    index = pd.MultiIndex.from_arrays([["y"] * ROWS, TIMES], names=["unique_id", "ds"])
    for same in (
        pd.DataFrame({"y": Y}, TIMES),
        FRAME.set_index("ds", drop=False),
        pd.DataFrame({"y": Y}, index),
        pd.DataFrame({"y": Y}, TIMES.tz_localize("Europe/Berlin")),
        FRAME.assign(y=FRAME["y"].astype(object)),
        FRAME.assign(z=pd.Categorical(["a"] * ROWS)),
        pd.concat([FRAME, FRAME]),
    ):
        found = forecaster().learn(same).forecast()
        assert found["persistence"].equals(wanted["persistence"])
    with pytest.warns(streamgp.StreamgpWarning, match=str(ROWS // 2)):
        forecaster().learn(pd.DataFrame({"y": Y}, TIMES.repeat(2)[:ROWS]))


def test_a_frame_in_no_order_is_refused() -> None:
    mixed = FRAME.sample(frac=1, random_state=0)
    for options in ({}, {"every": None}, {"lateness": "3h"}):
        fresh = forecaster(**options)
        with pytest.raises(DataError) as refused:
            fresh.learn(mixed)
        assert names(f"{refused.value.message} {refused.value.hint}", f"{ROWS} sort ds lateness=")
        assert fresh.learn(FRAME).rows == ROWS
        with pytest.raises(DataError):
            fresh.learn(mixed.assign(ds=mixed["ds"] + pd.Timedelta("90D")))
        assert fresh.rows == ROWS
    some = pd.concat([FRAME[:40], FRAME[45:], FRAME[40:45]])
    for size in (ROWS, 45):  # also while they wait in the warm-up
        with pytest.warns(streamgp.StreamgpWarning, match=r"\b5 rows"):
            forecaster(warmup=300).learn(some[-size:])
    assert forecaster(lateness="7d").learn(some).scores["late"] == 0


def test_a_matrix_leads_to_the_estimators() -> None:
    for use in (lambda: forecaster().fit(np.c_[Y, Y], Y), lambda: forecaster().fit(np.c_[Y, Y])):  # type: ignore[call-arg]
        with pytest.raises(UsageError) as refused:
            use()
        assert "streamgp.sklearn" in refused.value.hint
    with pytest.raises(TypeError, match="fit takes 1"):
        forecaster().fit(FRAME, Y)  # type: ignore[call-arg]
    with pytest.raises(UsageError) as refused:
        streamgp.Forecaster("y").learn(pd.DataFrame({"a": Y, "y": Y}))
    assert 'time="row"' in refused.value.hint


def test_where_no_window_can_be_learned_that_is_said() -> None:
    with pytest.raises(StreamgpError) as refused:
        forecaster().learn(FRAME.assign(y=1e160 * Y)).forecast()
    assert names(refused.value.hint, "y missing 1e+150")
    with pytest.raises(StreamgpError) as refused:
        forecaster().learn(FRAME[:20]).forecast()
    assert "missing" not in refused.value.hint


BAD: dict[str, Callable[[Path], Any]] = {
    "horizon": lambda _: forecaster(horizon=0),
    "season": lambda _: forecaster(season="x"),
    "levels": lambda _: forecaster(levels=(100.0,)),
    "quantiles": lambda _: forecaster(quantiles=(2.0,)),
    "lags": lambda _: forecaster(lags=0, season=24),
    "bounds": lambda _: forecaster(lower=1.0, upper=0.0),
    "logit": lambda _: forecaster(transform="logit"),
    "transform of": lambda _: forecaster(transform="x=log").learn(FRAME),
    "transform": lambda _: forecaster(transform="log", lower=5.0).learn(FRAME),
    "target": lambda _: forecaster(target=3),
    "no target": lambda _: forecaster(target=()).learn(FRAME.rename(columns={"y": "z"})),
    "a frame as target": lambda _: forecaster(target=FRAME),
    "absent target": lambda _: forecaster(target="x").learn(FRAME),
    "absent input": lambda _: forecaster(inputs="x").learn(FRAME),
    "absent known": lambda _: forecaster(known="x").learn(FRAME),
    "absent time": lambda _: forecaster(time="x").learn(FRAME),
    "no time": lambda _: forecaster().learn(FRAME[["y"]]),
    "two times": lambda _: forecaster().learn(FRAME.rename(columns={"ds": "a"}).assign(b=TIMES)),
    "every": lambda _: forecaster(every="soon").learn(FRAME),
    "every of steps": lambda _: forecaster(time="n").learn({"n": range(ROWS), "y": Y}),
    "no clock": lambda _: forecaster(time="row").learn(FRAME),
    "tolerance": lambda _: forecaster(every=None, tolerance="1m").learn(FRAME),
    "long tolerance": lambda _: forecaster(tolerance="2h").learn(FRAME),
    "lateness": lambda _: forecaster(lateness="soon").learn(FRAME),
    "time format": lambda _: forecaster(time_format="%Y").learn(FRAME.astype({"ds": str})),
    "time zone": lambda _: forecaster(timezone="Mars").learn(FRAME),
    "series": lambda _: forecaster(series="ds").learn(FRAME),
    "late": lambda _: forecaster(every=None, late="use").learn(FRAME),
    "model": lambda _: forecaster(model="x"),
    "option": lambda _: forecaster(options={"x": 1}).learn(FRAME),
    "value of an option": lambda _: forecaster(model="linear", options={"ridge": "x"}).learn(FRAME),
    "shared": lambda _: forecaster(model="svdgp", options={"shared": True}).learn(FRAME),
    "simulate": lambda _: forecaster(simulate=5).learn(FRAME),
    "calendar": lambda _: forecaster(time="row", every=None, calendar=True).learn(FRAME),
    "naive without lags": lambda _: forecaster(lags=0, inputs="y").learn(FRAME),
    "alarm rate": lambda _: forecaster(alarm_rate=2.0),
    "nothing": lambda _: forecaster().forecast(),
    "warm-up": lambda _: forecaster().learn(FRAME[:20]).forecast(),
    "long horizon": lambda _: forecaster().learn(FRAME).forecast(48),
    "many steps": lambda _: forecaster().learn(FRAME).simulate(0),
    "paths": lambda _: forecaster().learn(FRAME).simulate(5, paths=1),
    "levels ahead": lambda _: forecaster().learn(FRAME).forecast(levels=[0]),
    "no future": lambda folder: streamgp.load(saved(folder)).forecast(),
    "short future": lambda folder: streamgp.load(saved(folder)).forecast(future=FRAME[:1].assign(k=1.0)),
    "no alarms": lambda _: forecaster().learn(FRAME).alarms,
    "no checkpoint": lambda folder: streamgp.load(folder / "x"),
    "no table": lambda folder: streamgp.fit_stream(folder / "x"),
    "fit_stream": lambda folder: streamgp.fit_stream(folder, horizon=0),
    "rows for a table": lambda _: streamgp.fit_stream(FRAME, "y"),
    "compare": lambda folder: streamgp.compare(FRAME, "y", "nothing", comparison=folder / "c"),
    "no models": lambda folder: streamgp.compare(FRAME, "y", "a b", comparison=folder / "c"),
    "empty": lambda folder: streamgp.compare(FRAME[:0], "y", "linear", comparison=folder / "c"),
    "engine": lambda folder: streamgp.compare(FRAME, "y", "linear", comparison=folder / "c", workers=2),
}


@pytest.mark.sampled
@pytest.mark.parametrize("case", BAD)
def test_no_error_of_python_names_a_flag(case: str, tmp_path: Path) -> None:
    with pytest.raises(StreamgpError) as refused:
        BAD[case](tmp_path)
    said = f"{refused.value.message} {refused.value.hint}"
    assert "--" not in said and refused.value.hint, said
    assert str(refused.value) == refused.value.message
    assert refused.value.__notes__ == [f"hint: {refused.value.hint}"]  # it stands below the traceback


def test_every_flag_has_its_argument() -> None:
    assert names(in_python("--horizon 0 is bad"), "horizon=0") and "season=[48, 336]" in in_python("--season 48,336")
    for settings in (TrainConfig, CompareConfig, IngestConfig, ForecastConfig):
        for name in settings.model_fields:
            for interface in ("Forecaster", "compare", "fit_stream"):
                assert "--" not in in_python(f"give --{name.replace('_', '-')}, or leave it out", interface)
    holes = "streamgp ingest with --every 30m makes them gaps, also of this table"
    assert in_python(holes) == 'every="30m" makes them gaps'
    assert in_python(holes, "fit_stream") == 'streamgp ingest with every="30m" makes them gaps, also of this table'
    assert in_python("column 'a--b', and nothing --of-ours") == "column 'a--b', and nothing --of-ours"


def test_warnings_are_issued_once_and_in_these_words() -> None:
    days = pl.DataFrame({"day": range(45292, 45592), "y": [float(at % 7 + 1) for at in range(300)]})
    fresh = forecaster(time="day", every=None)
    with pytest.warns(streamgp.StreamgpWarning) as told:
        fresh.learn(days)
    assert {str(one.message) for one in told} == set(fresh.warnings)
    assert all(one.filename == __file__ and "--" not in str(one.message) for one in told)
    assert any('time_format="excel"' in str(one.message) for one in told)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh.learn(days.with_columns(pl.col("day") + 300))
        assert fresh.warnings


def test_the_words_of_other_libraries_lead_to_ours() -> None:
    options = {"h": "horizon", "freq": "every", "season_length": "season", "random_state": "seed", "id_col": "series"}
    options |= {"future_covariates": "known", "past_covariates": "inputs", "level": "levels", "horizn": "horizon"}
    for theirs, ours in options.items():
        with pytest.raises(UsageError) as refused:
            forecaster(**{theirs: 1})
        assert names(refused.value.message, f"{theirs} {ours}"), refused.value.message
        assert isinstance(refused.value, TypeError)
    with pytest.raises(TypeError) as typed:
        forecaster(h=24, freq="h", season_length=24)
    assert names(getattr(typed.value, "hint", ""), "horizon=24 every='1h' season=24")
    fitted: Any = forecaster().fit(FRAME)
    for wrong, own in (("predict", {"horizon": 1}), ("predict", {"n": 1}), ("predict", {"level": [90]})):
        with pytest.raises(TypeError, match=r"'h'|'levels'"):
            getattr(fitted, wrong)(**own)
    for theirs, ours in {"n_splits": "n_windows", "stride": "step_size", "horizon": "h"}.items():
        with pytest.raises(TypeError, match=f"'{ours}'"):
            fitted.cross_validation(FRAME, **{theirs: 1})
    with pytest.raises(UsageError, match=r"options=.'shared'"):
        forecaster(shared=True)
    with pytest.raises(UsageError, match="future"):
        forecaster().forecast(X_df=FRAME)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="horizon"):
        streamgp.compare(FRAME, "y", "linear", h=3)  # type: ignore[call-arg]
    elsewhere = {"partial_fit": "update", "fit_predict": "fit", "historical_forecasts": "cross_validation"}
    for theirs, ours in (elsewhere | {"predict_interval": "predict", "learn_many": "update"}).items():
        with pytest.raises(AttributeError, match=ours):
            getattr(forecaster(), theirs)
        assert not hasattr(forecaster(), theirs)
    with pytest.raises(AttributeError, match="fit_stream"):
        streamgp.train  # noqa: B018
    with pytest.raises(AttributeError, match="n_windows"):
        streamgp.cross_validation  # noqa: B018
    shown = {name for name in dir(streamgp) if not name.startswith("_")}
    assert shown == {*streamgp.__all__, "errors", "sklearn"} and all(hasattr(streamgp, name) for name in shown)
    estimators = {name for name in dir(streamgp.sklearn) if not name.startswith("_")}
    assert estimators == set(streamgp.sklearn.__all__) and all("Regressor" in name for name in estimators)


def test_a_forecaster_shows_what_it_is(tmp_path: Path) -> None:
    fresh = forecaster(horizon=3, season=24)
    assert repr(fresh).startswith("Forecaster('y', horizon=3, season=24, every='1h', model='persistence')")
    learned = fresh.learn(FRAME)
    again = streamgp.load(learned.save(tmp_path / "saved"))
    assert repr(again) == repr(learned) and names(repr(learned), f"{ROWS} rows")
    assert "persistence" in again._repr_html_() and str(ROWS) in again._repr_html_()


SECONDS = pl.DataFrame({"ds": [round(0.1 * at, 1) for at in range(ROWS)], "y": Y})


def test_seconds_from_a_start_are_named_in_the_message_and_read_when_said() -> None:
    with pytest.raises(DataError, match="count from a start") as refused:
        forecaster(every=None).fit(SECONDS)
    assert names(refused.value.hint, 'time_format="elapsed-s"')
    read = forecaster(every=None, time_format="elapsed-s").fit(SECONDS)
    assert read.predict()["ds"].to_list() == [round(0.1 * ROWS, 1)]


def test_a_wrong_target_is_said_before_times_that_cannot_be_read() -> None:
    with pytest.raises(UsageError, match="'yy'"):
        forecaster(target="yy", every=None).fit(SECONDS)
    with pytest.raises(UsageError, match="'yy'"):
        forecaster(target="yy", every=None).cross_validation(SECONDS)


def test_whole_seconds_are_said_to_be_steps_and_a_part_of_one_says_what_to_do() -> None:
    with pytest.warns(StreamgpWarning, match="'ds' is read as a counter of steps"):
        learned = forecaster(every=None).learn_one({"ds": 0.0, "y": 1.0})
    with pytest.raises(DataError, match="counted steps") as refused:
        learned.learn_one({"ds": 0.1, "y": 1.0})
    assert names(refused.value.hint, 'make a new Forecaster time_format="elapsed-s"')


def test_the_warm_up_says_how_many_rows_it_needs() -> None:
    learned = forecaster().learn(FRAME[:30])
    with pytest.raises(StateError, match=r"30 rows of the 50 that it needs"):
        learned.predict()
    with pytest.raises(StateError, match=r"30 rows of the 50 that it needs"):
        _ = learned.model_


def test_rows_that_go_back_are_told_again_at_every_tenfold() -> None:
    learned = forecaster().learn(FRAME)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for at in range(12):
            learned.learn_one({"ds": TIMES[at] + pd.Timedelta("1min"), "y": 1.0})
    counts = [str(one.message).split()[0] for one in found if "not learned" in str(one.message)]
    assert counts == ["1", "10"]
