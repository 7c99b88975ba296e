"""How a text file is written: its encoding, separator and decimal mark, found in its first megabyte or given."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from dataclasses import dataclass

from streamgp.errors import DataError, UsageError

SAMPLE = 1 << 20
SEPARATORS = (",", ";", "\t", "|")
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Dialect:
    """separator: one character; decimal: "." or ","; encoding: a Python codec name."""

    separator: str
    decimal: str
    encoding: str


def encoding_of(head: bytes, given: str | None, uri: str) -> str:
    """The codec: as given, by byte order mark, UTF-8 if it decodes, else Windows' cp1252, else latin-1.

    Raises:
        UsageError: the given name is unknown.
    """
    if given is not None:
        try:
            name = codecs.lookup(given).name
        except LookupError:
            raise UsageError(
                f"encoding {given!r} is unknown", hint="use utf-8, utf-16, latin-1, cp1252 or another Python codec"
            ) from None
        if name != "utf-16":
            return name.replace("iso8859-1", "latin-1").replace("utf-8-sig", "utf-8")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16-le" if head.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    if given is not None:
        raise DataError(f"{uri}: there is no UTF-16 byte order mark", hint="name utf-16-le or utf-16-be")
    if b"\0" in head[:4]:
        return "utf-16-le" if head[1:2] == b"\0" else "utf-16-be"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        pass
    else:
        return "utf-8"
    try:
        head.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def separator_of(text: str) -> str:
    """The separator by which most of the first lines split into the same number of cells, more than one.

    Example:
        >>> separator_of("a;b\\n1,5;2,5\\n"), separator_of("only\\n1\\n")
        (';', ',')
    """
    best, most = ",", (0, 0)
    for candidate in SEPARATORS:
        try:
            rows = [row for row in csv.reader(io.StringIO(text), delimiter=candidate) if row][:100]
        except csv.Error:
            continue
        if not rows:
            continue
        width, count = Counter(len(row) for row in rows).most_common(1)[0]
        score = (count if width > 1 and len(rows[0]) == width else 0, width)
        if score > most:
            best, most = candidate, score
    return best


def decimal_of(cells: list[list[str]], separator: str) -> str:
    """A comma where cells look like 1,5 and none like 1.5; never between commas, where "1,234" is a thousand."""
    bare = [cell.strip() for row in cells for cell in row]
    commas = sum(_COMMA_NUMBER.fullmatch(cell) is not None for cell in bare)
    points = sum(_POINT_NUMBER.fullmatch(cell) is not None for cell in bare)
    return "," if commas and not points and separator != "," else "."
