"""Excel workbooks: one sheet, of which a row names the columns; read as a whole, in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import polars as pl
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from streamgp.errors import DataError, UsageError
from streamgp_data.reading.bytes import Position
from streamgp_data.reading.cells import with_bookkeeping
from streamgp_data.reading.columnar import ROWS, Columnar, spooled
from streamgp_data.reading.header import MOST, header_below
from streamgp_data.reading.workbook import UNNAMED, read_sheets
from streamgp_data.recordings.recording import missing

SUFFIXES = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
SIGNS = {b"PK\x03\x04": "a ZIP archive (or an Excel file)"}


class Config(BaseModel):
    """How to read a workbook.

    Attributes:
        sheet: its name; None: the only one with rows.
        header_row: the row of the column names, from 1; None: the first that is not empty.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    header_row: int | None = Field(None, ge=1)
    sheet: str | None = None


def build(config: Config, uri: str) -> Excel:
    """The workbook at `uri`.

    Raises:
        DataError: there is no such file, or it is damaged.
        UsageError: several sheets have rows, there is no such sheet, or fastexcel is not installed.
    """
    return Excel(uri, config)


class Excel(Columnar):
    """A Source over one sheet. A column of text and numbers is numbers if at least half of its cells are, as in a CSV:
    the others cannot be read."""

    def __init__(self, uri: str, config: Config) -> None:
        self._config = config
        self._numbers: list[str] = []
        super().__init__(uri)
        self._kinds |= dict.fromkeys(self._numbers, pa.float64())
        self.schema = with_bookkeeping(self._kinds)

    def begin(self, uri: str) -> tuple[pa.Schema, Position]:
        if find_spec("fastexcel") is None:
            raise missing("fastexcel", "excel")
        path, end, temporary = spooled(uri)
        try:
            names, sheets = read_sheets(path, uri, self._config.sheet, self._config.header_row)
        finally:
            if temporary:
                os.unlink(path)
        filled = {name: sheet for name, sheet in sheets.items() if sheet.cells.height}
        if self._config.sheet and not sheets:
            hint = f"it has: {', '.join(names)}"
            raise UsageError(f"--sheet {self._config.sheet!r}: {uri} has no such sheet", hint=hint)
        if len(filled) > 1:
            hint = f"say which: {', '.join(f'--sheet {name!r}' for name in filled)}"
            raise UsageError(f"{uri}: several sheets have rows: {', '.join(filled)}", hint=hint)
        name = next(iter(filled), None)
        if name is None:
            given = self._config.header_row
            where = "no sheet has rows" if given is None else f"no sheet has rows below --header-row {given}"
            raise DataError(f"{uri}: {where}", hint="a row of column names is above the others")
        rows, self._numbers, self.above = sheets[name]
        if self._config.header_row is None:
            titles = [rows.columns, *map(list, rows.head(2 * MOST).rows())]
            place = header_below([["" if UNNAMED.fullmatch(one) else one for one in titles[0]], *titles[1:]])
            self.header = None if place is None else self.above + place
        stamps = [name for name, kind in rows.schema.items() if isinstance(kind, pl.Datetime)]
        rows = rows.with_columns(pl.col(name).cast(pl.Datetime("us")) for name in stamps)
        self._rows = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
        return self._rows.schema, end

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        yield from self._rows.slice(start).combine_chunks().to_batches(ROWS)
