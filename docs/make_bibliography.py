"""Write docs/bibliography.md from docs/bibliography.toml, with the files that cite each paper.

    python docs/make_bibliography.py

`unknown` finds citations without an entry, which the tests refuse; docs/site_pages.py links those of the site to the
page.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
LISTED = ROOT / "docs" / "bibliography.toml"
PAGE = ROOT / "docs" / "bibliography.md"
SEARCHED = ("README.md", "CONTRIBUTING.md", "docs", "streamgp", "pipelines", "cli", "benchmarks", "tests")
UNSEARCHED = {PAGE, LISTED, ROOT / "tests" / "test_bibliography.py", *(ROOT / "docs").glob("*.py")}
OUTSIDE = ("tests/", "benchmarks/")
"""Of files there the folder alone is named; of others the module or folder of the package."""

_NAME = r"(?:(?:Van|van|de|von) )?[A-ZÀ-ÖØ-Þ][\w’'-]+"
CITATION = re.compile(
    rf"(?P<names>{_NAME}(?:, {_NAME})*(?:,? (?:&amp;|&|and) {_NAME})?)(?P<more> et al\.)?,? "
    r"\(?(?P<years>(?:19|20)\d\d(?:, (?:19|20)\d\d)*)\b"
)
NOT_AUTHORS = {
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November"),
    *("December", "Jan", "GEFCom", "GEFCom2012", "Report", "None"),
}
"""Words with a capital before a year that are no authors."""
FRONT = """# Bibliography

