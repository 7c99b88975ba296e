"""Corrected values in training, and clocks that are set back."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from streamgp.errors import TableError
from streamgp_data.table import Table
from streamgp_pipelines.describe import describe_table
from streamgp_pipelines.health import Learned
from streamgp_pipelines.training.online import OnlineRun
from tests.pipelines.ingesting import quarantine, rows, take, write
from tests.pipelines.worlds import frame_of, make_table, run, scores_of
from tests.words import naming

pytestmark = pytest.mark.usefixtures("read_here")


@pytest.mark.slow
def test_a_run_goes_on_with_what_it_learned_and_a_new_one_learns_the_newest(tmp_path: Path) -> None:
    data = frame_of(450).with_columns(pl.col("t").dt.replace_time_zone(None))
    wrong = data.with_row_index().with_columns(
        y=pl.when(pl.col("index").is_in([300, 390])).then(pl.col("y") + 50).otherwise("y")
    )
    wrong = wrong.drop("index")
    for name, part in (("a", wrong[:400]), ("b", pl.concat([data[300:301], data[390:391], wrong[400:]]))):
        part.write_csv(tmp_path / f"{name}.csv", datetime_format="%Y-%m-%d %H:%M:%S")
    options: dict[str, Any] = {"time": "t", "every": "1h", "duplicates": "last"}
    take(tmp_path / "t", tmp_path / "a.csv", **options)
    table = Table.open(tmp_path / "t")
    run(table, tmp_path / "c")
    found = take(tmp_path / "t", tmp_path / "b.csv", **options)
    assert (found["added"], found["versions"], found["quarantined"]) == (52, 2, {})
    table.refresh()
    live, fresh = run(table, tmp_path / "c"), run(table, tmp_path / "f")
    assert any("2 rows with other values" in warning for warning in live["warnings"])
    assert not any("other values" in warning for warning in fresh["warnings"])
    before = scores_of(run(make_table(tmp_path / "w", wrong), tmp_path / "wc"))
    assert {**scores_of(live), "warnings": []} == before
    assert scores_of(fresh) == scores_of(run(make_table(tmp_path / "r", data), tmp_path / "rc"))
    told = describe_table(tmp_path / "t")
    assert (told["versions"], told["read_of_versions"], told["conflicts"]) == (2, "last", 0)


def test_versions_are_no_lag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = frame_of(300).with_columns(pl.col("t").dt.replace_time_zone(None))
    twice = pl.concat([data, data[:24].with_columns(y=pl.col("y") + 1)])
    twice.write_csv(tmp_path / "a.csv", datetime_format="%Y-%m-%d %H:%M:%S")
    take(tmp_path / "t", tmp_path / "a.csv", time="t", every="1h", duplicates="last")
    table, seen = Table.open(tmp_path / "t"), list[tuple[int, int]]()
    monkeypatch.setattr(OnlineRun, "wait", lambda _: True)
    monkeypatch.setattr(Learned, "look", lambda _, rows, saved, there: seen.append((rows, there)))
    run(table, tmp_path / "c", follow=True)
    assert table.rows == 324 and seen[-1] == (300, 300)


def test_the_policy_belongs_to_the_table(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ds,y\n2024-01-01,1\n2024-01-01,3\n2024-01-01,3\n2024-01-02,2\n")
    found = take(tmp_path / "t", path, duplicates="mean")
    assert (found["versions"], found["duplicates"], found["conflicts"]) == (1, 1, 0)
    assert rows(tmp_path / "t")["y"].to_list() == [2.0, 2.0]
    assert take(tmp_path / "t", path)["added"] == 0
    with pytest.raises(TableError, match=naming("--duplicates first mean")):
        take(tmp_path / "t", path, duplicates="first")


HOURS = ["2024-10-27 01:30", "2024-10-27 02:00", "2024-10-27 02:30", "2024-10-27 02:00", "2024-10-27 02:30"]
HOURS += ["2024-10-27 03:00"]
SKIPPED = ["2024-03-31 01:30", "2024-03-31 02:00", "2024-03-31 03:00"]


def written(path: Path, times: list[str]) -> Path:
    moments = [datetime.strptime(time, "%Y-%m-%d %H:%M") for time in times]
    frame = pl.DataFrame({"ds": moments, "y": [float(i) for i in range(len(times))]})
    frame.write_excel(path) if path.suffix == ".xlsx" else frame.write_csv(path, datetime_format="%Y-%m-%d %H:%M")
    return path


@pytest.mark.sampled
@pytest.mark.parametrize("policy", ["first", "last", "mean"])
@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_an_hour_that_the_clock_shows_twice_is_no_duplicate_where_the_zone_is_known(
    suffix: str, policy: str, tmp_path: Path
) -> None:
    path = written(tmp_path / f"a.{suffix}", HOURS)
    found = take(tmp_path / "t", path, timezone="Europe/Berlin", duplicates=policy)
    assert (found["added"], found["versions"], found["quarantined"]) == (6, 0, {})
    naive = take(tmp_path / "n", path, duplicates=policy)
    assert (naive["versions"], naive["conflicts"]) == ((0, 2) if policy == "first" else (2, 0))
    assert policy != "first" or any("--timezone" in hint for hint in naive["hints"])


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_an_hour_that_the_clock_skips_goes_to_the_quarantine(suffix: str, tmp_path: Path) -> None:
    path = written(tmp_path / f"a.{suffix}", SKIPPED)
    found = take(tmp_path / "t", path, timezone="Europe/Berlin")
    assert (found["added"], found["quarantined"]) == (2, {"skipped hour": 1})
    assert quarantine(tmp_path / "t")["column"].to_list() == ["ds"]
