"""A hook of `make docs`: pages from outside docs/, the rest of the navigation, links that lead out of docs/, formulas,
citations.

README, CONTRIBUTING, CHANGELOG and the page of the bundled data become pages, and so do the tutorials, which are run.
Every page of docs/papers, docs/results and docs/decisions is in the navigation. The reference has one page a package,
with every public module that it has.
Formulas become MathML when the pages are built, so that a browser needs neither a script nor the network for them.
Citations such as "Cheng & Boots 2017" become links to the bibliography, in the reference too.
"""

from __future__ import annotations

import html
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import make_bibliography  # noqa: E402
import make_tutorials  # noqa: E402

FOLDERS = {"papers": "The papers' tables", "results": "Results", "decisions": "Decisions"}
ELSEWHERE = {  # file of the repository -> page of the site
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "data/README.md": "data.md",
}
REFERENCE = {  # title -> packages and modules, in the order of the navigation
    "Python API": ("streamgp.Forecaster", "streamgp.fit_stream", "streamgp.compare"),
    "What a model has learned": ("streamgp_pipelines.learned",),
    "scikit-learn estimators": ("streamgp_pipelines.estimators",),
    "Checkpoints in Python": ("streamgp_pipelines.Forecaster", "streamgp_pipelines.load"),
    "Contracts": ("streamgp.base", "streamgp.errors", "streamgp.registry"),
    "Models": ("streamgp.models",),
    "Models on a stream": ("streamgp.online",),
    "Kernels": ("streamgp.kernels",),
    "Features and encoders": ("streamgp.features", "streamgp.encoders"),
    "Likelihoods": ("streamgp.likelihoods",),
    "Predictive distributions": ("streamgp.predictives",),
    "Forecasting": ("streamgp.forecasting",),
    "Windows": ("streamgp.windows",),
    "Data library": ("streamgp_data", "streamgp_data.sources"),
    "Conformance suites": ("streamgp.testing",),
}


def on_config(config: Any) -> Any:
    """Add the results, the decisions and the reference to the navigation, before the last two pages."""
    added: list[dict[str, Any]] = []
    for folder, title in FOLDERS.items():
        paths = sorted((ROOT / "docs" / folder).glob("*.md"), key=lambda path: (path.name != "README.md", path.name))
        added.append({title: [_entry(path, f"{folder}/{path.name}") for path in paths]})
    added.append({"Reference": [{title: _page(title)} for title in REFERENCE]})
    config.nav[-2:] = [*added, *config.nav[-2:], {"Data": "data.md"}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not files of docs/."""
    from mkdocs.structure.files import File

    pages = {page: (ROOT / path).read_text(encoding="utf-8") for path, page in ELSEWHERE.items()}
    pages |= {_page(title): reference(title, names) for title, names in REFERENCE.items()}
    make_tutorials.run_changed()
    for source in make_tutorials.SOURCES:
        text, made = make_tutorials.page(source)
        pages |= {f"tutorials/{source.stem}.md": text}
        for name, content in made.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to pages follow them to their place on the site; of links to other files the label stays."""
    site = page.file.src_uri
    here = posixpath.dirname({to: path for path, to in ELSEWHERE.items()}.get(site, f"docs/{site}"))

    def follow(found: re.Match[str]) -> str:
        label, target, anchor = found["label"], found["target"], found["anchor"] or ""
        if "://" in target or not target:
            return found[0]
        path = posixpath.normpath(posixpath.join(here, target))
        to = re.sub(r"^(tutorials/\w+)\.py$", r"\1.md", ELSEWHERE.get(path, path.removeprefix("docs/")))
        if files.get_file_from_path(to) is None:
            return str(label)
        return f"[{label}]({posixpath.relpath(to, posixpath.dirname(site) or '.')}{anchor})"

    link = r"\[(?P<label>[^\[\]]*)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)"
    return re.sub(link, follow, markdown)


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    r"""LaTeX between $...$ or $$...$$, which pymdownx.arithmatex has marked, as MathML; citations as links."""
    from latex2mathml.converter import convert

    def mathml(found: re.Match[str]) -> str:
        inline = found["tag"] == "span"
        formula = convert(html.unescape(found["tex"]).strip(), display="inline" if inline else "block")
        return formula if inline else f'<div class="formula" tabindex="0">{formula}</div>'  # a phone can scroll it

    marked = r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>'
    content = re.sub(marked, mathml, content, flags=re.DOTALL)
    return content if page.file.src_uri == "bibliography.md" else _with_citations(content, page.file.url)


def _with_citations(content: str, url: str) -> str:
    """HTML whose citations lead to the bibliography; those of headings, code, formulas and links stay as they are."""
    to = posixpath.relpath("bibliography.html", posixpath.dirname(url) or ".")
    parts, inside = re.split(r"(<[^>]+>)", content), 0
    for place, part in enumerate(parts):
        if part.startswith("<"):
            kept = re.match(r"<(/?)(?:a|code|pre|math|h[1-6])\b", part)
            inside += 0 if kept is None or part.endswith("/>") else (-1 if kept[1] else 1)
        elif not inside:
            parts[place] = _linked(part, to)
    return "".join(parts)


def _linked(text: str, to: str) -> str:
    """Text with its citations as links, each to the first of its papers."""
    for match, found in reversed([*make_bibliography.cited(text)]):
        if found[0] is not None:
            link = f'<a href="{to}#{found[0].anchor}">{match[0]}</a>'
            text = text[: match.start()] + link + text[match.end() :]
    return text


def _entry(path: Path, page: str) -> str | dict[str, str]:
    """A page of the navigation under its first line; a README is the page of its section."""
    heading = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").strip()
    return page if path.name == "README.md" else {heading: page}


def _page(title: str) -> str:
    return f"reference/{title.lower().replace(' ', '-')}.md"


def reference(title: str, names: tuple[str, ...]) -> str:
    """One page: the docstrings of these modules, and of the public modules of these packages."""
    return "\n".join([f"# {title}\n", *(f"::: {module}\n" for name in names for module in modules(name))])


def modules(name: str) -> list[str]:
    """The module itself, or the public modules and sub-packages that a package has in its folder."""
    folder = ROOT / Path(*name.split("."))
    if not folder.is_dir():
        return [name]
    inside = [path.stem for path in folder.glob("*.py")] + [path.parent.name for path in folder.glob("*/__init__.py")]
    listed = [one for one in sorted(inside) if not one.startswith("_")]
    return [f"{name}.{one}" for one in listed if f"{name}.{one}" not in sum(REFERENCE.values(), ())]
