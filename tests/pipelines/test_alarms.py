"""Alarms of a run: in its files, after a restart, passed on, in Python; and nothing of them where nobody asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import streamgp
from streamgp.errors import StateError, UsageError
from streamgp.forecasting.alarms import KINDS
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import ReportConfig, TrainConfig
from streamgp_pipelines.learning.newest import JUDGED
from streamgp_pipelines.notify import notify
from streamgp_pipelines.reporting.report import report
from streamgp_pipelines.reporting.run import open_run
from streamgp_pipelines.training.dry_run import plan
from streamgp_pipelines.training.train import train
from tests.pipelines.reports import figure
from tests.pipelines.worlds import assert_same_state, frame_of, make_table, run, same_bits, tensors_of

OPTIONS: dict[str, Any] = {"model": "linear", "horizon": 2, "season": 24, "known": "k", "lags": 4, "warmup": 150}
OPTIONS |= {"batch": 128}
RATE = {"alarm_rate": 0.02}


def stuck(rows: int = 700, series: tuple[str, ...] = ()) -> pl.DataFrame:
    """A stream whose sensor is stuck at the end."""
    data = frame_of(rows, series)
    late = pl.int_range(pl.len()) >= rows - 20
    return data.with_columns(y=pl.when(late).then(pl.lit(3.25)).otherwise("y"))


def test_a_report_has_the_rows_behind_the_last_full_micro_batch(tmp_path: Path) -> None:
    make_table(tmp_path / "table", stuck())
    run(tmp_path / "table", tmp_path / "run", predictions=tmp_path / "p.parquet", **OPTIONS, **RATE)
    found = open_run(tmp_path / "run").scored
    assert found is not None and found.collect().height == pl.read_parquet(tmp_path / "p.parquet").height
    page = report(ReportConfig.read({"checkpoint": tmp_path / "run", "output": tmp_path / "r.html"}))
    assert "Forecasts" in page.sections and "Alarms" in page.sections


@pytest.mark.sampled
@pytest.mark.parametrize("level", [0.0, 7.25])
def test_a_constant_raises_no_alarm_and_no_warning(level: float, tmp_path: Path) -> None:
    """A stuck value is one that varied before. Masses of a target without spread divided by it."""
    make_table(tmp_path / "table", frame_of(2500).with_columns(y=pl.lit(level)))
    summary = run(tmp_path / "table", tmp_path / "run", model="linear", season=(), alarm_rate=0.001)
    assert {kind: summary["alarms"][kind] for kind in KINDS} == dict.fromkeys(KINDS, 0)


def test_a_report_marks_the_rows_that_raised_an_alarm(tmp_path: Path) -> None:
    """By kind, at their values, with the bands one step ahead: those of --predictions; --alarms has the listed ones."""
    make_table(tmp_path / "table", stuck(series=("a", "b")))
    files = {name: tmp_path / f"{name}.parquet" for name in ("predictions", "alarms")}
    summary = run(tmp_path / "table", tmp_path / "run", **files, **OPTIONS, **RATE)
    report(ReportConfig.read({"checkpoint": tmp_path / "run", "output": tmp_path / "r.html"}))
    page = (tmp_path / "r.html").read_text()
    scored = pl.read_parquet(files["predictions"]).filter(pl.col("linear-p").is_not_null())
    marked = 0
    for name in ("a", "b"):
        own = scored.filter(unique_id=name).sort("ds").tail(JUDGED)
        low, high, value, *kinds = figure(page, f"Newest values and alarms of {name}")["data"]
        for trace, column in ((low, "linear-lo-95"), (high, "linear-hi-95"), (value, "y")):
            assert trace["y"] == pytest.approx(own[column].to_list(), rel=1e-5)
        for trace in kinds:
            hit = own.filter(pl.col("linear-alarm").str.contains(trace["name"]))
            assert trace["x"] == hit["ds"].dt.strftime("%Y-%m-%d %H:%M").to_list()
            assert trace["y"] == pytest.approx(hit["y"].to_list(), rel=1e-5)
            marked += hit.height
    assert {trace["name"] for trace in kinds} == set(KINDS) and marked > 2
    listed = page[page.index("<h3>Newest alarms</h3>") :]
    newest = pl.read_parquet(files["alarms"]).sort("ds", maintain_order=True).tail(1)
    assert listed.count("</tr>", 0, listed.index("</table>")) == 1 + min(pl.read_parquet(files["alarms"]).height, 20)
    assert newest["ds"].dt.strftime("%Y-%m-%d %H:%M")[0] in listed
    assert f"Anomaly {summary['alarms']['anomaly']:,}" in page


@pytest.mark.parametrize("flag", ["predictions", "alarms"])
@pytest.mark.parametrize("dry", [False, True])
def test_parquet_is_written_under_its_own_suffix(tmp_path: Path, flag: str, dry: bool) -> None:
    make_table(tmp_path / "table", stuck(200))
    given = OPTIONS | RATE | {flag: tmp_path / "x.csv", "online": True}
    config = TrainConfig.read(given | {"table": tmp_path / "table", "target": "y", "checkpoint": tmp_path / "run"})
    with pytest.raises(UsageError, match="parquet"):
        plan(config) if dry else train(config, NoTracker)


def test_alarms_change_nothing_else(tmp_path: Path) -> None:
    make_table(tmp_path / "table", stuck())
    for name, more in (("without", {}), ("with", RATE)):
        run(tmp_path / "table", tmp_path / name, predictions=tmp_path / f"{name}.parquet", **OPTIONS, **more)
    plain, found = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("without", "with"))
    assert_frame_equal(plain, found.drop("linear-p", "linear-alarm"))
    left, right = tensors_of(tmp_path / "without"), tensors_of(tmp_path / "with")
    assert {name.split("/")[0] for name in right.keys() - left.keys()} == {"alarms", "silences"}
    assert all(same_bits(left[name], right[name]) for name in left if not name.startswith("newest/"))
    first = (found["ds"] - found["cutoff"]).dt.total_hours() == 1
    assert (found["linear-p"].is_null() == ~first).all()


@pytest.mark.slow
def test_a_run_that_is_stopped_and_goes_on_raises_the_same(tmp_path: Path) -> None:
    make_table(tmp_path / "table", stuck(series=("a", "b")))
    files = {name: {part: tmp_path / f"{name}-{part}.parquet" for part in ("alarms", "predictions")} for name in "12"}
    once = run(tmp_path / "table", tmp_path / "1", **files["1"], **OPTIONS, **RATE)
    for rows in (130, 310, 600, None):
        again = run(tmp_path / "table", tmp_path / "2", max_rows=rows, **files["2"], **OPTIONS, **RATE)
    assert_same_state(tmp_path / "1", tmp_path / "2")
    for part in files["1"]:
        assert_frame_equal(pl.read_parquet(files["1"][part]), pl.read_parquet(files["2"][part]))
    assert once["alarms"] == again["alarms"]
    raised = pl.read_parquet(files["1"]["alarms"])
    everything = pl.read_parquet(files["1"]["predictions"])
    assert_frame_equal(raised, everything.filter(pl.col("linear-alarm").is_not_null()))
    counted = raised["linear-alarm"].str.split("+").explode().value_counts()
    assert dict(counted.rows()) == {kind: once["alarms"][kind] for kind in dict(counted.rows())}
    assert once["alarms"]["stuck"] >= 2  # both series


def test_a_data_frame_raises_what_a_table_does(tmp_path: Path) -> None:
    data = stuck()
    make_table(tmp_path / "table", data)
    run(tmp_path / "table", tmp_path / "run", alarms=tmp_path / "alarms.parquet", **OPTIONS, **RATE)
    options = {name: value for name, value in OPTIONS.items() if name != "horizon"}
    forecaster = streamgp.Forecaster("y", horizon=2, every="1h", **options, **RATE)
    for at in range(0, len(data), 90):
        forecaster.learn(data.slice(at, 90))
    expected = pl.read_parquet(tmp_path / "alarms.parquet")
    assert forecaster.alarms["alarm"].to_list() == expected["linear-alarm"].to_list()
    assert forecaster.alarms["p"].to_list() == expected["linear-p"].to_list()
    plain = streamgp.Forecaster("y", every="1h", model="persistence", lags=4, batch=128).learn(data.head(200))
    with pytest.raises(StateError):
        _ = plain.alarms
    forecaster.save(tmp_path / "saved")
    later = data.tail(2).with_columns(pl.col("t").dt.offset_by("2h"), y=pl.Series([99.0, 10.0]))
    again = streamgp.load(tmp_path / "saved").learn(later)
    assert again.alarms.filter(pl.col("y") == 99.0)["p"].to_list()[-1] < 0.001


@contextmanager
def listening(codes: list[int]) -> Iterator[tuple[str, list[Any]]]:
    """A server on this machine that answers with these codes, the last one again and again."""
    got: list[Any] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            code = codes[min(len(got), len(codes)) - 1]
            self.send_response(code)
            if code == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook?token=secret", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_each_alarm_is_passed_on_once(tmp_path: Path) -> None:
    make_table(tmp_path / "table", stuck())
    told: list[Any] = []
    for rows in (400, 690, 695, None, None):
        with listening([200]) as (url, got):
            run(tmp_path / "table", tmp_path / "run", max_rows=rows, on_alarm=url, **OPTIONS, **RATE)
        assert len(got) <= 1
        told += [one for event in got for one in event["alarms"]]
    run(tmp_path / "table", tmp_path / "other", alarms=tmp_path / "alarms.parquet", **OPTIONS, **RATE)
    expected = pl.read_parquet(tmp_path / "alarms.parquet")
    assert [(one["alarm"], one["p"]) for one in told] == expected.select("linear-alarm", "linear-p").rows()


@pytest.mark.parametrize("where", ["false", "URL"])
def test_what_does_not_take_an_alarm_stops_nothing(
    tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_table(tmp_path / "table", stuck())
    with listening([404]) as (url, got):
        target = url if where == "URL" else where
        found = run(tmp_path / "table", tmp_path / "run", on_alarm=target, **OPTIONS, **RATE)
    assert found["rows"] == 700 and any("--on-alarm" in warning for warning in found["warnings"])
    assert "secret" not in capsys.readouterr().err + json.dumps(found, default=str)
    assert len(got) == (where == "URL")  # a request that is wrong is not repeated


def test_a_request_is_tried_again_and_follows_no_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgp_pipelines.notify.PAUSE", 0.01)
    with listening([503, 200]) as (url, got):
        assert notify(url, {"a": 1}) == "" and got == [{"a": 1}] * 2
    with listening([302]) as (url, got):
        assert "302" in notify(url, {}) and len(got) == 1
    assert f"{urlsplit(url).netloc} did not answer" in notify(url, {})  # nobody listens any more
    assert "secret" not in notify(url.replace("://", "://me:secret@"), {})


def test_a_command_has_no_shell_and_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert notify(f"tee '{tmp_path}/a b'", {"x": 1.5}) == ""
    assert json.loads((tmp_path / "a b").read_text()) == {"x": 1.5}
    assert notify(f"echo $(touch {tmp_path}/no); touch {tmp_path}/no", {}) == "" and not (tmp_path / "no").exists()
    monkeypatch.setattr("streamgp_pipelines.notify.COMMAND_SECONDS", 0.1)
    assert "0.1 s" in notify("sleep 5", {})


@pytest.mark.parametrize(
    "options",
    [
        {"alarms": "a.parquet"},
        {"on_alarm": "cat"},
        {"alarm_rate": 0.0},
        {"alarm_rate": 0.5},
        {"alarm_rate": 0.01, "online": False},
        {"alarm_rate": 0.01, "on_alarm": "ftp://example.org/secret"},
        {"alarm_rate": 0.01, "on_alarm": "no-such-command secret"},
        {"alarm_rate": 0.01, "on_alarm": "http:// secret"},
        {"alarm_rate": 0.01, "on_alarm": "cat 'secret"},
        {"alarm_rate": 0.01, "on_alarm": ""},
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as error:
        TrainConfig.read({"table": "t", "online": True} | options)
    assert "secret" not in error.value.message
