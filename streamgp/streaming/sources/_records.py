"""Cutting a text stream into blocks of whole records, each with the position behind it.

A record is a line, or several lines where a quoted cell holds newlines. A quote opens a quoted cell only at the
start of a cell; elsewhere it is an ordinary character.
"""

from __future__ import annotations

import codecs
import io
import os
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgp.errors import DataError
from streamgp.streaming.sources._bytes import Digest, Position, digest, read_some

Ints = NDArray[np.int64]


class Stopped(NamedTuple):
    """Where a reader stopped in a file, so that a later one of the same run need not hash it all again."""

    position: Position
    digest: Digest
    last: bytes
    inode: int


RECORD_LIMIT = 1 << 20
"""A quoted cell longer than this, in bytes, is taken for a stray quote: its first line is a record of its own."""

_CACHED = 1 << 18

BLOCK = 16 << 20
"""Bytes of one block."""


class Block(NamedTuple):
    """Whole records, UTF-8 or an 8-bit encoding; `line` is the number of the first line, from 1."""

    data: bytes
    line: int
    after: Position


class Records:
    """The records of a byte stream, front to back.

    Args:
        stream: decompressed bytes.
        uri: for messages.
        quote: the quote character, or None where newlines always end a record (JSON lines).
        separator: the character between cells.
        utf16: "utf-16-le", "utf-16-be" or None; UTF-16 is recoded to UTF-8 before anything else sees it.
    """

    def __init__(self, stream: BinaryIO, uri: str, quote: bool, separator: str, utf16: str | None = None) -> None:
        self._stream = stream
        self._uri = uri
        self._named = "standard input" if uri == "-" else uri
        self._quote = quote
        self._separator = separator.encode()
        self._decoder = codecs.getincrementaldecoder(utf16)() if utf16 else None
        self._digest = Digest()
        self._bytes = self._lines = 0
        self._pending = self._last = b""
        self._ended = self._paused = False
        self.tail: int | None = None
        self.stopped: Stopped | None = None

    @property
    def position(self) -> Position:
        return Position(self._bytes, self._lines, self._digest.value())

    def skip(self, to: Position, known: Stopped | None = None) -> None:
        """Read and hash up to `to`, or go there at once where a reader of the same run has stopped.

        Raises:
            DataError: these bytes are not the ones that were consumed before.
        """
        self._leap(to, known)
        while self._bytes < to.bytes and (self._pending or self._more(min(BLOCK, to.bytes - self._bytes))):
            piece = self._pending[: to.bytes - self._bytes]
            self._pending = self._pending[len(piece) :]
            self._take(piece)
        if to.bytes and (self._bytes < to.bytes or self._digest.value() != to.hash):
            raise DataError(
                f"{self._named}: its first {to.bytes} bytes are not those ingested before: the file was changed",
                hint="if these are new rows, ingest it under another name: --as NAME",
            )
        if self._last not in b"\n" and self.first(2)[:1] not in (b"", b"\n") and self.first(2) != b"\r\n":
            raise DataError(
                f"{self._named}, line {self._lines + 1}: the last line, taken without its newline, has grown since",
                hint="ingest it under another name: --as NAME (its known rows will be found to be duplicates)",
            )

    def blocks(self, final: bool) -> Iterator[Block]:
        """Blocks of whole records. Without `final`, a last line without newline is left, and `tail` set."""
        while True:
            cut = self._cut(final) if self._paused and self._pending else 0  # a pipe may say nothing more for long
            piece = b"" if cut else self._plain_piece(self._read(BLOCK - len(self._pending)))
            if not piece:
                cut = cut or self._cut(final)
                if not cut and not self._ended:
                    self._more(BLOCK)
                    continue
                piece, self._pending = self._pending[:cut], self._pending[cut:]
            if not piece:
                break
            line = self._lines + 1
            self._take(piece)
            yield Block(piece, line, self.position)
        if self._pending:
            self.tail = digest(b"%d:" % self._bytes + self._pending)  # the same torn text may come again elsewhere
        if (inode := self._inode()) >= 0:
            self.stopped = Stopped(self.position, self._digest.copy(), self._last, inode)

    def first(self, size: int) -> bytes:
        """The first bytes, without consuming them; fewer when a pipe pauses behind its second line."""
        while len(self._pending) < size and self._more(size - len(self._pending)):
            if self._paused and self._pending.count(b"\n") > 1:
                break
        return self._pending[:size]

    def close(self) -> None:
        """Close the file; standard input is not ours to close."""
        if self._uri != "-":
            self._stream.close()

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
        """What tells a file from another at the same path; -1 where the stream is no plain file."""
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

    def _plain_piece(self, data: bytes) -> bytes:
        """What is pending and the whole lines of `data`, copied once; b"" where quotes or one long line need care."""
        cut = data.rfind(b"\n") + 1
        if not cut or (self._quote and (b'"' in data or b'"' in self._pending)):
            self._pending = self._pending + data if self._pending else data
            return b""
        piece = b"".join((self._pending, memoryview(data)[:cut]))
        self._pending = data[cut:]
        return piece

    def _read(self, size: int) -> bytes:
        if self._ended or size <= 0:
            return b""
        data = read_some(self._stream, size, self._uri)
        self._ended = not data
        self._paused = len(data) < size
        if self._decoder is not None:
            try:
                data = self._decoder.decode(data, self._ended).encode()
            except UnicodeDecodeError as error:
                raise DataError(f"{self._named}: not UTF-16: {error.reason}", hint="name it with --encoding") from None
        return data

    def _cut(self, final: bool) -> int:
        """Bytes of `pending` that are whole records."""
        pending = self._pending
        if not self._quote or b'"' not in pending:
            whole = pending.rfind(b"\n") + 1
        else:
            ends = record_ends(pending, self._separator)
            whole = int(ends[-1]) if len(ends) else 0
        last = self._ended and final
        if whole:
            return len(pending) if last and b"\n" not in pending[whole:] else whole
        stray = pending.find(b"\n") + 1
        if stray and (len(pending) > RECORD_LIMIT or last):
            return stray
        return len(pending) if last else 0


