"""Forecasts from a checkpoint: steps, levels, known futures, series, targets, files."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from polars.testing import assert_frame_equal

from streamgp.errors import CheckpointError, DataError, StateError, TableError, UsageError
from streamgp.windows.windows import WindowSpec
from streamgp_data.table import Table, TableMeta
from streamgp_pipelines import load
from streamgp_pipelines.config import ForecastConfig
from streamgp_pipelines.forecasting.forecast import Forecast, forecast
from streamgp_pipelines.forecasting.future import read_future
from streamgp_pipelines.learning.checkpointing import units_of
from tests.pipelines.worlds import append, frame_of, make_table, run
from tests.words import names, naming

BANDS = ["lo-80", "hi-80", "lo-95", "hi-95", "std", "std-latent", "raw-lo-80", "raw-hi-80", "raw-lo-95", "raw-hi-95"]


def ask(home: Path, **options: Any) -> Forecast:
    return forecast(ForecastConfig.read({"checkpoint": home, "device": "cpu", **options}))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without known inputs: table `t`, checkpoint `c`."""
    home = tmp_path_factory.mktemp("plain")
    run(make_table(home / "t", frame_of(500)), home / "c", inputs="x")
    return home


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with k known ahead, on the first 500 rows of 520, in a zone."""
    home = tmp_path_factory.mktemp("known")
    run(make_table(home / "t", frame_of(520, zone="Europe/Berlin")[:500]), home / "c", known="k")
    return home


def test_the_next_steps(plain: Path) -> None:
    found = ask(plain / "c")
    last = frame_of(500)["t"][499]
    assert found.frame.columns == ["unique_id", "ds", "cutoff", "linear", *(f"linear-{name}" for name in BANDS)]
    assert found.frame["ds"].to_list() == [last + timedelta(hours=h) for h in (1, 2, 3)]
    assert found.frame["cutoff"].unique().to_list() == [last] and found.frame["unique_id"][0] == "y"
    truth = frame_of(503)["y"][500:].to_numpy()
    assert (abs(truth - found.frame["linear"].to_numpy()) < 4 * found.frame["linear-std"].to_numpy()).all()
    expected = frame_of(500).rename({"t": "ds"}).tail(found.history.height)
    assert_frame_equal(found.history.select("ds", "y"), expected.select("ds", "y"), check_exact=True)


def test_a_shorter_horizon_is_the_beginning(plain: Path) -> None:
    assert_frame_equal(ask(plain / "c", horizon=2).frame, ask(plain / "c").frame.head(2), check_exact=True)


def test_beyond_the_trained_horizon(plain: Path) -> None:
    with pytest.raises(UsageError, match=naming("--horizon 4 3")) as caught:
        ask(plain / "c", horizon=4)
    assert names(caught.value.hint, "3 --horizon 4")


def test_newer_rows_move_the_windows(plain: Path, tmp_path: Path) -> None:
    shutil.copytree(plain, tmp_path / "p")
    data = frame_of(530)
    table = Table.open(tmp_path / "p" / "t")
    append(table, data[500:])
    moved = ask(tmp_path / "p" / "c", table=tmp_path / "p" / "t")
    assert moved.frame["cutoff"][0] == data["t"][529] and moved.history["ds"].max() == data["t"][529]
    still = ask(tmp_path / "p" / "c")
    assert still.frame["cutoff"][0] == data["t"][499]
    assert_frame_equal(still.frame, ask(plain / "c").frame, check_exact=True)


def test_levels_and_quantiles_that_were_not_trained_are_those_of_the_same_distribution(plain: Path) -> None:
    asked = {"level": ["50", "80", "94", "99.5"], "quantiles": "0.1,0.6"}
    trained, other = ask(plain / "c").frame, ask(plain / "c", **asked).frame
    names = [f"linear-{side}-{level}" for level in ("50", "80", "94", "99.5") for side in ("lo", "hi")]
    assert other.columns[4:12] == names and other.columns[12:14] == ["linear-q-0.1", "linear-q-0.6"]
    assert_frame_equal(other.select("linear-lo-80", "linear-hi-80"), trained.select("linear-lo-80", "linear-hi-80"))
    assert_allclose(other["linear-q-0.1"], other["linear-lo-80"])
    order = ["lo-99.5", "lo-94", "lo-80", "lo-50", "q-0.6", "hi-50", "hi-80", "hi-94", "hi-99.5"]
    assert (np.diff(other.select(f"linear-{end}" for end in order).to_numpy(), axis=1) > 0).all()
    assert (other["linear-hi-94"] < trained["linear-hi-95"]).all()


@pytest.mark.parametrize("levels", [(0.0,), (100.0,), (80.0, float("nan")), ()])
def test_levels_that_are_none(plain: Path, levels: tuple[float, ...]) -> None:
    with pytest.raises(UsageError):
        load(plain / "c").forecast(levels=levels)


def test_the_python_api_may_be_asked_again(plain: Path) -> None:
    forecaster = load(plain / "c")
    assert_frame_equal(forecaster.forecast().frame, forecaster.forecast().frame, check_exact=True)
    assert forecaster.forecast(levels=[95.0, 80.0, 95.0]).levels == (80.0, 95.0)


# known inputs


def future_of(known: Path, steps: int = 3) -> pl.DataFrame:
    return frame_of(520, zone="Europe/Berlin")[500 : 500 + steps].select("t", "k")


def test_known_inputs_need_a_future(known: Path) -> None:
    with pytest.raises(UsageError, match=naming("k")) as caught:
        ask(known / "c")
    assert "--future" in caught.value.hint


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["offsets", "naive", "utc", "parquet", "naive parquet", "jsonl", "longer"])
def test_a_future_in_any_form_is_the_same(known: Path, tmp_path: Path, form: str) -> None:
    data, path = future_of(known, 12 if form == "longer" else 3), tmp_path / "future.csv"
    wall = data.with_columns(pl.col("t").dt.replace_time_zone(None))
    if form in ("offsets", "longer"):
        data.with_columns(pl.col("t").dt.to_string("%Y-%m-%dT%H:%M:%S%:z")).write_csv(path)
    elif form == "naive":
        wall.with_columns(pl.col("t").dt.to_string("%Y-%m-%d %H:%M")).write_csv(path)
    elif form == "utc":
        utc = pl.col("t").dt.convert_time_zone("UTC").dt.to_string("%Y-%m-%dT%H:%M:%SZ")
        data.with_columns(utc).write_csv(path)
    elif form == "jsonl":
        path = tmp_path / "future.jsonl"
        data.with_columns(pl.col("t").dt.to_string("%Y-%m-%dT%H:%M:%S%:z")).write_ndjson(path)
    else:
        path = tmp_path / "future.parquet"
        (wall if form == "naive parquet" else data).write_parquet(path)
    found = ask(known / "c", future=path).frame
    expected = load(known / "c").forecast(future=future_of(known).to_arrow()).frame
    assert_frame_equal(found, expected, check_exact=True)
    assert found.schema["ds"] == pl.Datetime("us", "Europe/Berlin")
    other = load(known / "c").forecast(future=future_of(known).with_columns(k=1 - pl.col("k")).to_arrow()).frame
    assert (other["linear"] != found["linear"]).all()


def test_a_shorter_forecast_needs_a_shorter_future(known: Path, tmp_path: Path) -> None:
    short, path = future_of(known, 2), tmp_path / "future.parquet"
    short.write_parquet(path)
    found = ask(known / "c", future=path, horizon=2)
    assert found.frame.height == 2 and any(names(note, "k 3 2") for note in found.warnings)
    held = pl.concat([short, future_of(known)[2:].with_columns(k=short["k"][-1])])
    whole = load(known / "c").forecast(2, future=held.to_arrow())
    assert_frame_equal(found.frame, whole.frame, check_exact=True)
    assert not whole.warnings
    with pytest.raises(DataError, match=naming("k 3")):
        ask(known / "c", future=path)
    with pytest.raises(DataError, match=naming("k 2")):
        load(known / "c").forecast(2, future=short[:1].to_arrow())


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("t,k\n2023-12-05T20:00Z,1\n", "k 2 2023-12-05 22:00:00+01:00"),
        ("t,k\n2023-12-05T21:00Z,1\n2023-12-05T22:00Z,1\n", "k 1 2023-12-05 21:00:00+01:00"),
        ("t,k\n2023-12-05T19:00Z,1\n", "k 1 2023-12-05 21:00:00+01:00"),
        ("t,k\n", "future.csv"),
        ("t,k\n2023-12-05T20:00Z,1\n2023-12-05T21:00Z,\n2023-12-05T22:00Z,1\n", "k 2"),
        ("t,j\n2023-12-05T20:00Z,1\n", "k"),
        ("k\n1\n", "t"),
        ("t,k\n2023-12-05T20:00Z,1\nsoon,1\n", "3 soon"),
        ("t,k\n2023-12-05T20:00Z,1\n,1\n", "3 None"),
        ("t,k\n1701806400,1\n", ""),
        ("t,k\n2023-12-05T20:00Z,one\n", ""),
        ("", ""),
    ],
)
def test_a_future_that_will_not_do(known: Path, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "future.csv").write_text(content)
    with pytest.raises(DataError, match=naming(message)):
        ask(known / "c", future=tmp_path / "future.csv")


AHEAD = ["2023-12-05 21:00", "2023-12-05 22:00", "2023-12-05 23:00"]


def future_file(path: Path, *cells: str, sign: str = ",", end: str = "") -> Path:
    lines = [f"{at}{sign}{cell}{sign}x" for at, cell in zip(AHEAD, cells, strict=True)]
    path.write_text("\n".join([f"t{sign}k{sign}note", *lines]) + "\n" + end)
    return path


DIALECTS: dict[str, tuple[tuple[str, str, str], dict[str, str]]] = {
    "decimal commas": (("0,5", "-0,25", "1,5"), {"sign": ";"}),
    "units": (("0.5 V", "-250 mV", "0.0015 kV"), {}),
    "a Unicode minus": (("0.5", "\u22120.25", "1.5"), {}),
    "quoted": (('"0.5"', '"-0.25"', '"1.5"'), {}),
    "half a line that is not needed": (("0.5", "-0.25", "1.5"), {"end": "2023-12-06 00:00,1"}),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", DIALECTS)
def test_a_future_is_read_as_ingest_reads(known: Path, tmp_path: Path, name: str) -> None:
    cells, options = DIALECTS[name]
    found = load(known / "c")
    path = future_file(tmp_path / "future.csv", *cells, **options)
    rows, notes = read_future(path, found.spec, found.moments, units={"k": "V"})
    assert rows["k"].to_pylist() == [0.5, -0.25, 1.5] and bool(notes) == ("end" in options)
    values = pl.DataFrame({"t": future_of(known)["t"], "k": [0.5, -0.25, 1.5]})
    expected = load(known / "c").forecast(future=values.to_arrow()).frame
    assert_frame_equal(found.forecast(future=rows).frame, expected, check_exact=True)


def test_what_may_be_misunderstood_in_a_future_is_said(known: Path, tmp_path: Path) -> None:
    found, path = load(known / "c"), future_file(tmp_path / "future.csv", "1.200", "2.300", "1.500", sign=";")
    rows, notes = read_future(path, found.spec, found.moments)
    assert rows["k"].to_pylist() == [1.2, 2.3, 1.5]
    assert "'k'" in notes[0] and "--thousands" in notes[0]


REFUSED: dict[str, tuple[tuple[str, str, str], dict[str, str], str]] = {
    "half a line that is needed": (("1", "1", "1"), {"end": ""}, "newline"),
    "another unit": (("1 A", "1 A", "1 A"), {}, "2 'k' A V"),
    "no number": (("1", "one", "1"), {}, "3 'k' one"),
    "empty": (("", "NA", ""), {}, "2 'k' empty"),
    "thousands, or not": (("1,200", "2,300", "3,400"), {"sign": ";"}, "'k' thousands decimals"),
    "too many cells": (("1", "1,1", "1"), {}, "3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_future_that_cannot_be_read_names_the_line(known: Path, tmp_path: Path, name: str) -> None:
    cells, options, said = REFUSED[name]
    path = future_file(tmp_path / "future.csv", *cells, **options)
    if "half" in name:
        path.write_text(path.read_text()[:-3])
    found = load(known / "c")
    with pytest.raises(DataError) as refused:
        found.forecast(future=read_future(path, found.spec, found.moments, units={"k": "V"}).rows)
        ask(known / "c", future=path)
    if "half" in name:  # forecast says it, and why
        with pytest.raises(DataError) as refused:
            ask(known / "c", future=path)
    assert names(f"{refused.value.message} {refused.value.hint}", said)


def test_a_checkpoint_has_the_units_of_its_columns(tmp_path: Path) -> None:
    fields: list[pa.Field[Any]] = [pa.field("t", pa.timestamp("us")), pa.field("y", pa.float64())]
    fields.append(pa.field("k", pa.float64(), metadata={"unit": "V"}))
    table = Table.create(tmp_path / "t", pa.schema(fields), TableMeta(time="t"))
    assert units_of(table, WindowSpec(targets=("y",), inputs=("k",), lags=1, horizon=1, time="t")) == {"k": "V"}


def test_a_future_that_ends_before_the_newest_row_is_told_where_the_interval_is_not_known(tmp_path: Path) -> None:
    data = frame_of(400, zone="Europe/Berlin")
    run(make_table(tmp_path / "t", data, every_ns=None), tmp_path / "c", known="k", horizon=2, lags=3, season=1)
    data[300:350].select("t", "k").write_parquet(tmp_path / "future.parquet")
    with pytest.raises(DataError, match=naming("k 1 2023-12-01 17:00")) as caught:
        ask(tmp_path / "c", future=tmp_path / "future.parquet")
    assert names(caught.value.hint, "2")


def test_a_future_that_is_no_file(known: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        ask(known / "c", future=tmp_path / "none.csv")
    (tmp_path / "future.pdf").write_text("")
    with pytest.raises(UsageError, match=naming("csv parquet jsonl")):
        ask(known / "c", future=tmp_path / "future.pdf")
    (tmp_path / "future.parquet").write_text("no")
    with pytest.raises(DataError):
        ask(known / "c", future=tmp_path / "future.parquet")


def test_a_fixed_offset_of_half_an_hour(tmp_path: Path) -> None:
    """Local times of --score-from and --future are read in the table's own offset."""
    data = frame_of(503)
    table = make_table(tmp_path / "t", data[:500], zone="+05:30")
    local = (data["t"].dt.replace_time_zone(None) + timedelta(hours=5, minutes=30)).dt.to_string("%Y-%m-%d %H:%M")
    run(table, tmp_path / "c", known="k", calendar=True, score_from=local[300], predictions=tmp_path / "p.parquet")
    assert pl.read_parquet(tmp_path / "p.parquet")["cutoff"].min() == data["t"][300]
    data[500:].select(t=local[500:], k="k").write_csv(tmp_path / "future.csv")
    found = ask(tmp_path / "c", future=tmp_path / "future.csv").frame
    assert found["ds"].to_list() == data["t"][500:].to_list()


