"""What sources over another source have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from streamgp.base import Chunk, Offset
from streamgp.errors import DataError
from streamgp_data.reading.cells import LINE
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.records import Stopped


class Wrapped(ABC):
    """A FileSource over another one: what it has not itself is that of the other.

    Attributes:
        inner: the other source.
    """

    inner: FileSource

    @abstractmethod
    def _batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the other source, as they are here."""

    def read(self, after: Offset) -> Iterator[Chunk]:
        """The chunks of the other source; the position after one is that of the other."""
        for rows, behind in self.inner.read(after):
            yield Chunk(self._batch(rows), behind)

    def torn(self, after: Offset) -> Chunk | None:
        """As that of the other source."""
        found = self.inner.torn(after)
        return None if found is None else Chunk(self._batch(found.rows), found.after)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def stopped(self) -> Stopped | None:
        """Where the other source stopped before its end, and why."""
        return self.inner.stopped

    @stopped.setter
    def stopped(self, value: Stopped | None) -> None:
        self.inner.stopped = value


class ManyRows(Wrapped):
    """A source that makes several rows of one of the other's: those of half a line cannot be replaced."""

    def read(self, after: Offset) -> Iterator[Chunk]:
        """As that of the other source.

        Raises:
            DataError: as `torn`, and those of the other source.
        """
        try:
            yield from super().read(after)
        except DataError:
            self.torn(after)
            raise

    def torn(self, after: Offset) -> Chunk | None:
        """No last line is repaired here.

        Raises:
            DataError: one was taken torn and has grown since.
        """
        if (found := self.inner.torn(after)) is not None:
            raise DataError(
                f"{self.inner.uri}, line {found.rows.column(LINE)[0]}: the last line was taken without its newline, "
                "and has grown since: the table has rows of half a line",
                hint="ingest the source into a new table: --repair replaces one row, and a line is several here",
            )
        return None
