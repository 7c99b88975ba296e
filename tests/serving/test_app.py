"""The API: what is asked and answered, in which format; who may ask, and how much."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from streamgp.errors import ServiceError, StateError, UsageError
from streamgp_data.table import Table
from streamgp_pipelines.adapters.web import app
from streamgp_pipelines.adapters.web.app import create_app
from streamgp_pipelines.adapters.web.guard import token_of
from streamgp_pipelines.config.serve import ServeConfig
from streamgp_pipelines.live.bodies import JsonRows
from streamgp_pipelines.serving.intake import Intake
from streamgp_pipelines.serving.service import serving
from streamgp_pipelines.serving.view import LearnerView
from tests.pipelines.killed import wait_for
from tests.pipelines.worlds import frame_of, make_table, run
from tests.serving.conftest import LINE, ROWS, as_objects, config_of, new_rows, served
from tests.serving.test_service import stream_of

ARROW = "application/vnd.apache.arrow.stream"
AS_JSON = {"Content-Type": "application/json"}
TOKEN = "0123456789abcdef-a-token"


@contextmanager
def client_of(home: Path, *names: str, token: str | None = None, **options: Any) -> Iterator[Any]:
    config = config_of(home, *names, **options)
    with served(home, *names) as service:
        client = TestClient(create_app(service, config, token), "http://127.0.0.1", raise_server_exceptions=False)
        client.service = service  # type: ignore[attr-defined]
        yield client


@pytest.fixture(scope="module")
def client(trained: Path) -> Iterator[Any]:
    """Of a service that no test of it changes."""
    with client_of(trained) as found:
        yield found


def test_rows_are_learned_and_forecast_from(home: Path) -> None:
    with client_of(home) as client:
        found = client.post("/rows", json={"rows": as_objects(new_rows(5)[:3])})
        assert (found.status_code, found.json()) == (
            200, {"accepted": 3, "late": 0, "duplicates": 0, "quarantined": [], "rows": ROWS + 3, "notes": []},
        )  # fmt: skip
        body = stream_of(new_rows(5))
        found = client.post("/rows", content=body, headers={"Content-Type": ARROW})
        assert (found.json()["accepted"], found.json()["duplicates"]) == (2, 3)
        other = as_objects(new_rows(5).with_columns(y=pl.lit(-1.0))[:1])
        aside = client.post("/rows", json={"rows": other}).json()["quarantined"]
        assert [(one["row"], one["reason"], one["column"]) for one in aside] == [(0, "conflict", "t")]
        wait_for(lambda: client.get("/forecast").headers["x-streamgp-rows"] == str(ROWS + 5))
        last = as_objects(new_rows(5))[-1]["t"]
        assert {row["cutoff"] for row in client.get("/forecast").json()["forecast"]} == {last}
        newest, kept = (client.get("/history", params={"rows": most}).json()["history"] for most in (2, 500))
        assert newest == kept[-2:] and newest[-1]["ds"] == last and len(kept) < 500  # of which fewer are kept
        page = client.get("/metrics").text
        assert f'streamgp_learned_rows{{checkpoint="plain"}} {ROWS + 5}.0' in page
        (age,) = re.findall(r'streamgp_value_age_seconds{checkpoint="plain",series="y",target="y"} (\S+)', page)
        assert float(age) == pytest.approx((datetime.now(UTC) - datetime.fromisoformat(last)).total_seconds(), abs=60)
        assert 'outcome="duplicate"' in page and 'streamgp_score{checkpoint="plain",score="crps"}' in page
        assert client.post("/rows", json=[]).json()["accepted"] == 0


def test_rows_that_another_process_writes_are_rows_of_the_table(home: Path) -> None:
    with client_of(home) as client:
        (intake,) = client.service.intakes.values()
        other = Intake(Table.open(intake.table.path))
        other.submit(JsonRows(as_objects(new_rows(5)), other.table)).result()
        other.close()
        client.service.hosts["plain"].wake()
        wait_for(lambda: client.get("/models").json()[0]["learned_rows"] == ROWS + 5)
        assert client.get("/models").json()[0]["table_rows"] == ROWS + 5


def test_a_request_without_a_row_that_can_be_taken_is_refused(home: Path) -> None:
    with client_of(home) as client:
        good, bad, worse = as_objects(new_rows(3))
        bad["y"], worse["y"] = "abc", "def"
        found = client.post("/rows", json={"rows": [bad, worse]})
        said = found.json()
        assert (found.status_code, said["error"], said["field"]) == (422, "DataError", "rows[0].y")
        assert "'abc'" in said["message"] and "none of 2 rows was taken" in said["message"] and said["hint"]
        assert [(one["row"], one["reason"], one["column"]) for one in said["quarantined"]] == [
            (0, "unparsable", "y"),
            (1, "unparsable", "y"),
        ]
        for _ in range(2):  # one that is taken, and one that the table has then
            found = client.post("/rows", json={"rows": [good, bad]})
            assert (found.status_code, [one["row"] for one in found.json()["quarantined"]]) == (200, [1])


def test_a_leap_of_the_clock_is_told(home: Path) -> None:
    with client_of(home) as client:
        first, second = as_objects(new_rows(2))
        far = as_objects(new_rows(1, ROWS + 1000))[0]
        assert client.post("/rows", json={"rows": []}).json()["notes"] == []
        (note,) = client.post("/rows", json={"rows": [first, far]}).json()["notes"]  # beside a row that does not leap
        assert "late" in note
        found = client.post("/rows", json={"rows": [second, far]}).json()
        (older,) = found["notes"]
        assert found["late"] == 1 and older.startswith(f"1 of 2 rows are older than the newest, {far['t'][:10]}")
        said, late = client.get("/health").json()["notes"]
        assert said.startswith("1 rows of ") and note in said
        assert late.startswith("1 rows of ") and "older than the newest" in late


def test_one_forecast_in_three_formats(client: Any) -> None:
    asked = {"horizon": 2, "level": [50, 80], "quantile": 0.25}
    as_json = pl.DataFrame(client.get("/forecast", params=asked).json()["forecast"])
    text = client.get("/forecast", params=asked, headers={"Accept": "text/csv"})
    table = client.get("/forecast", params=asked, headers={"Accept": f"image/png, {ARROW};q=0.5"})
    assert (text.headers["content-type"], table.headers["content-type"]) == ("text/csv; charset=utf-8", ARROW)
    frames = [
        pl.read_csv(io.BytesIO(text.content)),
        pl.read_ipc_stream(io.BytesIO(table.content)),
    ]
    for frame in frames:
        assert frame.columns == as_json.columns and frame.height == 2
        assert frame["linear-hi-80"].to_list() == as_json["linear-hi-80"].to_list()
    assert {"linear-lo-50", "linear-q-0.25"} < set(as_json.columns)
    assert client.get("/forecast?series=y").json() == client.get("/forecast").json()  # the name where there is one


def test_a_forecast_of_some_series(tmp_path: Path) -> None:
    make_table(tmp_path / "table", frame_of(200, ["a1", "a2", "b"]))
    run(tmp_path / "table", tmp_path / "plain", **LINE)
    with client_of(tmp_path) as client:
        every = client.get("/forecast").json()
        some = client.get("/forecast", params={"series": ["b", "a2"]}).json()
        assert some == every | {"forecast": [row for row in every["forecast"] if row["unique_id"] != "a1"]}
        assert len(some["forecast"]) == 2 * LINE["horizon"]
        told = client.get("/forecast", params={"series": ["b", "a3"]})
        assert told.status_code == 404 and "a1" in told.json()["hint"] and "a2" in told.json()["hint"]


def test_the_answers_about_the_service(client: Any) -> None:
    assert client.get("/health").json() == client.get("/ready").json() == {"status": "ok"}
    (about,) = client.get("/models").json()
    assert (about["name"], about["target"], about["horizon"], about["learned_rows"]) == ("plain", ["y"], 4, ROWS)
    scores = client.get("/scores").json()
    assert scores["scored"] > 0 and set(scores["coverage"]) == {"80", "95"}
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/rows", "/forecast", "/history", "/scored", "/scores", "/alarms", "/models", "/health", "/ready", "/metrics",
    }  # fmt: skip
    example = document["paths"]["/rows"]["post"]["requestBody"]["content"]["application/json"]["examples"]["plain"]
    assert set(example["value"]["rows"][0]) == {"t", "y", "x", "k"}
    assert client.post("/rows", json=example["value"]).json()["duplicates"] == 1  # it is one of the table's


@pytest.mark.parametrize(
    ("ask", "status", "field"),
    [
        (lambda c: c.get("/forecast?horizon=9"), 422, "query.horizon"),
        (lambda c: c.get("/forecast?horizon=0"), 422, "query.horizon"),
        (lambda c: c.get("/forecast?level=101"), 422, "query.level"),
        (lambda c: c.get("/forecast?name=other"), 404, "query.name"),
        (lambda c: c.get("/forecast?series=z"), 404, "query.series"),
        (lambda c: c.get("/forecast?horizon=2&levels=80"), 422, "query.levels"),
        (lambda c: c.get("/history?row=0&rows=0"), 422, "query.row"),
        (lambda c: c.get("/scores?horizon=1"), 422, "query.horizon"),
        (lambda c: c.get("/health?name=plain"), 422, "query.name"),
        (lambda c: c.post("/rows?nme=plain", content="{"), 422, "query.nme"),
        (lambda c: c.post("/forecast?foo", json=[]), 422, "query.foo"),
        (lambda c: c.get("/forecast", headers={"Accept": "image/png"}), 406, "header.accept"),
        (lambda c: c.post("/forecast", json=[{"t": "2024-01-01"}]), 422, "rows"),
        (lambda c: c.post("/rows", content="{}", headers={"Content-Type": "text/plain"}), 415, "header.content-type"),
        (lambda c: c.post("/rows", json={"rows": [{"yy": 1}]}), 422, "rows[0].yy"),
        (lambda c: c.post("/rows", json={"rows": [3]}), 422, "rows[0]"),
        (lambda c: c.post("/rows", json={}), 422, "rows"),
        (lambda c: c.post("/rows", content=b"x", headers={"Content-Type": ARROW}), 422, "body"),
        (lambda c: c.post("/rows", content=b'[{"y": 1}, {"\\ud800": 1}]', headers=AS_JSON), 422, "rows[1]"),
        (lambda c: c.post("/forecast", content=b'[{"\\udfff": 1}]', headers=AS_JSON), 422, "rows[0]"),
        (lambda c: c.post("/forecast", content=b'[{"t": "\xed\xa0\x80"}]', headers=AS_JSON), 422, "rows"),
        (lambda c: c.post("/forecast", content=b'[{"y": 1' + b"0" * 5000 + b"}]", headers=AS_JSON), 422, "rows"),
        (lambda c: c.post("/rows", content=deep_stream(), headers={"Content-Type": ARROW}), 422, "rows.y"),
        (lambda c: c.post("/forecast", content=stream_in("Nowhere/Here"), headers={"Content-Type": ARROW}), 422, None),
        (lambda c: c.get("/models", headers={"Host": "example.org"}), 400, "header.host"),
        (lambda c: c.get("/nothing"), 404, None),
        (lambda c: c.delete("/rows"), 405, None),
    ],
)
def test_a_refusal_names_the_field_and_the_remedy(client: Any, ask: Any, status: int, field: str | None) -> None:
    found = ask(client)
    assert found.status_code == status, found.text
    told = found.json()
    assert set(told) == {"error", "message", "hint", "field"}
    assert told["field"] == field and told["message"] and told["hint"]
    assert len(told["message"]) < 500 and "\n" not in told["message"]


def deep_stream() -> bytes:
    """An Arrow stream whose column is nested deeply."""
    column: Any = pa.array([1.0])
    for _ in range(60):
        column = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column)
    return written(pa.table({"y": column}))


def stream_in(zone: str) -> bytes:
    """An Arrow stream with times of a zone."""
    return written(pa.table({"t": pa.array([1], pa.timestamp("us", zone)), "k": [1.0]}))


def written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def test_a_client_that_breaks_off_in_a_body_raises_nothing(client: Any) -> None:
    """What is raised here would be a traceback in the log of the server, for each of them."""
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"99")]
    about = {"http_version": "1.1", "scheme": "http", "root_path": "", "server": ("127.0.0.1", 80)}
    for path in ("/rows", "/forecast"):
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers, **about}
        told = iter([{"type": "http.request", "body": b"[{", "more_body": True}, {"type": "http.disconnect"}])
        said: list[Any] = []

        async def receive(told: Iterator[Any] = told) -> Any:
            return next(told)

        async def send(message: Any, said: list[Any] = said) -> None:
            said.append(message)

        asyncio.run(client.app(scope, receive, send))
        assert said[0]["status"] == 400


def test_an_unknown_parameter_is_told_with_those_that_exist(client: Any) -> None:
    told = client.get("/forecast?levels=80").json()["hint"]
    assert all(name in told for name in ("'level'", "name", "horizon", "level", "quantile"))
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            assert client.request(method, path, params={"foo": "1"}).json()["field"] == "query.foo"
            assert "422" in operation["responses"]


def test_a_forecast_from_a_row_far_ahead_tells_how_far_the_rows_are(home: Path) -> None:
    with client_of(home) as client:
        rows = as_objects(new_rows(30))
        for part in (rows[29:], rows[:2]):
            assert client.post("/rows", json=part).status_code == 200
        wait_for(lambda: client.get("/models").json()[0]["learned_rows"] == ROWS + 3)
        found = client.get("/forecast")
        assert found.status_code == 200, found.text
        warning = " ".join(found.json()["warnings"])
        assert "2 rows were left out" in warning and rows[29]["t"][:10] in warning and "30 steps" in warning


def test_health_says_that_rows_could_not_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise ServiceError("table: No space left on device", hint="make room")

    def defect(*_: Any) -> None:
        raise ZeroDivisionError

    rows = as_objects(new_rows(1))
    with client_of(home) as client:
        with monkeypatch.context() as patched:
            patched.setattr(Table, "commit", full)
            assert client.post("/rows", json=rows).status_code == 503
            found = client.get("/health")
        assert found.status_code == 503 and found.json()["status"] != "ok" and "No space left" in str(found.json())
        with monkeypatch.context() as patched:
            patched.setattr(Intake, "_commit", defect)
            assert client.post("/rows", json=rows).status_code == 500
            assert client.get("/health").status_code == 503  # nothing was written since
        assert client.post("/rows", json=rows).json()["accepted"] == 1
        assert client.get("/health").json() == {"status": "ok"}


def test_known_inputs_come_with_the_question_and_are_kept(home: Path) -> None:
    with client_of(home, "known") as client:
        assert client.get("/forecast").status_code == 422
        future = as_objects(new_rows(4).select("t", "k"))
        asked = client.post("/forecast", json={"rows": future}, params={"horizon": 2})
        assert asked.status_code == 200, asked.text
        assert client.get("/forecast", params={"horizon": 2}).json() == asked.json()
        turned = [row | {"k": 1 - row["k"]} for row in future]
        other = client.post("/forecast", json=turned, params={"horizon": 2}).json()
        assert other["forecast"] != asked.json()["forecast"]
        assert client.post("/forecast", json={"rows": future[:1]}).status_code == 422
        assert client.get("/forecast", params={"horizon": 2}).json() == other  # what is refused is not kept


def test_known_inputs_after_rows_that_are_not_learned_yet(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs begin after the rows that were sent just before: these are waited for."""
    monkeypatch.setattr(app, "CATCH_UP_SECONDS", 60.0)
    with client_of(home, "known") as client:
        for start in (ROWS, ROWS + 2):
            rows, future = as_objects(new_rows(2, start)), as_objects(new_rows(4, start + 2).select("t", "k"))
            assert client.post("/rows", json=rows).json()["accepted"] == 2
            found = client.post("/forecast", json=future)
            assert found.status_code == 200, found.text
            assert {row["cutoff"] for row in found.json()["forecast"]} == {rows[-1]["t"]}
        monkeypatch.setattr(app, "CATCH_UP_SECONDS", 0.0)
        monkeypatch.setattr(client.service.hosts["known"], "received", lambda: ROWS + 5)
        found = client.post("/forecast", json=as_objects(new_rows(4, ROWS + 5).select("t", "k")))
        assert found.status_code == 422 and "wait to be learned" in found.json()["hint"]
        assert found.json()["error"] == "DataError"
        for start, count in ((ROWS + 5, 0), (ROWS + 2, 4), (ROWS + 4, 1)):  # nothing, the past, one step
            future = as_objects(new_rows(4, start).select("t", "k"))[:count]
            found = client.post("/forecast", json=future)
            assert found.status_code == 422 and "ask again" not in found.json()["hint"]


