"""The tutorials run, are short, and what they print is what a reader may expect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
BEST = {  # tutorial -> its naive model, and the models that must beat it, each better than the one before
    "energy": ["a week ago", "calendar", "and temperature"],
    "wind": ["persistence", "linear", "svdgp"],
    "vehicle": ["as now", "speed alone", "and pedals"],
    "kernel": ["linear", "built_in", "hinges"],
    "joint": ["linear", "linear, with mechanics", "Gaussian process"],
}


@pytest.fixture(scope="module")
def maker() -> Any:
    """docs/make_tutorials.py, which shares its runs with `make docs`."""
    sys.path.insert(0, str(ROOT / "docs"))
    import make_tutorials

    return make_tutorials


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_tutorial_is_short(source: Path) -> None:
    """At most 600 words of text."""
    cells = source.read_text().split("# %%")
    text = " ".join(cell.partition("\n")[2] for cell in cells if cell.startswith(" [markdown]"))
    assert 100 < len(text.replace("#", " ").split()) <= 600


@needs("docs")
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")  # those of the libraries that run notebooks
@pytest.mark.parametrize("source", [one for one in SOURCES if one.stem in BEST], ids=lambda path: path.stem)
def test_a_tutorial_runs_and_its_scores_are_sane(source: Path, maker: Any) -> None:
    scores = printed(source, maker)
    order = BEST[source.stem]
    assert list(scores) == order or set(scores) == set(order)
    errors = [scores[model].get("RMSE") or scores[model]["rmse"] for model in order]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.9 * errors[0]
    assert all(0.9 <= scores[model]["coverage"] <= 0.99 for model in order)
    text, files = maker.page(source)
    assert "![" in text and f"{source.stem}.ipynb" in files  # a picture, and the notebook


@needs("docs")
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")
def test_the_service_of_the_tutorial_learns_and_raises_an_alarm(maker: Any) -> None:
    (source,) = (one for one in SOURCES if one.stem == "service")
    found = printed(source, maker)
    assert (found["posted"], found["again"], found["ended"]) == (48, 2, 143)
    assert 12.0 in found["alarms"] and len(found["alarms"]) <= 4
    assert 0.9 <= found["coverage"] <= 0.99
    assert "![" in maker.page(source)[0]


def printed(source: Path, maker: Any) -> Any:
    """What the cell tagged `scores` prints."""
    cells = maker.executed(source).cells
    texts = [cell.outputs[0].text for cell in cells if maker.HIDDEN in cell.metadata.get("tags", [])]
    return json.loads(texts[0])


@pytest.mark.parametrize("code", [0, 1])
def test_what_runs_beside_a_notebook_is_heard_if_it_fails(
    code: int, maker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A service that a notebook ends says so, which is no error of `make docs`."""
    script = tmp_path / "script.py"
    script.write_text(f"import sys; print('interrupted', file=sys.stderr); sys.exit({code})")
    monkeypatch.setattr(maker, "SOURCES", [tmp_path / "one.py"])
    monkeypatch.setattr(maker, "__file__", str(script))
    monkeypatch.setattr(maker, "_kept", lambda _: tmp_path / "none")
    if code:
        with pytest.raises(subprocess.CalledProcessError):
            maker.run_changed()
    else:
        maker.run_changed()
    assert ("interrupted" in capfd.readouterr().err) == bool(code)
