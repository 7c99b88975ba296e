"""What parts there are: (kind, file name) -> module, listed without importing any.

A part is a file or a folder in a room of this package, named after the part: `streamgp/models/linear.py` is
("models", "linear"), and so is `streamgp/models/svdgp/`. A folder with a file `variants.py` holds several parts:
`DOCSTRINGS` there has them by name, and `variant(name)` makes the module of one. Names that begin with an underscore
are shared code. A model's module has a frozen pydantic `Config` and `build(config, shape)`.

Example:
    >>> "persistence" in names("models")
    True
"""

from __future__ import annotations

import ast
import importlib
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import ModuleType

from streamgp.errors import UsageError

KINDS = ("models", "kernels", "encoders", "likelihoods", "predictives", "solvers", "streaming.sources")


@cache
def names(kind: str) -> tuple[str, ...]:
    """The parts of a kind, in alphabetical order, found from the names of files and folders.

    Raises:
        UsageError: there is no such kind.
    """
    if kind not in KINDS:
        raise UsageError(f"there is no kind of part {kind!r}", hint=f"the kinds are {', '.join(KINDS)}")
    return tuple(sorted(_homes(kind)))


@cache
def _homes(kind: str) -> dict[str, Traversable]:
    """Part -> its file, its folder, or the folder that holds it with others."""
    found = dict[str, Traversable]()
    for entry in files("streamgp").joinpath(*kind.split(".")).iterdir():
        stem = entry.name.removesuffix(".py")
        if stem.startswith("_") or not (entry.is_dir() or entry.name.endswith(".py")):
            continue
        together = entry.is_dir() and entry.joinpath("variants.py").is_file()
        found |= dict.fromkeys(_together(kind, entry).DOCSTRINGS if together else [stem], entry)
    return found


def _together(kind: str, home: Traversable) -> ModuleType:
    return importlib.import_module(f"streamgp.{kind}.{home.name}.variants")


def docstring(kind: str, name: str) -> str:
    """What a part says of itself, read without importing it.

    Example:
        >>> docstring("models", "persistence").split(":")[0]
        'Persistence'
    """
    home = _homes(kind)[name]
    if home.is_dir() and home.name != name:
        text: str = _together(kind, home).DOCSTRINGS[name]
        return text
    file = home.joinpath("__init__.py") if home.is_dir() else home
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def load(kind: str, name: str) -> ModuleType:
    """Import the module of one part.

    Raises:
        UsageError: no part has this name; the hint names the nearest.
    """
    known = names(kind)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
        raise UsageError(f"{kind.removesuffix('s')} {name!r} is unknown", hint=hint)
    home = _homes(kind)[name]
    if home.is_dir() and home.name != name:
        made: ModuleType = _together(kind, home).variant(name)
        return made
    return importlib.import_module(f"streamgp.{kind}.{name}")
