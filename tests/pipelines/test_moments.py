"""Times as the source wrote them, from ingest over training to --future, forecasts, scores and pictures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from streamgp.errors import DataError, SchemaError, UsageError
from streamgp_data.ingestion.ingest import ingest
from streamgp_data.moments import Moments
from streamgp_pipelines.config import ForecastConfig, IngestConfig
from streamgp_pipelines.describe import describe_table
from streamgp_pipelines.forecasting.forecast import Forecast, forecast
from tests.pipelines.worlds import run
from tests.words import naming

ROWS = 240
CLOCKS: dict[str, tuple[Callable[[int], Any], dict[str, str]]] = {
    "elapsed-s": (lambda row: round(row * 0.1, 1), {"time_format": "epoch-s"}),
    "elapsed-ms": (lambda row: 5 + row * 100, {"time_format": "elapsed-ms"}),
    "epoch-s": (lambda row: 1_577_836_800 + 60 * row, {}),
    "epoch-ms": (lambda row: 1_577_836_800_000 + 250 * row, {}),
    "epoch-us": (lambda row: 1_577_836_800_000_000 + 250 * row, {}),
    "epoch-ns": (lambda row: 1_577_836_800_000_000_000 + 250_000 * row, {}),
    "step": (lambda row: 7 + row, {}),
    "%d.%m.%Y %H:%M": (
        lambda row: (datetime(2024, 1, 1) + timedelta(hours=row)).strftime("%d.%m.%Y %H:%M"),
        {"time_format": "%d.%m.%Y %H:%M"},
    ),
}
"""How row n is written, and what ingest must be told."""


def source_of(kind: str, rows: range) -> pl.DataFrame:
    k = [float(row // 3 % 2) for row in rows]
    y = [np.sin(row / 5) + 2 * one for row, one in zip(rows, k, strict=True)]
    return pl.DataFrame({"when": [CLOCKS[kind][0](row) for row in rows], "y": y, "k": k})


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A table `t` and a checkpoint `c` of two steps, with k known, for each clock; made when first asked for."""
    made: dict[str, Path] = {}

    def world(kind: str) -> Path:
        if kind not in made:
            home = made[kind] = tmp_path_factory.mktemp("clock")
            source_of(kind, range(ROWS)).write_csv(home / "a.csv")
            options = {"source": (str(home / "a.csv"),), "table": home / "t", "time": "when", **CLOCKS[kind][1]}
            ingest(IngestConfig.read(options))
            run(home / "t", home / "c", known="k", horizon=2, season=1, warmup=100, predictions=home / "p.parquet")
        return made[kind]

    return world


def ask(home: Path, **options: Any) -> Forecast:
    return forecast(ForecastConfig.read({"checkpoint": home / "c", "device": "cpu", **options}))


@pytest.mark.sampled
@pytest.mark.parametrize("kind", CLOCKS)
def test_a_future_in_the_clock_of_the_source(worlds: Callable[[str], Path], kind: str, tmp_path: Path) -> None:
    home, written = worlds(kind), CLOCKS[kind][0]
    source_of(kind, range(ROWS - 5, ROWS + 9)).drop("y").write_csv(tmp_path / "f.csv")
    found = ask(home, future=tmp_path / "f.csv", output=tmp_path / "o.csv")
    again = pl.read_csv(tmp_path / "o.csv")
    if "%" in kind:
        wanted: list[Any] = [datetime.strptime(written(row), kind) for row in (ROWS, ROWS + 1)]
    else:
        wanted = [written(row) for row in (ROWS, ROWS + 1)]
        assert again["ds"].to_list() == wanted and again["cutoff"][0] == written(ROWS - 1)
    assert found.frame["ds"].to_list() == wanted
    assert found.moments.form == kind
    parquet, json = tmp_path / "o.parquet", tmp_path / "o.json"
    ask(home, future=tmp_path / "f.csv", output=parquet)
    ask(home, future=tmp_path / "f.csv", output=json)
    assert_frame_equal(pl.read_parquet(parquet), found.frame)
    if "%" not in kind:
        assert pl.read_json(json)["ds"].to_list() == wanted
    scored = pl.read_parquet(home / "p.parquet")
    assert scored["ds"].dtype == found.frame["ds"].dtype
    if "%" not in kind:
        assert scored["ds"][-1] == written(ROWS - 1)


