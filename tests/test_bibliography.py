"""Every paper that is cited is in the bibliography, and every paper there is cited."""

from __future__ import annotations

import doctest
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "make_bibliography.py"))


def test_every_citation_has_an_entry(made: dict[str, Any]) -> None:
    assert made["unknown"]() == [], "add it to docs/bibliography.toml"


def test_every_entry_is_cited(made: dict[str, Any]) -> None:
    assert [anchor for anchor, paths in made["citing"]().items() if not paths] == []


def test_an_entry_has_one_place_and_says_where_it_appeared(made: dict[str, Any]) -> None:
    papers = made["papers"]()
    assert len({paper.anchor for paper in papers}) == len(papers) > 90
    assert [paper.label for paper in papers if not (paper.authors and paper.title and paper.venue)] == []
    assert [paper.doi for paper in papers if paper.doi and not re.fullmatch(r"10\.\d{4,}/\S+", paper.doi)] == []
    assert [paper.arxiv for paper in papers if paper.arxiv and not re.fullmatch(r"\d{4}\.\d{4,5}", paper.arxiv)] == []
    assert [paper.label for paper in papers if paper.venue == "Preprint" and not paper.arxiv] == []


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("(Evans & Nair 2020, section 3)", ["Evans & Nair 2020"]),
        ("of Golub & Van Loan (2013)", ["Golub & Van Loan 2013"]),
        ("After Golub, Heath & Wahba 1979", ["Golub et al. 1979"]),
        ("Al-Shedivat et al., 2017", ["Al-Shedivat et al. 2017"]),
        ("Cheng &amp; Boots 2017", ["Cheng & Boots 2017"]),
        ("Hensman et al. 2013, 2015", ["Hensman et al. 2013", "Hensman et al. 2015"]),
        ("Evans et al. 2020", [None]),  # two authors are both named
        ("Cheng & Boots 2018", [None]),
        ("Nobody 2020", [None]),
        ("since January 2014", []),
    ],
)
def test_citations_are_found(made: dict[str, Any], text: str, labels: list[str | None]) -> None:
    found = [paper and paper.label for _, several in made["cited"](text) for paper in several]
    assert found == labels


def test_the_page_is_rendered_from_the_list(made: dict[str, Any]) -> None:
    assert (ROOT / "docs" / "bibliography.md").read_text("utf-8") == made["render"](), (
        "python docs/make_bibliography.py"
    )


def test_links_into_the_page_end_at_a_paper(made: dict[str, Any]) -> None:
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    anchors = {anchor for text in pages for anchor in re.findall(r"bibliography\.md#([\w-]+)", text)}
    assert len(anchors) > 5 and anchors <= {paper.anchor for paper in made["papers"]()}


def test_the_examples_of_the_script_run(made: dict[str, Any]) -> None:
    source = ROOT / "docs" / "make_bibliography.py"
    tests = [doctest.DocTestParser().get_doctest(text, made, source.name, str(source), 0)
             for text in re.findall(r'"""(.*?)"""', source.read_text("utf-8"), re.DOTALL)]  # fmt: skip
    assert sum(len(test.examples) for test in tests) >= 4
    assert [test for test in tests if doctest.DocTestRunner().run(test).failed] == []