# several series and targets


def test_a_series_without_a_forecast_is_named(tmp_path: Path) -> None:
    long = frame_of(500).with_columns(series=pl.lit("long"))
    both = pl.concat([long, frame_of(2).with_columns(series=pl.lit("brief"))])
    run(make_table(tmp_path / "t", both, series="series"), tmp_path / "c")
    found = ask(tmp_path / "c")
    assert found.frame["unique_id"].unique().to_list() == ["long"]
    assert len(found.warnings) == 1


def test_several_series(tmp_path: Path) -> None:
    data = frame_of(300, ("007", "b"))
    table = make_table(tmp_path / "t", data[:599])  # b lacks the last hour
    run(table, tmp_path / "c", known="k")
    last = {name: data.filter(pl.col("unique_id") == name)["t"] for name in ("007", "b")}
    rows = [
        {"unique_id": name, "t": (last[name][299 - (name == "b")] + timedelta(hours=h)).isoformat(), "k": 1}
        for name in ("b", "007")
        for h in (1, 2, 3)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "future.csv")
    found = ask(tmp_path / "c", future=tmp_path / "future.csv").frame
    assert found["unique_id"].to_list() == ["007"] * 3 + ["b"] * 3
    assert found.group_by("unique_id").agg(pl.col("cutoff").first()).sort("unique_id")["cutoff"].to_list() == [
        last["007"][299],
        last["b"][298],
    ]
    pl.DataFrame(rows[:3]).write_csv(tmp_path / "future.csv")  # only b
    assert ask(tmp_path / "c", future=tmp_path / "future.csv").frame["unique_id"].to_list() == ["b"] * 3
    rows[0]["unique_id"] = "c"
    pl.DataFrame(rows).write_csv(tmp_path / "future.csv")
    with pytest.raises(DataError):
        ask(tmp_path / "c", future=tmp_path / "future.csv")


