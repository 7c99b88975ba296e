"""Files as meters and machines write them: what is odd about one is said, with what to do about it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zipfile import ZipFile

import polars as pl
import pytest

import streamgp
from streamgp.errors import StreamgpWarning, UsageError
from streamgp_cli._summary import _scale
from streamgp_cli.describe import _print as _print_described
from streamgp_cli.forecast import _print
from streamgp_data.moments import Moments
from streamgp_pipelines.describe import describe_table
from streamgp_pipelines.forecasting import results
from streamgp_pipelines.forecasting.results import Forecast, write
from tests.needs import needs
from tests.pipelines.ingesting import take
from tests.pipelines.ingesting import write as written
from tests.words import names, naming

START = datetime(2024, 10, 20)


def hinted(path: Path, text: str, **options: object) -> str:
    """The hints of an ingest of this text."""
    return " ".join(take(path / "t", written(path / "a.csv", text), **options)["hints"])


@pytest.mark.parametrize("word", ["-", "n.v.", "Ausfall 2"])
def test_a_word_that_stands_for_missing_values_is_named(word: str, tmp_path: Path) -> None:
    cells = [word if at % 9 == 3 else f"{at},5" for at in range(40)]
    text = "ds;load\n" + "".join(f"{START + timedelta(hours=at)};{cell}\n" for at, cell in enumerate(cells))
    hints = hinted(tmp_path, text)
    assert names(hints, f"5 {word} --null") == ("2" not in word)
    named = take(tmp_path / "u", tmp_path / "a.csv", null=[word])
    assert named["quarantined"] == {} and "--null" not in str(named["hints"])


def test_date_and_time_beside_the_time_are_no_series_where_a_clock_is_set_back(tmp_path: Path) -> None:
    shown = [START + timedelta(hours=at - (at >= 171)) for at in range(300)]  # 02:00 comes twice
    text = "date,time,both,load\n" + "".join(f"{t:%d.%m.%Y},{t:%H:%M},{t},{at}\n" for at, t in enumerate(shown))
    hints = hinted(tmp_path, text, time="both")
    assert "--timezone" in hints and "--series" not in hints


def test_a_clock_that_is_coarser_than_the_rows(tmp_path: Path) -> None:
    text = "t,rpm\n" + "".join(f"{at // 4},{at % 7}\n" for at in range(400))
    hints = hinted(tmp_path, text, time="t", time_format="elapsed-s", keep_going=True)
    assert names(hints, "--duplicates mean --time")


@pytest.mark.parametrize("apart", [1, 100])
def test_steps_that_are_far_apart(apart: int, tmp_path: Path) -> None:
    """Milliseconds that are read as a counter of steps: no window would ever be whole."""
    text = "Zeit [ms],x\n" + "".join(f"{at * apart},{math.sin(at)}\n" for at in range(400))
    hints = hinted(tmp_path, text, time="Zeit [ms]")
    assert names(hints, "100 steps --time-format elapsed-ms") == (apart == 100)
    model = streamgp.Forecaster("x", time="Zeit [ms]", model="persistence", lags=4, batch=64)
    if apart == 1:
        model.fit(pl.read_csv(tmp_path / "a.csv"))
        return
    with pytest.warns(StreamgpWarning, match=naming('100 steps time_format="elapsed-ms"')):
        model.fit(pl.read_csv(tmp_path / "a.csv"))


@pytest.mark.parametrize("resets", [0, 1])
def test_the_reading_of_a_counter_is_named(resets: int) -> None:
    """Its differences are forecast with a seventh of the error on a meter of 4,000 quarter hours."""
    read = pl.Series("kwh", [at + math.sin(at) / 2 for at in range(600)])
    frame = pl.DataFrame({"ds": [START + timedelta(minutes=15 * at) for at in range(600)], "kwh": read})
    if resets:
        frame = frame.with_columns(kwh=pl.when(pl.int_range(pl.len()) > 400).then(pl.col("kwh") - 300).otherwise("kwh"))
    said = "hardly ever" if resets else "never"
    with pytest.warns(StreamgpWarning, match=naming(f"kwh {said} falls")):
        streamgp.Forecaster("kwh", season=None, model="persistence", lags=4, batch=64).fit(frame)
    streamgp.Forecaster("used", season=None, model="persistence", lags=4, batch=64).fit(
        frame.select("ds", used=read.diff())
    )


def test_times_of_a_csv_have_a_fraction_where_one_has(tmp_path: Path) -> None:
    for micro, shown in ((0, "2024-10-20T00:00:00"), (1500, "2024-10-20T00:00:00.001500")):
        frame = pl.DataFrame({"ds": [START.replace(microsecond=micro)], "y": [1.0]})
        write(frame, tmp_path / "a.csv")
        assert (tmp_path / "a.csv").read_text() == f"ds,y\n{shown},1.0\n"
        write(frame.with_columns(pl.col("ds").dt.replace_time_zone("UTC")), tmp_path / "a.csv")
        assert datetime.fromisoformat(pl.read_csv(tmp_path / "a.csv")["ds"][0]).astimezone(UTC).microsecond == micro


@needs("excel")
def test_a_workbook_has_numbers_the_clock_and_its_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The night on which the clock of Berlin is set back: two rows show 02:00."""
    clock = pl.datetime_range(datetime(2024, 10, 27), datetime(2024, 10, 27, 2), "1h", time_zone="UTC", eager=True)
    ds = clock.dt.convert_time_zone("Europe/Berlin").alias("ds")
    frame = pl.DataFrame({"unique_id": ["y"] * 3, "ds": ds, "cutoff": [ds[0]] * 3, "m": [0.125, None, -1e9]})
    write(frame, tmp_path / "a.xlsx")
    read = pl.read_excel(tmp_path / "a.xlsx")
    assert read["m"].to_list() == frame["m"].to_list() and read["unique_id"].to_list() == ["y"] * 3
    assert read["ds"].dt.hour().to_list() == [2, 2, 3]
    assert read["utc_offset"].to_list() == ["+02:00", "+01:00", "+01:00"]
    counts, odd = pl.int_range(3).alias("ds"), pl.Series("m", [4e-4, math.nan, -math.inf])
    names = pl.Series("unique_id", ["http://a.b", "=1+1", "-3"])
    write(frame.with_columns(counts, odd, names), tmp_path / "b.xlsx")  # a clock that counts
    read = pl.read_excel(tmp_path / "b.xlsx")
    assert read.columns == ["unique_id", "ds", "cutoff", "m"]
    assert read["m"].to_list() == [4e-4, None, None] and read["unique_id"].to_list() == names.to_list()
    with ZipFile(tmp_path / "b.xlsx") as book:
        assert b"0.000" not in book.read("xl/styles.xml") and b"hyperlink" not in book.read("xl/worksheets/sheet1.xml")
    monkeypatch.setattr(results, "_ROWS", 2)
    with pytest.raises(UsageError, match="2 rows"):
        write(frame, tmp_path / "c.xlsx")
    monkeypatch.setattr(results, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="xlsxwriter"):
        results.check_workbook(tmp_path / "c.xlsx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.xlsx", "b.xlsx"]


