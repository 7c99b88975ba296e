"""A fleet that is served: rows of many series, learned while they come, each series as if it were alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from streamgp_data import checkpoint
from streamgp_pipelines import load
from streamgp_pipelines.learning.checkpointing import state_digest
from streamgp_pipelines.live.bodies import JsonRows
from streamgp_pipelines.serving.service import Service
from tests.pipelines.killed import wait_for
from tests.pipelines.worlds import frame_of, make_table, run
from tests.serving.conftest import as_objects, served

HOURS = 200
OPTIONS: dict[str, Any] = {"fleet": True, "season": None, "warmup": 60, "batch": 16, "lags": 4, "horizon": 2}
SEASON: dict[str, Any] = {"season": 24, "lags": None}


def rows_of(names: list[str], hours: int) -> pl.DataFrame:
    return frame_of(hours, names)


def begun(home: Path, **options: Any) -> None:
    make_table(home / "table", rows_of(["a", "b"], HOURS))
    run(home / "table", home / "fleet", **OPTIONS | options)


def send(service: Service, rows: pl.DataFrame, size: int) -> None:
    host = service.hosts["fleet"]
    intake, objects, before = service.intake(host), as_objects(rows), host.rows
    for at in range(0, len(objects), size):
        receipt = intake.submit(JsonRows(objects[at : at + size], intake.table)).result(60)
        assert receipt.accepted == len(objects[at : at + size])
    wait_for(lambda: host.rows == before + len(objects))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SEASON], ids=["plain", "season"])
def test_a_served_fleet_learns_as_the_command_line_does(tmp_path: Path, options: dict[str, Any]) -> None:
    begun(tmp_path, **options)
    shutil.copytree(tmp_path / "fleet", tmp_path / "straight")
    with served(tmp_path, "fleet") as service:
        send(service, rows_of(["a", "b"], HOURS + 30)[2 * HOURS :], 7)
        view = service.hosts["fleet"].view
        assert view is not None
        shown = json.loads(view.forecast("json", 2, (80.0,), ()))["forecast"]
        scores = json.loads(view.scores())
    own = run(tmp_path / "table", tmp_path / "straight", **OPTIONS | options)
    one, two = (checkpoint.read(tmp_path / part) for part in ("fleet", "straight"))
    assert (one.rows, state_digest(one)) == (two.rows, state_digest(two))
    frame = load(tmp_path / "straight").forecast(2, [80.0]).frame
    assert [row["unique_id"] for row in shown] == frame["unique_id"].to_list()
    bound = next(name for name in frame.columns if name.endswith("-hi-80"))
    assert [row[bound] for row in shown] == frame[bound].to_list()
    assert (scores["rmse"], scores["scored"]) == (own["rmse"], own["scored"])


def test_a_new_series_is_forecast_once_it_is_warm_and_a_silent_one_rests(tmp_path: Path) -> None:
    begun(tmp_path)
    later = rows_of(["a", "new"], HOURS + 100)[2 * HOURS :]

    def forecast(service: Service) -> dict[str, list[dict[str, Any]]]:
        view = service.hosts["fleet"].view
        assert view is not None
        found: dict[str, list[dict[str, Any]]] = {}
        for row in json.loads(view.forecast("json", 2, (80.0,), ()))["forecast"]:
            found.setdefault(row["unique_id"], []).append(row)
        return found

    with served(tmp_path, "fleet") as service:
        before = forecast(service)
        send(service, later[:20], 20)
        assert sorted(forecast(service)) == ["a", "b"]
    with served(tmp_path, "fleet") as service:  # another process goes on
        send(service, later[20:], 60)
        after = forecast(service)
    assert sorted(after) == ["a", "b", "new"]
    assert after["b"] == before["b"] and after["a"] != before["a"]
