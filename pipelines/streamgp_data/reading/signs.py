"""What the first bytes of a file say about its format, whatever it is called."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from streamgp import registry
from streamgp.errors import DataError


class Sign(NamedTuple):
    """What a file is that begins with certain bytes, and the format that reads it; "" where none does."""

    what: str
    form: str


_OTHERS = {
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ\x00": "an xz file",
    b"SQLite format 3": "an SQLite database",
    b"Obj\x01": "an Avro file",
    b"\x1f\x8b": "a gzip file within another compressed file",
    b"\x28\xb5\x2f\xfd": "a zstd file within another compressed file",
}
"""Files that no format reads."""
_TEXT = bytes(range(32, 127)) + b"\t\n\r"


@cache
def signs() -> dict[bytes, Sign]:
    """First bytes -> what a file is, as the formats' own files declare them (`SIGNS`); and those that none reads."""
    found = {sign: Sign(what, "") for sign, what in _OTHERS.items()}
    for name in registry.names("sources"):
        own: dict[bytes, str] = getattr(registry.load("sources", name), "SIGNS", {})
        found |= {sign: Sign(what, name) for sign, what in own.items()}
    return found


def reject_other_formats(head: bytes, uri: str, name: str) -> None:
    """Refuse a binary file that is to be read as text of the format `name`.

    Raises:
        DataError: it names the real format, and how to read it.
    """
    for sign, (what, form) in signs().items():
        if head.startswith(sign) and head[len(sign) : 512].translate(None, _TEXT):
            hint = (
                f"say --format {form}, or rename it" if form else "unpack or convert it to CSV, Parquet or Arrow first"
            )
            raise DataError(f"{uri}: this is {what}, not {name}", hint=hint)