def test_several_targets(tmp_path: Path) -> None:
    run(make_table(tmp_path / "t", frame_of(400)), tmp_path / "c", target="y,x")
    found = ask(tmp_path / "c", horizon=2)
    assert found.frame["target"].to_list() == ["y", "y", "x", "x"]
    assert found.frame.columns[:5] == ["unique_id", "ds", "cutoff", "target", "linear"]
    assert set(found.history["target"].unique()) == {"x", "y"}
    assert found.history.filter(pl.col("target") == "x")["y"][-1] == frame_of(400)["x"][399]


def test_a_gap_at_the_end(tmp_path: Path) -> None:
    data = frame_of(400).with_columns(y=pl.when(pl.int_range(pl.len()) == 398).then(None).otherwise("y"))
    table = make_table(tmp_path / "t", data)
    run(table, tmp_path / "c", gaps="reset")
    with pytest.raises(DataError) as caught:
        ask(tmp_path / "c")
    assert names(caught.value.hint, "--gaps fill")
    run(table, tmp_path / "d")
    assert ask(tmp_path / "d").frame.height == 3


def test_without_a_clock(tmp_path: Path) -> None:
    """Rows are steps, and a forecast with the table sees each of them once."""
    data = frame_of(500).drop("t")
    table = make_table(tmp_path / "t", data[:460], cuts=[100, 300])
    run(table, tmp_path / "c", lags=6)
    alone, moved = ask(tmp_path / "c"), ask(tmp_path / "c", table=tmp_path / "t")
    assert alone.frame["ds"].to_list() == [460, 461, 462]
    assert_frame_equal(alone.frame, moved.frame, check_exact=True)
    append(table, data[460:])
    assert ask(tmp_path / "c", table=tmp_path / "t").frame["ds"].to_list() == [500, 501, 502]


