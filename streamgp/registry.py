"""What parts there are: (kind, file name) -> module, listed without importing any.

A part is a file or a folder in a room of this package, named after the part: `streamgp/models/linear.py` is
("models", "linear"), and so is `streamgp/models/svdgp/`. Names that begin with an underscore are shared code. A model's
module has a frozen pydantic `Config` and `build(config, shape)`.

Example:
    >>> "persistence" in names("models")
    True
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
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
    room = files("streamgp").joinpath(*kind.split("."))
    stems = (entry.name.removesuffix(".py") for entry in room.iterdir() if entry.is_dir() or entry.name.endswith(".py"))
    return tuple(sorted(stem for stem in stems if not stem.startswith("_")))


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
    return importlib.import_module(f"streamgp.{kind}.{name}")
