"""One HTML file that holds everything it needs: text, numbers, figures, and plotly.js to draw them.

The numbers and plotly.js are compressed and in base64, so that no text of a user's data is ever inside a script, and
the page may run two scripts alone: its own and plotly.js, by their SHA-256 (Content-Security-Policy). It fetches
nothing.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from streamgp_data.numbers import number
from streamgp_pipelines.files import replaced

SUFFIX = ".html"

LARGEST = 5_000_000
"""Bytes that a page stays below."""


@dataclass(frozen=True)
class HtmlTable:
    """Rows of cells; the first cell of a row is its head."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """What plotly draws.

    Attributes:
        title: heading.
        alt: what a reader who does not see it should know.
        data: traces of plotly. Text in them is text: it is escaped when it is drawn.
        layout: of plotly, over the page's own.
        note: a line below.
        shape: wide (as the page) or tall, where it is.
    """

    title: str
    alt: str
    data: Sequence[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    shape: Literal["", "wide", "tall"] = ""


@dataclass(frozen=True)
class Fan:
    """Forecasts beside what happened, one at a time: see `fans.fan`, which makes `data`."""

    title: str
    data: dict[str, Any]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    title: str
    parts: Sequence[HtmlTable | Figure | Fan]
    note: str = ""


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        title, about: what it is of.
        sections: in their order; those without a part and a note are left out.
        missing: what could not be shown, and what would record it, a sentence each.
    """

    title: str
    about: str
    sections: Sequence[Section]
    missing: Sequence[str] = ()


def write(page: Page, path: Path) -> int:
    """Write a page, whole or not at all; returns its bytes.

    Raises:
        ServiceError: the file cannot be written.
    """
    text = render(page).encode()
    with replaced(path) as temporary:
        temporary.write_bytes(text)
    return len(text)


def render(page: Page) -> str:
    """The page as HTML.

    Example:
        >>> text = render(Page("<b>", "a run", [Section("Scores", [HtmlTable("", ["", "RMSE"], [["all", 0.25]])])]))
        >>> "<h1>&lt;b&gt;</h1>" in text, "0.25" in text, len(text) < LARGEST
        (True, True, True)
    """
    from plotly.offline import get_plotlyjs

    home = files(__package__)
    style, script = ((home / f"page.{suffix}").read_text(encoding="utf-8") for suffix in ("css", "js"))
    plotly = get_plotlyjs()
    sections = [one for one in page.sections if one.parts or one.note]
    drawn: list[dict[str, Any]] = []
    body = "\n".join(_section(one, place, drawn) for place, one in enumerate(sections))
    links = "".join(f'<li><a href="#s{place}">{escape(one.title)}</a></li>' for place, one in enumerate(sections))
    if page.missing:
        links += '<li><a href="#missing">Not shown</a></li>'
        lines = "".join(f"<li>{escape(line)}</li>" for line in page.missing)
        body += f'\n<section id="missing"><h2>Not shown</h2><ul>{lines}</ul></section>'
    scripts = f"script-src {_sha(script)} {_sha(plotly)}"
    policy = f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; {scripts}"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(page.title)}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{escape(page.title)}</h1><p>{escape(page.about)}</p></header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>
<noscript><p class="alert">Figures need JavaScript, which is off here. The tables do not.</p></noscript>
<p class="alert" id="alert" role="alert" hidden></p>
{body}
</main>
<script type="text/plain" id="numbers">{_packed(json.dumps(drawn, allow_nan=False, separators=(",", ":")))}</script>
<script type="text/plain" id="plotly">{_packed(plotly)}</script>
<script>{script}</script>
</body>
</html>
"""


def _section(section: Section, place: int, drawn: list[dict[str, Any]]) -> str:
    """HTML of a section; what is drawn in it is added to `drawn`, in the order of the page."""
    parts = []
    for part in section.parts:
        if isinstance(part, HtmlTable):
            parts.append(_table(part))
            continue
        fan = isinstance(part, Fan)
        drawn.append({"fan": part.data} if isinstance(part, Fan) else {"data": part.data, "layout": part.layout})
        alt = "" if isinstance(part, Fan) else part.alt
        kind = "fan wide" if isinstance(part, Fan) else part.shape
        note = f"<figcaption>{escape(part.note)}</figcaption>" if part.note else ""
        parts.append(
            f'<figure class="{kind}"><h3>{escape(part.title)}</h3>{_CONTROLS * fan}'
            f'<div class="plot" role="img" aria-label="{escape(alt)}"></div>{note}'
            f'<details><summary>Numbers<span class="unseen"> of: {escape(part.title)}</span></summary>'
            f'<div class="numbers" role="region" tabindex="0" aria-label="Numbers of: {escape(part.title)}"></div>'
            "</details></figure>"
        )
    note = f"<p>{escape(section.note)}</p>" if section.note else ""
    head = f'<section id="s{place}"><h2>{escape(section.title)}</h2>{note}'
    return f'{head}<div class="grid">{"".join(parts)}</div></section>'


_CONTROLS = """<form class="controls">
<label class="panel">Series <select name="panel"></select></label>
<label class="model">Model <select name="model"></select></label>
<label>Issued <input name="when"></label>
<button type="button" name="earlier">Earlier</button><button type="button" name="later">Later</button>
<label class="slide">Through all <input type="range" name="place" min="0" step="1" value="0"></label>
</form><output aria-live="polite"></output>"""


def _table(table: HtmlTable) -> str:
    """A table that scrolls by itself where it is wider than the screen."""
    first = table.rows[0] if table.rows else table.columns
    kinds = [' class="text"' * isinstance(cell, str) for cell in first]
    heads = "".join(f'<th scope="col"{kind}>{escape(n)}</th>' for n, kind in zip(table.columns, kinds, strict=True))
    rows = "".join(f'<tr><th scope="row">{shown(row[0])}</th>{"".join(map(_cell, row[1:]))}</tr>' for row in table.rows)
    title = f"<h3>{escape(table.title)}</h3>" if table.title else ""
    note = f"<p>{escape(table.note)}</p>" if table.note else ""
    name = escape(table.title or "Table")
    return (
        f'<div class="wide">{title}<div class="numbers" role="region" tabindex="0" aria-label="{name}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{note}</div>"
    )


def _cell(value: Any) -> str:
    return f'<td class="text">{shown(value)}</td>' if isinstance(value, str) else f"<td>{shown(value)}</td>"


def shown(value: Any) -> str:
    """A cell as HTML.

    Example:
        >>> shown(0.123456), shown(17520), shown(None), shown("a<b"), shown(True)
        ('0.1235', '17,520', '–', 'a&lt;b', 'yes')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return number(value) if isinstance(value, float) else escape(str(value))


def _packed(text: str) -> str:
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _sha(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
