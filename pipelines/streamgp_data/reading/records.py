"""Cutting a text stream into blocks of whole records, each with the position after it.

A record is a line, or several lines where a quoted cell holds newlines (see `quotes`). Memory is bounded: a line
longer than a limit is read in pieces, and only its beginning is kept.
"""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from streamgp.errors import DataError
from streamgp_data.reading.bytes import Digest, Position, read_some
from streamgp_data.reading.cells import fault
from streamgp_data.reading.quotes import Ints, Rest, header_end, record_ends

LONGEST = 16_000_000
"""Bytes of a line that is still taken, unless another limit is asked for."""

KEPT = 4096
"""Bytes of a longer line that go to the quarantine."""

LINES = 1 << 18
"""Lines of one block, blank ones too."""

BLOCK = 16 << 20
"""Bytes of one block."""

_CACHED = 1 << 18
_ZERO: Ints = np.zeros(0, np.int64)


class Stopped(NamedTuple):
    """Where a reader stopped in a file, so that a later one of the same run need not hash it all again."""

    position: Position
    digest: Digest
    last: bytes
    inode: int


class RecordBlock(NamedTuple):
    """Whole records, UTF-8 or an 8-bit encoding.

    Attributes:
        data: their bytes. line: the number of the first line, from 1. after: the position after them.
        long: 0; or the bytes of a single line that is longer than the limit, of which `data` is the beginning.
    """

    data: bytes
    line: int
    after: Position
    long: int = 0


class Torn(NamedTuple):
    """A last line that was taken without its newline and has grown since.

    Attributes:
        before: the position before it. text: its bytes as they were taken, of an encoding as in a `RecordBlock`.
    """

    before: Position
    text: bytes


class _Mark(NamedTuple):
    """A place to which a reader can return as long as it has the bytes after it."""

    position: Position
    digest: Digest
    last: bytes


