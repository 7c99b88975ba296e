"""How a text file is written: its encoding, separator and decimal mark, found in its first megabyte or given."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass

from streamgp.errors import DataError, UsageError
from streamgp_data.reading.careful import readable, split_line, split_records
from streamgp_data.reading.quotes import header_end
from streamgp_data.reading.units import number_cells

SAMPLE = 1 << 20
SEPARATORS = (",", ";", "\t", "|")
_NUMBER_LIKE = re.compile(
    r"[+-]?(\d+,\d+|\d*\.\d+|\d{1,3}(,\d{3})+(\.\d*)?|\d{1,3}([.' _\u2019\u00a0\u202f\u2009]\d{3})+([.,]\d*)?)"
    r"([eE][+-]?\d+)?"
)
_NO_TEXT = ("unicode_escape", "raw_unicode_escape", "idna", "punycode", "undefined", "utf_7")
_ASCII = bytes(range(128))


@dataclass(frozen=True)
class Dialect:
    """How the cells of a text file are written.

    Attributes:
        separator: one character. decimal: "." or ",". encoding: a Python codec name.
        thousands: the sign between groups of three digits, or None.
        trailing: whether rows end in a separator with nothing after it, where the header does not.
    """

    separator: str
    decimal: str
    encoding: str
    thousands: str | None = None
    trailing: bool = False


def encoding_of(head: bytes, given: str | None, uri: str) -> str:
    """The codec: as given, by byte order mark, UTF-8 if it decodes (but for a few lines), else cp1252, else latin-1.

    Raises:
        UsageError: the given name is unknown, or no encoding of text that lines and cells can be found in.
        DataError: "utf-16" was given, and there is no byte order mark.
    """
    if given is not None:
        name = _known(given)
        if name != "utf-16":
            return name.replace("iso8859-1", "latin-1").replace("utf-8-sig", "utf-8")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16-le" if head.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    if given is not None:
        raise DataError(f"{uri}: there is no UTF-16 byte order mark", hint="name utf-16-le or utf-16-be")
    if (wide := _utf16_of(head[:512])) is not None:
        return wide
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        pass
    else:
        return "utf-8"
    _, bad, beyond = readable(head[: head.rfind(b"\n") + 1] or head, "utf-8")
    if beyond > len(bad):  # some lines of a UTF-8 file are damaged
        return "utf-8"
    try:
        head.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def _utf16_of(head: bytes) -> str | None:
    """UTF-16 without a byte order mark: of the first character one byte is zero, as of most others, and none between.

    Example:
        >>> _utf16_of("t;ж\\n".encode("utf-16-be")), _utf16_of(b"t\\n\\0\\n")
        ('utf-16-be', None)
    """
    zeros = head[::2].count(0), head[1::2].count(0)
    if b"\0" not in head[:2] or min(zeros) or 4 * max(zeros) <= len(head):
        return None
    return "utf-16-be" if zeros[0] else "utf-16-le"


def _known(given: str) -> str:
    hint = "use utf-8, utf-16, latin-1, cp1252 or another encoding of text; iconv converts the others"
    try:
        found = codecs.lookup(given)
    except (LookupError, ValueError):
        raise UsageError(f"--encoding: {given!r} is unknown", hint=hint) from None
    if found.name in ("utf-16", "utf-16-le", "utf-16-be"):
        return found.name
    try:
        if found.name.replace("-", "_") in _NO_TEXT or _ASCII.decode(given) != _ASCII.decode("ascii"):
            raise LookupError
    except (LookupError, ValueError):  # of a codec that turns bytes into bytes, or that has other bytes for ASCII
        raise UsageError(
            f"--encoding: {given!r} is no encoding in which lines and separators are ASCII", hint=hint
        ) from None
    return found.name


def usable_separator(given: str | None) -> str | None:
    """The separator that was named.

    Raises:
        UsageError: it cannot stand between cells.

    Example:
        >>> usable_separator("\\\\t"), usable_separator(";")
        ('\\t', ';')
    """
    sign = {"\\t": "\t", "tab": "\t"}.get(given, given) if given is not None else None
    if sign is None:
        return None
    if len(sign) != 1 or not sign.isascii():
        raise UsageError(f"--separator {given!r} is not one ASCII character", hint="use , ; | or \\t")
    if sign.isalnum() or sign in '"\n\r.+-' or (not sign.isprintable() and sign not in "\t\x1f\x1e\x01"):
        raise UsageError(
            f"--separator {given!r} cannot stand between cells: it is part of numbers, of lines or of quoting",
            hint="use , ; | or \\t",
        )
    return sign


def separator_of(text: str) -> str:
    """The separator by which most of the first records have as many cells as the header, more than one.

    Example:
        >>> separator_of("a;b\\n1,5;2,5\\n"), separator_of("only\\n1\\n")
        (';', ',')
    """
    data = text.encode()
    best, most = ",", (0, 0)
    for candidate in SEPARATORS:
        end = header_end(data, candidate.encode())
        header = split_line(data[:end].lstrip(b"\r\n"), candidate) if end else None
        if header is None or len(header) < 2:
            continue
        body = first_lines(data[end:], 100)
        widths = [split_records(body, candidate, len(header), trailing).widths for trailing in (False, True)]
        score = (max(int((one == len(header)).sum()) for one in widths) if body else 1, len(header))
        if score > most:
            best, most = candidate, score
    return best


def first_lines(data: bytes, lines: int) -> bytes:
    """At most `lines` lines.

    Example:
        >>> first_lines(b"a\\nb\\nc\\n", 2)
        b'a\\nb\\n'
    """
    return b"\n".join(data.split(b"\n", lines)[:lines]) + b"\n" if data.count(b"\n") > lines else data


def looks_like_numbers(cells: Iterable[str]) -> str | None:
    """A cell of a text column most of whose cells look like numbers with a comma or with groups of digits.

    Example:
        >>> looks_like_numbers(["1,5", "", "2"]), looks_like_numbers(["a", "1,5"]), looks_like_numbers(["01.02.2024"])
        ('1,5', None, None)
        >>> looks_like_numbers(["1,234 kW", "2 kW"])
        '1,234 kW'
    """
    said = [cell.strip() for cell in cells if cell.strip()]
    numbers = number_cells(said)
    marked = [cell for cell, number in zip(said, numbers, strict=True) if _NUMBER_LIKE.fullmatch(number)]
    plain = sum(number.lstrip("+-").isdigit() for number in numbers)
    return marked[0] if marked and 2 * (len(marked) + plain) > len(said) else None
