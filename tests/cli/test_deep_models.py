"""Models behind an encoder from the command line: what they print, refuse and simulate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import World, run
from tests.words import names

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's own use of SQLAlchemy
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SMALL = ["encoder.hidden=6", "solver.grid=10", "epochs=2", "online.window=192"]
ONE: dict[str, Any] = {"model": "gp_lstm", "horizon": 1, "season": 1}


def line(world: World, home: Path, *sets: str, **options: Any) -> list[object]:
    """A train command with small parts."""
    words = world.line(checkpoint=home, tracking_uri="none", **ONE | options)
    return [*words, *(word for option in (*SMALL, *sets) for word in ("--set", option))]


@pytest.fixture(scope="module")
def trained(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a gp_lstm of one step."""
    home = tmp_path_factory.mktemp("deep") / "c"
    result = run(*line(world, home))
    assert result.exit_code == 0, result.stderr
    return home


def test_the_page_of_a_model_lists_every_part_s_options() -> None:
    page = json.loads(run("models", "gp_lstm", "--json").stdout)
    options = {option["option"] for option in page["options"]}
    assert {"encoder.hidden", "kernel.nu", "solver.rank", "training.scheme", "rebuild", "draws"} <= options
    assert all(option["meaning"] for option in page["options"])


def test_described(trained: Path) -> None:
    found = json.loads(run("describe", "--checkpoint", trained, "--json").stdout)
    assert found["model"] == "gp_lstm" and found["set"]["encoder.hidden"] == "6" and found["total_mb"] < 1


def test_simulated(trained: Path) -> None:
    words = ["forecast", "--checkpoint", trained, "--horizon", 60, "--paths", 50, "--json"]
    found = json.loads(run(*words).stdout)["forecast"]
    assert len(found) == 60 and found[0]["gp_lstm-lo-95"] < found[0]["gp_lstm"] < found[0]["gp_lstm-hi-95"]
    result = run("forecast", "--checkpoint", trained, "--horizon", 60)
    assert result.exit_code == 2 and "--paths" in result.stderr


def test_another_kernel_is_another_run(world: World, trained: Path) -> None:
    result = run(*line(world, trained, "kernel=matern"))
    assert result.exit_code == 4 and names(result.stderr, "kernel matern --fresh")


@pytest.mark.parametrize(
    ("sets", "says", "hints"),
    [
        (["encoder=identity"], "identity", "gp_lstm"),
        (["hidden=8"], "hidden", "encoder.hidden"),
        (["kernel=mattern"], "mattern", "gp_lstm"),
        (["kernel.nu=1.5"], "kernel.nu", "matern"),
        (["solver=kiss", "encoder.width=5"], "1 3", "solver=exact"),
        (["training.scheme=submatrix"], "", "solver=exact"),
        (["kernel=linear"], "Toeplitz", "solver=exact"),
        (["draws=4"], "", "encoder.dropout"),
        (["mode=regression"], "", "--inputs"),
        (["target=season"], "", "--season"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_does_not_go_together(world: World, tmp_path: Path, sets: list[str], says: str, hints: str) -> None:
    words = [word for option in sets for word in ("--set", option)]
    result = run(*world.line(checkpoint=tmp_path / "c", **ONE), *words, "--dry-run", "--json")
    failure = json.loads(result.stderr)
    assert result.exit_code == failure["code"] == 2
    assert names(failure["message"], says) and names(failure["hint"], hints)
    assert not (tmp_path / "c").exists()


def test_a_recurrent_encoder_needs_a_past(world: World, tmp_path: Path) -> None:
    result = run(*line(world, tmp_path / "c", lags=0, inputs="w"), "--dry-run")
    assert result.exit_code == 2 and names(result.stderr, "--lags gp_narx")
