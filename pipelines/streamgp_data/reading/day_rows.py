"""A row a day as a row a period: columns that are the hours of a day, or the quarters of these, become rows.

They are numbered, as in h1 ... h24, or called by their times, as in 00:15 ... 24:00. Of the day on which a clock is set
back there is a 25th column, or a second one of an hour, as in 3B; of the other one a column is empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from streamgp.base import Chunk, Offset
from streamgp.errors import DataError
from streamgp_data.reading.careful import split_line
from streamgp_data.reading.cells import FAULT, LINE, TEXT, fault, with_bookkeeping
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.melted import VALUE
from streamgp_data.reading.paired import USUAL, WORDS
from streamgp_data.reading.wrapped import Wrapped

KEEP = "--signals '*' keeps them as columns"
"""What to do where columns are not to become rows."""
_MARK = r"(?P<mark> ?[abx*])?"
_NUMBER = re.compile(rf"(?P<word>{WORDS})?[ _.-]*(?P<k>\d{{1,3}})(\.0|h)?{_MARK}", re.IGNORECASE)
_CLOCK = re.compile(
    rf"((?P<word>{WORDS})[ _.-]*)?(?P<h>\d{{1,2}}):(?P<m>\d\d)(:00)?( ?[-–] ?\d{{1,2}}:\d\d(:00)?)?{_MARK}",
    re.IGNORECASE,
)


class Periods(NamedTuple):
    """Columns that are the periods of a day.

    Attributes:
        names: of the columns, in the order of the day.
        begins: minutes from midnight to the beginning of each by the clock; past 1440 those of a longer day alone.
        second: whether each is the second of two that begin at once.
        step: minutes of a period.
        numbered: whether the first is called 1.
    """

    names: list[str]
    begins: list[int]
    second: list[bool]
    step: int
    numbered: bool

    @property
    def clock(self) -> str:
        """What a period is called, and the column that says which one a row is."""
        return "hour" if self.step == 60 else "period"

    @property
    def span(self) -> str:
        """The columns, for messages."""
        return f"{self.names[0]!r} ... {self.names[-1]!r}"


def periods_in(names: list[str]) -> Periods | None:
    """The columns that are all periods of a day, by their names; None where there are none.

    Example:
        >>> found = periods_in(["Date", *(f"HE{k:02d}" for k in range(1, 26)), "Total"])
        >>> found.names[0], found.begins[-2:], found.step
        ('HE01', [1380, 1440], 60)
        >>> periods_in(["Date", *(f"{m // 60}:{m % 60:02d}" for m in range(30, 1441, 30))]).begins[:3]
        [0, 30, 60]
        >>> periods_in(["Date", "1", "2", "3"]) is None
        True
    """
    groups: dict[tuple[bool, str], list[tuple[str, int, bool]]] = {}
    for name in names:
        number = _NUMBER.fullmatch(name.strip())
        if found := number or _CLOCK.fullmatch(name.strip()):
            at = int(found["k"]) if number else int(found["h"]) * 60 + int(found["m"])
            second = (found["mark"] or "").strip().lower() in ("b", "x", "*")
            groups.setdefault((number is None, (found["word"] or "").lower()), []).append((name, at, second))
    for (timed, _), group in groups.items():
        once = [at for _, at, second in group if not second]
        longer = {count + count // 24: count for count in USUAL} if once[:1] == [1] and not timed else {}
        count = len(once) if len(once) in USUAL else longer.get(len(once), 0)
        if not count:
            continue
        step = 1440 // count
        unit, first = step if timed else 1, once[0]
        ats = [at or 1440 if timed and first else at for _, at, _ in group]
        once = [at for at, (*_, second) in zip(ats, group, strict=True) if not second]
        if first in (0, unit) and once == [first + unit * place for place in range(len(once))]:
            begins = [(at - first) // unit * step for at in ats]
            return Periods([name for name, *_ in group], begins, [one for *_, one in group], step, unit == first == 1)
    return None


class DayRows(Wrapped):
    """A FileSource over one with a row a day. A cell becomes a row, beside the same values of the other columns; an
    empty one becomes none, and one that is no number a row for the quarantine.

    Args:
        inner: the source of days.
        periods: its columns of periods, numbers or empty.
        date: its column of days.
        nulls: what stands for an empty cell.
        zone: of the clock; None where it is not known.
        counted: whether periods are counted also on the days of a change; None: where there is a column for a 25th
            hour, or a day before the last has no 24th.

    Raises:
        DataError: a day has the second of two hours, and no zone is given.
    """

    form: str | None = None
    """How days are written, where that was found out."""

    def __init__(
        self,
        inner: FileSource,
        periods: Periods,
        date: str,
        nulls: Sequence[str],
        zone: str | None,
        counted: bool | None,
    ) -> None:
        self._nulls = nulls
        self.inner, self.uri, self.periods, sample = inner, inner.uri, periods, inner.sample
        self._kept = [name for name in inner.names if name not in periods.names]
        self.names = [*self._kept, periods.clock, VALUE]
        said = [pl.Series(pl.from_arrow(sample.column(name))).cast(pl.String) for name in periods.names]
        cells = [
            cell.set(cell.str.strip_chars().is_in(list(nulls)), None).to_arrow().cast(pa.string()) for cell in said
        ]
        valid = _valid(cells)
        short = bool((valid[:-1, :-1].all(1) & ~valid[:-1, -1]).any())
        self.counted = (periods.begins[-1] >= 1440 or (periods.numbered and short)) if counted is None else counted
        twice = valid[:, periods.second].any(1)
        if zone is None and twice.any():
            message = f"{self.uri}: {sample.column(date)[int(twice.argmax())]} has an hour twice"
            raise DataError(f"{message}, as where the clock is changed", hint="say where: --timezone Europe/Oslo")
        clocks = [str(at // periods.step + 1) for at in periods.begins]
        wall = [f"{at // 60 % 24:02d}:{at % 60:02d}" for at in periods.begins]
        self._clocks = pa.array(clocks if self.counted else wall, pa.string())
        kept = [sample.column(name).combine_chunks() for name in self._kept]
        self.sample = pa.table(self._long(dict(zip(self._kept, kept, strict=True)), cells, valid))
        self.units = {name: unit for name, unit in inner.units.items() if name in self._kept}
        self.doubts = {name if name in self._kept else VALUE: why for name, why in inner.doubts.items()}
        self._typed({name: inner.schema.field(name).type for name in self._kept})

    @property
    def note(self) -> str:
        """What is read otherwise than it is written, and how to keep it."""
        what = f"the columns {self.periods.span} are read as the {self.periods.clock}s of a day, a row each"
        form = "" if self.form is None else f" (days as {self.form})"
        return f"{self.uri}: {what}{form}, into {VALUE!r}; {KEEP}"

    def expect(self, schema: pa.Schema) -> None:
        """Read the columns as these types from now on; those of periods as float64."""
        kinds = {name: schema.field(name).type for name in self._kept}
        self.inner.expect(pa.schema([pa.field(name, kinds.get(name, pa.float64())) for name in self.inner.names]))
        self._typed(kinds)

    def torn(self, after: Offset) -> Chunk | None:
        """No last line is repaired here."""
        return None

    def _typed(self, kinds: dict[str, pa.DataType]) -> None:
        self.schema = with_bookkeeping({**kinds, self.periods.clock: pa.string(), VALUE: pa.float64()})

    def _batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        wide, faults = self.periods.names, rows.column(FAULT).to_pylist()
        cells = [rows.column(name).cast(pa.float64()) for name in wide]
        kept, said = _valid(cells), dict[tuple[int, int], str]()
        for row in rows.column(FAULT).is_valid().to_numpy(zero_copy_only=False).nonzero()[0].tolist():
            wrong = str(faults[row])
            if wrong.split("|")[1] not in wide:  # a row that cannot be read at all is one
                kept[row], said[row, 0] = False, wrong
            else:
                text = self._texts(str(rows.column(TEXT)[row]))
                said |= {(row, at): self._wrong(wrong, wide[at], text) for at in (~kept[row]).nonzero()[0].tolist()}
        said = {place: wrong for place, wrong in said.items() if wrong}
        for place in said:
            kept[place] = True
        found = self._long({name: rows.column(name) for name in (*self._kept, LINE, TEXT)}, cells, kept)
        found[FAULT] = pa.array([said.get((row, at)) for row, at in np.argwhere(kept).tolist()], pa.string())
        return pa.RecordBatch.from_arrays([found[name] for name in self.schema.names], names=self.schema.names)

    def _texts(self, text: str) -> dict[str, str]:
        """The cells of a line of text by their columns; none where it is no line of cells."""
        dialect = getattr(self.inner, "dialect", None)
        cells = None if dialect is None else split_line(text.encode(), dialect.separator)
        return dict(zip(self.inner.names, cells or (), strict=False))

    def _wrong(self, wrong: str, name: str, texts: dict[str, str]) -> str:
        """What is wrong with a cell without a number, in a row of which `wrong` is wrong; "" where it is empty."""
        if wrong.split("|")[1] == name:
            return wrong
        cell = texts.get(name)
        if cell is not None and cell.strip() in self._nulls:
            return ""
        return fault("unparsable", name, "it is empty, or no number" if cell is None else f"{cell!r} is not a number")

    def _long(
        self, columns: dict[str, pa.Array[Any]], cells: list[pa.Array[Any]], kept: Any
    ) -> dict[str, pa.Array[Any]]:
        """The rows of the cells (N, W) that are kept, day by day."""
        day, period = kept.nonzero()
        found: dict[str, Any] = {name: column.take(pa.array(day, pa.int64())) for name, column in columns.items()}
        found[self.periods.clock] = self._clocks.take(pa.array(period, pa.int64()))
        found[VALUE] = pa.concat_arrays(cells).take(pa.array(period * len(kept) + day, pa.int64()))
        return found


def _valid(cells: list[pa.Array[Any]]) -> Any:
    """(N, W) whether cells say something."""
    return np.stack([cell.is_valid().to_numpy(zero_copy_only=False) for cell in cells], 1)
