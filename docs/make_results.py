"""Write the results pages from the JSON of the benchmarks: docs/results/*.md, and docs/papers/*.md for the benchmarks
that repeat a paper's tables and figures, from docs/results/data/*.json.

    python docs/make_results.py

`make bench` runs every benchmark, which writes its JSON (benchmarks/_report.py), and then this. pages.json lists the
pages: a name (with papers/ before it, one of a paper), a title, one or two sentences, and the benchmarks in order;
those that have not reported yet are left out.
Everything else on a page is from the benchmarks.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
FRONT = """# Results

One paragraph and one table a claim, and the command that measures it again. `make bench` runs all benchmarks (hours)
and writes these pages from their JSON (`docs/results/data`).
Models train on one thread.
"""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; without padding, as nobody edits it."""
    lines = [columns, ["-"] * len(columns), *rows]
    return "\n".join(f"|{'|'.join(cell.replace(' / ', '/') for cell in line)}|" for line in lines)


def verdict(missed: Sequence[str] | None) -> str:
    """Whether a claim holds, with a space before it; nothing where none is made."""
    if missed is None:
        return ""
    return f" **Missed: {'; '.join(missed)}.**" if missed else " **Holds.**"


def apart(measured: str, usual: str) -> str:
    """The conditions that are not the usual ones; with what was only usual, where that is no other machine.

    Example:
        >>> apart("November 2026; Xeon, 2 cores", "November 2026; EPYC, 2 cores, shared with other work")
        'Xeon, not shared with other work'
    """
    own, other = (re.split("[;,] ", text) for text in (measured, usual))
    found = [part for part in own if part not in other]
    return ", ".join(found + [f"not {part}" for part in other if part not in own and part.startswith("shared")])


def page(title: str, front: str, benchmarks: Sequence[dict[str, Any]], usual: str) -> str:
    """One page; conditions that are not the usual ones stand at its top, or in a section that differs from the rest."""
    common = Counter(found["measured"] for found in benchmarks).most_common(1)[0][0]
    parts = [f"# {title}", front] + ([] if common == usual else [f"Measured: {apart(common, usual)}."])
    for found in benchmarks:
        own = "" if found["measured"] == common else f" Measured: {apart(found['measured'], common)}."
        for claim in found["claims"]:
            parts += [f"## {claim['title']}", claim["text"] + verdict(claim["missed"])]
            parts += [table(claim["columns"], claim["rows"]), f"`{found['command']}`{own}"]
    return "\n\n".join(parts) + "\n"


def render(data: Path = RESULTS / "data") -> dict[str, str]:
    """File -> text of every page, from the folder of the results on, the index included."""
    listed: dict[str, dict[str, Any]] = json.loads((data / "pages.json").read_text("utf-8"))
    reports: dict[str, dict[str, Any]] = {
        file.stem: json.loads(file.read_text("utf-8")) for file in sorted(data.glob("*.json")) if file.stem != "pages"
    }
    usual = Counter(one["measured"] for one in reports.values()).most_common(1)[0][0]
    pages, index = {}, []
    for name, about in listed.items():
        found = [reports[own] for own in about["benchmarks"] if own in reports]
        if not found:
            continue
        file = f"../{name}.md" if "/" in name else f"{name}.md"
        pages[file] = page(about["title"], about["front"], found, usual)
        claims = [claim["missed"] for one in found for claim in one["claims"] if claim["missed"] is not None]
        missed = sum(map(bool, claims))
        index.append([f"[{about['title']}]({file})", str(len(claims)), str(missed)])
    front = f"{FRONT}\nMeasured, unless a section says otherwise: {usual}.\n"
    pages["README.md"] = f"{front}\n{table(['page', 'claims', 'missed, in part or whole'], index)}\n"
    return pages


def main() -> None:
    """Write every page, and those that are computed from them."""
    import make_scaling
    import make_systems

    for name, text in render().items():
        (RESULTS / name).write_text(text, "utf-8")
    (RESULTS.parent / "scaling.md").write_text(make_scaling.render(), "utf-8")
    make_systems.PAGE.write_text(make_systems.render(), "utf-8")


if __name__ == "__main__":
    main()
