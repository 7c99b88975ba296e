"""A source over one text file with a row a line: where it begins, a last line that grows, and what stops it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import polars as pl
import pyarrow as pa

from streamgp.base import Chunk, Offset
from streamgp_data.reading.bytes import Position
from streamgp_data.reading.cells import convert, said, with_bookkeeping
from streamgp_data.reading.convention import in_ascii
from streamgp_data.reading.records import RecordBlock, Records, Stopped
from streamgp_data.reading.units import power, unit_of, without_unit


class TextLines(ABC):
    """What text formats share as a Source.

    Attributes:
        uri: the file, or "-".
        names: of the columns, in the order of the file.
        schema: the columns, and the bookkeeping columns.
        sample: the cells of the first rows.
        units: of columns whose name or cells say one.
        waiting: whether there is a last line without newline; known after a read.
        stopped: where an earlier read ended, so that the next one need not read up to there.
        header: the line that seems to be the header where the one that was taken is none; else None.
        keys: the columns of the time and the series, which are no values.
    """

    uri: str
    names: list[str]
    schema: pa.Schema
    sample: pa.Table
    units: dict[str, str]
    waiting: bool
    stopped: Stopped | None
    header: int | None = None
    keys: Sequence[str] = ()
    _final: bool
    _kinds: dict[str, pa.DataType]
    _nulls: tuple[str, ...]
    _unit_behind: dict[str, str]  # of columns whose every number says its unit

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

    def left_out(self) -> list[str]:
        """What to say, after a read, of parts of the rows that were left out."""
        return []

    def expect(self, schema: pa.Schema) -> None:
        """Read the columns as these types from now on; its names must include all of the file's. A column without cells
        has the unit that the field has."""
        self._kinds = {name: schema.field(name).type for name in self.names}
        self.schema = with_bookkeeping(self._kinds)
        for name in self.names:
            unit = (schema.field(name).metadata or {}).get(b"unit", b"").decode()
            cells = self.sample.column(name).drop_null()
            if unit and name not in self.units and all(said(cell).strip() in self._nulls for cell in cells):
                self._unit_behind[name] = unit

    def _numbers(
        self, name: str, cells: pl.Series, kind: pa.DataType, decimal: str = ".", thousands: str | None = None
    ) -> tuple[pl.Series, pl.Series]:
        """(N,) cells of a column as `kind`, and where that cannot be; numbers without the unit that follows them."""
        powers = None
        if name in self._unit_behind and not pa.types.is_string(kind):
            bare = cells.set(cells.str.strip_chars().is_in(list(self._nulls)), None)
            cells, powers = without_unit(in_ascii(bare), self._unit_behind[name])
        found = convert(cells, kind, decimal, self._nulls, thousands, powers)
        if powers is None and name in self.units and pa.types.is_floating(kind) and found[1].any():
            cells, powers = without_unit(in_ascii(cells), self.units[name], named=True)  # 3100 W below a [kW]
            return convert(cells, kind, decimal, self._nulls, thousands, powers)
        return found

    def _say_a_unit(self, name: str, said: pl.Series, decimal: str = ".", thousands: str | None = None) -> bool:
        """Whether at least half of the cells of a column are numbers followed by a unit, which it has then."""
        if (unit := unit_of(said)) is None:
            return False
        _, wrong = convert(without_unit(said, unit)[0], pa.float64(), decimal, self._nulls, thousands)
        if 2 * int(wrong.sum()) > len(said):
            return False
        header = self.units.get(name, unit)  # the unit of the column, where it is one of these
        self._unit_behind[name] = unit if power(unit, header) is None else header
        return True

    def read(self, after: Offset) -> Iterator[Chunk]:
        """Typed rows after `after`, faulty ones among them with their fault.

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
