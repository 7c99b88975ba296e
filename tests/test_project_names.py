"""The names that other people's code may use: a change here is a change for them, and belongs in the changelog."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from streamgp import errors
from tests.sources import names_in

ROOT = Path(__file__).parents[1]
PUBLIC = {
    "streamgp.base": "Assesses Chunk Decomposes Due FLOAT Fleet Inputs Model ModelCard Offset OutputError Predictive "
    "Progress Shape Simulates Source Stateful Step Timed Tracker",
    "streamgp.errors": "CheckpointError DataError NotPositiveDefinite NumericalError SchemaError ServiceError "
    "StateError StreamgpError StreamgpWarning TableError UsageError disk_fault",
    "streamgp.registry": "check docstring load names owner trust",
    "streamgp.testing": "CRASH_SCRIPTS SHAPES Crash CrashingSource Lines check_kernel check_model "
    "check_recovers "
    "check_solver check_source check_stateful example_windows reborn same_bits",
    "streamgp": "Forecaster StreamgpError StreamgpWarning compare fit_stream load",
    "streamgp_pipelines": "Forecaster compare fit_stream load",
}


def defined(module: ModuleType) -> set[str]:
    """`__all__`, or the classes and functions that the module itself defines."""
    own = {name for name, thing in vars(module).items() if getattr(thing, "__module__", None) == module.__name__}
    return set(getattr(module, "__all__", {name for name in own if not name.startswith("_")}))


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_stay(name: str) -> None:
    module = importlib.import_module(name)
    assert defined(module) - {"Json"} == set(PUBLIC[name].split())
    assert all(hasattr(module, public) for public in PUBLIC[name].split())


def test_every_error_has_its_exit_code() -> None:
    names = [name for name in PUBLIC["streamgp.errors"].split() if name.endswith(("Error", "Definite"))]
    codes = {name: getattr(errors, name).exit_code for name in names}
    assert codes == {
        "StreamgpError": 1,
        "UsageError": 2,
        "DataError": 3,
        "SchemaError": 3,
        "NumericalError": 3,
        "NotPositiveDefinite": 3,
        "StateError": 4,
        "CheckpointError": 4,
        "TableError": 4,
        "ServiceError": 5,
    }


SHARED = {
    "Config": "the options of a registered name, one a module",
    "Linear": "a kernel and a model, each what `linear` names among its kind",
    "Forecaster": "of data frames in `streamgp`, of a checkpoint in `streamgp_pipelines`",
}
"""Names of several classes, and why."""


def test_a_class_name_has_one_meaning() -> None:
    homes: dict[str, list[str]] = {}
    for package in ("streamgp", "pipelines", "cli"):
        for file in sorted((ROOT / package).rglob("*.py")):
            for name in names_in(file).classes:
                homes.setdefault(name, []).append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in homes.items() if len(files) > 1 and name not in SHARED} == {}
    assert all(len(homes[name]) > 1 for name in SHARED)