@pytest.mark.parametrize("kind", ["elapsed-s", "epoch-ms", "step"])
def test_a_hole_in_the_future_is_named_in_the_clock_of_the_source(
    worlds: Callable[[str], Path], kind: str, tmp_path: Path
) -> None:
    source_of(kind, range(ROWS, ROWS + 9))[1:].drop("y").write_csv(tmp_path / "f.csv")
    with pytest.raises(DataError, match=naming(f"k 1 {CLOCKS[kind][0](ROWS)}")):
        ask(worlds(kind), future=tmp_path / "f.csv")


def test_dates_are_no_elapsed_time(worlds: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("when,k\n1970-01-01T00:00:24,1\n1970-01-01T00:00:24.1,1\n")
    with pytest.raises(DataError) as caught:
        ask(worlds("elapsed-s"), future=tmp_path / "f.csv")
    assert caught.value.hint


def test_an_epoch_may_be_given_as_dates(worlds: Callable[[str], Path], tmp_path: Path) -> None:
    home = worlds("epoch-s")
    whole = source_of("epoch-s", range(ROWS, ROWS + 2)).drop("y")
    whole.write_csv(tmp_path / "f.csv")
    whole.with_columns(pl.from_epoch("when").dt.replace_time_zone("UTC")).write_parquet(tmp_path / "f.parquet")
    one, two = (ask(home, future=tmp_path / name).frame for name in ("f.csv", "f.parquet"))
    assert_frame_equal(one, two, check_exact=True)
    swapped = whole.with_columns(pl.from_epoch("when").dt.strftime("%m/%d/%Y %H:%M:%S"))
    swapped.write_csv(tmp_path / "g.csv")
    with pytest.raises(DataError):
        ask(home, future=tmp_path / "g.csv")
    given = ask(home, future=tmp_path / "g.csv", time_format="%m/%d/%Y %H:%M:%S").frame
    assert_frame_equal(one, given, check_exact=True)
    with pytest.raises(UsageError, match=naming("--time-format --future")):
        ask(home, time_format="iso")


def test_the_table_shows_its_own_clock(worlds: Callable[[str], Path]) -> None:
    found = describe_table(worlds("elapsed-s") / "t")
    assert found["span"] == [0.0, 23.9] and found["time_format"] == "elapsed-s" and found["zone"] is None
    assert describe_table(worlds("epoch-ms") / "t")["span"] == [CLOCKS["epoch-ms"][0](row) for row in (0, ROWS - 1)]


@pytest.mark.parametrize(
    ("kind", "text", "first"),
    [("elapsed-s", "15.0", 150), ("elapsed-s", "150", 150), ("epoch-s", str(1_577_836_800 + 60 * 150), 150),
     ("epoch-s", "2020-01-01T02:30", 150), ("epoch-ms", "150", 150)],
)  # fmt: skip
def test_scores_from_a_time_of_the_source(
    worlds: Callable[[str], Path], kind: str, text: str, first: int, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"horizon": 1, "season": 1, "warmup": 100, "score_from": text}
    run(worlds(kind) / "t", tmp_path / "c", predictions=tmp_path / "p.parquet", **options)
    assert pl.read_parquet(tmp_path / "p.parquet")["cutoff"].min() == CLOCKS[kind][0](first)


def test_scores_from_no_time(worlds: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        run(worlds("elapsed-s") / "t", tmp_path / "c", score_from="2020-01-01")


def test_elapsed_time_goes_on_and_does_not_mix_with_dates(tmp_path: Path) -> None:
    def take(name: str, rows: str, **options: Any) -> None:
        (tmp_path / name).write_text("when,y\n" + rows)
        ingest(IngestConfig.read({"source": (str(tmp_path / name),), "table": tmp_path / "t", **options}))

    take("a.csv", "0.0,1\n0.5,2\n1.0,3\n", time="when", time_format="epoch-s")
    take("b.csv", "1.5,1\n2.25,2\n")  # the table knows how its times are written
    take("c.csv", "4e7,1\n4.5e7,2\n", time_format="epoch-s")  # behind a year, too
    found = describe_table(tmp_path / "t")
    assert found["rows"] == 7 and found["span"] == [0.0, 4.5e7]
    with pytest.raises(SchemaError):
        take("d.csv", "2020-01-01,1\n2020-01-02,2\n", time_format="iso")


def test_numbers_without_a_format_are_told_how_to_say_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("when,y\n0.1,1\n0.2,2\n0.3,3\n")
    with pytest.raises(DataError) as caught:
        ingest(IngestConfig.read({"source": (str(tmp_path / "a.csv"),), "table": tmp_path / "t", "time": "when"}))
    assert "elapsed-s" in caught.value.hint


def test_whole_numbers_stay_whole_as_far_as_they_are() -> None:
    whole, floats = Moments(form="epoch-s"), Moments(form="epoch-s", whole=False)
    second = np.array([0, 10**9])
    assert (whole.write(second).dtype, floats.write(second).dtype) == (pl.Int64, pl.Float64)
    assert whole.write(second + 500_000_000).to_list() == [0.5, 1.5]
    assert whole.on_axis(whole.write(second)).to_list() == [datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 1)]


def test_times_are_read_in_the_format_that_is_given() -> None:
    utc, swapped = datetime(2024, 3, 1, 5, tzinfo=UTC), pl.Series("t", ["03/01/2024 06:00"])
    berlin = Moments(zone="Europe/Berlin", form="%d/%m/%Y %H:%M", local=True)
    assert berlin.read(swapped, None, "f.csv", 2).to_list() == [datetime(2024, 1, 3, 5, tzinfo=UTC)]
    assert berlin.read(swapped, None, "f.csv", 2, "%m/%d/%Y %H:%M").to_list() == [utc]
    epoch = pl.Series("t", [int(utc.timestamp()) * 1000])
    assert berlin.read(epoch, None, "f.csv", 2, "epoch-ms").to_list() == [utc]
    with pytest.raises(DataError, match=naming("f.csv 't' line 2 '03/01/2024 iso")) as error:
        berlin.read(swapped, None, "f.csv", 2, "iso")
    assert "--time-format" in error.value.hint
    with pytest.raises(DataError, match=naming("f.csv no time zone")):
        Moments(zone="UTC", local=False).read(swapped, None, "f.csv", 2, "%m/%d/%Y %H:%M")
    for moments, form in ((berlin, "elapsed-s"), (Moments(clock=False), "iso"), (Moments(form="elapsed-s"), "iso")):
        with pytest.raises(UsageError, match=naming(f"--time-format {form}")):
            moments.read(swapped, None, "f.csv", 2, form)
    assert Moments(form="elapsed-s").read(pl.Series("t", [1.5]), None, "f.csv", 2, "elapsed-s").is_not_null().all()


def test_a_repeated_hour_of_the_future_is_two_hours() -> None:
    berlin = Moments(zone="Europe/Berlin")
    cells = pl.Series("t", ["2024-10-27 02:00", "2024-10-27 02:00", "2024-10-27 03:00+01:00"])
    found = berlin.read(cells, None, "f.csv", 2)
    assert found.to_list() == [datetime(2024, 10, 27, hour, tzinfo=UTC) for hour in (0, 1, 2)]
    with pytest.raises(DataError, match=naming("2 2024-03-31 02:30")):
        berlin.read(pl.Series("t", ["2024-03-31 02:30"]), None, "f.csv", 2)