def test_a_mean_outside_of_a_band_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame(
        {"unique_id": ["v"] * 2, "ds": [1, 2], "m": [0.4, 0.0], "m-lo-80": [0.0] * 2, "m-hi-80": [0.0] * 2}
    )
    for point, means in (("mean", True), ("median", False)):
        _print(Forecast(frame, frame, "m", (80.0,), "", False, Moments(clock=False), point=point))
        shown = capsys.readouterr().out
        assert (f" {point} " in shown, names(shown, "1 --point median")) == (True, means)


def test_the_scale_of_mase_says_what_is_beside_it() -> None:
    scale = {"steps_back": 1, "rows": 700, "value": 0.3}
    assert names(_scale(scale, online=True, beside=True), "naive forecast scored")
    assert names(_scale(scale, online=True, beside=False), "streamgp compare persistence")
    assert "naive" not in _scale(scale, online=False, beside=False)


def test_long_lists_of_names_and_columns_are_cut_and_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meters = pl.DataFrame({"ds": [START] * 30, "unique_id": [f"m{at:02}" for at in range(30)], "y": [1.0] * 30})
    meters.write_parquet(tmp_path / "a.parquet")
    take(tmp_path / "t", tmp_path / "a.parquet")
    _print_described(describe_table(tmp_path / "t"))
    assert "m19, ..." in capsys.readouterr().out
    _print_described({"columns": [{"column": f"c{at}", "type": "double"} for at in range(96)]})
    shown = capsys.readouterr().out
    assert names(shown, "c19 76 --json") and "c20" not in shown
