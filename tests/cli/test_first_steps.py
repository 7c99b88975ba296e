"""What a new user meets: refused runs, panels, units in names, empty columns, tiny tables, zones, holes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.cli.conftest import run
from tests.pipelines.ingesting import rows

START = datetime(2020, 1, 1)
TRAIN = ("train", "--online", "--tracking-uri", "none", "--model", "seasonal_naive", "--lags", 4, "--batch", 48)


def table(
    room: Path, header: str, rows: Sequence[str], *flags: object, every: Callable[[int], timedelta] | None = None
) -> Path:
    """A table of these rows, one an hour, each with its time in front."""
    when = every or (lambda row: timedelta(hours=row))
    lines = [f"ds,{header}", *(f"{(START + when(i)).isoformat()},{row}" for i, row in enumerate(rows))]
    (room / "data.csv").write_text("\n".join(lines) + "\n")
    done = run("ingest", room / "data.csv", "--table", room / "t", *flags)
    assert done.exit_code == 0, done.stderr
    return room / "t"


def wave(count: int) -> list[str]:
    return [f"{math.sin(i / 4):.4f}" for i in range(count)]


def summary(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.sampled
@pytest.mark.parametrize(
    "wrong",
    [
        ("--online", "--model", "svdgp", "--set", "likelihood=logistic"),  # exit code 3, after the first checkpoint
        ("--model", "linear", "--inputs", "none", "--test-tail", 0.2),
    ],
)
def test_a_refused_run_leaves_nothing(tmp_path: Path, wrong: tuple[object, ...]) -> None:
    made = table(tmp_path, "y,none", [f"{value}," for value in wave(300)])
    shared = ("--table", made, "--tracking-uri", "none", "--checkpoint", tmp_path / "c", "--lags", 4)
    assert run("train", *wrong, *shared).exit_code == 3
    assert not (tmp_path / "c").exists()
    assert run("train", "--online", "--model", "seasonal_naive", *shared).exit_code == 0


def test_a_refused_run_leaves_what_was_there(tmp_path: Path) -> None:
    made, home = table(tmp_path, "y", wave(300)), tmp_path / "c"
    home.mkdir()
    (home / "notes.txt").write_text("mine")
    line = ("train", "--online", "--table", made, "--tracking-uri", "none", "--checkpoint", home)
    assert run(*line, "--set", "likelihood=logistic").exit_code == 3
    assert {path.name for path in home.iterdir()} - {".lock"} == {"notes.txt"}


def test_a_run_that_has_learned_is_kept(tmp_path: Path) -> None:
    """A value of another kind late in the table: what was learned before it stays."""
    made = table(tmp_path, "y", ["0", "1"] * 150 + ["2"] * 60)
    line = ("train", "--online", "--table", made, "--tracking-uri", "none", "--checkpoint", tmp_path / "c", "--lags", 4)
    line += ("--batch", 32, "--warmup", 64, "--checkpoint-every", 64, "--set", "likelihood=logistic")
    assert run(*line, "--set", "gradient.mean_basis=8", "--set", "gradient.covariance_basis=8").exit_code == 3
    assert (tmp_path / "c").exists()


def test_a_panel_without_series_names_the_column(tmp_path: Path) -> None:
    when: Callable[[int], timedelta] = lambda row: timedelta(hours=row % 40)  # noqa: E731
    rows = [f"{name},{i}" for name in "abc" for i in range(40)]
    table(tmp_path, "site,y", rows, "--keep-going", every=when)
    again = run("ingest", tmp_path / "data.csv", "--table", tmp_path / "t2", "--json")
    assert again.exit_code == 3 and "--series 'site'" in " ".join(json.loads(again.stdout)["hints"])
    named = run("ingest", tmp_path / "data.csv", "--table", tmp_path / "t3", "--series", "site", "--json")
    assert summary(named)["rows"] == 120 and not summary(named)["hints"]


def test_gaps_are_those_of_each_series(tmp_path: Path) -> None:
    """A series of minutes and one of hours: neither has a gap, until an hour is missing."""
    text = ["ds,unique_id,y", *(f"{START + timedelta(minutes=i)},fast,{i}" for i in range(200))]
    text += [f"{START + timedelta(hours=i)},slow,{i}" for i in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(text) + "\n")
    run("ingest", tmp_path / "a.csv", "--table", tmp_path / "t")
    assert summary(run("describe", "--table", tmp_path / "t", "--json"))["gaps"] == 0
    with (tmp_path / "a.csv").open("a") as file:
        file.write(f"{START + timedelta(hours=21)},slow,1\n")
    run("ingest", tmp_path / "a.csv", "--table", tmp_path / "t")
    assert summary(run("describe", "--table", tmp_path / "t", "--json"))["gaps"] == 1


def test_a_name_without_its_unit(tmp_path: Path) -> None:
    made = table(tmp_path, "flow [m3/h],heat [kW],heat [MJ]", [f"{value},1,2" for value in wave(200)])
    line = (*TRAIN, "--table", made, "--checkpoint", tmp_path / "c", "--json")
    assert summary(run(*line, "--target", "flow"))["target"] == ["flow [m3/h]"]
    failed = run(*TRAIN, "--table", made, "--checkpoint", tmp_path / "d", "--json", "--target", "heat")
    assert failed.exit_code == 2
    assert "heat [kW]" in json.loads(failed.stderr)["hint"] and "heat [MJ]" in json.loads(failed.stderr)["hint"]


@pytest.mark.parametrize("flag", ["--target", "--inputs", "--known"])
def test_columns_of_the_table_s_own_are_not_offered(tmp_path: Path, flag: str) -> None:
    made = table(tmp_path, "a", wave(50))
    for name in ("zzz", "_seq"):
        words = (*TRAIN, "--table", made, "--checkpoint", tmp_path / "c", "--json", "--target", "a", flag, name)
        failed = run(*words)
        assert failed.exit_code == 2 and "_seq" not in json.loads(failed.stderr)["hint"]


@pytest.mark.parametrize("columns", [("--target", "none"), ("--target", "y", "--inputs", "none")])
def test_a_column_without_values_is_named(tmp_path: Path, columns: tuple[str, ...]) -> None:
    made = table(tmp_path, "y,none", [f"{value}," for value in wave(200)])
    online = run(*TRAIN, "--table", made, "--checkpoint", tmp_path / "c", *columns, "--json")
    assert "'none'" in " ".join(summary(online)["warnings"])
    tuned = run("tune", "--table", made, "--tracking-uri", "none", *columns, "--json")
    assert tuned.exit_code == 3 and "'none'" in json.loads(tuned.stderr)["hint"]


def test_the_warm_up_that_is_advised_leaves_rows_to_score(tmp_path: Path) -> None:
    made = table(tmp_path, "y", wave(60))
    line = ("train", "--online", "--tracking-uri", "none", "--model", "seasonal_naive", "--table", made, "--json")
    line += ("--checkpoint", tmp_path / "c", "--horizon", 30)
    found = summary(run(*line))
    advised = next(word for word in " ".join(found["warnings"]).split("--warmup ")[1].split())
    assert not found["scored"] and summary(run(*line, "--fresh", "--warmup", advised))["scored"]


def test_a_window_longer_than_the_table_is_said(tmp_path: Path) -> None:
    made = table(tmp_path, "y", wave(60))
    line = ("--tracking-uri", "none", "--table", made, "--json", "--horizon", 40)
    for mode in (("--online", "--model", "seasonal_naive"), ("--model", "linear", "--test-tail", 0.2)):
        refused = run("train", *mode, "--checkpoint", tmp_path / "c", *line)
        assert refused.exit_code == 3 and not (tmp_path / "c").exists()
        assert "64 rows" in json.loads(refused.stderr)["hint"]


@pytest.mark.sampled
@pytest.mark.parametrize(("zone", "shown"), [(None, None), ("+02:00", "+02:00"), ("UTC", "+00:00")])
def test_printed_times_have_their_zone(tmp_path: Path, zone: str | None, shown: str | None) -> None:
    made = table(tmp_path, "y", wave(200), *(() if zone is None else ("--timezone", zone)))
    assert run(*TRAIN, "--table", made, "--checkpoint", tmp_path / "c").exit_code == 0
    printed = run("forecast", "--checkpoint", tmp_path / "c").stdout
    (line,) = [line for line in printed.splitlines() if "2020-" in line]
    assert (shown in line) if shown else ("+" not in line)


def test_a_hole_in_rows_without_a_declared_interval_is_said(tmp_path: Path) -> None:
    def when(row: int) -> timedelta:
        return timedelta(hours=row + (2400 if row > 100 else 0))

    made = table(tmp_path, "y", wave(200), every=when)
    line = (*TRAIN, "--table", made, "--checkpoint", tmp_path / "c", "--season", 1, "--json")
    assert "--every 1h" in " ".join(summary(run(*line))["warnings"])
    assert run("ingest", tmp_path / "data.csv", "--table", made, "--every", "1h").exit_code == 0
    assert not summary(run(*line, "--fresh"))["warnings"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("first", [2**53 + 1, 10**19 + 1])
def test_whole_numbers_lose_no_digit(tmp_path: Path, suffix: str, first: int) -> None:
    numbers = [first + 2 * i for i in range(20)]
    times = [(START + timedelta(hours=i)).isoformat() for i in range(20)]
    if suffix == "csv":
        lines = ["ds,y,id", *(f"{when},1.5,{number}" for when, number in zip(times, numbers, strict=True))]
    else:
        lines = [json.dumps({"ds": when, "y": 1.5, "id": number}) for when, number in zip(times, numbers, strict=True)]
    (tmp_path / f"a.{suffix}").write_text("\n".join(lines) + "\n")
    assert summary(run("ingest", tmp_path / f"a.{suffix}", "--table", tmp_path / "t", "--json"))["rows"] == 20
    assert [int(value) for value in rows(tmp_path / "t")["id"]] == numbers


def test_a_key_that_comes_twice_is_put_aside(tmp_path: Path) -> None:
    lines = [f'{{"ds": "2020-01-01T{i:02d}:00", "y": {i}}}' for i in range(20)]
    for twice in (0, 7):
        lines[twice] = lines[twice].replace('"y"', '"y": 5, "y"')
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    found = summary(run("ingest", tmp_path / "a.jsonl", "--table", tmp_path / "t", "--json"))
    assert found["rows"] == 18 and sum(found["quarantined"].values()) == 2


@pytest.mark.parametrize(
    ("header", "end", "columns"),
    [("ds,y,", ",", ["y"]), ("ds,y,", "", ["y"]), ("ds,y", ",", ["y"]), ("ds,y,", ",1", ["y", "column_3"])],
)
def test_a_separator_at_the_end_of_lines_is_no_column(
    tmp_path: Path, header: str, end: str, columns: list[str]
) -> None:
    lines = [header, *(f"2020-01-01T{i:02d}:00,{i}{end}" for i in range(20))]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    found = summary(run("ingest", tmp_path / "a.csv", "--table", tmp_path / "t", "--json"))
    assert found["rows"] == 20 and not found["quarantined"]
    assert rows(tmp_path / "t").columns == ["_seq", "ds", *columns]


@pytest.mark.slow
def test_a_run_that_names_no_season_has_that_of_the_clock_and_says_so(tmp_path: Path) -> None:
    days = [f"{math.sin(math.pi * hour / 12):.4f}" for hour in range(400)]
    line = (*TRAIN, "--table", table(tmp_path, "y", days), "--checkpoint")
    found = {
        told: summary(run(*line, tmp_path / told, "--json", *(("--season", told) if told else ())))
        for told in ("", "24", "auto", "none")
    }
    assert [one["seasons"] for one in found.values()] == [[24], [24], [24], []]
    assert not any(one["warnings"] for one in found.values())
    assert "seasons of 24 rows" in run(*line, tmp_path / "24", "--season", "24").stdout


@pytest.mark.parametrize("fresh", [(), ("--fresh",)])
def test_a_table_is_no_checkpoint(tmp_path: Path, fresh: tuple[str, ...]) -> None:
    made = table(tmp_path, "y", wave(200))
    assert run(*TRAIN, "--table", made, "--checkpoint", made, *fresh).exit_code == 2
    assert run("describe", "--table", made).exit_code == 0


def test_the_directory_that_is_worked_in_is_not_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, home = table(tmp_path, "y", wave(200)), tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    assert run(*TRAIN, "--table", made, "--checkpoint", ".").exit_code == 0
    assert run(*TRAIN, "--table", made, "--checkpoint", ".", "--fresh").exit_code == 4
    assert home.is_dir() and not list(tmp_path.glob("home.*"))


def test_one_time_far_ahead_is_named_with_the_forecast_from_it(tmp_path: Path) -> None:
    far = timedelta(days=2000)
    made = table(tmp_path, "y", wave(300), "--every", "1h", every=lambda row: timedelta(hours=row) + (row == 200) * far)
    assert run(*TRAIN, "--table", made, "--checkpoint", tmp_path / "c", "--horizon", 1, "--season", 24).exit_code == 0
    found = json.loads(run("forecast", "--checkpoint", tmp_path / "c", "--json").stdout)
    assert "99 rows were left out" in found["warnings"][0] and "48,001 steps" in found["warnings"][0]


@pytest.mark.sampled
@pytest.mark.parametrize("options", [(), ("--time-format", "epoch-ns")])
def test_steps_of_a_part_of_a_second_are_told_apart(tmp_path: Path, options: tuple[str, ...]) -> None:
    times = [1_577_836_800_000_000_000 + 100_000_000 * at for at in range(200)]
    shown = [str(time) if options else f"2020-01-01T00:00:{at / 10:06.3f}Z" for at, time in enumerate(times)]
    lines = [f"{ds},{y}" for ds, y in zip(shown, wave(200), strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["ds,y", *lines]) + "\n")
    assert run("ingest", tmp_path / "a.csv", "--table", tmp_path / "t", *options).exit_code == 0
    done = run(*TRAIN, "--table", tmp_path / "t", "--target", "y", "--horizon", 5, "--checkpoint", tmp_path / "c")
    assert done.exit_code == 0, done.stderr
    table = run("forecast", "--checkpoint", tmp_path / "c").stdout
    assert all(f"2020-01-01 00:00:20.{at}00+00:00" in table for at in range(5))
    assert (
        str(times[-1] + 100_000_000) in run("forecast", "--checkpoint", tmp_path / "c", "--json").stdout or not options
    )


def test_columns_that_are_not_used_are_named_beside_the_flags(tmp_path: Path) -> None:
    made = table(tmp_path, "y,wind,site", [f"{value},{at},north" for at, value in enumerate(wave(200))])
    line = [*TRAIN, "--table", made, "--target", "y"]
    done = run(*line, "--checkpoint", tmp_path / "a")
    (said,) = [text for text in done.stdout.splitlines() if "not used" in text]
    assert "wind: --inputs" in said and "--known" in said and "site" not in said
    assert summary(run(*line, "--checkpoint", tmp_path / "b", "--json"))["unused"] == ["wind"]
    assert "wind" in run(*line, "--checkpoint", tmp_path / "c", "--dry-run").stdout
    assert "not used" not in run(*line, "--checkpoint", tmp_path / "d", "--known", "wind").stdout
    assert "--inputs" in run("train", "--help").stdout


def test_an_epoch_is_shown_with_its_dates(tmp_path: Path) -> None:
    first = 1704067200000
    (tmp_path / "a.csv").write_text("ts,y\n" + "".join(f"{first + 3_600_000 * at},{at}\n" for at in range(5)))
    run("ingest", tmp_path / "a.csv", "--table", tmp_path / "t", "--time", "ts")
    assert f"{first} (2024-01-01T00:00:00+00:00)" in run("describe", "--table", tmp_path / "t").stdout
    found = json.loads(run("describe", "--table", tmp_path / "t", "--json").stdout)
    assert found["span"][0] == first and found["span_dates"][1] == "2024-01-01T04:00:00+00:00"
