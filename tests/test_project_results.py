"""The results pages are what docs/make_results.py makes of the benchmarks' JSON; and benchmarks write such JSON."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
DATA = sorted(set((RESULTS / "data").glob("*.json")) - {RESULTS / "data" / "pages.json"})


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make() -> ModuleType:
    return loaded(ROOT / "docs" / "make_results.py")


def test_the_pages_are_rendered_from_the_json(make: ModuleType) -> None:
    pages = {path.name: path.read_text("utf-8") for path in RESULTS.glob("*.md")}
    papers = {f"../papers/{path.name}": path.read_text("utf-8") for path in RESULTS.parent.glob("papers/*.md")}
    assert pages | papers == make.render()


def test_the_plans_are_computed_from_the_json() -> None:
    page = loaded(ROOT / "docs" / "make_scaling.py").render()
    assert (ROOT / "docs" / "scaling.md").read_text("utf-8") == page
    assert len(page.split()) <= 500


def test_every_benchmark_is_on_one_page() -> None:
    pages: dict[str, Any] = json.loads((RESULTS / "data" / "pages.json").read_text("utf-8"))
    listed = sorted(name for page in pages.values() for name in page["benchmarks"])
    assert listed == sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py"))
    assert {path.stem for path in DATA} <= set(listed)


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.stem)
def test_results_name_their_benchmark(path: Path) -> None:
    found = json.loads(path.read_text("utf-8"))
    assert (ROOT / "benchmarks" / f"{path.stem}.py").exists()
    assert found["command"].split()[:2] == ["python", f"benchmarks/{path.stem}.py"]
    assert found["claims"] and found["measured"]
    for claim in found["claims"]:
        assert claim["rows"] and {len(row) for row in claim["rows"]} == {len(claim["columns"])}


def test_a_benchmark_writes_what_the_pages_are_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: ModuleType
) -> None:
    report = loaded(ROOT / "benchmarks" / "_report.py")
    holds = report.Claim("One", "It is fast.", ["rows", "seconds"], [["10", "0.1"]])
    fails = report.Claim("Two", "It is small.", ["rows"], [["10"]], ["11 MB"])
    report.report("/somewhere/it_is_fast.py", holds, fails)  # no folder is named
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("BENCHMARK_RESULTS", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["it_is_fast.py", "--data", str(tmp_path)])
    report.report("/somewhere/it_is_fast.py", holds, fails)
    pages = {"speed": {"title": "Speed", "front": "How fast.", "benchmarks": ["it_is_fast"]}}
    (tmp_path / "pages.json").write_text(json.dumps(pages))
    made = make.render(tmp_path)
    assert "It is fast. **Holds.**" in made["speed.md"] and "It is small. **Missed: 11 MB.**" in made["speed.md"]
    assert "|rows|seconds|\n|-|-|\n|10|0.1|" in made["speed.md"]
    assert "`python benchmarks/it_is_fast.py --data PATH`" in made["speed.md"]
    assert "|[Speed](speed.md)|2|1|" in made["README.md"]
