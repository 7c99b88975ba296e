"""How a text file is written: its encoding, separator and decimal mark, found in its first megabyte or given."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from streamgp.errors import DataError, UsageError
from streamgp.streaming.reading.careful import readable, split_line, split_records
from streamgp.streaming.reading.quotes import header_end

SAMPLE = 1 << 20
SEPARATORS = (",", ";", "\t", "|")
GROUPINGS = (",", ".", "'", " ", "_")
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_BOTH = {
    ",": re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+,\d+"),  # the decimal mark of 1.234,5
    ".": re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+\.\d+"),
}
_NUMBER_LIKE = re.compile(
    r"[+-]?(\d+,\d+|\d*\.\d+|\d{1,3}(,\d{3})+(\.\d*)?|\d{1,3}([.' _]\d{3})+([.,]\d*)?)([eE][+-]?\d+)?"
)
_WITH_UNIT = re.compile(r"[+-]?[\d.,]+(?:[eE][+-]?\d+)?(?:\s+|(?=[%°]))([^\d\s+-]\S{0,15})")
_NO_TEXT = ("unicode_escape", "raw_unicode_escape", "idna", "punycode", "undefined", "utf_7")
_ASCII = bytes(range(128))


@dataclass(frozen=True)
class Dialect:
    """How the cells of a text file are written.

    Attributes:
        separator: one character. decimal: "." or ",". encoding: a Python codec name.
        thousands: the sign between groups of three digits, or None.
        trailing: whether rows end in a separator with nothing behind it, where the header does not.
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
    """At most so many lines.

    Example:
        >>> first_lines(b"a\\nb\\nc\\n", 2)
        b'a\\nb\\n'
    """
    return b"\n".join(data.split(b"\n", lines)[:lines]) + b"\n" if data.count(b"\n") > lines else data


def decimal_of(cells: Iterable[str], separator: str) -> str:
    """A comma where cells look like 1,5 and none like 1.5; between commas only where they look like 1.234,5.

    Between commas, "1,234" may be a thousand and "1,5" a list: neither is guessed at.

    Example:
        >>> decimal_of(["1,5", "2"], ";"), decimal_of(["1,5", "2"], ","), decimal_of(["1.234,5"], ",")
        (',', '.', ',')
    """
    bare = [cell.strip() for cell in cells]
    sure = [cell for cell in bare if _BOTH[","].fullmatch(cell)]
    commas = bool(sure) or (separator != "," and any(_COMMA_NUMBER.fullmatch(cell) for cell in bare))
    groups = grouping(".", ",") if sure else None  # beside 1.234,5 the number 2.345 has no decimals
    points = [cell for cell in bare if _POINT_NUMBER.fullmatch(cell) or _BOTH["."].fullmatch(cell)]
    return "," if commas and all(groups and groups.fullmatch(cell) for cell in points) else "."


def thousands_of(columns: Sequence[Sequence[str]], decimal: str) -> str | None:
    """The sign between groups of three digits, where a column has cells like 1,234.5 and none that contradicts.

    Example:
        >>> thousands_of([["1,234.5", "7", "1,000"]], "."), thousands_of([["1,234.5", "1,5"]], ".")
        (',', None)
        >>> thousands_of([["1,234"]], ".") is None  # or is it 1.234?
        True
    """
    sign = "." if decimal == "," else ","
    for column in columns:
        marked = [cell.strip() for cell in column if sign in cell]
        if any(_BOTH[decimal].fullmatch(cell) for cell in marked) and all(
            map(grouping(sign, decimal).fullmatch, marked)
        ):
            return sign
    return None


def grouping(sign: str, decimal: str) -> re.Pattern[str]:
    """Numbers whose digits are grouped by threes."""
    return re.compile(rf"[+-]?\d{{1,3}}({re.escape(sign)}\d{{3}})+({re.escape(decimal)}\d*)?")


def unit_of(cells: Iterable[str]) -> str | None:
    """The unit that at least half of the cells of a column have behind a number; None where there is none.

    Example:
        >>> unit_of(["57 km/h", "58.5 km/h", "-"]), unit_of(["12%"]), unit_of(["1 a", "2 b", "3 c"]), unit_of(["12A"])
        ('km/h', '%', None, None)
    """
    said = [cell.strip() for cell in cells if cell.strip()]
    units = Counter(found[1] for cell in said if (found := _WITH_UNIT.fullmatch(cell)))
    unit, count = units.most_common(1)[0] if units else ("", 0)
    return unit if count and 2 * count >= len(said) else None


def numbers_of(column: Sequence[str]) -> Sequence[str]:
    """The cells of a column without the unit that most have behind a number; as they are where there is none.

    Example:
        >>> numbers_of(["3,41 kW", "-", "12,5 kW"]), numbers_of(["1,5", "2"])
        (['3,41', '-', '12,5'], ['1,5', '2'])
    """
    unit = unit_of(column)
    return column if unit is None else [cell.strip().removesuffix(unit).rstrip() for cell in column]


def without_unit(cells: pl.Series, unit: str) -> pl.Series:
    """Cells without their unit; one that has another, or none, stays a text that is no number.

    Example:
        >>> without_unit(pl.Series(["57 km/h", "35 mph", "", None]), "km/h").to_list()
        ['57', '35 mph', '', None]
    """
    bare = cells.str.strip_chars()
    has = bare.str.ends_with(unit).fill_null(True)
    number = bare.str.contains(r"^[+-]?[\d.,]+$").fill_null(False)
    kept = bare.zip_with(~number, bare + " (without a unit)")
    return bare.str.strip_suffix(unit).str.strip_chars_end().zip_with(has, kept)


def looks_like_numbers(cells: Iterable[str]) -> str | None:
    """A cell of a text column most of whose cells look like numbers with a comma or with groups of digits.

    Example:
        >>> looks_like_numbers(["1,5", "", "2"]), looks_like_numbers(["a", "1,5"]), looks_like_numbers(["01.02.2024"])
        ('1,5', None, None)
        >>> looks_like_numbers(["1,234 kW", "2 kW"])
        '1,234 kW'
    """
    said = [cell.strip() for cell in cells if cell.strip()]
    numbers = numbers_of(said)
    marked = [cell for cell, number in zip(said, numbers, strict=True) if _NUMBER_LIKE.fullmatch(number)]
    plain = sum(number.lstrip("+-").isdigit() for number in numbers)
    return marked[0] if marked and 2 * (len(marked) + plain) > len(said) else None
