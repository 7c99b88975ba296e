"""`streamgp forecast --paths` and `--plug-in`: what they print and write, and with which codes they fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.cli.conftest import World, run
from tests.words import names

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def one(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a linear model of one step."""
    home = tmp_path_factory.mktemp("one") / "c"
    result = run(*world.line(checkpoint=home, model="linear", horizon=1, season=1, warmup=300, tracking_uri="none"))
    assert result.exit_code == 0, result.stderr
    return home


def document(*words: object) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_sample_paths_as_json_and_files(one: Path, tmp_path: Path) -> None:
    files = {"output": tmp_path / "f.parquet", "samples": tmp_path / "s.parquet", "plot": tmp_path / "f.png"}
    words = ["forecast", "--checkpoint", one, "--horizon", 30, "--paths", 50, "--seed", 3]
    found = document(*words, *(word for name, path in files.items() for word in (f"--{name}", path)))
    assert len(found["forecast"]) == 30 and found["forecast"][0]["linear-std-latent"] is None
    assert all(found[name] == str(path) and path.stat().st_size for name, path in files.items())
    assert pl.read_parquet(files["output"])["linear"].to_list() == [row["linear"] for row in found["forecast"]]
    assert pl.read_parquet(files["samples"])["path"].n_unique() == 50
    again = document(*words)
    assert again["forecast"] == found["forecast"] and again["samples"] is None
    assert document(*words[:-1], 4)["forecast"] != found["forecast"]


def test_plug_in_as_a_table(one: Path) -> None:
    result = run("forecast", "--checkpoint", one, "--horizon", 60, "--plug-in")
    assert result.exit_code == 0, result.stderr
    assert "hi-95" in result.stdout and names(result.stdout, "12")


@pytest.mark.parametrize(
    ("words", "says", "hints"),
    [
        (["--horizon", 9], "9 1", "--paths"),
        (["--horizon", 9, "--paths", 50, "--plug-in"], "", "--help"),
        (["--horizon", 9, "--paths", 1], "--paths", "--help"),
        (["--samples", "s.parquet"], "--samples", "--help"),
        (["--horizon", 9, "--paths", 20], "20", "--paths 39"),
        (["--paths", 50, "--samples", "s.docx"], "s.docx", "s.parquet"),
    ],
)
def test_what_does_not_fit_is_a_usage_error(one: Path, words: list[object], says: str, hints: str) -> None:
    result = run("forecast", "--checkpoint", one, *words, "--json")
    failure = json.loads(result.stderr)
    assert result.exit_code == failure["code"] == 2
    assert names(failure["message"], says) and names(failure["hint"], hints)


def test_models_of_several_steps_and_without_functions(world: World, tmp_path: Path) -> None:
    result = run("forecast", "--checkpoint", world.checkpoint, "--horizon", 9, "--paths", 50)
    assert result.exit_code == 2 and names(result.stderr, "3")
    assert run(*world.line(checkpoint=tmp_path / "c", horizon=1, known="w", tracking_uri="none")).exit_code == 0
    future = tmp_path / "w.csv"
    future.write_text("ds,w\n" + "".join(f"2020-02-07T{hour}:00:00,1\n" for hour in range(12, 20)))
    words = ["forecast", "--checkpoint", tmp_path / "c", "--future", future, "--horizon"]
    result = run(*words, 8, "--paths", 50)
    assert result.exit_code == 2 and names(result.stderr, "--plug-in linear")
    assert len(document(*words, 8, "--plug-in")["forecast"]) == 8
    result = run(*words, 9, "--plug-in")
    assert result.exit_code == 3 and names(result.stderr, "w 9 2020-02-07 20:00:00")
