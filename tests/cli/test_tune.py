"""`streamgp tune` as a user runs it, and `streamgp train --init` after it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.words import names

from .conftest import ROWS, World, run
from .test_commands import document

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
LINE = ["--target=y", "--horizon=3", "--season=24", "--lags=4", "--rows=60", "--end=400"]


def words(world: World, output: Path, *more: str) -> list[str]:
    tuned = ["tune", "--table", str(world.table), "--tracking-uri", world.uri, *LINE]
    return [*tuned, "--output", str(output), *more]


def test_it_prints_what_it_found_and_the_next_line_runs(world: World, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    output = tmp_path / "my tuned.json"
    result = run(*words(world, output, "--known=w"))
    assert result.exit_code == 0, result.stderr
    for said in ("lengthscale", "season(y)", str(output)):
        assert said in result.stdout
    (line,) = (row for row in result.stdout.splitlines() if row.strip().startswith("next"))
    command = shlex.split(line.partition("streamgp ")[2])
    assert command[0] == "train" and command[command.index("--init") + 1] == str(output)
    more = ["--max-rows=500", "--warmup=200", "--batch=64", "--set", "basis=32", "--tracking-uri", "none"]
    trained = run(*command, *more, "--checkpoint", tmp_path / "c")
    assert trained.exit_code == 0, trained.stderr
    assert "--score-from 400" in " ".join(command)
    (run_id,) = (row.split()[-1] for row in result.stdout.splitlines() if "MLflow run" in row)
    client = MlflowClient(world.uri)
    found = client.get_run(run_id)
    assert found.data.params["method"] == "ml" and found.data.metrics["loss"] < 2
    assert [one.path for one in client.list_artifacts(run_id)] == [output.name]
    assert len(client.get_metric_history(run_id, "loss")) > 1


@pytest.mark.slow
def test_a_gp_behind_a_net_starts_from_the_file(world: World, tmp_path: Path) -> None:
    output = tmp_path / "t.json"
    assert run(*words(world, output)).exit_code == 0
    line = ["train", "--online", "--table", world.table, *LINE[:4], "--max-rows=200", "--warmup=100"]
    line += ["--model=gp_narx", "--init", output, "--tracking-uri=none", "--set", "encoder.hidden=8"]
    found = document(run(*line, "--checkpoint", tmp_path / "c", "--json"))
    assert found["rows"] == 200 and found["crps"] > 0
    both = run(*line, "--set", "kernel.lengthscale=2", "--checkpoint", tmp_path / "d", "--json")
    assert both.exit_code == 2 and names(json.loads(both.stderr)["message"], "--init kernel")


def test_json_is_one_document_and_the_file_another(world: World, tmp_path: Path) -> None:
    output = tmp_path / "t.json"
    method = ["--method=cv-implicit", "--set", "kernel=matern", "--set", "implicit.iterations=5", "--seed=3"]
    found = document(run(*words(world, output, *method, "--json")))
    assert found["method"] == "cv-implicit" and found["rows"] == 60 and found["kernel"]["name"] == "matern"
    assert [one["channel"] for one in found["channels"]] == ["y", "season(y)", "season(y)"]
    assert [one["when"] for one in found["channels"]] == ["past", "past", "ahead"]
    told = json.loads(output.read_text())
    assert told["found"]["seed"] == 3 and told["readable"]["channels"] == found["channels"]
    assert "--model qsgp" in found["next"] and found["capped"]


def test_a_dry_run_writes_nothing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["tune", "--table", world.table, *LINE, "--dry-run"]
    planned = document(run(*line, "--json"))
    assert planned["rows"] == ROWS and planned["rows_to_choose_from"] == 400 and planned["windows"] == 60
    assert planned["kernel"] == "squared_exponential" and planned["output"] == "tuned.json"
    assert run(*line).exit_code == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("method", "own"), [("ml", "ml.restarts"), ("cv-admm", "admm.rho"), ("cv-implicit", "implicit.folds")]
)
def test_options_are_listed(method: str, own: str) -> None:
    found = document(run("tune", "--method", method, "--options", "--json"))["options"]
    assert {own, "kernel", "kernel.nu", "target", "period"} <= {one["option"] for one in found}
    assert all(one["meaning"] and one["type"] for one in found)
    assert own in run("tune", "--method", method, "--options").stdout


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--method", "em"], 2, "--method"),
        (["--init", "none.json"], 2, "none.json"),
        (["--set", "admm.rho=5"], 2, "--set admm"),
        (["--set", "kernel.lengthscale=-1"], 2, "kernel.lengthscale"),
        (["--end", "8"], 3, "8"),
        (["--target", "empty"], 3, ""),
        (["--table", "nowhere"], 4, "nowhere"),
        (["--output", "/proc/none/t.json"], 2, "/proc/none"),
        (["--output", "."], 2, "--output"),
    ],
)
def test_errors_have_their_exit_code_and_a_hint(
    world: World, tmp_path: Path, more: list[str], code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*words(world, tmp_path / "t.json"), *more, "--json")
    assert result.exit_code == code and result.stdout == ""
    told = json.loads(result.stderr)
    assert names(told["message"], said) and told["hint"] and not list(tmp_path.iterdir())


def test_settings_come_from_a_file_too(world: World, tmp_path: Path) -> None:
    (tmp_path / "tune.toml").write_text(
        f'table = "{world.table}"\ntarget = "y"\nlags = 4\nrows = 40\nmethod = "cv-admm"\n'
        '[set]\nadmm.iterations = 3\nadmm.polish = 0\nkernel = "rational_quadratic"\n'
    )
    found = document(run("tune", "--config", tmp_path / "tune.toml", "--output", tmp_path / "t.json",
                         "--tracking-uri", world.uri, "--json"))  # fmt: skip
    assert (
        found["iterations"] == 3
        and found["capped"]
        and found["kernel"]["name"] == "rational_quadratic"
        and "alpha" in found["others"]
    )
