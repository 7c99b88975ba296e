"""Rows into a table and learned while they come: each once, with the numbers of the command line."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from streamgp.errors import DataError, SchemaError, StateError, UsageError
from streamgp_data import checkpoint
from streamgp_data.ingestion.ingest import ingest
from streamgp_data.quarantine import Quarantine
from streamgp_data.table import Table, TableMeta
from streamgp_pipelines import load
from streamgp_pipelines.config import IngestConfig, ServeConfig
from streamgp_pipelines.learning.checkpointing import state_digest
from streamgp_pipelines.live.bodies import JsonRows, arrow_rows, parse_arrow, parse_json
from streamgp_pipelines.serving.intake import Intake, Receipt
from streamgp_pipelines.serving.service import serving
from tests.pipelines.killed import wait_for
from tests.pipelines.worlds import make_table, run
from tests.serving.conftest import LINE, ROWS, as_objects, config_of, new_rows, served
from tests.words import naming


@pytest.fixture
def intake(home: Path) -> Any:
    found = Intake(Table.open(home / "table"))
    yield found
    found.close()


def taken(intake: Intake, rows: list[dict[str, Any]]) -> Receipt:
    return intake.submit(JsonRows(rows, intake.table)).result(60)


def test_rows_are_taken_once_and_faulty_ones_are_named(intake: Intake, home: Path) -> None:
    rows = as_objects(new_rows(5))
    assert taken(intake, rows) == Receipt(5, 0, 0, (), ROWS + 5)
    wrong = {"t": "2030-01-01T00:00:00Z", "y": "abc"}
    found = taken(intake, [*rows, wrong, {"y": 1.0}, rows[0]])
    assert (found.accepted, found.duplicates, found.rows) == (0, 6, ROWS + 5)
    assert [(one.row, one.reason, one.column) for one in found.quarantined] == [
        (5, "unparsable", "y"), (6, "no time", "t"),
    ]  # fmt: skip
    table = Table.open(home / "table")
    assert table.rows == ROWS + 5
    assert Quarantine(table).reasons() == {"unparsable": 1, "no time": 1}  # a duplicate is counted, not kept
    late = {"t": "2023-11-15T00:30:00Z", "y": 1.0}
    assert (taken(intake, [late]).late, taken(intake, [late]).duplicates) == (1, 1)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "times",
    [
        ["soon", None],
        ["soon", "2024-02-30T00:00:00Z", None],  # of three times one is good
        [None, "2023-12-05T20:00:00+25:00"],
        [17, None],
        [None, {"a": 1}, True],
    ],
)
@pytest.mark.parametrize("kind", ["json", "arrow"])
def test_a_bad_time_is_the_fault_of_its_row_alone(intake: Intake, times: list[Any], kind: str) -> None:
    good = as_objects(new_rows(1))[0]
    rows = [good if time is None else good | {"t": time} for time in times]
    if kind == "json":
        source: Any = JsonRows(rows, intake.table)
    else:
        texts = pl.DataFrame([row | {"t": str(row["t"])} for row in rows])
        source = arrow_rows(parse_arrow(stream_of(texts), 1 << 20), intake.table)
    found = intake.submit(source).result(60)
    assert (found.accepted, found.rows) == (1, ROWS + 1)
    wrong = [at for at, time in enumerate(times) if time is not None]
    assert [(one.row, one.reason) for one in found.quarantined] == [(at, "unparsable") for at in wrong]
    assert Quarantine(Table.open(intake.table.path)).reasons() == {"unparsable": len(wrong)}


def test_a_time_without_an_offset_is_no_time_of_a_table_of_instants(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", new_rows(5), zone=None)  # as made of times with an offset
    intake = Intake(table)
    naive = {"t": "2023-12-07T20:00:00", "y": 1.0}
    found = taken(intake, [naive, {"t": "2023-12-07T20:00:00Z", "y": 1.0}, naive])
    assert (found.accepted, [one.row for one in found.quarantined]) == (1, [0, 2])
    intake.close()


def test_a_row_later_than_the_lateness_is_flagged(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", new_rows(5), lateness_ns=10**9)
    intake = Intake(table)
    assert taken(intake, [{"t": "2023-11-15T00:30:00Z", "y": 7.0}]).late == 1
    intake.close()
    assert pl.read_delta(table.path).filter("_late")["y"].to_list() == [7.0]


def test_a_row_too_far_ahead_is_put_aside_and_stops_no_series(home: Path) -> None:
    def at(time: datetime) -> dict[str, Any]:
        return {"t": time.isoformat(), "y": 1.0}

    now, hour = datetime.now(UTC), timedelta(hours=1)
    intake = Intake(Table.open(home / "table"), 86400)
    found = taken(intake, [at(now + 26 * hour), *as_objects(new_rows(2)), {"t": "2199-01-01", "y": "abc"}])
    assert (found.accepted, found.late) == (2, 0)
    assert [(one.row, one.reason, one.column) for one in found.quarantined] == [
        (0, "future", "t"), (3, "unparsable", "y"),
    ]  # fmt: skip
    assert taken(intake, [at(now + 23 * hour)]).accepted == 1
    assert taken(intake, [at(now + 46 * hour)]).accepted == 1  # a simulated stream goes on
    intake.reach = 4 * 3600
    assert [taken(intake, [at(now + hours * hour)]).accepted for hours in (75, 73)] == [0, 1]
    assert intake.leaps >= 2 and intake.last_leap
    intake.close()
    again = Intake(Table.open(home / "table"), 86400)  # those in the quarantine are known after a restart
    assert again.leaps == 2 and "(--max-ahead)" in again.last_leap
    again.close()


def test_a_stream_without_dates_has_no_future(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.int64()), ("y", pa.float64())])
    table = Table.create(tmp_path / "steps", schema, TableMeta("t", clock=False, every_ns=1, time_format="step"))
    intake = Intake(table, 0)
    assert taken(intake, [{"t": 1, "y": 1.0}, {"t": 10**17, "y": 1.0}]).accepted == 2
    intake.close()


@pytest.mark.parametrize(("limit", "accepted"), [({}, 2), ({"max_ahead": 3600}, 1)])
def test_of_elapsed_time_the_limit_counts_from_the_newest_row_where_it_is_named(
    tmp_path: Path, limit: dict[str, Any], accepted: int
) -> None:
    ticks = pl.DataFrame({"t": range(300), "y": [float(at % 7) for at in range(300)]})
    ticks.write_csv(tmp_path / "a.csv")
    given = {
        "source": (str(tmp_path / "a.csv"),),
        "table": str(tmp_path / "t"),
        "time": "t",
        "time_format": "elapsed-s",
    }
    ingest(IngestConfig.read(given))
    run(tmp_path / "t", tmp_path / "c", season=None)
    with serving(ServeConfig.read({"checkpoint": [str(tmp_path / "c")], **limit})) as service:
        (intake,) = service.intakes.values()
        assert taken(intake, [{"t": 300, "y": 1.0}, {"t": 99_999_999, "y": 2.0}]).accepted == accepted


def test_known_inputs_may_come_ahead_by_the_horizon(home: Path) -> None:
    for name, reach in (("known", 4 * 3600), ("plain", 3600)):
        with served(home, name) as service:
            (intake,) = service.intakes.values()
            assert (intake.reach, intake.max_ahead) == (reach, 86400)


def test_json_and_arrow_make_the_same_rows(home: Path, tmp_path: Path) -> None:
    rows = new_rows(30).with_columns(y=pl.when(pl.int_range(30) == 3).then(None).otherwise("y"))
    shutil.copytree(home / "table", tmp_path / "other")
    tables = []
    for path, kind in ((home / "table", "json"), (tmp_path / "other", "arrow")):
        intake = Intake(Table.open(path))
        table = intake.table
        if kind == "json":
            source: Any = JsonRows(parse_json(json.dumps(as_objects(rows)).encode()), table)
        else:
            source = arrow_rows(parse_arrow(stream_of(rows.drop("x")), 1 << 20), table)
        assert intake.submit(source).result(60).accepted == 30
        intake.close()
        tables.append(pl.concat(pl.DataFrame(pl.from_arrow(c.rows)) for c in Table.open(path).read({"_seq": ROWS})))
    assert_frame_equal(tables[0].drop("x"), tables[1].drop("x"))
    assert tables[1]["x"].null_count() == 30  # a column that was not sent


def stream_of(rows: pl.DataFrame, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    table = rows.to_arrow(**options)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "body JSON"),
        (b'{"y": 1}', "rows"),
        (b'{"rows": [{"y": 1}, 2]}', "rows[1]"),
        (b"[" * 100_000, "body"),
    ],
)
def test_what_is_no_list_of_rows_is_refused(body: bytes, says: str) -> None:
    with pytest.raises(DataError, match=naming(says)):
        parse_json(body)


def test_wrong_columns_and_times_are_refused_with_their_place(intake: Intake) -> None:
    with pytest.raises(SchemaError, match=naming("rows[1].yy")) as caught:
        JsonRows([{"y": 1.0}, {"yy": 1.0}, {"zz": 1.0}, {"yy": 1.0}], intake.table)
    assert "'y'" in caught.value.hint
    with pytest.raises(DataError, match=naming("'t' soon")):
        taken(intake, [{"t": "soon", "y": 1.0}])
    with pytest.raises(DataError):
        parse_arrow(b"no stream", 1000)
    rows = pl.DataFrame({"t": ["x" * 1000] * 1000})
    for kind in (rows, rows.with_columns(pl.col("t").cast(pl.Categorical))):  # text that is there once
        with pytest.raises(DataError, match=naming("body")):
            parse_arrow(stream_of(kind), 100_000)


def test_requests_at_the_same_time_and_another_writer_lose_nothing(intake: Intake, home: Path) -> None:
    rows, other = as_objects(new_rows(200)), Table.open(home / "table")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda at: taken(intake, rows[at : at + 10]), [*range(0, 200, 5), *range(0, 100, 5)]))
        strange = new_rows(3, ROWS + 300).to_arrow().cast(pa.schema(other.schema.remove(0)))
        assert other.append(strange, app_id="other", n=1)
    assert sum(one.accepted for one in found) == 200
    assert sum(one.duplicates for one in found) == 10 * 60 - 5 - 200
    assert Table.open(home / "table").rows == ROWS + 203


@pytest.mark.slow
@pytest.mark.parametrize("model", ["linear", pytest.param("auto", marks=pytest.mark.slow)])
def test_it_learns_as_the_command_line_does(home: Path, model: str) -> None:
    options = {"model": model, **LINE}
    if model == "auto":
        run(home / "table", home / "auto", **options)
    name = "plain" if model == "linear" else "auto"
    shutil.copytree(home / name, home / "straight")
    rows = as_objects(new_rows(100))
    with served(home, name) as service:
        host = service.hosts[name]
        intake = service.intake(host)
        assert host.rows == ROWS
        for at in (0, 1, 30, 31, 90):
            intake.submit(JsonRows(rows[at : at + 60], intake.table)).result(60)
        wait_for(lambda: host.rows == ROWS + 100)
        assert host.view is not None
        shown = json.loads(host.view.forecast("json", 3, (80.0,), (0.5,)))["forecast"]
        scores = json.loads(host.view.scores())
    own = run(home / "table", home / "straight", **options)
    one, two = (checkpoint.read(home / part) for part in (name, "straight"))
    assert (one.rows, state_digest(one)) == (two.rows, state_digest(two))
    assert one.manifest["fingerprint"] == two.manifest["fingerprint"]
    frame = load(home / "straight").forecast(3, [80.0], quantiles=[0.5]).frame
    prefix = frame.columns[3]
    assert [row[f"{prefix}-hi-80"] for row in shown] == frame[f"{prefix}-hi-80"].to_list()
    assert (scores["rmse"], scores["scored"]) == (own["rmse"], own["scored"])


def test_two_checkpoints_learn_from_one_table(home: Path) -> None:
    with served(home, "plain", "known") as service:
        assert len(service.intakes) == 1
        intake = service.intake(service.hosts["known"])
        taken(intake, as_objects(new_rows(10)))
        wait_for(lambda: all(host.rows == ROWS + 10 for host in service.hosts.values()))
        view = service.hosts["known"].view
        assert view is not None
        future = new_rows(4, ROWS + 10).select("t", "k").to_arrow()
        with pytest.raises(UsageError):
            view.forecast("json", None, None, None)
        assert len(json.loads(view.forecast("json", None, None, None, future, 1))["forecast"]) == 4
        with pytest.raises(StateError, match=naming("another process")), serving(config_of(home)):
            pass


def test_what_cannot_be_served_is_refused(home: Path, tmp_path: Path) -> None:
    run(home / "table", home / "batch", model="linear", online=False, season=(), **_batch())
    make_table(tmp_path / "strange", new_rows(50))
    cases = [(config_of(home, "batch"), StateError), (config_of(home, "none"), StateError)]
    cases += [(config_of(home, "plain", table=[str(tmp_path / "strange"), str(home / "table")]), UsageError)]
    cases += [(config_of(home, "plain", "plain"), UsageError)]
    for config, kind in cases:
        with pytest.raises(kind), serving(config):
            pass
    assert not (home / "none").exists()


def _batch() -> dict[str, Any]:
    return {"test_tail": 0.2, "warmup": None, "checkpoint_every": None}
