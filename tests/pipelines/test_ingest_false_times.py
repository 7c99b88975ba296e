"""Ingest: times that were read as others, or ended the command, before."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from streamgp import Forecaster
from streamgp.errors import DataError, SchemaError, UsageError
from streamgp_data.table import Table
from streamgp_pipelines.describe import describe_table
from tests.live import feeds
from tests.pipelines.ingesting import quarantine, rows, take, write
from tests.words import names, naming

START = datetime(2024, 1, 15)
SECONDS = [1_704_067_200 + 60 * at for at in range(60)]


def save(path: Path, frame: pl.DataFrame) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dicts()))
    else:
        frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return path


# Dates without separators

COMPACT = {"%Y%m%d": timedelta(days=1), "%Y%m%d%H": timedelta(hours=7), "%Y%m%d%H%M": timedelta(minutes=345),
           "%Y%m%d%H%M%S": timedelta(seconds=12_345)}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("form", COMPACT)
def test_dates_without_separators_are_dates(form: str, suffix: str, tmp_path: Path) -> None:
    """Over the end of February of a leap year."""
    times = [START + COMPACT[form] * at for at in range(60)]
    frame = pl.DataFrame({"date": [int(time.strftime(form)) for time in times], "y": range(60)})
    summary = take(tmp_path / "t", save(tmp_path / f"a{suffix}", frame))
    assert rows(tmp_path / "t")["date"].to_list() == times
    assert any(names(hint, f"'date' {times[0].strftime(form)} --time-format step") for hint in summary["hints"])
    again = take(tmp_path / "t", save(tmp_path / f"b{suffix}", frame.with_columns(y=pl.lit(-1))))
    assert (again["conflicts"], again["hints"][0].count("step")) == (60, 0)
    steps = take(tmp_path / "u", tmp_path / f"a{suffix}", time="date", time_format="step")["hints"]
    assert all("steps apart" in hint for hint in steps)
    assert rows(tmp_path / "u")["date"].to_list() == frame["date"].to_list()


def test_dates_and_times_to_the_millisecond_are_times(tmp_path: Path) -> None:
    times = [START + timedelta(minutes=17, milliseconds=250) * at for at in range(5)]
    lines = [f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03},1\n" for time in times]
    take(tmp_path / "t", write(tmp_path / "a.csv", "ts,y\n" + "".join(lines)))
    assert rows(tmp_path / "t")["ts"].to_list() == times


DAYS = [START + timedelta(days=at) for at in range(400)]
LIKE_DATES = {
    "%Y%m": ([f"{day:%Y%m}" for day in DAYS[::31]], "--time-format '%Y%m'"),
    "%y%m%d": ([f"{day:%y%m%d}" for day in DAYS[:60]], "--time-format '%y%m%d'"),
    "%Y%j": ([f"{day:%Y%j}" for day in DAYS], "--time-format '%Y%j'"),
    "weeks": (["202451", "202452", "202501"], "--time-format step"),
    "%H%M": ([f"{at // 2}{30 * (at % 2):02}" for at in range(48)], "--time Date,Time"),
    "%H%M%S": ([f"{at // 60:02}{at % 60:02}00" for at in range(90)], "--time Date,Time"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("form", LIKE_DATES)
def test_numbers_that_count_by_the_calendar_are_no_steps(form: str, tmp_path: Path) -> None:
    """As steps, each month's or hour's end would be a gap."""
    cells, remedy = LIKE_DATES[form]
    path = write(tmp_path / "a.csv", "ds,y\n" + "".join(f"{cell},{at}\n" for at, cell in enumerate(cells)))
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", path)
    assert remedy in refused.value.hint
    assert take(tmp_path / "u", path, time_format="step")["added"] == len(cells)
    if "%" in remedy:
        take(tmp_path / "v", path, time_format=form)
        assert rows(tmp_path / "v")["ds"].to_list()[:1] == [START if form != "%Y%m" else START.replace(day=1)]


def test_the_clock_of_a_table_counts_on(tmp_path: Path) -> None:
    """A table of steps takes what counts one by one, whatever it looks like, and refuses what jumps."""
    take(tmp_path / "t", write(tmp_path / "a.csv", "ds,y\n240129,1\n240130,2\n240131,3\n"))
    with pytest.raises(DataError):
        take(tmp_path / "t", write(tmp_path / "b.csv", "ds,y\n240130,2\n240131,3\n240201,4\n"))
    assert take(tmp_path / "t", write(tmp_path / "c.csv", "ds,y\n240132,4\n240133,5\n240134,5\n"))["added"] == 3


def test_dates_as_floats_of_a_column_with_holes(tmp_path: Path) -> None:
    days = [20240131.0, None, 20240201.0, 20240202.0]
    take(tmp_path / "t", save(tmp_path / "a.parquet", pl.DataFrame({"date": days, "y": range(4)})))
    take(tmp_path / "u", write(tmp_path / "a.csv", "date,y\n20240131.0,1\n,1\n20240201.0,2\n20240202.0,3\n"))
    for name in "tu":
        assert [day.day for day in rows(tmp_path / name)["date"]] == [31, 1, 2]


@pytest.mark.sampled
@pytest.mark.parametrize("first", [10_000_000, 20_240_000, 20_241_301, 18_000_101, 201_313_010_000])
def test_counters_are_no_dates(first: int, tmp_path: Path) -> None:
    frame = pl.DataFrame({"date": range(first, first + 50), "y": range(50)})
    with pytest.raises(UsageError):
        take(tmp_path / "t", save(tmp_path / "a.csv", frame))
    take(tmp_path / "t", tmp_path / "a.csv", time="date")
    assert not Table.open(tmp_path / "t").meta.clock
    with pytest.raises(UsageError) as refused:
        take(tmp_path / "u", tmp_path / "a.csv", time="date", every="1d")
    assert names(refused.value.hint, "--time-format %Y%m%d")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("form", ["%d%m%Y", "%m%d%Y"])
def test_dates_that_do_not_begin_with_the_year_are_not_counted(form: str, suffix: str, tmp_path: Path) -> None:
    """Nor guessed at: which of the first two is the day?"""
    times = [START + timedelta(days=at) for at in range(60)]
    cells = [f"{time:{form}}" if suffix == ".csv" else int(f"{time:{form}}") for time in times]
    path = save(tmp_path / f"a{suffix}", pl.DataFrame({"date": cells, "y": range(60)}))
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", path, time="date")
    assert names(refused.value.hint, f"{form} step")
    take(tmp_path / "t", path, time="date", time_format=form)
    assert rows(tmp_path / "t")["date"].to_list() == times


def test_a_few_numbers_among_dates_are_put_aside_and_many_refused(tmp_path: Path) -> None:
    days = [f"{START + timedelta(days=at):%Y%m%d}" for at in range(40)]
    few = ["20240230", *days, "99999999"]
    take(tmp_path / "t", write(tmp_path / "a.csv", "date,y\n" + "".join(f"{day},1\n" for day in few)))
    assert quarantine(tmp_path / "t")["line"].to_list() == [2, 43]
    many = [*days, *["99999999"] * 10]
    with pytest.raises(DataError) as refused:
        take(tmp_path / "u", write(tmp_path / "b.csv", "date,y\n" + "".join(f"{day},1\n" for day in many)), time="date")
    assert names(refused.value.hint, "--time-format %Y%m%d step")


def test_a_forecaster_reads_dates_without_separators_and_says_so() -> None:
    days = [START + timedelta(days=at) for at in range(120)]
    frame = pl.DataFrame({"date": [int(f"{day:%Y%m%d}") for day in days], "y": [at % 7.0 for at in range(120)]})
    learned = Forecaster("y", horizon=2, lags=7, time="date", model="linear", batch=50)
    learned.learn(frame[:100]).learn(frame[100:])
    assert learned.forecast()["ds"].to_list() == [days[-1] + timedelta(days=ahead) for ahead in (1, 2)]
    assert any(names(note, "'date' %Y%m%d step") for note in learned.warnings)
    known = Forecaster("y", lags=7, known="k", time="date", every="1d", model="linear", batch=50)
    known.learn(frame.with_columns(k=pl.lit(1.0)))
    future = pl.DataFrame({"date": [int(f"{days[-1] + timedelta(days=1):%Y%m%d}")], "k": [1.0]})
    assert known.forecast(future=future).height == 1


def test_one_row_after_another_is_read_as_the_first_frame() -> None:
    """2024031523 alone is as well a second of 2034, and 0 alone is no epoch."""
    hours = [START + timedelta(hours=at) for at in range(60)]
    learned = Forecaster("y", lags=4, time="date", model="linear")
    learned.learn(
        pl.DataFrame({"date": [int(f"{hour:%Y%m%d%H}") for hour in hours], "y": [at % 6.0 for at in range(60)]})
    )
    learned.learn_one({"date": int(f"{hours[-1] + timedelta(hours=1):%Y%m%d%H}"), "y": 0.0})
    assert learned.forecast()["ds"].to_list() == [hours[-1] + timedelta(hours=2)]
    with pytest.raises(DataError):
        learned.learn_one({"date": 0, "y": 0.0})


# Times with and without an offset


OFFSET = "".join(f"2024-01-01T{hour:02d}:00:00+05:00,{hour}\n" for hour in range(10))
NAIVE = "".join(f"2024-01-02T{hour:02d}:00:00,{hour}\n" for hour in range(10))


def test_times_without_an_offset_do_not_follow_those_with_one(tmp_path: Path) -> None:
    with_one, without = (write(tmp_path / f"{at}.csv", f"time,y\n{text}") for at, text in enumerate((OFFSET, NAIVE)))
    for first, then in ((with_one, without), (without, with_one)):
        table = tmp_path / first.stem
        take(table, first)
        with pytest.raises(SchemaError) as refused:
            take(table, then)
        assert names(refused.value.hint, "--timezone") and rows(table).height == 10
    take(tmp_path / "0", without, timezone="+05:00")
    assert rows(tmp_path / "0")["time"].to_list()[10] == datetime(2024, 1, 1, 19, tzinfo=UTC)


def test_the_zone_of_a_column_is_not_that_of_later_times_without_an_offset(tmp_path: Path) -> None:
    """Parquet names a zone; a column without one may as well be UTC."""
    frame = pl.DataFrame({"time": [START + timedelta(hours=at) for at in range(5)], "y": range(5)})
    for zone in ("Asia/Karachi", "UTC"):
        table, name = tmp_path / zone[:3], f"{zone[:3]}.parquet"
        take(table, save(tmp_path / name, frame.with_columns(pl.col("time").dt.replace_time_zone(zone))))
        with pytest.raises(SchemaError) as refused:
            take(table, save(tmp_path / "bare.parquet", frame.with_columns(pl.col("time") + timedelta(days=1))))
        assert names(refused.value.hint, "--timezone")
        take(table, tmp_path / "bare.parquet", timezone="Asia/Karachi")
        assert rows(table)["time"][5].astimezone(UTC).hour == 19


def test_the_timezone_of_a_table_is_that_of_later_times_without_an_offset(tmp_path: Path) -> None:
    for zone in ("Asia/Karachi", "UTC"):
        table = tmp_path / zone.replace("/", "-")
        for at, text in enumerate((OFFSET, NAIVE)):
            take(table, write(tmp_path / f"{at}.csv", f"time,y\n{text}"), **({} if at else {"timezone": zone}))
        assert rows(table)["time"][10].astimezone(UTC).hour == (19 if "Asia" in zone else 0)


def test_both_in_one_file(tmp_path: Path) -> None:
    few = write(tmp_path / "few.csv", f"time,y\n{OFFSET}{NAIVE[:44]}")
    summary = take(tmp_path / "t", few)
    assert (summary["added"], summary["quarantined"]) == (10, {"unparsable": 2})
    table = Table.open(tmp_path / "t")
    assert table.rows == 10
    half = write(tmp_path / "half.csv", f"time,y\n{OFFSET}{NAIVE}")
    with pytest.raises(DataError) as refused:
        take(tmp_path / "u", half)
    assert names(refused.value.hint, "--timezone")
    for path in (few, half, write(tmp_path / "turned.csv", f"time,y\n{NAIVE}{OFFSET[:56]}")):
        summary = take(tmp_path / f"z{path.stem}", path, timezone="Asia/Karachi")
        assert summary["quarantined"] == {}
        found = set(rows(tmp_path / f"z{path.stem}")["time"].dt.convert_time_zone("UTC").dt.strftime("%d %H"))
        assert {"31 19", "01 19"} <= found  # of the first with an offset, and of the first without


def test_frames_without_an_offset_do_not_follow_those_with_one() -> None:
    texts = [f"2024-01-01T{hour:02d}:00:00+05:00" for hour in range(24)]
    frame = pl.DataFrame({"ds": texts, "y": [float(at % 5) for at in range(24)]})
    learned = Forecaster("y", lags=3, warmup=8, model="linear").learn(frame)
    bare = pl.DataFrame({"ds": ["2024-01-02T00:00:00"], "y": [1.0]})
    with pytest.raises(DataError):
        learned.learn(bare)
    said = Forecaster("y", lags=3, warmup=8, model="linear", timezone="+05:00").learn(frame).learn(bare)
    assert said.rows == 25


def test_a_loaded_forecaster_knows_whether_a_zone_was_said(tmp_path: Path) -> None:
    texts = [f"2024-01-01T{hour:02d}:00:00+05:00" for hour in range(24)]
    frame = pl.DataFrame({"ds": texts, "y": [float(at % 5) for at in range(24)]})
    Forecaster("y", lags=3, warmup=8, model="linear").learn(frame).save(tmp_path / "c")
    with pytest.raises(DataError):
        Forecaster.load(tmp_path / "c").learn(pl.DataFrame({"ds": ["2024-01-02T00:00:00"], "y": [1.0]}))
    assert Forecaster.load(tmp_path / "c").learn(frame.with_columns(ds=pl.col("ds").str.replace("-01T", "-02T"))).rows


@pytest.mark.parametrize("future", ["2024-01-01T10:00:00", datetime(2024, 1, 1, 10)])
def test_a_future_without_an_offset_is_refused_too(future: object) -> None:
    frame = pl.DataFrame(
        {"ds": [line[:25] for line in OFFSET.splitlines()] * 1, "y": [float(at % 3) for at in range(10)]}
    )
    learned = Forecaster("y", lags=2, warmup=6, known="k", model="linear").learn(frame.with_columns(k=pl.lit(1.0)))
    with pytest.raises(DataError) as refused:
        learned.forecast(future=pl.DataFrame({"ds": [future], "k": [1.0]}))
    assert names(refused.value.hint, "2015-01-01T00:30+01:00")
    assert learned.forecast(future=pl.DataFrame({"ds": ["2024-01-01T10:00:00+05:00"], "k": [1.0]})).height == 1


# Numbers of several scales


def epochs(share: float, odd: int, scale: int = 1) -> list[int]:
    every = round(1 / share)
    return [odd * second if not at % every else second * scale for at, second in enumerate(SECONDS)]


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("cells", "aside"),
    [
        (epochs(0.2, 1000), 12),
        (epochs(0.2, 1, 1000), 12),
        (epochs(1 / 6, 0), 10),
        (epochs(0.05, 0, 1000), 3),
        ([-1 if cell < 2000 else cell for cell in epochs(1 / 6, 0)], 10),
        ([-1 if cell < 2000 else cell for cell in epochs(1 / 6, 0, 1000)], 10),
        ([2**32 - 1 if cell < 2000 else cell for cell in epochs(1 / 6, 0)], 10),
    ],
)
def test_rows_of_another_scale_are_put_aside(cells: list[int], aside: int, suffix: str, tmp_path: Path) -> None:
    path = save(tmp_path / f"a{suffix}", pl.DataFrame({"time": cells, "y": range(60)}))
    summary = take(tmp_path / "t", path)
    assert (summary["added"], summary["quarantined"]) == (60 - aside, {"out of range": aside})
    assert rows(tmp_path / "t")["time"].dt.year().unique().to_list() == [2024]


@pytest.mark.parametrize("cells", [epochs(0.5, 1000), epochs(0.5, 0)])
def test_no_clear_majority_is_refused(cells: list[int], tmp_path: Path) -> None:
    path = save(tmp_path / "a.csv", pl.DataFrame({"time": cells, "y": range(60)}))
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", path, time="time")
    assert names(refused.value.hint, "--time-format step")
    assert take(tmp_path / "t", path, time="time", time_format="step")["added"] == len(set(cells))


def test_an_unset_clock_behind_the_sample_is_put_aside(tmp_path: Path) -> None:
    cells = [*range(1_704_067_200, 1_704_069_200), 0, 5, 1_704_069_300]
    for given in (None, "epoch-s"):
        table = tmp_path / f"{given}"
        path = save(tmp_path / "a.csv", pl.DataFrame({"time": cells, "y": range(len(cells))}))
        assert take(table, path, time="time", time_format=given)["quarantined"] == {"out of range": 2}


def test_times_before_1980_among_later_ones_are_kept(tmp_path: Path) -> None:
    days = [86_400 * at for at in range(-2000, 16_000, 50)]
    frame = pl.DataFrame({"time": days, "y": range(len(days))}).sample(fraction=1, shuffle=True, seed=1)
    path = save(tmp_path / "a.csv", frame)
    assert take(tmp_path / "t", path, time="time", time_format="epoch-s")["quarantined"] == {}


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("far", [10**17, -(10**17), 9 * 10**18, -(2**63)])
def test_a_number_that_is_far_away_is_put_aside(far: int, suffix: str, tmp_path: Path) -> None:
    cells = [second * 1000 for second in SECONDS[:20]]
    path = save(tmp_path / f"a{suffix}", pl.DataFrame({"time": [*cells, far], "y": range(21)}))
    assert take(tmp_path / "t", path)["quarantined"] == {"out of range": 1}
    assert quarantine(tmp_path / "t")["line"].to_list() in ([21], [22])
    assert take(tmp_path / "u", path, time="time", time_format="epoch-ms")["quarantined"] == {"out of range": 1}


# Epochs with fractions


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("scale", [1, 1000])
def test_an_epoch_with_fractions_is_found(scale: int, suffix: str, tmp_path: Path) -> None:
    cells = [(second * 10**6 + 123_456) * scale / 10**6 for second in SECONDS]
    path = save(tmp_path / f"a{suffix}", pl.DataFrame({"time": cells, "y": range(60)}))
    summary = take(tmp_path / "t", path)
    times = rows(tmp_path / "t")["time"].to_list()
    assert times == [datetime.fromtimestamp(second, UTC).replace(microsecond=123_456) for second in SECONDS]
    assert any(names(hint, "'time' microseconds") for hint in summary["hints"])


def test_messages_with_an_epoch_with_fractions(tmp_path: Path) -> None:
    """As `time.time()` gives them; the one of a clock that is not set is put aside."""
    payloads = [json.dumps({"time": second + 0.123456, "y": 1.0}).encode() for second in SECONDS]
    feeds.take(tmp_path / "t", feeds.Memory([*payloads[:30], b'{"time": 0.25, "y": 1.0}', *payloads[30:]]))
    found = rows(tmp_path / "t")["time"].to_list()
    assert found == [datetime.fromtimestamp(second, UTC).replace(microsecond=123_456) for second in SECONDS]
    assert quarantine(tmp_path / "t")["reason"].to_list() == ["out of range"]


def test_single_precision_holds_no_epoch(tmp_path: Path) -> None:
    frame = pl.DataFrame({"time": pl.Series(SECONDS, dtype=pl.Float32), "y": range(60)})
    with pytest.raises((DataError, UsageError)):
        take(tmp_path / "t", save(tmp_path / "a.parquet", frame))
    with pytest.raises(DataError, match=naming("float32")):
        take(tmp_path / "t", tmp_path / "a.parquet", time="time")


def test_a_forecaster_finds_an_epoch_with_fractions() -> None:
    frame = pl.DataFrame({"time": [second + 0.25 for second in SECONDS], "y": [float(at % 5) for at in range(60)]})
    learned = Forecaster("y", lags=5, warmup=20, model="linear", every="1m").learn(frame)
    assert learned.forecast()["ds"].to_list() == [SECONDS[-1] + 60.25]
    assert any(names(note, "'time' microseconds") for note in learned.warnings)


# What ended the command


def test_whole_numbers_beyond_float64_are_described_and_learned(tmp_path: Path) -> None:
    nanoseconds = [1_704_067_200_000_000_001 + 10**9 * at for at in range(200)]
    times = [START + timedelta(hours=at) for at in range(200)]
    take(tmp_path / "t", save(tmp_path / "a.parquet", pl.DataFrame({"ds": times, "n": nanoseconds})))
    assert describe_table(tmp_path / "t")["rows"] == 200
    wide = pl.DataFrame({"ds": times, "a": nanoseconds})
    take(tmp_path / "w", save(tmp_path / "b.parquet", wide), melt=("a",))
    assert rows(tmp_path / "w")["y"].null_count() == 0


TORN = b'{"time":"2024-01-01T0\xff:00:00","y":1}\n'
WHOLE = [b'{"time":"2024-01-01T%02d:00:00","y":1}\n' % hour for hour in range(6)]


@pytest.mark.sampled
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("bad", [TORN, b"garbage\n", b'{"time":\n', b"[1]\n", b"\xfe{}\n"])
def test_a_bad_line_of_json_is_put_aside_wherever_it_is(bad: bytes, at: int, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join([*WHOLE[:at], bad, *WHOLE[at:]]))
    summary = take(tmp_path / "t", tmp_path / "a.jsonl")
    assert (summary["added"], sum(summary["quarantined"].values())) == (6, 1)
    assert quarantine(tmp_path / "t")["line"].to_list() == [at + 1]


@pytest.mark.parametrize("text", ["[1, 2]\n", "garbage\nmore\n", "{}\nx\n", "ds,y\n2024-01-01,1\n2024-01-02,2\n"])
def test_what_is_no_json_lines_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        take(tmp_path / "t", write(tmp_path / "a.jsonl", text))


# Day and month in each other's places

SWAPPED, RIGHT = "%m.%d.%Y %H:%M", "%d.%m.%Y %H:%M"


def days_of(count: int, first: int = 2) -> str:
    """Six-hourly rows of so many days."""
    times = [datetime(2024, 1, first) + timedelta(hours=6 * at) for at in range(4 * count)]
    return "t,y\n" + "".join(f"{time.strftime(RIGHT)},{at}\n" for at, time in enumerate(times))


def test_a_source_whose_days_are_months_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", days_of(15))
    (source,) = take(tmp_path / "t", path, time="t", time_format=SWAPPED)["sources"]
    assert source["state"] == "refused" and names(source["refused"], f"line 46 13.01.2024 16 of 60 {RIGHT}")
    assert names(source["remedy"], f"day month --time-format {RIGHT} --keep-going") and not (tmp_path / "t").exists()
    summary = take(tmp_path / "t", path, time="t", time_format=SWAPPED, keep_going=True)
    assert (summary["rows"], summary["quarantined"]) == (44, {"unparsable": 16})
    assert all(RIGHT in detail for detail in quarantine(tmp_path / "t")["detail"])
    assert take(tmp_path / "u", path, time="t", time_format=RIGHT)["rows"] == 60


def test_times_that_are_even_the_other_way_alone_are_told_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", days_of(10))
    hints = take(tmp_path / "t", path, time="t", time_format=SWAPPED)["hints"]
    assert sum(RIGHT in hint for hint in hints) == 1
    for again in (take(tmp_path / "t", path, time="t"), take(tmp_path / "u", path, time="t", time_format=RIGHT)):
        assert not any("places" in hint for hint in again["hints"])


def test_strays_in_a_table_of_months_go_to_the_quarantine(tmp_path: Path) -> None:
    firsts = [f"{month:02}/01/{year}" for year in range(2020, 2025) for month in range(1, 13)]
    cells = [*firsts, "13/01/2024", "14/01/2024"]
    path = write(tmp_path / "a.csv", "t,y\n" + "".join(f"{cell},{at}\n" for at, cell in enumerate(cells)))
    summary = take(tmp_path / "t", path, time="t", time_format="%m/%d/%Y")
    assert (summary["rows"], summary["quarantined"]) == (60, {"unparsable": 2})
    assert all("%d/%m/%Y" in detail for detail in quarantine(tmp_path / "t")["detail"])
    assert not any("places" in hint for hint in summary["hints"])


def test_hours_of_one_day_a_month_are_not_told(tmp_path: Path) -> None:
    cells = [f"0{month}/05/2024 {hour:02}:00" for month in range(1, 5) for hour in range(24)]
    path = write(tmp_path / "a.csv", "t,y\n" + "".join(f"{cell},{at}\n" for at, cell in enumerate(cells)))
    summary = take(tmp_path / "t", path, time="t", time_format="%m/%d/%Y %H:%M")
    assert summary["rows"] == 96 and not any("places" in hint for hint in summary["hints"])


def test_days_and_months_of_minutes_are_seen_in_all_of_a_source(tmp_path: Path) -> None:
    """The first thousand minutes are of one day."""
    times = [datetime(2024, 1, 1) + timedelta(minutes=2 * at) for at in range(720 * 16)]
    path = write(tmp_path / "a.csv", "t,y\n" + "".join(f"{time.strftime(RIGHT)},1\n" for time in times))
    (source,) = take(tmp_path / "t", path, time="t", time_format=SWAPPED)["sources"]
    assert source["state"] == "refused" and names(source["remedy"], f"day month --time-format {RIGHT}")


def test_a_hint_names_both_where_the_day_may_be_the_month(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", days_of(3).replace(".", "/"))
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", path, time="t")
    assert names(refused.value.hint, "%d/%m/%Y %m/%d/%Y")
