"""Write docs/systems.md: the systems of the papers, from streamgp/papers/systems.toml and the scores of the benchmark.

python docs/make_systems.py    (make_results.py does it too)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from streamgp.papers.systems import TITLES, System, systems  # noqa: E402

PAGE = ROOT / "docs" / "systems.md"
MEASURED = ROOT / "docs" / "results" / "data" / "systems_on_one_stream.json"
FRONT = """# Systems of the papers

streamgp has the systems of five papers. Each is listed with the options that a user types after `streamgp train`,
unless another command is named; where one of ours scores better it may be the default, and is listed beside it.
Algorithms that no default uses are in `streamgp/papers/`, and are imported only when they are chosen.

{standing} of {all} are there, {partly} in part, {missing} are missing. `tests/test_systems.py` goes through the list:
each system that can be typed is built, learns 600 rows, forecasts with finite bands and, unless the list says
otherwise, at most 1.5 times the error of the persistence, and forecasts the same after its state was restored. Written
by `docs/make_systems.py` from `streamgp/papers/systems.toml`.
"""

MEASURED_AS = """Scores are those of [one stream](results/systems.md), electricity demand 2 steps ahead: mean
absolute error over that of the persistence, and rows a CPU-second. That page has CRPS and coverage too.
"""
SCORES = ("over persistence", "rows a CPU-s")
"""Columns of the benchmark that the page shows."""


def cell(text: str) -> str:
    """Text as a cell of a Markdown table."""
    return text.replace("|", "\\|")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["-"] * len(columns), *rows]
    return "\n".join(f"|{'|'.join(map(cell, line))}|" for line in lines)


def code(text: str) -> str:
    """As code."""
    return f"`{text}`" if text else ""


def measured() -> dict[str, dict[str, str]]:
    """What is typed -> its row of the benchmark; empty before that has run."""
    claims: list[dict[str, Any]] = json.loads(MEASURED.read_text("utf-8"))["claims"] if MEASURED.exists() else []
    rows = [dict(zip(claim["columns"], row, strict=True)) for claim in claims for row in claim["rows"]]
    return {row["typed"]: row for row in rows}


def entry(one: System, found: dict[str, dict[str, str]]) -> list[str]:
    """A row of the table of a paper."""
    state = one.state if not one.lacks else f"{one.state}: {one.lacks}"
    scores = found.get(code(one.type), {})
    unmeasured = "not measured" if one.command and one.state != "missing" else ""
    parts = [one.line, one.name, code(one.type), one.formula, code(one.where), code(one.law.removeprefix("tests/"))]
    return [*parts, state, *(scores.get(column) or unmeasured for column in SCORES)]


def beside(found: dict[str, dict[str, str]]) -> str:
    """The table of what stands beside."""
    rows = [[row["system"], typed, *(row[column] for column in SCORES)] for typed, row in found.items()]
    others = [row for row in rows if row[1] not in {code(one.type) for one in systems()}]
    return table(["beside", "typed", *SCORES], others)


def render() -> str:
    """The page."""
    listed, found = systems(), measured()
    counts = {state: sum(one.state == state for one in listed) for state in ("stands", "partly", "missing")}
    front = FRONT.format(standing=counts["stands"], all=len(listed), partly=counts["partly"], missing=counts["missing"])
    parts = [front.rstrip(), *([MEASURED_AS.rstrip(), beside(found)] if found else [])]
    columns = ["line", "system", "typed", "formula", "where", "law (in tests)", "state", *SCORES]
    for paper, title in TITLES.items():
        parts += [f"## {title}", table(columns, [entry(one, found) for one in listed if one.paper == paper])]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
