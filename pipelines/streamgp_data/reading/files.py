"""From what the user names to files, and from a file to the source that reads it."""

from __future__ import annotations

import glob
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pyarrow as pa

from streamgp import registry
from streamgp.base import Chunk, Offset, Source
from streamgp.errors import DataError, UsageError
from streamgp_data.presence import no_source
from streamgp_data.reading.bytes import COMPRESSED, open_bytes
from streamgp_data.reading.records import Stopped
from streamgp_data.reading.signs import signs

KIND = "sources"
PACKED = (".zip", ".tar", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".z")
"""Suffixes of archives and compressed files that are not read."""


class FileSource(Source, Protocol):
    """A Source over one file, whose columns can be given types.

    Attributes:
        names: the columns. units: of some of them. sample: the first rows.
        waiting: whether a last line without newline was left, after a read.
        doubts: columns that may be misunderstood -> what to do about it.
        stopped: where it stopped reading; another source over the same file may be given it, to go on from there.
        first_line: the line, or row, of its first row.
        header: the row that seems to be the header where the one that was taken is none, from 1; else None.
    """

    uri: str
    names: list[str]
    units: dict[str, str]
    sample: pa.Table
    waiting: bool
    doubts: dict[str, str]
    stopped: Stopped | None
    header: int | None

    @property
    def first_line(self) -> int: ...

    def expect(self, schema: pa.Schema) -> None: ...

    def torn(self, after: Offset) -> Chunk | None: ...


@cache
def suffixes() -> dict[str, str]:
    """Suffix -> format, as the formats' own files declare them."""
    return {suffix: name for name in registry.names(KIND) for suffix in registry.load(KIND, name).SUFFIXES}


def expand(names: tuple[str, ...]) -> list[str]:
    """The files that files, directories, globs and "-" stand for: what was named, in that order, sorted within.

    Raises:
        DataError: nothing is there, or nothing that can be read.
    """
    found: list[str] = []
    for name in names:
        path = Path(name)
        if name == "-" or path.is_file():
            files = [name]
        elif path.is_dir():
            files = _inside(path)
        else:
            files = sorted(file for file in glob.glob(name, recursive=True) if Path(file).is_file())
            if not files:
                raise no_source(name)
        found += [file for file in files if file not in found]
    return found


def _inside(folder: Path) -> list[str]:
    """The readable files of a directory: what is hidden, and what belongs to a table in it, is skipped."""
    if (folder / "_delta_log").is_dir():
        raise DataError(f"{folder} is a Delta table, not a source", hint="name its Parquet files if you mean them")
    found = (path for path in folder.rglob("*") if path.suffix != ".log")  # most are no logs of a CAN bus
    files = sorted(path for path in found if path.is_file() and format_of(str(path)) is not None)
    hidden = [path for path in files if any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)]
    tables = {log.parent for log in folder.rglob("_delta_log")}
    files = [path for path in files if path not in hidden and tables.isdisjoint(path.parents)]
    if not files:
        raise DataError(
            f"{folder}: no file in this directory has a known suffix",
            hint=f"known are {', '.join(sorted(suffixes()))}, each also with .gz or .zst",
        )
    return [str(path) for path in files]


def format_of(uri: str) -> str | None:
    """The format that a file's suffixes name, or None."""
    path = Path(uri)
    stem = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return suffixes().get(stem.suffix.lower())


def open_source(uri: str, form: str | None, options: dict[str, Any], looking: bool = False) -> FileSource:
    """The source that reads `uri`; the format is `form`, or the suffix's, or (standard input) the first bytes'.

    `options` are given to the format as far as its Config has them; None means not given. Where one is only `looking`,
    others are no error.

    Raises:
        DataError: the suffix is unknown, or the file cannot be read.
        UsageError: an option was given that the format does not have.
    """
    name = form or (_sniffed() if uri == "-" else format_of(uri))
    if name is None:
        suffix = Path(uri).suffix
        hint = f"rename it to one of {', '.join(sorted(suffixes()))}, or say --format csv"
        if suffix.lower() == ".json":
            hint = f"say --format jsonl if it has an object a line; a list becomes that with: jq -c '.[]' {uri}"
        if suffix.lower() in PACKED:
            hint = f"unpack it: read are single files, compressed as {' or '.join(COMPRESSED)}"
        raise DataError(f"{uri}: the suffix {suffix!r} names no known format", hint=hint)
    _check_format(name)
    module: ModuleType = registry.load(KIND, name)
    given = {key: value for key, value in options.items() if value not in (None, (), False)}
    of_all = {"final", "max_line", "time", "time_format", "interval", "signals"}
    alien = sorted(set(given) - set(module.Config.model_fields) - of_all)
    if alien and not looking:
        flags = ", ".join("--" + one.replace("_", "-") for one in alien)
        raise UsageError(f"{uri}: a {name} file has no {flags}", hint="leave the option out")
    source: FileSource = module.build(
        module.Config(**{k: v for k, v in given.items() if k in module.Config.model_fields}), uri
    )
    return source


def _sniffed() -> str:
    stream, _ = open_bytes("-")
    peek = getattr(stream, "peek", None)
    head: bytes = peek(8)[:8] if peek is not None else b""
    for sign, (_, form) in signs().items():
        if form and head.startswith(sign):
            return form
    return "jsonl" if head.lstrip()[:1] == b"{" else "csv"


def _check_format(name: str) -> None:
    """See that there is a format of this name.

    Raises:
        UsageError: there is none; a suffix says which is meant.
    """
    known = registry.names(KIND)
    if name in known or "." in name.strip("."):
        return
    near = get_close_matches(name, known, n=1)
    meant = suffixes().get(f".{name.strip('.').lower()}") or (near[0] if near else None)
    among = f"the formats of files are {', '.join(known)}"
    hint = among if meant is None else f"did you mean {meant}? {among}"
    raise UsageError(f"--format {name}: there is no such format", hint=hint)
