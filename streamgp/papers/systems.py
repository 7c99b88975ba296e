"""The list of the systems (`systems.toml`): what a user types, the formula, where it is, the test that holds it.

Example:
    >>> found = systems()
    >>> found[0].line, found[0].model
    ('1', 'gp_lstm')
"""

from __future__ import annotations

import shlex
import tomllib
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

Paper = Literal["gp_lstm", "svdgp", "qsgp", "finite_rkhs", "gpcv_admm"]
TITLES: dict[Paper, str] = {
    "gp_lstm": "GP-LSTM (Al-Shedivat, Wilson, Saatchi, Hu & Xing 2017)",
    "svdgp": "SVDGP (Cheng & Boots 2017)",
    "qsgp": "QSGP (Evans & Nair 2020)",
    "finite_rkhs": "Training in finite-dimensional kernels (Shoham & Avron 2025)",
    "gpcv_admm": "GPCV-ADMM (Xu, Yin, Zhang, Luo & Cui 2019)",
}
"""Of the papers, in the order of the list."""


class System(BaseModel):
    """One entry of the list: a system that a user can name.

    Attributes:
        line: of the list, such as "3.1"; several entries may share it.
        paper: that describes it.
        name: the paper's, in a few words.
        type: what is typed after `streamgp train`: "--model qsgp --set solver=stochastic"; or another command
            ("tune --method cv-admm"), or a benchmark ("python benchmarks/NAME.py"), for a result of the paper.
        formula: what it computes, on one line, with the place in the paper.
        where: file of the repository with the formula.
        law: id of the test that holds it, FILE::NAME.
        state: stands; partly; missing, where nothing can be typed.
        lacks: what is not as in the paper, or not there; empty only if it stands.
        small: options that make it small enough for the walk of `tests/test_systems.py`.
        worse: why it may forecast worse than 1.5 times persistence there; empty: it may not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    line: str
    paper: Paper
    name: str
    type: str
    formula: str
    where: str = ""
    law: str = ""
    state: Literal["stands", "partly", "missing"]
    lacks: str = ""
    small: str = ""
    worse: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.state != "missing" and not (self.where and self.law):
            raise ValueError(f"{self.line} {self.name}: a system that can be typed names its file and its test")
        if self.state != "stands" and not self.lacks:
            raise ValueError(f"{self.line} {self.name}: say what is missing")
        return self

    @property
    def command(self) -> str:
        """The subcommand of `streamgp`; empty for a benchmark."""
        first = self.type.split()[0]
        return "" if first == "python" else "train" if first.startswith("-") else first

    @property
    def model(self) -> str:
        """Of `streamgp train`; empty for other commands."""
        words = self.type.split()
        return words[words.index("--model") + 1] if "--model" in words else ""

    @property
    def flags(self) -> dict[str, str]:
        """Other options of the command, as typed: name without dashes -> value."""
        typed = shlex.split(self.type)
        return {
            word[2:]: after for word, after in pairwise(typed) if word[:2] == "--" and word not in ("--model", "--set")
        }

    @property
    def settings(self) -> dict[str, str]:
        """What --set gives, as typed: dotted option -> value."""
        return _set(self.type)

    @property
    def reduced(self) -> dict[str, str]:
        """The same for the walk: `small`, and over it what the entry is about."""
        return _set(self.small) | self.settings


def _set(words: str) -> dict[str, str]:
    """option -> value of every "--set option=value"."""
    typed = shlex.split(words)
    given = [after for word, after in pairwise(typed) if word == "--set"]
    return {key: value for key, _, value in (one.partition("=") for one in given)}


@cache
def systems() -> tuple[System, ...]:
    """Every entry, in the order of the file.

    Raises:
        ValidationError: an entry has an unknown field, or lacks what its state asks for.
    """
    text = files("streamgp.papers").joinpath("systems.toml").read_text("utf-8")
    return tuple(System.model_validate(entry) for entry in tomllib.loads(text)["system"])
