"""Where the header is, in a text file or a workbook that begins with a title."""

from __future__ import annotations

import re

import pyarrow as pa

from streamgp.streaming.reading.files import FileSource

_UNNAMED = re.compile(r"column_\d+|__UNNAMED__\d+")
_MOST = 50
"""Rows of a title at most."""


def header_below(source: FileSource) -> int | None:
    """The row that seems to be the header, from 1, where the first one names no columns; None where it names them.

    It is the first row of several cells, all of them beginning with a letter, below one that has names for at most half
    of the columns, or is a single cell.
    """
    if not all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in source.sample.schema.types):
        return None
    rows = source.sample.slice(0, _MOST).to_pylist()
    if len(source.names) == 1:
        lines = (re.split(r"[;,\t|]", row[source.names[0]] or "") for row in rows if _is_text(row[source.names[0]]))
        return next(
            (place for place, cells in enumerate(lines, 2) if len(cells) > 1 and all(map(_is_text, cells))), None
        )
    if 2 * sum(_UNNAMED.fullmatch(name) is not None for name in source.names) < len(source.names):
        return None
    return next((place for place, row in enumerate(rows, 2) if all(map(_is_text, row.values()))), None)


def _is_text(cell: object) -> bool:
    """Whether it says something that is no number and no date."""
    return isinstance(cell, str) and re.match(r"\s*[^\W\d_]", cell) is not None