class Records:
    """The records of a byte stream, front to back.

    Args:
        stream: decompressed bytes.
        uri: for messages.
        separator: the character between cells, or None where quotes mean nothing (JSON Lines).
        width: cells of a record; 0 where it is not known.
        longest: bytes of a line from which on only its beginning is kept.
        utf16: "utf-16-le", "utf-16-be" or None; UTF-16 is recoded to UTF-8 before anything else sees it. What is not
            UTF-16 becomes bytes that are not UTF-8.
    """

    def __init__(
        self,
        stream: BinaryIO,
        uri: str,
        separator: str | None = None,
        width: int = 0,
        longest: int = LONGEST,
        utf16: str | None = None,
    ) -> None:
        self._stream = stream
        self._uri = uri
        self._named = "standard input" if uri == "-" else uri
        self._separator = None if separator is None else separator.encode()
        self._width = width
        self._longest = longest
        self._decoder = codecs.getincrementaldecoder(utf16)("surrogatepass") if utf16 else None
        self._digest = Digest()
        self._bytes = self._lines = 0
        self._pending = self._last = b""
        self._ended = self._paused = False
        self.waiting = False
        self.stopped: Stopped | None = None

    @property
    def position(self) -> Position:
        return Position(self._bytes, self._lines, self._digest.value())

    def shape(self, separator: str, width: int, utf16: str | None) -> None:
        """What was found out from the first bytes, of which none may have been consumed."""
        self._separator, self._width = separator.encode(), width
        if utf16 is not None:
            self._decoder = codecs.getincrementaldecoder(utf16)("surrogatepass")
            self._pending = self._recoded(self._pending)

    def skip(self, to: Position, known: Stopped | None = None) -> None:
        """Read and hash up to `to`, or go there at once where a reader of the same run has stopped.

        Raises:
            DataError: these bytes are not the ones that were consumed before.
        """
        self._leap(to, known)
        self._walk(to)
        if self._grown():
            raise DataError(
                f"{self._named}, line {self._lines + 1}: the last line was taken without its newline, and has grown "
                "since: the table has a row of half a line",
                hint="run the same command with --repair: it takes the whole line and sets the row of the half one "
                "aside",
            )

    def torn(self, to: Position) -> Torn | None:
        """The last line before `to`, if it was taken torn and has grown since; then this reader stands before it.

        Raises:
            DataError: these bytes are not the ones that were consumed before.
        """
        mark, tail = self._walk(to)
        if not self._grown():
            return None
        if len(tail) > self._longest:
            raise DataError(
                f"{self._named}, line {self._lines + 1}: half of it was taken, and it is longer than --max-line",
                hint="run the same command with a larger --max-line",
            )
        self._return(mark, tail)
        return Torn(self.position, tail)

    def blocks(self, final: bool) -> Iterator[RecordBlock]:
        """Blocks of whole records. Without `final`, a last line without newline is left, and `waiting` set."""
        while True:
            size = self._cut(final)
            if size:
                piece, self._pending = self._pending[:size], self._pending[size:]
                line = self._lines + 1
                self._take(piece)
                yield RecordBlock(piece, line, self.position)
            elif self._too_long():
                block = self._long(final)
                if block is None:
                    break
                yield block
            elif self._ended:
                if not (final and self._half()):
                    break
            else:
                self._more(BLOCK)
        self.waiting = bool(self._pending) or self.waiting
        if (inode := self._inode()) >= 0:
            self.stopped = Stopped(self.position, self._digest.copy(), self._last, inode)

    def first(self, size: int, lines: int = 2) -> bytes:
        """The first bytes, without consuming them: `size`, or more until there are `lines` newlines, as far as the
        longest line that is taken; fewer when a pipe pauses after these lines, two at least."""
        wanted = size
        while True:
            while len(self._pending) < wanted and self._more(wanted - len(self._pending)):
                if self._paused and self._pending.count(b"\n") >= max(lines, 2):
                    return self._pending[:wanted]
            head = self._pending[:wanted]
            if self._ended or wanted > size + self._longest or head.count(b"\n") >= lines:
                return head
            wanted += min(self._longest, BLOCK) + 1

    @property
    def ended(self) -> bool:
        """Whether the stream has given all that it has."""
        return self._ended

    def close(self) -> None:
        """Close the file; standard input is not ours to close."""
        if self._uri != "-":
            self._stream.close()

    def _walk(self, to: Position) -> tuple[_Mark, bytes]:
        """Consume up to `to`; gives the last beginning of a line, and what was consumed after it."""
        mark, tail = self._here(), b""
        while self._bytes < to.bytes and (self._pending or self._more(min(BLOCK, to.bytes - self._bytes))):
            piece = self._pending[: to.bytes - self._bytes]
            self._pending = self._pending[len(piece) :]
            cut = piece.rfind(b"\n") + 1
            if cut:
                self._take(piece[:cut])
                mark, tail = self._here(), b""
            self._take(piece[cut:])
            tail = (tail + piece[cut:])[: self._longest + 1]
        if to.bytes and (self._bytes < to.bytes or self._digest.value() != to.hash):
            raise DataError(
                f"{self._named}: its first {to.bytes} bytes are not those ingested before: the file was changed",
                hint="if these are new rows, ingest it under another name: --as NAME",
            )
        return mark, tail

    def _grown(self) -> bool:
        """Whether what was consumed ends within a line."""
        return self._last not in b"\n" and self.first(2, 0)[:1] not in (b"", b"\n") and self.first(2, 0) != b"\r\n"

    def _here(self) -> _Mark:
        return _Mark(self.position, self._digest.copy(), self._last)

    def _return(self, mark: _Mark, behind: bytes) -> None:
        (self._bytes, self._lines, _), self._digest, self._last = mark
        self._pending = behind + self._pending

    def _leap(self, to: Position, known: Stopped | None) -> None:
        if known is None or known.position != to or self._bytes or known.inode != self._inode():
            return
        if self._stream.seek(0, io.SEEK_END) < to.bytes:
            self._stream.seek(len(self._pending))
            return
        self._stream.seek(to.bytes)
        self._pending, self._digest, self._last = b"", known.digest.copy(), known.last
        self._bytes, self._lines = to.bytes, to.lines

    def _inode(self) -> int:
        """Identifies a file among others at the same path; -1 where the stream is no plain file."""
        plain = self._decoder is None and self._uri != "-" and self._stream.seekable()
        return os.fstat(self._stream.fileno()).st_ino if plain else -1

    def _take(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._last = piece[-1:] or self._last
        self._bytes += len(piece)
        self._lines += count(piece, 10)

    def _more(self, size: int) -> bool:
        """Read more into what is pending; False at the end."""
        data = self._read(size)
        self._pending = self._pending + data if self._pending else data
        return not self._ended

    def _read(self, size: int) -> bytes:
        if self._ended or size <= 0:
            return b""
        data = read_some(self._stream, size, self._uri)
        self._ended = not data
        self._paused = len(data) < size
        if self._decoder is not None:
            data = self._recoded(data)
        return data

    def _recoded(self, data: bytes) -> bytes:
        """UTF-16 as UTF-8; half a character at the end waits, as half a line does."""
        assert self._decoder is not None
        return self._decoder.decode(data).encode("utf-8", "surrogatepass")

    def _half(self) -> bool:
        """Half a character at the very end, taken as bytes that cannot be read."""
        if self._decoder is None or not self._decoder.getstate()[0]:
            return False
        self._decoder.reset()
        self._pending += b"\xff"
        return True

    def _cut(self, final: bool) -> int:
        """Bytes of `pending` that are whole records of usual length."""
        data = self._pending
        if not data:
            return 0
        last = self._ended and final
        rest = Rest.NONE if last else Rest.LATER if self._ended or self._paused else Rest.MORE
        plain = self._separator is None or b'"' not in data
        ends = _ZERO if plain else self._ends(data, rest)
        whole = data.rfind(b"\n") + 1 if plain else int(ends[-1]) if len(ends) else 0
        if last and b"\n" not in data[whole:]:
            whole = len(data)
        if len(data) > self._longest and (long := _long_line(data[:whole], self._longest)) >= 0:
            whole = long  # a quote that is open there is a stray one
            ends = _ZERO if plain else self._ends(data[:long], Rest.NONE)
        if plain:
            return whole if blank(data[:whole]) else _line_end(data, whole, LINES)
        return int(ends[LINES - 1]) if len(ends) > LINES else whole

    def _ends(self, data: bytes, rest: Rest) -> Ints:
        """Offsets after the records of `data`; the header, however many cells it has, is the first one."""
        assert self._separator is not None
        header = 0 if self._bytes else header_end(data, self._separator)
        ends = header + record_ends(data[header:], self._separator, self._width, rest)
        return np.append(header, ends) if header else ends

    def _too_long(self) -> bool:
        """Whether what is pending begins with a line beyond the limit."""
        limit = self._longest
        return len(self._pending) > limit and self._pending.find(b"\n", 0, limit + 1) < 0

    def _long(self, final: bool) -> RecordBlock | None:
        """A line beyond the limit, read in pieces; None, and all as before, where it has not ended."""
        mark = self._here()
        kept, size = b"", 0
        while True:
            end = self._pending.find(b"\n") + 1
            piece = self._pending[: end or None]
            self._pending = self._pending[len(piece) :]
            size += len(piece)
            kept += piece[: KEPT - len(kept)]
            self._take(piece)
            if end or (self._ended and final):
                return RecordBlock(kept.rstrip(b"\r\n"), mark.position.lines + 1, self.position, size)
            if self._ended:
                self._return(mark, b"")
                self.waiting = True
                return None
            self._more(BLOCK)


def too_long(block: RecordBlock, limit: int) -> str:
    """What is wrong with a line beyond the limit."""
    return fault(
        "too long", "", f"{block.long:,} bytes, --max-line is {limit:,}; the first {len(block.data):,} are kept"
    )


def blank(data: bytes) -> bool:
    """Whether there is nothing but empty lines.

    Example:
        >>> blank(b"\\n\\r\\n"), blank(b"\\n \\n")
        (True, False)
    """
    return data.isspace() and not data.replace(b"\r\n", b"\n").strip(b"\n")


def count(data: bytes, byte: int) -> int:
    """How often a byte occurs, in pieces that stay in the cache; bytes.count, which stops at each, takes far longer."""
    text = np.frombuffer(data, np.uint8)
    return sum(int(np.count_nonzero(text[i : i + _CACHED] == byte)) for i in range(0, len(text), _CACHED))


def _line_end(data: bytes, stop: int, lines: int) -> int:
    """The end of the last of at most `lines` lines before `stop`.

    Example:
        >>> _line_end(b"a\\nb\\nc\\n", 6, 2), _line_end(b"a\\nb", 3, 2)
        (4, 3)
    """
    text, seen = np.frombuffer(data, np.uint8, stop), 0
    for start in range(0, stop, _CACHED):
        here = text[start : start + _CACHED] == 10
        number = int(np.count_nonzero(here))
        if seen + number > lines:
            return (
                start + int(np.flatnonzero(here)[lines - seen - 1]) + 1
                if lines > seen
                else data.rfind(b"\n", 0, start) + 1
            )
        seen += number
    return stop


def _long_line(data: bytes, limit: int) -> int:
    """Where the first line beyond `limit` bytes begins; -1 without one.

    Example:
        >>> _long_line(b"a\\nlonger\\nb\\n", 4), _long_line(b"a\\nb\\n", 4)
        (2, -1)
    """
    half = max(1, limit // 2)  # a longer line covers one of these windows
    if all(data.find(b"\n", at, at + half) >= 0 for at in range(0, len(data) - half + 1, half)):
        return -1
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1
    if not len(ends) or ends[-1] < len(data):
        ends = np.append(ends, len(data) + 1)
    starts = np.append(0, ends[:-1])
    long = starts[ends - starts > limit + 1]
    return int(long[0]) if len(long) else -1
