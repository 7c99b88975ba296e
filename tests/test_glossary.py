"""The glossary has the words that a stranger meets, in their order, and each leads to where it is explained."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "glossary.md").read_text("utf-8")
TERMS = re.findall(r'^<a id="([\w-]+)"></a>\*\*(.+?)\.\*\* (.+?)(?=\n\n|\Z)', PAGE, re.MULTILINE | re.DOTALL)
WANTED = """season, known input, input, origin, horizon, lag, band, coverage, calibration, warm-up, stream,
series, panel, fleet, reservoir, inducing point, checkpoint, quarantine, table, target, quantile,
level, score, CRPS, window, step, outage, kernel, hyper-parameter, basis, rebuild, forgetting,
micro-batch, prequential, ledger, alarm, sentinel"""


def test_the_words_are_there_in_their_order() -> None:
    names = [name for _, name, _ in TERMS]
    assert {word.strip().lower() for word in WANTED.replace("\n", " ").split(",")} <= {name.lower() for name in names}
    assert names == sorted(names, key=str.lower)
    assert [anchor for anchor, name, _ in TERMS if anchor != name.lower().replace(" ", "-")] == []


def test_a_word_is_explained_in_one_to_three_sentences() -> None:
    for _, name, text in TERMS:
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("\n", " ")
        assert 8 <= len(plain.split()) <= 60, name


def test_strangers_find_it() -> None:
    assert "(docs/glossary.md)" in (ROOT / "README.md").read_text("utf-8")
    assert "(glossary.md)" in (ROOT / "docs" / "index.md").read_text("utf-8")


def test_its_options_exist() -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "pipelines" / "streamgp_pipelines").rglob("*.py"))
    for flag in set(re.findall(r"`[\w ]*--([a-z-]+)", PAGE)):
        assert re.search(rf"\b{flag.replace('-', '_')}\b", code), flag