What the code, its tests and these pages cite, and where. The systems of five papers are listed, each with what to type,
in the [systems of the papers](systems.md), and their tables are repeated in the papers' tables
([SVDGP](papers/svdgp.md), [QSGP](papers/qsgp.md), [GP-LSTM](papers/gp_lstm.md), [finite-dimensional
RKHS](papers/finite_rkhs.md), [GPCV-ADMM](papers/gpcv_admm.md)). Written by `docs/make_bibliography.py`.
"""


@dataclass(frozen=True)
class Paper:
    """One entry; `doi` and `arxiv` may be empty."""

    authors: tuple[str, ...]
    year: int
    title: str
    venue: str
    doi: str = ""
    arxiv: str = ""

    @property
    def surnames(self) -> list[str]:
        """Of the authors, in their order."""
        return [author.partition(",")[0] for author in self.authors]

    @property
    def label(self) -> str:
        """As it is cited: "Cheng & Boots 2017", of three authors and more "Hensman et al. 2013"."""
        few = len(self.authors) <= 2
        return f"{' & '.join(self.surnames) if few else f'{self.surnames[0]} et al.'} {self.year}"

    @property
    def anchor(self) -> str:
        """Of the page.

        Example:
            >>> Paper(("Böhning, D.", "Lindsay, B. G."), 1988, "", "").anchor
            'bohning-lindsay-1988'
        """
        plain = unicodedata.normalize("NFKD", self.label).encode("ascii", "ignore").decode().lower()
        return "-".join(re.findall(r"[a-z0-9]+", plain))

    def is_cited_by(self, names: list[str], more: bool, year: int) -> bool:
        """Whether these surnames, "et al." or not, and this year mean the paper; words before the names do no harm."""
        if year != self.year:
            return False
        if more:
            return len(self.surnames) > 2 and names[-1] == self.surnames[0]
        return names[-len(self.surnames) :] == self.surnames


@cache
def papers() -> tuple[Paper, ...]:
    """Every entry, by surname and year."""
    listed = tomllib.loads(LISTED.read_text("utf-8"))["paper"]
    found = [Paper(**one | {"authors": tuple(one["authors"])}) for one in listed]
    return tuple(sorted(found, key=lambda one: (one.anchor.partition("-")[0], one.anchor)))


def cited(text: str) -> Iterator[tuple[re.Match[str], list[Paper | None]]]:
    """Every citation of a text, and its papers, one a year; None for what has no entry.

    Example:
        >>> text = "inducing points (Titsias 2009; Hensman et al. 2013, 2015), in May 2026"
        >>> [[paper and paper.label for paper in found] for _, found in cited(text)]
        [['Titsias 2009'], ['Hensman et al. 2013', 'Hensman et al. 2015']]
        >>> [found for _, found in cited("as Nobody & Noone 1999 say")]
        [[None]]
    """
    for match in CITATION.finditer(text):
        names = re.split(r", and |, & |, | & | &amp; | and ", match["names"])
        if names[-1] in NOT_AUTHORS:
            continue
        years = [int(year) for year in match["years"].split(", ")]
        yield match, [next((one for one in papers() if one.is_cited_by(names, bool(match["more"]), year)), None)
                      for year in years]  # fmt: skip


def _plain(text: str) -> str:
    """Text on one line: without the ends of lines, of comments and of strings that go on in the next line."""
    return re.sub(r"\s*\n\s*(?:#:? )?", " ", re.sub(r'"\s*\n\s*f?"', "", text))


@cache
def _read() -> tuple[tuple[str, str], ...]:
    """Path and text of all that is searched."""
    files = [
        path
        for top in SEARCHED
        for path in ([ROOT / top] if (ROOT / top).is_file() else sorted((ROOT / top).rglob("*")))
        if path.suffix in (".py", ".md", ".toml") and path not in UNSEARCHED
    ]
    return tuple((path.relative_to(ROOT).as_posix(), _plain(path.read_text("utf-8"))) for path in files)


def unknown() -> list[str]:
    """Citations without an entry, with their file."""
    return [f"{path}: {match[0]}" for path, text in _read() for match, found in cited(text) if None in found]


@cache
def citing() -> dict[str, list[str]]:
    """Anchor -> files that cite the paper."""
    found: dict[str, list[str]] = {paper.anchor: [] for paper in papers()}
    for path, text in _read():
        for anchor in sorted({paper.anchor for _, several in cited(text) for paper in several if paper}):
            found[anchor].append(path)
    return found


def _where(paths: list[str]) -> str:
    """Pages as links, then modules, or folders with several: what seldom changes."""
    pages = [path for path in paths if path.endswith(".md") or path.startswith("docs/tutorials/")]
    code = [path for path in paths if path not in pages]
    named = [f"[{_heading(path)}]({_to(path)})" for path in pages]
    folders = {"/".join(PurePosixPath(path).parts[:3][: 1 if path.startswith(OUTSIDE) else 3]) for path in code}
    named += [f"`{folder}`" for folder in sorted(folders)]
    return ", ".join(named)


def _heading(path: str) -> str:
    """The first heading of a page, as far as its colon or comma."""
    found = re.search(r"^(?:# )?# (.+)$", (ROOT / path).read_text("utf-8"), re.MULTILINE)
    return re.split(r"[:,]", found[1])[0].strip("` ") if found else PurePosixPath(path).stem


def _to(path: str) -> str:
    """A link from docs/ to a file."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"


def _entry(paper: Paper) -> str:
    """A paragraph."""
    authors = " & ".join(filter(None, [", ".join(paper.authors[:-1]), paper.authors[-1]]))
    links = [f"[doi:{paper.doi}](https://doi.org/{paper.doi})"] if paper.doi else []
    links += [f"[arXiv:{paper.arxiv}](https://arxiv.org/abs/{paper.arxiv})"] if paper.arxiv else []
    said = " ".join(
        [f"{authors.rstrip('.')}.", f"*{paper.title}.*", f"{paper.venue.replace('*', chr(92) + '*')}.", *links]
    )
    return f'<a id="{paper.anchor}"></a>**{paper.label}.** {said}  \nCited in {_where(citing()[paper.anchor])}.'


def render() -> str:
    """The page."""
    parts = [FRONT.rstrip()]
    for letter, inside in groupby(papers(), key=lambda paper: paper.anchor[0].upper()):
        parts += [f"## {letter}", *map(_entry, inside)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
