"""The bytes of a source: opened, decompressed, counted and hashed; the identity that makes ingest idempotent."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import zstandard

from streamgp.base import Offset
from streamgp.errors import DataError

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
COMPRESSED = (".gz", ".zst")
_PIECE = 1 << 10
"""Bytes of compressed input at a time: zstd makes at most 32 MB of them, gzip 1 MB."""

PATIENCE = 0.5
"""Seconds that a pipe may be silent before what it has given is taken as a block."""


class Position(NamedTuple):
    """How far a source has been consumed.

    Attributes:
        bytes: decompressed bytes consumed; a columnar source counts its whole file.
        lines: newlines among them (rows of a columnar source).
        hash: the first 63 bits of the SHA-256 of those bytes.
    """

    bytes: int = 0
    lines: int = 0
    hash: int = 0

    @classmethod
    def of(cls, offset: Offset) -> Position:
        """The position in an offset that a source gave out; {} is the beginning."""
        return cls(*(int(offset.get(name, 0)) for name in cls._fields))

    def offset(self) -> Offset:
        return self._asdict()


class Digest:
    """A running SHA-256 whose first 63 bits fit the int64 of a Delta transaction."""

    def __init__(self, running: Any = None) -> None:
        self._hash = running or sha256()

    def copy(self) -> Digest:
        return Digest(self._hash.copy())

    def update(self, data: bytes | memoryview) -> None:
        self._hash.update(data)

    def value(self) -> int:
        return int.from_bytes(self._hash.copy().digest()[:8], "big") >> 1


def digest(data: bytes) -> int:
    """63 bits of the SHA-256 of `data`."""
    running = Digest()
    running.update(data)
    return running.value()


def name_of(uri: str) -> str:
    """A source's identity when no --as names it: its absolute path; bytes of it that are no text as \\xff."""
    return uri if uri == "-" else os.fsencode(Path(uri).absolute()).decode("utf-8", "backslashreplace")


def open_bytes(uri: str) -> tuple[BinaryIO, bool]:
    """The decompressed bytes of a file or of standard input ("-"), and whether they were compressed.

    Raises:
        DataError: there is no such file, or it may not be read.
    """
    try:
        buffered = _buffered(sys.stdin.buffer) if uri == "-" else open(uri, "rb")  # noqa: SIM115  the caller closes
        magic = buffered.peek(4)[:4]
    except OSError as error:
        raise DataError(f"{uri}: {error.strerror}", hint="name an existing file that may be read") from None
    if magic.startswith(GZIP):
        return cast(BinaryIO, _Decompressed(buffered, lambda: zlib.decompressobj(wbits=31), uri != "-")), True
    if magic == ZSTD:
        return cast(BinaryIO, _Decompressed(buffered, zstandard.ZstdDecompressor().decompressobj, uri != "-")), True
    return cast(BinaryIO, buffered), False


@lru_cache(maxsize=1)
def _buffered(stream: BinaryIO) -> io.BufferedReader:
    """Standard input as something that can be peeked into; the same object every time, which holds what it peeked."""
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, stream))


def read_some(stream: BinaryIO, size: int, uri: str) -> bytes:
    """Up to `size` bytes; fewer only at the end, or when a pipe has given nothing more for a moment.

    Raises:
        DataError: the compressed stream is truncated or damaged; what came before it has been given out.
    """
    parts: list[bytes] = []
    missing = size
    pipe = uri == "-" and isinstance(stream, io.BufferedReader) and _is_pipe(stream)
    while missing > 0:
        try:
            if pipe and missing < size and not select.select([stream], [], [], PATIENCE)[0]:
                break
            part = cast(io.BufferedReader, stream).read1(missing) if pipe else stream.read(missing)
        except (EOFError, zlib.error, zstandard.ZstdError) as error:
            if missing < size:  # give out what could be read; the next call meets the error again
                break
            if "too much memory" in str(error):
                raise DataError(
                    f"{uri}: it was compressed with a window of more than 128 MB",
                    hint="decompress it first: zstd -d --long=31 FILE",
                ) from None
            raise DataError(
                f"{uri}: the compressed file is truncated or damaged ({error})",
                hint="rows read before it are in the table; bring the whole file and run the same command again",
            ) from None
        except OSError as error:
            raise DataError(f"{uri}: cannot be read: {error}", hint="try to copy the file first") from None
        if not part:
            break
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_pipe(stream: io.BufferedReader) -> bool:
    try:
        return not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # not a real file
        return False


class _Decompressed(io.RawIOBase):
    """The members of a .gz or the frames of a .zst, one after the other; a cut one raises EOFError at its end."""

    def __init__(self, raw: BinaryIO, fresh: Callable[[], Any], owned: bool) -> None:
        self._raw = raw
        self._owned = owned
        self._fresh = fresh
        self._member = fresh()
        self._begun = False
        self._out = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; b"" at a proper end."""
        if not len(self._out):
            self._out = memoryview(self._following())
        size = len(self._out) if size < 0 else size
        piece, self._out = bytes(self._out[:size]), self._out[size:]
        return piece

    def _following(self) -> bytes:
        """What the next piece of input gives."""
        while True:
            data = self._member.unused_data if self._member.eof else b""
            if self._member.eof:
                self._member = self._fresh()
                self._begun = False
            data = data or self._raw.read(_PIECE)
            if not data and not self._begun:
                return b""
            if not data:
                raise EOFError("it ends in the middle")
            self._begun = True
            if out := self._member.decompress(data):
                return bytes(out)

    def close(self) -> None:
        if self._owned:
            self._raw.close()
        super().close()
