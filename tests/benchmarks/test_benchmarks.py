"""Every benchmark starts and comes to its end on a small case. What it claims is not looked at."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.small import BENCHMARKS, Children, copied, replaced
from tests.needs import needs

ROWS, SECONDS = 1600, 300.0
"""Of every data set; that a case may take."""
CASES: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("small.toml").read_text("utf-8"))
PUBLIC = "uci_bike.parquet"
"""Of the public data sets: where it is, all are."""


def wants(name: str) -> list[str]:
    return [PUBLIC if one == "public" else one for one in CASES[name].get("wants", [])]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = os.environ.get("STREAMGP_TEST_DATA")
    made = copied(tmp_path_factory.mktemp("benchmarks"), Path(folder) if folder else None, ROWS)
    for name, case in CASES.items():
        replaced(made / "benchmarks" / f"{name}.py", case.get("small", {}))
    return made


@pytest.fixture(scope="module")
def children(project: Path) -> Iterator[Children]:
    made = Children(project.parent)
    yield made
    made.close()


def test_every_benchmark_has_a_small_case() -> None:
    assert {path.stem for path in BENCHMARKS.glob("[a-z]*.py")} == set(CASES)


def test_sizes_that_are_replaced_stand_in_the_scripts() -> None:
    sizes = [(name, old) for name, case in CASES.items() for old in case.get("small", {})]
    assert [one for one in sizes if one[1] not in (BENCHMARKS / f"{one[0]}.py").read_text("utf-8")] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[needs(*wants(name))]) for name in CASES])
def test_it_comes_to_its_end(name: str, project: Path, children: Children) -> None:
    """Exit status 0, or 1 where the claim does not hold on so few rows."""
    words = CASES[name].get("words", "").split()
    ended = children.run(project / "benchmarks" / f"{name}.py", words, SECONDS)
    assert ended.status in (0, 1) and "Traceback" not in ended.told, f"{ended.status}: {ended.told[-3000:]}"
