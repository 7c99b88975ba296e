"""The options that a source was read with, and whether others would read other rows of it: what makes it unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamgp_data.admission import OTHER, Admission
from streamgp_data.event_time import NEVER
from streamgp_data.ingestion.chunk import PreparedChunk, put_future_aside, put_surplus_aside
from streamgp_data.quarantine import Quarantine
from streamgp_data.reading.bytes import digest
from streamgp_data.reading.cells import LINE
from streamgp_data.table import Table

if TYPE_CHECKING:
    from streamgp_pipelines.config import IngestConfig

OPTIONS = (
    *("time", "series", "unit", "melt", "time_format", "timezone", "max_ahead", "max_series"),
    *("signals", "clock", "join", "max_age", "dbc", "salvage"),
    *("format", "sheet", "header_row", "columns", "no_header", "separator", "decimal", "thousands", "encoding"),
    *("null", "max_line"),
)
"""What changes the rows that are read of a source."""


class ReadOptions:
    """The options of `OPTIONS` that a source is read with, beside those that its commits in a table name.

    A table keeps them as marks: a digest of all, and one of each that was given.

    Args:
        source: its name.
        config: of the run.

    Example:
        >>> from streamgp_pipelines.config import IngestConfig
        >>> config = IngestConfig(source=("a.csv",), table="t", time_format="%d/%m/%Y")
        >>> [key for key in ReadOptions("a.csv", config).marks if key.endswith("format")]
        ['a.csv#options.time_format']
    """

    def __init__(self, source: str, config: IngestConfig) -> None:
        self._whole = f"{source}#options"
        fields, own = type(config).model_fields, {}
        for name in OPTIONS:
            value = getattr(config, name)
            own[name] = 0 if value == fields[name].default else _digest(value)
        self.marks = {self._whole: _digest([*own.items()])}
        self._each = {f"{self._whole}.{name}": value for name, value in own.items()}
        self.marks |= {key: value for key, value in self._each.items() if value}

    def news(self, table: Table) -> dict[str, int]:
        """The marks that the table lacks; none where the source was last read with these options."""
        known = table.mark(self._whole, 0)
        if known == self.marks[self._whole]:
            return {}
        if not known:
            return self.marks
        changed = {key: value for key, value in self._each.items() if table.mark(key, 0) != value}
        return {self._whole: self.marks[self._whole], **changed}

    def changed(self, table: Table) -> list[str]:
        """The flags that were others, or not given, when the table took rows of the source; none where it took none."""
        if not table.mark(self._whole, 0):
            return []
        names = [key.rpartition(".")[2] for key in self.news(table) if key != self._whole]
        return [f"--{name.replace('_', '-')}" for name in names]


def _digest(value: Any) -> int:
    """63 bits of a value, never 0."""
    return digest(json.dumps(value, default=lambda one: str(Path(one).absolute())).encode()) or 1


def other_line(
    parts: Iterable[PreparedChunk], until: int, name: str, table: Table, ahead: float | None, most: int | None
) -> int | None:
    """The first line of a source that would be another row than the one that the table, or its quarantine, has of it.

    Args:
        parts: the source from its beginning, as it is read now.
        until: its last line that was read before.
        name: of the source.
        table: with a time column.
        ahead, most: as --max-ahead and --max-series say.
    """
    meta, admission, refused = table.meta, Admission(table), Quarantine(table).lines(name)
    known, newest = admission.series, NEVER
    for part in parts:
        if ahead is not None:
            put_future_aside(part, meta, newest, ahead)
        if most is not None:
            put_surplus_aside([part], meta.series, known, most)
        lines: list[int] = part.rows.column(LINE).to_numpy().tolist()
        good = np.array([line <= until for line in lines])
        good[list(part.faults)] = False
        fitting = part.table.filter(pa.array(good))
        newest = int(fitting.column(meta.time or "").cast(pa.int64()).to_numpy().max(initial=newest))
        state = dict(zip(np.flatnonzero(good).tolist(), zip(*admission.known(fitting), strict=True), strict=True))
        for row, line in enumerate(lines):
            if line > until:
                return None
            same, moment = state.get(row, (False, False))
            aside = refused.get(line, set())
            if not same and not (OTHER[0] in aside if moment else row in part.faults and aside):
                return line
    return None