def count(data: bytes, byte: int) -> int:
    """How often a byte occurs, in pieces that stay in the cache; bytes.count, which stops at each, takes far longer."""
    text = np.frombuffer(data, np.uint8)
    return sum(int(np.count_nonzero(text[i : i + _CACHED] == byte)) for i in range(0, len(text), _CACHED))


def record_ends(data: bytes, separator: bytes | None) -> Ints:
    """Offsets behind the newline of every whole record; `separator` None means that quotes mean nothing.

    Example:
        >>> record_ends(b'a,"x\\ny"\\nb,2\\n', b",").tolist()
        [8, 12]
        >>> record_ends(b'5" pipe,1\\nb,2\\n', b",").tolist()
        [10, 14]
    """
    text = np.frombuffer(data, np.uint8)
    newlines: Ints = np.flatnonzero(text == 10)
    if separator is None or b'"' not in data:
        return newlines + 1
    quotes: Ints = np.flatnonzero(text == 34)
    if not _regular(text, quotes, ord(separator)):
        return _scan_records(data, separator)
    outside: Ints = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
    return outside + 1


def quoted(data: bytes, at: Ints) -> Any:
    """(len(at),) whether each offset lies inside quotes; for data whose quotes are regular."""
    quotes = np.flatnonzero(np.frombuffer(data, np.uint8) == 34)
    return np.searchsorted(quotes, at) % 2 == 1


def regular(data: bytes, separator: bytes) -> bool:
    """Whether every quote opens at the start of a cell and closes at its end."""
    text = np.frombuffer(data, np.uint8)
    return _regular(text, np.flatnonzero(text == 34), ord(separator))


def _regular(text: NDArray[np.uint8], quotes: Ints, separator: int) -> bool:
    opening, closing = quotes[0::2], quotes[1::2]
    before = text[np.maximum(opening - 1, 0)]
    opens = (opening == 0) | (before == separator) | (before == 10) | (before == 34)
    behind = text[np.minimum(closing + 1, len(text) - 1)]
    closes = (closing == len(text) - 1) | (behind == separator) | (behind == 10) | (behind == 13) | (behind == 34)
    return bool(opens.all() and closes.all())


def _scan_records(data: bytes, separator: bytes) -> Ints:
    """One token at a time, for data with quotes in the middle of cells."""
    ends = []
    cell = 0  # where the current cell starts
    inside, closed = False, -1  # inside quotes; where they closed last
    for token in re.finditer(b'["\\n' + re.escape(separator) + b"]", data):
        at = token.start()
        if inside:
            inside, closed = token[0] != b'"', at
        elif token[0] == b'"':
            inside = at in (cell, closed + 1)
        else:
            cell = at + 1
            if token[0] == b"\n":
                ends.append(cell)
    return np.array(ends, np.int64)