def test_regression_forecasts_the_rows_of_the_future(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    u = random.uniform(-1, 1, 400)
    table = make_table(tmp_path / "t", pl.DataFrame({"u": u, "y": 3 * u + 7}))
    run(
        table, tmp_path / "c", lags=0, horizon=1, season=1, inputs="u", online=False, warmup=None, checkpoint_every=None
    )
    pl.DataFrame({"u": [0.0, 0.5, -0.5, 1.0]}).write_csv(tmp_path / "future.csv")
    found = ask(tmp_path / "c", future=tmp_path / "future.csv").frame
    assert_allclose(found["linear"].to_numpy(), [7.0, 8.5, 5.5, 10.0], atol=0.05)
    with pytest.raises(UsageError):
        ask(tmp_path / "c")


# files


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json"])
def test_written_as_the_suffix_says(plain: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "out" / f"forecast.{suffix}"
    expected = ask(plain / "c", output=path).frame
    read: dict[str, Any] = {"parquet": pl.read_parquet, "csv": pl.read_csv, "json": pl.read_json}
    found = read[suffix](path)
    assert found.columns == expected.columns
    assert_frame_equal(found.drop("ds", "cutoff"), expected.drop("ds", "cutoff"), rel_tol=1e-12)
    stamps = [str(value) for value in found["ds"]]
    assert [datetime.fromisoformat(stamp) for stamp in stamps] == expected["ds"].to_list()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_where_it_cannot_be_written(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=naming("parquet csv json")):
        ask(plain / "c", output=tmp_path / "forecast.txt")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        ask(plain / "c", output=tmp_path / "file" / "forecast.csv")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_what_is_not_there(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        ask(tmp_path / "none")
    with pytest.raises(TableError):
        ask(plain / "c", table=tmp_path / "none")
    make_table(tmp_path / "other", frame_of(500))
    with pytest.raises(TableError):
        ask(plain / "c", table=tmp_path / "other")


def test_a_damaged_checkpoint_is_named_where_the_one_before_it_has_learned_nothing(tmp_path: Path) -> None:
    run(make_table(tmp_path / "t", frame_of(300)), tmp_path / "c", model="linear", warmup=200, checkpoint_every=1000)
    oldest, newest = sorted(tmp_path.glob("c/0*"))
    (newest / "state.json").write_text("{}")
    with pytest.raises(StateError, match=f"(?s){newest.name}.* damaged.*row 0") as caught:
        ask(tmp_path / "c")
    assert int(oldest.name) == 0 and "same line" in str(caught.value.hint)


def test_a_future_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(400))
    run(table, tmp_path / "c")
    (tmp_path / "future.csv").write_text("t,k\n2024-01-01T00:00,1\n")
    with pytest.raises(UsageError, match="future"):
        forecast(ForecastConfig.read({"checkpoint": tmp_path / "c", "future": tmp_path / "future.csv"}))


def test_a_plot_has_as_much_history_as_it_needs(plain: Path, tmp_path: Path) -> None:
    def drawn(**options: Any) -> int:
        return ask(plain / "c", plot=tmp_path / "f.png", **options).history.height

    rows = ask(plain / "c").history.height
    assert drawn() == 24 < rows  # of 3 steps, four times the horizon would be 12
    assert drawn(history="30") == 30 and drawn(history="2d") == 48
    whole = ask(plain / "c", plot=tmp_path / "f.png", history="400").history  # more than a checkpoint holds
    assert_frame_equal(whole.select("ds", "y"), frame_of(500).rename({"t": "ds"}).tail(400).select("ds", "y"))
    run(plain / "t", tmp_path / "short", lags=4, season=1, horizon=1)  # which holds few rows, and a part of a batch
    for given in ({}, {"table": plain / "t"}):  # rows behind the last batch count once, whoever reads them
        whole = ask(tmp_path / "short", plot=tmp_path / "f.png", history="400", **given).history
        assert_frame_equal(whole.select("ds", "y"), frame_of(500).rename({"t": "ds"}).tail(400).select("ds", "y"))
    for wrong in ("0", "-1", "soon"):
        with pytest.raises(UsageError, match="history"):
            drawn(history=wrong)
    with pytest.raises(UsageError, match=naming("--history --plot")):
        ask(plain / "c", history="30")


@pytest.mark.parametrize(("newer", "told"), [(40, 0), (300, 1)])
def test_a_model_that_is_far_behind_its_table_is_told(tmp_path: Path, newer: int, told: int) -> None:
    data = frame_of(500 + newer)
    table = make_table(tmp_path / "t", data[:500])
    run(table, tmp_path / "c")
    append(table, data[500:])
    found = ask(tmp_path / "c", table=table.path)
    assert sum(names(one, f"500 {newer} train") for one in found.warnings) == told
    assert found.frame["cutoff"][0] == data["t"][-1]
    assert not ask(tmp_path / "c").warnings  # from the row that was learned last
