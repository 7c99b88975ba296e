"""What parts there are: (kind, name) -> module, listed without importing any.

A part is a file or a folder in the room of its kind, named after the part: `streamgp/models/linear.py` is
("models", "linear"), and so is `streamgp/models/svdgp/`. A folder with a file `variants.py` holds several parts:
`DOCSTRINGS` there has them by name, and `variant(name)` makes the module of one. Names that begin with an underscore
are shared code. A model's module has a `Config`, a `ModelConfig`, and `build(config, shape)`.

Other packages have parts too. One that is installed offers modules as entry points: `streamgp.models`,
`streamgp.kernels`, `streamgp.encoders`, ...; names of this package win. Any other module is named by its dotted path,
such as `my_package.my_kernel`. It is imported only if the user has named it (`trust`, STREAMGP_PARTS) or has imported
it: what a checkpoint names is not enough.

Example:
    >>> "persistence" in names("models")
    True
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import ModuleType

from streamgp.errors import StreamgpError, UsageError

ROOMS = {
    "models": "streamgp.models",
    "kernels": "streamgp.kernels",
    "features": "streamgp.features",
    "encoders": "streamgp.encoders",
    "likelihoods": "streamgp.likelihoods",
    "predictives": "streamgp.predictives",
    "solvers": "streamgp.solvers",
    "sources": "streamgp_data.sources",
    "feeds": "streamgp_data.feeds",
}
"""Kind -> the package that holds its parts."""


@cache
def names(kind: str) -> tuple[str, ...]:
    """The parts of a kind, in alphabetical order, found from the names of files and folders.

    Raises:
        UsageError: there is no such kind.
    """
    if kind not in ROOMS:
        raise UsageError(f"there is no kind of part {kind!r}", hint=f"the kinds are {', '.join(ROOMS)}")
    return tuple(sorted(_homes(kind).keys() | _installed(kind).keys()))


@cache
def _homes(kind: str) -> dict[str, Traversable]:
    """Part -> its file, its folder, or the folder that holds it with others."""
    found = dict[str, Traversable]()
    for entry in files(ROOMS[kind]).iterdir():
        stem = entry.name.removesuffix(".py")
        if stem.startswith("_") or not (entry.is_dir() or entry.name.endswith(".py")):
            continue
        together = entry.is_dir() and entry.joinpath("variants.py").is_file()
        found |= dict.fromkeys(_together(kind, entry).DOCSTRINGS if together else [stem], entry)
    return found


def _installed(kind: str) -> dict[str, EntryPoint]:
    """Parts of other packages by name."""
    return {point.name: point for point in entry_points(group=f"streamgp.{kind}")}


def _together(kind: str, home: Traversable) -> ModuleType:
    return importlib.import_module(f"{ROOMS[kind]}.{home.name}.variants")


def docstring(kind: str, name: str) -> str:
    """What a part says of itself, read without importing it where it is one of this package.

    Example:
        >>> docstring("models", "persistence").split(":")[0]
        'Persistence'
    """
    if name not in _homes(kind):
        try:
            return load(kind, name).__doc__ or ""
        except StreamgpError as error:
            return error.message
    home = _homes(kind)[name]
    if home.is_dir() and home.name != name:
        text: str = _together(kind, home).DOCSTRINGS[name]
        return text
    file = home.joinpath("__init__.py") if home.is_dir() else home
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


_trusted: set[str] = set()
_outside: dict[tuple[str, str], ModuleType] = {}
_of_config: dict[type, tuple[str, str]] = {}


def trust(text: str) -> None:
    """Allow the modules whose dotted paths stand in a text of the user's to be imported as parts.

    Example:
        >>> trust("my_package.my_kernel")
    """
    _trusted.update(re.findall(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", text))


def owner(config: type) -> tuple[str, str] | None:
    """Kind and name of the part of another package that a Config belongs to."""
    return _of_config.get(config)


def check(kind: str, name: str) -> None:
    """See that there is such a part, without importing it where it is one of this package.

    Raises:
        UsageError: no part has this name; the hint names the nearest.
    """
    if name in _homes(kind) or (kind, name) in _outside:
        return
    known = names(kind)
    if "." in name or name in known:
        load(kind, name)
        return
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
    raise UsageError(f"{kind.removesuffix('s')} {name!r} is unknown", hint=hint)


def load(kind: str, name: str) -> ModuleType:
    """Import the module of one part.

    Raises:
        UsageError: no part has this name, or a module of another package is not trusted, cannot be imported or is no
            part.
    """
    if name in _homes(kind):
        home = _homes(kind)[name]
        if home.is_dir() and home.name != name:
            made: ModuleType = _together(kind, home).variant(name)
            return made
        return importlib.import_module(f"{ROOMS[kind]}.{name}")
    if (kind, name) not in _outside:
        point = None if "." in name else _installed(kind).get(name)
        if point is None and "." not in name:
            check(kind, name)
        _outside[kind, name] = _imported(kind, name, name if point is None else point.value)
    return _outside[kind, name]


def _imported(kind: str, name: str, path: str) -> ModuleType:
    """The module of a part of another package."""
    named = {*_trusted, *os.environ.get("STREAMGP_PARTS", "").split(",")}
    if path == name and name not in named and name not in sys.modules:
        raise UsageError(
            f"{name} is a module of another package, and is imported only if you name it",
            hint=f"set STREAMGP_PARTS={name}, import it before in Python, or make it an entry point streamgp.{kind}",
        )
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        hint = "install its package, or correct the name"
        raise UsageError(f"{path} cannot be imported: {error}", hint=hint) from None
    if not hasattr(module, "Config") or not callable(getattr(module, "build", None)):
        raise UsageError(f"{path} is no part: it has no Config or no build", hint="CONTRIBUTING.md shows one")
    if kind == "models" and not hasattr(module.Config, "bytes_of"):
        hint = "class Config(streamgp.model_config.ModelConfig)"
        raise UsageError(f"{path} is no model: its Config does not derive from ModelConfig", hint=hint)
    _of_config[module.Config] = kind, name
    return module
