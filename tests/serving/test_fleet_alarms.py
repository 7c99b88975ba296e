"""Alarms of a served fleet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from starlette.testclient import TestClient

from streamgp_pipelines.adapters.web.app import create_app
from streamgp_pipelines.serving.service import serving
from tests.pipelines.killed import wait_for
from tests.pipelines.worlds import frame_of, make_table, run
from tests.serving.conftest import LINE, as_objects, config_of


@pytest.mark.slow
def test_alarms_of_a_fleet_are_answered_and_passed_on(tmp_path: Path) -> None:
    make_table(tmp_path / "table", frame_of(300, ("a", "b")))
    run(tmp_path / "table", tmp_path / "watched", alarm_rate=0.01, fleet=True, **LINE)
    config = config_of(tmp_path, "watched", on_alarm=f"tee {tmp_path / 'told'}")
    later = frame_of(302, ("a", "b")).tail(4).with_columns(y=pl.Series([500.0, 15.0, 11.0, 15.0]))
    with serving(config) as service:
        wait_for(lambda: service.ready)
        client: Any = TestClient(create_app(service, config, None), "http://127.0.0.1")
        assert client.post("/rows", json=as_objects(later)).json()["accepted"] == 4

        def raised() -> list[Any]:
            return [one for one in client.get("/alarms").json()["alarms"] if one["y"] == 500.0]

        wait_for(raised)
        (first,) = raised()
        assert client.get("/alarms").json()["counts"]["rows"] > 100
    assert first["unique_id"] == "a" and "anomaly" in first["alarm"]
    assert 500.0 in [one["y"] for one in json.loads((tmp_path / "told").read_text())["alarms"]]
