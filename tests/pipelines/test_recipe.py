"""A recipe is all that makes a learner: what it makes once, it makes again from its JSON."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from streamgp.forecasting.calibration import Calibration
from streamgp.transforms import Transform
from streamgp.windows.windows import WindowSpec
from streamgp_data import checkpoint
from streamgp_pipelines.learning.making import learner_of
from streamgp_pipelines.learning.recipe import Recipe, Schedule
from streamgp_pipelines.learning.restored import check_manifest, recipe_of
from tests.pipelines.worlds import frame_of, make_table, same_bits

ROOT = Path(__file__).parents[2]
MAKERS = {"learning/making.py", "learning/shard.py", "comparing/peers/peer.py"}
RECIPES = {
    "panel": Recipe.of("svdgp", {"basis": 8}, WindowSpec(targets=("y",), lags=3), Schedule(32, 64)),
    "fleet": Recipe.of(
        "linear", {}, WindowSpec(targets=("y",), series="s", time="t", fleet=True), Schedule(32, 64, score_from=99)
    ),
    "transformed": Recipe.of(
        "linear",
        {"decay": 0.5},
        WindowSpec(targets=("y",), transforms=(Transform("log", 0.0, 1.0, 1e-6),), seasons=(24,), season=24),
        Schedule(32, 64, score_time=10**18, grows=True),
        Calibration((80.0, 95.0), (0.1,), "median", lower=0.0, transformed=True),
        seed=7,
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_its_json(name: str) -> None:
    recipe = RECIPES[name]
    found = Recipe.from_json(json.loads(json.dumps(recipe.to_json())))
    assert found == recipe
    one, two = (learner_of(made).parts() for made in (recipe, found))
    assert one.keys() == two.keys()
    for part in one.keys() - {"clock"}:
        (mine, rest), (other, same) = one[part].state(), two[part].state()
        assert rest == same and all(same_bits(tensor, other[key]) for key, tensor in mine.items())


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{"model": "svdgp"}, {"alarm_rate": 0.01, "lower": 0.0}, {"score_from": "250"}])
def test_what_is_restored_has_the_recipe_of_the_run(tmp_path: Path, options: Mapping[str, Any]) -> None:
    from streamgp_pipelines import load
    from streamgp_pipelines.learning.session import open_session
    from tests.pipelines.worlds import config_of, run

    table = make_table(tmp_path / "t", frame_of(400))
    run(table, tmp_path / "c", **options)
    begun, gone_on = (open_session(config_of(table, tmp_path / home, **options)) for home in ("new", "c"))
    assert load(tmp_path / "c").learner.recipe == begun.learner.recipe == gone_on.learner.recipe
    assert torch.is_tensor(next(iter(gone_on.learner.model.state()[0].values())))


def test_a_checkpoint_from_before_series_had_units_is_read(tmp_path: Path) -> None:
    from streamgp_pipelines import load
    from tests.pipelines.worlds import run

    run(make_table(tmp_path / "t", frame_of(200)), tmp_path / "c")
    saved = checkpoint.read(tmp_path / "c")
    del saved.manifest["recipe"]["scale"]  # type: ignore[attr-defined, union-attr]
    check_manifest(saved)
    assert recipe_of(saved).scale == "all" and load(tmp_path / "c").learner.recipe.scale == "auto"


def test_learners_are_made_of_recipes_alone() -> None:
    made: set[str] = set()
    home = ROOT / "pipelines" / "streamgp_pipelines"
    for path in home.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if any(isinstance(call, ast.Name) and call.id.endswith(("Learner", "Buckets")) for call in calls):
            made.add(path.relative_to(home).as_posix())
    assert made - {"adapters/web/app.py"} == MAKERS  # there, Learner is what a page shows
