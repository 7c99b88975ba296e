"""Excel workbooks: one sheet, whose first row names the columns; read as a whole, in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import polars as pl
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from streamgp.errors import DataError, UsageError
from streamgp.streaming.reading.bytes import Position
from streamgp.streaming.reading.cells import with_bookkeeping
from streamgp.streaming.reading.columnar import ROWS, Columnar, spooled
from streamgp.streaming.reading.workbook import read_sheets
from streamgp.streaming.recordings.recording import missing

SUFFIXES = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")


class Config(BaseModel):
    """sheet: its name; None: the only one with rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")
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
            names, sheets = read_sheets(path, uri, self._config.sheet)
        finally:
            if temporary:
                os.unlink(path)
        filled = {name: sheet for name, (sheet, _) in sheets.items() if sheet.height}
        if self._config.sheet and not sheets:
            hint = f"it has: {', '.join(names)}"
            raise UsageError(f"--sheet {self._config.sheet!r}: {uri} has no such sheet", hint=hint)
        if len(filled) > 1:
            hint = f"say which: {', '.join(f'--sheet {name!r}' for name in filled)}"
            raise UsageError(f"{uri}: several sheets have rows: {', '.join(filled)}", hint=hint)
        name = next(iter(filled), None)
        if name is None:
            raise DataError(f"{uri}: no sheet has rows", hint="the first row names the columns")
        rows, self._numbers = sheets[name]
        stamps = [name for name, kind in rows.schema.items() if isinstance(kind, pl.Datetime)]
        rows = rows.with_columns(pl.col(name).cast(pl.Datetime("us")) for name in stamps)
        self._rows = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
        return self._rows.schema, end

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        yield from self._rows.slice(start).combine_chunks().to_batches(ROWS)