def test_under_load_a_forecast_is_made_again_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go on coming: those after the time of asking are not waited for."""
    with client_of(home, "known") as client:
        host, made, original = client.service.hosts["known"], [], LearnerView.forecast

        def forecast(view: LearnerView, *args: Any) -> bytes:
            made.append(view)
            return original(view, *args)

        wait_for(lambda: host.view is not None and host.view.read == ROWS)
        counts = iter(range(ROWS + 1, ROWS + 10_000))
        monkeypatch.setattr(host, "received", lambda: next(counts))
        monkeypatch.setattr(LearnerView, "forecast", forecast)
        host.view.read = ROWS - 1
        future = as_objects(new_rows(4, ROWS + 2).select("t", "k"))
        monkeypatch.setattr(app, "_caught_up", _shown)
        found = client.post("/forecast", json=future)
        assert found.status_code == 422 and "ask again" not in found.json()["hint"] and len(made) == 2


async def _shown(host: Any, received: int) -> Any:
    return host.view


def test_known_inputs_outlive_a_restart_and_what_is_missing_is_said_in_words_of_http(home: Path) -> None:
    future = as_objects(new_rows(4).select("t", "k"))
    with client_of(home, "known") as client:
        told = client.get("/forecast").json()
        assert "--" not in told["hint"] and "POST /forecast" in told["hint"] and "t, k" in told["hint"]
        told = client.post("/forecast", json=future[:1]).json()
        assert "--" not in told["hint"] and "POST /forecast" in told["hint"]
        asked = client.post("/forecast", json=future).json()
    with client_of(home, "known") as client:
        assert client.get("/forecast").json() == asked
    (home / "known" / "future.arrow").write_bytes(b"damaged")
    with client_of(home, "known") as client:
        assert client.get("/forecast").status_code == 422
        assert client.post("/forecast", json=future).json() == asked


def test_a_forecast_says_that_learning_lags_by_more_than_a_horizon(home: Path) -> None:
    with client_of(home) as client:
        host = client.service.hosts["plain"]
        wait_for(lambda: client.get("/forecast").status_code == 200)
        received = host.received()
        for more, lags in ((4, False), (5, True), (0, False)):  # the horizon is 4
            host.received = lambda rows=received + more: rows
            warnings = client.get("/forecast").json()["warnings"]
            assert any(line.startswith("learning lags") for line in warnings) == lags


def test_alarms_are_answered_and_passed_on(home: Path) -> None:
    run(home / "table", home / "watched", alarm_rate=0.01, **LINE)
    config = config_of(home, "watched", on_alarm=f"tee {home / 'told'}")
    rows = as_objects(new_rows(3))
    rows[1]["y"] = 500.0
    with serving(config) as service:
        wait_for(lambda: service.ready)
        client: Any = TestClient(create_app(service, config, None), "http://127.0.0.1")
        before = client.get("/alarms").json()["counts"]
        assert client.post("/rows", json=rows).json()["accepted"] == 3
        wait_for(lambda: raised(client))
        found = client.get("/alarms").json()
        (first,) = raised(client)
    assert (first["ds"], first["alarm"]) == (rows[1]["t"], "anomaly") and first["p"] < 0.01
    assert (found["rate"], found["name"]) == (0.01, "watched")
    after = found["counts"]  # of the rows behind the last full micro-batch, too, as the list
    assert (after["rows"], after["anomaly"]) == (before["rows"] + 3, before["anomaly"] + 1)
    told = json.loads((home / "told").read_text())  # of the last message
    assert told["source"] == "serve" and 500.0 in [one["y"] for one in told["alarms"]]

    with client_of(home, "watched") as client:  # an alarm outlives a restart
        assert [one["ds"] for one in raised(client)] == [rows[1]["t"]]
    with serving(config_of(home, "plain", "watched", on_alarm="cat")) as service:  # one without alarms is named
        (note,) = service.warnings
        assert note.startswith("plain:") and "--alarm-rate" in note


@pytest.mark.slow
def test_a_target_that_fell_silent_is_answered_and_passed_on(home: Path) -> None:
    run(home / "table", home / "watched", alarm_rate=0.01, **LINE)
    config = config_of(home, "watched", on_alarm=f"tee {home / 'told'}")
    rows = as_objects(new_rows(2, ROWS + 9))
    with serving(config) as service:
        wait_for(lambda: service.ready)
        client: Any = TestClient(create_app(service, config, None), "http://127.0.0.1")
        assert client.post("/rows", json=rows).json()["accepted"] == 2
        wait_for(lambda: client.get("/alarms").json()["counts"]["silent"])
        silent = [one for one in client.get("/alarms").json()["alarms"] if one["alarm"] == "silent"]
    last = as_objects(new_rows(1, ROWS - 1))[0]["t"]
    assert [(one["since"], one["ds"], one["ticks"], one["y"]) for one in silent] == [(last, rows[0]["t"], 10, None)]
    told = [one for one in json.loads((home / "told").read_text())["alarms"] if one["alarm"] == "silent"]
    assert [one["ticks"] for one in told] == [10]
    with client_of(home, "watched") as client:  # it outlives a restart
        assert silent == [one for one in client.get("/alarms").json()["alarms"] if one["alarm"] == "silent"]


def test_scored_forecasts_are_those_that_were_issued(home: Path) -> None:
    """One of each value up to the newest, also of rows behind the last full micro-batch: those of --predictions."""
    with client_of(home) as client:
        assert client.post("/rows", json=as_objects(new_rows(9))).json()["accepted"] == 9
        wait_for(lambda: client.get("/models").json()[0]["learned_rows"] == ROWS + 9)
        found = client.get("/scored?rows=100").json()
        newest = [row["ds"] for row in client.get("/history?rows=4").json()["history"]]
    times = [row["ds"] for row in found["scored"]]
    assert len(times) == len(set(times)) == 100 and times == sorted(times) and times[-1] in newest
    run(home / "table", home / "again", predictions=home / "scored.parquet", **LINE)
    issued = pl.read_parquet(home / "scored.parquet")
    text = pl.col("ds", "cutoff").dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    own = pl.DataFrame(found["scored"]).join(
        issued.with_columns(text), on=["ds", "cutoff"], how="left", suffix="_issued"
    )
    for name in ("y", "linear", "linear-lo-80", "linear-hi-95"):
        assert own[f"{name}_issued"].to_list() == pytest.approx(own[name].to_list(), rel=1e-12)  # fewer rows at once


def raised(client: Any) -> list[Any]:
    return [one for one in client.get("/alarms").json()["alarms"] if one["y"] == 500.0]


def test_a_checkpoint_without_alarms_says_so(client: Any, trained: Path) -> None:
    assert client.get("/alarms").status_code == 409
    with pytest.raises(StateError), serving(config_of(trained, on_alarm="cat")):
        pass


def test_the_name_is_asked_for_where_there_are_several(home: Path) -> None:
    with client_of(home, "plain", "known") as client:
        assert client.get("/scores").status_code == 422
        assert client.get("/scores", params={"name": "known"}).json()["name"] == "known"
        document = client.get("/openapi.json").json()
        (name,) = document["paths"]["/scores"]["get"]["parameters"]
        assert name["schema"]["enum"] == ["plain", "known"]


def test_a_token_is_needed_for_all_data(home: Path) -> None:
    with client_of(home, token=TOKEN, host="0.0.0.0") as client:
        for path in ("/forecast", "/history", "/scored", "/scores", "/models", "/metrics", "/openapi.json", "/nothing"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"Authorization": f"Bearer {TOKEN}x"}).status_code == 401
        assert client.post("/rows", json=[]).status_code == 401
        for path in ("/", "/health", "/ready"):
            assert client.get(path).status_code == 200
        assert client.get("/scores", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/scores", headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401


@pytest.mark.slow
def test_requests_have_limits(home: Path) -> None:
    with client_of(home, max_body=1024, request_rows=3, rate=50) as client:
        small = [{"t": f"2030-01-0{day}", "y": 1.0} for day in range(1, 6)]
        assert client.post("/rows", json=small).json()["field"] == "rows"
        large = json.dumps({"rows": small * 100}).encode()
        assert client.post("/rows", content=large, headers={"Content-Type": "application/json"}).status_code == 413
        parts = (large[at : at + 100] for at in range(0, len(large), 100))  # without a length
        assert client.post("/rows", content=parts, headers={"Content-Type": "application/json"}).status_code == 413
        answers = [client.get("/health") for _ in range(400)]
        slow = [one for one in answers if one.status_code == 429]
        assert slow and slow[0].headers["retry-after"] == "1" and slow[0].json()["hint"]


def test_the_token_is_from_the_environment_or_a_file_that_only_its_owner_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAMGP_TOKEN", raising=False)

    def config(**options: Any) -> ServeConfig:
        return ServeConfig.read({"checkpoint": [tmp_path], "host": "0.0.0.0"} | options)

    assert token_of(config(host="127.0.0.1")) == token_of(config(auth="never")) == (None, None)
    token, file = token_of(config())
    assert file == tmp_path / ".token" and token is not None and len(token) > 30
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert token_of(config())[0] == token == token_of(config(host="127.0.0.1", auth="always"))[0]
    (tmp_path / "own").write_text(f"{TOKEN}\n")
    assert token_of(config(token_file=tmp_path / "own"))[0] == TOKEN
    monkeypatch.setenv("STREAMGP_TOKEN", "from-the-environment")
    assert token_of(config(host="127.0.0.1")) == ("from-the-environment", None)
    monkeypatch.setenv("STREAMGP_TOKEN", "short")
    with pytest.raises(UsageError):
        token_of(config())
