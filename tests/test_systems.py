"""The list of the papers' systems: no line leaves it, and what it says can be typed is built, learns and forecasts."""

from __future__ import annotations

import ast
import importlib.util
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import streamgp
from streamgp.errors import UsageError
from streamgp.papers.systems import System, systems
from streamgp_pipelines import fit_stream
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.assembly import model_settings
from streamgp_pipelines.config import TuneConfig
from streamgp_pipelines.tuning.methods import read_options
from streamgp_pipelines.tuning.tune import tune
from tests.pipelines.worlds import frame_of, make_table

ROOT = Path(__file__).parents[1]
LINES = [
    *("1", "1.1", "1.2", "1.3", "1.4"),
    *("2", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6"),
    *("3", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8"),
    *("4", "4.1", "4.2", "4.3", "4.4"),
    *("5", "5.1"),
]
"""All that was promised. It never gets shorter."""
ENTRIES = 79
"""Options of these lines, at least."""
ROWS, SCORED = 600, 300
HORIZON = 2
STREAM: dict[str, Any] = {"season": 24, "lags": 6, "inputs": "x", "warmup": ROWS - SCORED, "time": "t"}
WORSE = 1.5
"""Times the persistence's mean absolute error that a forecast may have."""
QUICK = {"--model svdgp", "--model finite_rkhs"}
"""What the quick tests walk: most others take more than a second."""

THERE = [one for one in systems() if one.state != "missing"]
TYPED = [one for one in THERE if one.command == "train"]
TUNED = [one for one in THERE if one.command == "tune"]


def named(one: System) -> str:
    return f"{one.line} {one.name}"


def test_no_line_leaves_the_list() -> None:
    assert sorted({one.line for one in systems()}) == LINES
    assert len(systems()) >= ENTRIES
    assert len({one.type for one in systems()}) == len(systems())


def test_where_and_law_are_there() -> None:
    for one in THERE:
        assert (ROOT / one.where).is_file(), named(one)
        file, _, name = one.law.partition("::")
        assert name.partition("[")[0] in functions(ROOT / file), f"{named(one)}: {one.law}"
        assert one.command or (ROOT / shlex.split(one.type)[1]).is_file(), named(one)


@cache
def functions(file: Path) -> set[str]:
    return {node.name for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_what_is_missing_is_refused_and_the_rest_is_not() -> None:
    """So that the list says "missing" no longer than it is."""
    for one in systems():
        try:
            if one.command == "tune":
                read_options(one.flags["method"], one.settings, seed=0)
            elif one.command:
                model_settings(one.model, one.settings)
        except UsageError as refusal:
            assert one.state == "missing", f"{named(one)}: {refusal}"
        else:
            assert one.state != "missing" or not one.command, named(one)


def test_the_page_is_rendered_from_the_list() -> None:
    page = (ROOT / "docs" / "systems.md").read_text("utf-8")
    assert page == loaded(ROOT / "docs" / "make_systems.py").render(), "python docs/make_systems.py"


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stream(outcomes: bool = False) -> pl.DataFrame:
    """600 hours with a day, an input, and noise that lasts; or whether they are above their median."""
    rows = frame_of(ROWS).select("t", "y", "x")
    return rows.with_columns((pl.col("y") > pl.col("y").median()).cast(pl.Float64)) if outcomes else rows


def error(forecaster: streamgp.Forecaster, outcomes: bool = False) -> float:
    """Mean absolute error, or mean squared error of probabilities (Brier's score)."""
    scores = forecaster.scores
    assert scores["scored"] > 0
    return float(scores["rmse"] ** 2 if outcomes else scores["mae"])


@cache
def persistence(outcomes: bool = False, horizon: int = HORIZON) -> float:
    """Its error on the same rows."""
    usual = streamgp.Forecaster("y", horizon, model="persistence", **STREAM)
    return error(usual.learn(stream(outcomes)), outcomes)


def check_learned(forecaster: streamgp.Forecaster, home: Path) -> None:
    """It forecasts in finite bands, and the same once it is restored."""
    found = forecaster.forecast()
    bands = [name for name in found.columns[3:] if not name.endswith("-std-latent")]  # of outcomes there is the mean
    assert bands and np.isfinite(found.select(bands).to_numpy()).all()
    restored = streamgp.load(forecaster.save(home))
    assert restored.rows == ROWS
    assert_frame_equal(restored.forecast(), found, check_exact=True)


QUICKLY = [pytest.param(one, id=named(one), marks=[] if one.type in QUICK else [pytest.mark.slow]) for one in TYPED]


@pytest.mark.sampled
@pytest.mark.parametrize("one", QUICKLY)
def test_it_learns_a_stream(one: System, tmp_path: Path) -> None:
    flags = {name: int(value) for name, value in one.flags.items()}
    horizon, outcomes = flags.pop("horizon", HORIZON), one.settings.get("likelihood") == "logistic"
    data = STREAM | ({"inputs": ()} if "simulate" in flags else {})  # whose future a simulation would ask for
    learning = streamgp.Forecaster("y", horizon, model=one.model, options=one.reduced, **data, **flags)
    learning.learn(stream(outcomes))
    check_learned(learning, tmp_path / "c")
    assert one.worse or error(learning, outcomes) <= WORSE * persistence(outcomes, horizon)


@pytest.mark.slow
@pytest.mark.parametrize("one", TUNED, ids=named)
def test_what_it_finds_learns_a_stream(one: System, tmp_path: Path) -> None:
    table, file = make_table(tmp_path / "t", stream()), tmp_path / "tuned.json"
    data = {"target": "y", "horizon": HORIZON} | {name: STREAM[name] for name in ("season", "lags", "inputs")}
    tune(
        TuneConfig.read({"table": table.path, "output": file, "rows": 60, "set": one.reduced, **one.flags, **data}),
        NoTracker,
    )
    exact: dict[str, Any] = {"model": "exact", "init": file, "set": {"rows": 300, "learn": "once"}}
    home = tmp_path / "c"
    fit_stream(table.path, checkpoint=home, warmup=STREAM["warmup"], **exact, **data)
    found = streamgp.load(home)
    check_learned(found, tmp_path / "again")
    assert error(found) <= WORSE * persistence()


def test_modules_import_an_algorithm_of_a_paper_within_a_function() -> None:
    """Where an option was chosen; of what is imported at the top every default would load it."""
    folders = (ROOT / "streamgp", ROOT / "pipelines", ROOT / "cli")
    texts = {file: file.read_text("utf-8") for folder in folders for file in folder.rglob("*.py")}
    naming = {file: text for file, text in texts.items() if "streamgp.papers" in text and "papers" not in file.parts}
    for file, text in naming.items():
        for node in ast.parse(text).body:
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in modules if name.startswith("streamgp.papers")], file


@pytest.mark.slow
def test_no_default_loads_an_algorithm_of_a_paper() -> None:
    code = """
import sys, polars as pl, streamgp
from streamgp import registry
from streamgp.base import Shape
forecaster = streamgp.Forecaster("y", 2, season=24, time="row", lags=6)
forecaster.learn(pl.DataFrame({"y": [0.1 * (i % 24) for i in range(400)]})).forecast()
shape = Shape(targets=("y",), horizon=1, lags=3, past=("y",), future=())
for name in registry.names("models"):
    module = registry.load("models", name)
    module.build(module.Config(), shape)
print([name for name in sys.modules if name.startswith("streamgp.papers")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[]\n", done.stdout + done.stderr
