"""Examples and hints of the API: rows as the stream of a checkpoint has them, with its own kind of time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from streamgp_pipelines.adapters.web.app import create_app
from tests.pipelines.ingesting import take, write
from tests.pipelines.worlds import run
from tests.serving.conftest import LINE, config_of, served

COUNT = 300
START = 1_704_067_200
CLOCKS: dict[str, tuple[list[Any], dict[str, str], list[Any], str]] = {
    "elapsed": ([at / 2 for at in range(COUNT)], {"time_format": "elapsed-s"}, [149.5, 150.0], "elapsed time in s"),
    "steps": (list(range(COUNT)), {}, [299, 300], "whole numbers"),
    "epoch": (
        [START + 60 * at for at in range(COUNT)],
        {"time_format": "epoch-s"},
        [1704085140, 1704085200],
        "ISO 8601",
    ),
    "dates": (
        [f"{at // 24 + 1:02}.01.2024 {at % 24:02}:00" for at in range(COUNT)],
        {"time_format": "%d.%m.%Y %H:%M", "timezone": "Europe/Berlin"},
        ["2024-01-13T11:00:00+01:00", "2024-01-13T12:00:00+01:00"],
        "%d.%m.%Y",
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CLOCKS)
@pytest.mark.parametrize("series", [False, True])
def test_they_have_the_time_of_the_stream_and_can_be_sent(name: str, series: bool, tmp_path: Path) -> None:
    cells, options, (newest, ahead), hint = CLOCKS[name]
    names = ("a", "b") if series else ("a",)
    lines = [f"{cell},{at % 7}.5,{at % 2},{one}\n" for at, cell in enumerate(cells) for one in names]
    source = write(tmp_path / "a.csv", "t,y,k,s\n" + "".join(lines))
    take(tmp_path / "table", source, time="t", **({"series": "s"} if series else {}), **options)
    run(tmp_path / "table", tmp_path / "plain", known="k", season=None, **LINE)
    with served(tmp_path) as service:
        client: Any = TestClient(create_app(service, config_of(tmp_path), None), "http://127.0.0.1")
        paths = client.get("/openapi.json").json()["paths"]
        rows, future = (
            paths[path]["post"]["requestBody"]["content"]["application/json"]["examples"]["plain"]["value"]
            for path in ("/rows", "/forecast")
        )
        assert [one["t"] for one in rows["rows"]] == [newest]
        assert future["rows"][0]["t"] == ahead and len(future["rows"]) == LINE["horizon"]
        assert client.post("/rows", json=rows).json()["duplicates"] == 1
        both = [{**one, "s": other} if series else one for one in future["rows"] for other in names]
        assert client.post("/forecast", json=both).status_code == 200
        for path, body in (("/rows", rows), ("/forecast", future)):
            told = client.post(path, content=b"{", headers={"Content-Type": "application/json"}).json()
            assert str(body["rows"][0]["t"]) in told["hint"]
        told = client.post("/rows", json=[{**rows["rows"][0], "t": "soon"}]).json()
        assert hint in told["hint"] and ("ISO" in told["hint"]) == (name in ("epoch", "dates"))
