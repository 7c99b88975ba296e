"""A source over one text file with a row a line: where it begins, a last line that grows, and what stops it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from streamgp.base import Chunk, Offset
from streamgp_data.reading.bytes import Position
from streamgp_data.reading.cells import with_bookkeeping
from streamgp_data.reading.records import RecordBlock, Records, Stopped


class TextLines(ABC):
    """What text formats share as a Source.

    Attributes:
        uri: the file, or "-".
        names: of the columns, in the order of the file.
        schema: the columns, and the bookkeeping columns.
        waiting: whether there is a last line without newline; known after a read.
        stopped: where an earlier read ended, so that the next one need not read up to there.
        header: the line that seems to be the header where the one that was taken is none; else None.
    """

    uri: str
    names: list[str]
    schema: pa.Schema
    waiting: bool
    stopped: Stopped | None
    header: int | None = None
    _final: bool
    _kinds: dict[str, pa.DataType]

    @abstractmethod
    def _open(self) -> Records:
        """The lines, from the first."""

    @abstractmethod
    def _parse(self, block: RecordBlock) -> pa.RecordBatch:
        """The rows of whole lines."""

    @property
    def first_line(self) -> int:
        """The line of the first row."""
        return 1

    def expect(self, schema: pa.Schema) -> None:
        """Read the columns as these types from now on; its names must include all of the file's."""
        self._kinds = {name: schema.field(name).type for name in self.names}
        self.schema = with_bookkeeping(self._kinds)

    def read(self, after: Offset) -> Iterator[Chunk]:
        """Typed rows behind `after`, faulty ones among them with their fault.

        Raises:
            DataError: what was consumed before has changed, the stream is damaged, or the encoding is wrong.
        """
        records = self._open()
        try:
            records.skip(Position.of(after), self.stopped)
            for block in records.blocks(self._final):
                yield Chunk(self._parse(block), block.after.offset())
            self.waiting, self.stopped = records.waiting, records.stopped
        finally:
            records.close()

    def torn(self, after: Offset) -> Chunk | None:
        """The row of a last line that was taken torn, and the offset before it; None where that did not happen.

        Raises:
            DataError: what was consumed before has changed.
        """
        records = self._open()
        try:
            found = records.torn(Position.of(after))
        finally:
            records.close()
        if found is None:
            return None
        return Chunk(self._parse(RecordBlock(found.text, found.before.lines + 1, found.before)), found.before.offset())
