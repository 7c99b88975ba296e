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

streamgp has the systems of five papers, each under the option that a user types, after `streamgp train`
unless another command is named. What scores better may be the default, and stands beside. Algorithms that no default
uses are in `streamgp/papers/`, and are imported once they are chosen.

{standing} of {all} stand, {partly} in part, {missing} are missing. `tests/test_systems.py` walks the list: what can be
typed is built, learns 600 rows, forecasts in finite bands with at most 1.5 times the error of the persistence where
nothing else is said, and forecasts the same once it is restored. Written by `docs/make_systems.py` from
`streamgp/papers/systems.toml`.
"""


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


def entry(one: System) -> list[str]:
    """A row of the table of a paper."""
    state = one.state if not one.lacks else f"{one.state}: {one.lacks}"
    return [
        one.line,
        one.name,
        code(one.type),
        one.formula,
        code(one.where),
        code(one.law.replace("tests/", "")),
        state,
    ]


def measured() -> dict[str, Any]:
    """The claims of the benchmark; empty before it has run."""
    return json.loads(MEASURED.read_text("utf-8")) if MEASURED.exists() else {}


def scores(found: dict[str, Any], listed: Sequence[System]) -> list[str]:
    """The sections of the scores."""
    if not found:
        return ["## On one stream", "Not measured yet: `python benchmarks/systems_on_one_stream.py`."]
    parts = []
    for claim in found["claims"]:
        parts += [f"## {claim['title']}", claim["text"], table(claim["columns"], claim["rows"])]
    shown = {row[0].strip("`") for claim in found["claims"] for row in claim["rows"]}
    left = [one for one in listed if one.command == "train" and one.state != "missing" and one.type not in shown]
    if left:
        parts.append(f"Not measured: {', '.join(code(one.type) for one in left)}.")
    return [*parts, f"`{found['command']}`. Measured: {found['measured']}."]


def render() -> str:
    """The page."""
    listed = systems()
    counts = {state: sum(one.state == state for one in listed) for state in ("stands", "partly", "missing")}
    front = FRONT.format(standing=counts["stands"], all=len(listed), partly=counts["partly"], missing=counts["missing"])
    parts = [front.rstrip()]
    columns = ["line", "system", "typed", "formula", "where", "law (in tests)", "state"]
    for paper, title in TITLES.items():
        parts += [f"## {title}", table(columns, [entry(one) for one in listed if one.paper == paper])]
    return "\n\n".join([*parts, *scores(measured(), listed)]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
