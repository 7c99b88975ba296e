"""The commands, each run as a user runs it: what is printed, what is written, how it goes on."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from mlflow import MlflowClient

from streamgp import registry
from tests.forked import start
from tests.pipelines.worlds import frame_of, make_table

from .conftest import LINE, ROWS, World, run, write_rows

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SUMMARY = {
    "run_id", "rows", "rmse", "mae", "nlpd", "crps", "mase", "coverage", "raw_coverage", "width", "steps", "seconds",
    "rows_per_second", "update_ms", "peak_mb", "checkpoint", "offset", "table_version",
}  # fmt: skip


def document(result: Any) -> dict[str, Any]:
    """Standard output as the one JSON document that it must be; NaN and infinity are no JSON."""
    assert result.exit_code == 0, result.stderr

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    found = json.loads(result.stdout, parse_constant=refuse)
    assert isinstance(found, dict) and result.stdout.count("\n") == 1
    return found


def test_ingest_takes_each_row_once(world: World, tmp_path: Path) -> None:
    source, table = tmp_path / "a.csv", tmp_path / "table"
    write_rows(source, 0, 50)
    first = document(run("ingest", source, "--table", table, "--every", "1h", "--json"))
    assert first["rows"] == first["added"] == 50
    again = document(run("ingest", source, "--table", table, "--json"))
    assert (again["rows"], again["added"]) == (50, 0)
    write_rows(source, 50, 10)
    dry = run("ingest", source, "--table", table, "--dry-run").stdout
    assert re.search(r"^  would_add +10$", dry, re.M) and " added" not in dry
    result = run("ingest", source, "--table", table)
    assert result.exit_code == 0 and "a.csv" in result.stdout and "10" in result.stdout
    assert document(run("describe", "--table", table, "--json"))["rows"] == 60


def test_describe_shows_a_table_and_a_checkpoint(world: World) -> None:
    table = document(run("describe", "--table", world.table, "--json"))
    assert table["rows"] == ROWS and table["gaps"] == 0 and table["interval"]["declared"] == 3600
    state = document(run("describe", "--checkpoint", world.checkpoint, "--json"))
    assert state["model"] == "seasonal_naive" and state["parts_mb"]["ledger"] > 0
    for words in (["--table", world.table], ["--checkpoint", world.checkpoint]):
        page = run("describe", *words)
        assert page.exit_code == 0 and page.stdout


def test_models_lists_models_and_options(world: World) -> None:
    names = [entry["name"] for entry in document(run("models", "--json"))["models"]]
    assert {"linear", "persistence", "seasonal_naive", "svdgp"} <= set(names)
    for name in names:
        for option in document(run("models", name, "--json"))["options"]:
            assert set(option) == {"option", "part", "type", "default", "meaning"}
            assert option["meaning"] and option["type"], f"{name}: {option['option']} does not say what it is"
    page = run("models", "svdgp")
    assert page.exit_code == 0 and "basis" in page.stdout and "1,024" in page.stdout


def test_models_lists_the_parts_to_choose_from_and_their_options() -> None:
    listed = document(run("models", "svdgp", "--json"))["options"]
    (choice,) = [option for option in listed if option["option"] == "encoder"]
    assert choice["type"] == "one of gru, identity, lstm, lstm_peephole, mlp, rnn" and choice["default"] == "identity"
    hidden = {option["part"]: option for option in listed if option["option"] == "encoder.hidden"}
    assert set(hidden) == {"gru", "lstm", "lstm_peephole", "mlp", "rnn"} and hidden["mlp"]["default"] == 64
    listed = document(run("models", "gp_narx", "--json"))["options"]
    found = {(option["option"], option["part"]): option for option in listed}
    assert found["kernel.lengthscale", "squared_exponential"]["default"] == 0.5, "as in the model, not as in the part"
    assert found["kernel.parts", "sum"]["type"] == "tuple of kernels, ..."
    assert found["kernel.parts", "sum"]["default"] == ["squared_exponential", "locally_periodic"]


def named(*words: str) -> list[str]:
    """The options that a page lists."""
    lines = run("models", *words).stdout.splitlines()
    first = [line.split()[0] for line in lines if line[:1] == " " and line[1:2].isalpha()]
    return first[1:]  # the first line is the table's head


@pytest.mark.sampled
@pytest.mark.parametrize("model", registry.names("models"))
def test_a_page_of_a_model_leaves_options_of_parts_to_the_pages_of_parts(model: str) -> None:
    few, every = named(model), named(model, "--all")
    assert len(few) <= 10 and set(few) <= set(every) and len(every) == len(set(every))
    assert "likelihood.noise" not in every and "svdgp.basis" not in every
    on_a_grid = model.startswith("gp_") or model == "wiski"
    assert ("kernel.lengthscale" in every) == on_a_grid, "its default is another than the kernel's"


def test_options_of_parts_are_listed_once() -> None:
    assert named("encoders").count("seed") == 1 and "hidden" in named("encoders")
    assert {"lengthscale", "nu", "separable"} <= set(named("kernels"))
    listed = document(run("models", "kernels", "--json"))["options"]
    assert {one["part"] for one in listed if one["option"] == "nu"} == {"matern"}


def test_a_dry_run_writes_nothing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", *LINE, "--table", world.table, "--dry-run"]
    planned = document(run(*words, "--json"))
    assert planned["columns_forecast"] == 3 and planned["rows"] == ROWS and planned["device"] in ("cpu", "cuda")
    page = run(*words)
    assert page.exit_code == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_train_prints_its_summary_again_and_tracks_one_run(world: World, tmp_path: Path) -> None:
    line = world.line(checkpoint=tmp_path / "c", predictions=tmp_path / "p.parquet", experiment="twice")
    first = document(run(*line, "--json"))
    assert set(first) >= SUMMARY and first["rows"] == ROWS and len(first["steps"]) == 3
    again = document(run(*line, "--json"))
    assert (first["new_rows"], again["new_rows"]) == (ROWS, 0)
    changing = {"seconds", "rows_per_second", "update_ms", "peak_mb", "warnings", "new_rows"}
    assert {k: v for k, v in again.items() if k not in changing} == {
        k: v for k, v in first.items() if k not in changing
    }
    counted = first["forecasts"]
    assert counted["all"] == 3 * ROWS == counted["scored"] + sum(counted["skipped"].values())
    assert counted["scored"] == first["scored"] and first["warmup"] == 200
    page = run(*line)
    assert f"{counted['scored']:,}" in page.stdout and f"{counted['skipped']['warm_up']:,}" in page.stdout
    assert page.exit_code == 0 and first["run_id"] in page.stdout
    assert f"a micro-batch of up to {first['batch']} rows" in page.stdout and first["update_ms"]["p50"] > 0.0
    assert "median forecast" in page.stdout and first["mae"] == first["mean_mae"]
    assert first["naive_mae"] is None or "lower" in page.stdout or "higher" in page.stdout
    assert page.stderr  # progress: plain lines, not on standard output

    client = MlflowClient(world.uri, world.uri)
    runs = client.search_runs([client.get_experiment_by_name("twice").experiment_id])
    assert [found.info.run_id for found in runs] == [first["run_id"]]
    assert runs[0].info.status == "FINISHED" and runs[0].data.params["horizon"] == "3"
    steps = [point.step for point in client.get_metric_history(first["run_id"], "overall/rmse")]
    assert steps == [ROWS]
    pictures = {entry.path for entry in client.list_artifacts(first["run_id"], "plots")}
    assert "plots/error_by_step.png" in pictures

    scored = pl.read_parquet(tmp_path / "p.parquet")
    error = (scored["y"] - scored["seasonal_naive"]).pow(2).mean()
    assert math.isclose(math.sqrt(float(error)), first["rmse"], rel_tol=1e-9)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json"])
def test_forecast_writes_its_file_and_picture(world: World, tmp_path: Path, suffix: str) -> None:
    output, picture = tmp_path / f"f.{suffix}", tmp_path / "f.png"
    words = ["forecast", "--checkpoint", world.checkpoint, "--table", world.table, "--horizon", 2, "--level", "50,90"]
    page = run(*words, "--output", output, "--plot", picture)
    assert page.exit_code == 0 and "lo-50" in page.stdout and str(output) in page.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    read = {"parquet": pl.read_parquet, "csv": pl.read_csv, "json": pl.read_json}[suffix]
    frame = read(output)
    assert frame.height == 2 and "seasonal_naive-hi-90" in frame.columns and "seasonal_naive-raw-lo-50" in frame.columns
    found = document(run(*words, "--json"))
    assert [row["seasonal_naive"] for row in found["forecast"]] == frame["seasonal_naive"].to_list()


def test_forecast_takes_the_known_future(world: World, tmp_path: Path) -> None:
    future = tmp_path / "future.csv"
    write_rows(future, ROWS, 3)
    found = document(run("forecast", "--checkpoint", world.known, "--future", future, "--json"))
    assert [row["ds"] for row in found["forecast"]] == [
        "2020-02-07T12:00:00",
        "2020-02-07T13:00:00",
        "2020-02-07T14:00:00",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupted_run_ends_with_its_code_and_goes_on(world: World, tmp_path: Path, number: int) -> None:
    words = [str(word) for word in world.line(checkpoint=tmp_path / "c", experiment=f"stopped-{number}")]
    process = start(*words, "--follow", "--json")
    until = time.monotonic() + 400
    while not list((tmp_path / "c").glob("0*")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 128 + number, err
    assert out == "" and json.loads(err.splitlines()[-1])["error"] == "Interrupted"
    identity = json.loads((tmp_path / "c" / "run.json").read_text())
    client = MlflowClient(world.uri, world.uri)
    assert client.get_run(identity["run_id"]).info.status == "KILLED"

    gone_on = document(run(*words, "--json"))
    straight = document(run("describe", "--checkpoint", world.checkpoint, "--json"))
    assert gone_on["rows"] == ROWS and gone_on["run_id"] == identity["run_id"]
    assert straight["rows"] == 200 + (ROWS - 200) // 64 * 64  # micro-batches of 64 end where the warm-up does
    assert client.get_run(identity["run_id"]).info.status == "FINISHED"


def test_on_a_terminal_progress_is_a_bar(tmp_path: Path, environment: dict[str, str]) -> None:
    import pty

    source = tmp_path / "a.csv"
    write_rows(source, 0, 50)
    code = "from streamgp_cli.app import main; main()"
    words = ["ingest", str(source), "--table", str(tmp_path / "table")]
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code, *words], env=environment, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    try:
        while part := os.read(master, 4096):
            shown += part
    except OSError:  # the other side has ended
        pass
    os.close(master)
    assert process.wait(400) == 0
    assert b"50" in shown and b"\x1b[" in shown


def test_a_registered_model_forecasts_without_its_checkpoint(world: World) -> None:
    name = "table-y-h3"
    asked = ("--model-uri", f"models:/{name}/1", "--tracking-uri", world.uri, "--json")
    version = MlflowClient(world.uri).get_model_version(name, "1")
    found = document(run("forecast", *asked))
    assert len(found["forecast"]) == 3 and found["model"] == version.tags["model"]
    for wrong in ("models:/nothing@champion", f"models:/{name}/99"):
        assert run("forecast", "--model-uri", wrong, "--tracking-uri", world.uri).exit_code == 2
    assert run("forecast", *asked, "--checkpoint", world.checkpoint).exit_code == 2
    assert run("forecast").exit_code == 2


def test_several_targets_have_a_line_each(world: World, tmp_path: Path) -> None:
    rows = frame_of(400).select("t", "x", y=pl.col("y") * 1000)
    table = make_table(tmp_path / "t", rows)
    line = ["train", "--online", "--table", table.path, "--target", "x,y", "--lags", 4, "--horizon", 2, "--warmup", 100]
    line += ["--model", "persistence", "--tracking-uri", "none", "--checkpoint", tmp_path / "c"]
    scores = document(run(*line, "--json"))["targets"]
    page = run(*line).stdout
    for name, own in scores.items():
        (shown,) = [one for one in page.splitlines() if one.split()[:1] == [name]]
        assert f"{own['coverage']['95']:.4}" in shown and "coverage 95 %" in page
