"""A row a day as a row a period: columns that are the hours of a day, or the quarters of these, become rows.

They are numbered, as in h1 ... h24, or called by their times, as in 00:15 ... 24:00. Of the day on which a clock is set
back there is a 25th column, or a second one of an hour, as in 3B; of the other one a column is empty. Whether numbers
count through such a day, or are those of the clock, its own cells say: a day that fits both goes to the quarantine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgp.errors import DataError
from streamgp.windows.zones import LocalClock
from streamgp_data.instants import text_times
from streamgp_data.reading.careful import split_line
from streamgp_data.reading.cells import FAULT, LINE, TEXT, convert, fault, null_numbers, with_bookkeeping
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.melted import VALUE
from streamgp_data.reading.paired import USUAL, days_of
from streamgp_data.reading.wrapped import ManyRows

KEEP = "--signals '*' keeps them as columns"
"""What to do where columns are not to become rows."""
_WORDS = {
    (24,): "hour[ _]?ending|hour|hr|he|h|hora|heure|ora|uur|stunde",
    (48,): "sp",
    (96,): "quarter|qh|q|viertelstunde",
    USUAL: "interval|periodo|period|ptu|mtu",
}
"""Periods of a day -> what stands before their numbers. Numbers alone are hours."""
_WORD = rf"(?P<word>{'|'.join(_WORDS.values())})"
_MARK = r"(?P<mark> ?[abx*])?"
_NUMBER = re.compile(rf"{_WORD}?[ _.-]*(?P<k>\d{{1,3}})(\.0)?{_MARK}", re.IGNORECASE)
_CLOCK = re.compile(
    rf"({_WORD}[ _.-]*)?(?P<h>\d{{1,2}}):(?P<m>\d\d)(:00)?( ?[-–] ?\d{{1,2}}:\d\d(:00)?)?{_MARK}", re.IGNORECASE
)
_MINUTE, _DAY = 60_000_000, 86_400_000_000  # microseconds
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]


class Periods(NamedTuple):
    """Columns that are the periods of a day.

    Attributes:
        names: of the columns, in the order of the day.
        begins: minutes from midnight to the beginning of each by the clock; past 1440 those of a longer day alone.
        second: whether each is the second of two that begin at once.
        step: minutes of a period.
        numbered: whether the first is called 1.
        bare: whether they are called by numbers alone.
    """

    names: list[str]
    begins: list[int]
    second: list[bool]
    step: int
    numbered: bool
    bare: bool

    @property
    def noun(self) -> str:
        """What a period is called, also in the name of the column of times."""
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
        >>> [periods_in([f"{word}{k}" for k in range(1, 25)]) for word in ("Q", "std", "zone_")]
        [None, None, None]
    """
    groups: dict[tuple[bool, str], list[tuple[str, int, bool]]] = {}
    for name in names:
        number = _NUMBER.fullmatch(name.strip())
        if found := number or _CLOCK.fullmatch(name.strip()):
            at = int(found["k"]) if number else int(found["h"]) * 60 + int(found["m"])
            second = (found["mark"] or "").strip().lower() in ("b", "x", "*")
            groups.setdefault((number is None, (found["word"] or "").lower()), []).append((name, at, second))
    for (timed, word), group in groups.items():
        counts = USUAL if timed else _counts(word)
        width = sum(not second for _, _, second in group)
        longer = not timed and group[0][1] == 1
        count = next((one for one in counts if width == one or (longer and width == one + one // 24)), None)
        if count is None:
            continue
        step = 1440 // count
        unit, first = (step if timed else 1), group[0][1]
        ats = [1440 if timed and first and not at else at for _, at, _ in group]
        once = [at for at, (*_, second) in zip(ats, group, strict=True) if not second]
        if first in (0, unit) and once == [first + unit * place for place in range(width)]:
            begins = [(at - first) // unit * step for at in ats]
            marked = [second for *_, second in group]
            return Periods(
                [name for name, *_ in group], begins, marked, step, unit == first == 1, not timed and not word
            )
    return None


def _counts(word: str) -> tuple[int, ...]:
    """How many numbers with this word before them may be those of a day."""
    return next(counts for counts, words in _WORDS.items() if re.fullmatch(words, word)) if word else (24,)


class DayRows(ManyRows):
    """A FileSource over one with a row a day. A cell becomes a row, beside the same values of the other columns; an
    empty one becomes none, and one that is no number a row for the quarantine. A day is one row for the quarantine
    where it cannot be read, or its cells do not say which hours of a changed clock they are.

    Args:
        inner: the source of days.
        periods: its columns of periods, numbers or empty.
        date: its column of days.
        form: how they are written; None as ISO 8601.
        nulls: what stands for an empty cell.
        zone: of the clock; None where it is not known.

    Raises:
        DataError: there is a column for hours that only a changed clock has, or an earlier day lacks the last hour
            alone, and no zone is given.
    """

    def __init__(
        self,
        inner: FileSource,
        periods: Periods,
        date: str,
        form: str | None,
        nulls: Sequence[str],
        zone: str | None,
    ) -> None:
        self._nulls, self._date, self._form, self._zone = nulls, date, form, zone
        self.inner, self.uri, self.periods = inner, inner.uri, periods
        self.name = f"{date},{periods.noun}"
        self._kept = [name for name in inner.names if name not in periods.names and name != date]
        self.names = [self.name, *self._kept, VALUE]
        self._clock = None if zone is None else LocalClock(zone)
        self._begins, self._second = np.array(periods.begins, np.int64), np.array(periods.second)
        self._surplus = self._second | (self._begins >= 1440)
        self._typed({name: inner.schema.field(name).type for name in self._kept})
        rows = inner.sample.combine_chunks()
        said = [pl.Series(pl.from_arrow(rows.column(name))).cast(pl.String) for name in periods.names]
        dialect: Any = getattr(inner, "dialect", None)
        self._decimal = "." if dialect is None else str(dialect.decimal)
        cells = [cell.set(_missing(cell, nulls, self._decimal), None).to_arrow().cast(pa.string()) for cell in said]
        filled, dates = _filled(cells), rows.column(date).combine_chunks()
        if zone is None:
            self._check_unchanged(midnights(dates, form)[0], filled)
        columns = {name: rows.column(name).combine_chunks() for name in self._kept}
        long = self._long(columns, cells, filled, *self._places(dates, filled)[:2])
        self.sample = pa.table(long).select(self.names)
        self.units = {name: unit for name, unit in inner.units.items() if name in self._kept}
        self.doubts = {name if name in self._kept else VALUE: why for name, why in inner.doubts.items()}

    def note(self, series: str | None) -> str:
        """What is read otherwise than it is written, and how to keep it.

        Args:
            series: a column that is no value.
        """
        what = f"the columns {self.periods.span} are read as the {self.periods.noun}s of a day, a row each"
        form = "" if self._form is None else f" (days as {self._form})"
        kinds = {name: self.schema.field(name).type for name in self._kept if name != (series or "unique_id")}
        whole = [name for name, kind in kinds.items() if pa.types.is_integer(kind) or pa.types.is_floating(kind)]
        whole = [repr(name) for name in whole if len(pc.unique(self.sample.column(name))) > 1]
        also = f"; {', '.join(whole)} may say of a whole day what its first hours do not know yet" if whole else ""
        return f"{self.uri}: {what}{form}, into {VALUE!r}; {KEEP}{also}"

    def expect(self, schema: pa.Schema) -> None:
        """Read the columns as these types from now on; those of periods as float64, the days as they are written."""
        kinds = {name: schema.field(name).type for name in self._kept}
        raw = kinds | {self._date: self.inner.sample.schema.field(self._date).type}
        self.inner.expect(pa.schema([pa.field(name, raw.get(name, pa.float64())) for name in self.inner.names]))
        self._typed(kinds)

    def _typed(self, kinds: dict[str, pa.DataType]) -> None:
        clock = pa.timestamp("us", None if self._zone is None else "UTC")
        self.schema = with_bookkeeping({self.name: clock, **kinds, VALUE: pa.float64()})

    def _check_unchanged(self, days: pl.Series, filled: Bools) -> None:
        """See that nothing says of a clock without a zone that it is changed.

        Raises:
            DataError: something does.
        """
        times = days.dt.epoch("us").fill_null(0).to_numpy()
        lacking = self._lacks_an_hour(filled) & days.is_not_null().to_numpy() & (times < times.max())
        if self._surplus.any():
            what = f"there is a column {self.periods.names[int(self._surplus.argmax())]!r}"
        elif lacking.any():
            what = f"{days[int(lacking.argmax())]:%Y-%m-%d} lacks the last hour alone"
        else:
            return
        raise DataError(f"{self.uri}: {what}, as where the clock is changed", hint=_SAY)

    def _lacks_an_hour(self, filled: Bools) -> Bools:
        """(N,) the days that have all numbers but those of the last hour."""
        hour = 60 // self.periods.step
        return np.asarray(self.periods.numbered & filled[:, :-hour].all(1) & ~filled[:, -hour:].any(1))

    def _batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        wide, texts = self.periods.names, rows.column(TEXT).to_pylist()
        cells = [rows.column(name).cast(pa.float64()) for name in wide]
        filled = _filled(cells)
        begin, places, whole = self._places(rows.column(self._date), filled)
        kept, noun = filled.copy(), self.periods.noun
        said = {
            (row, at): fault("out of range", wide[at], f"{rows.column(self._date)[row]} has no such {noun}")
            for row, at in np.argwhere(filled & (places < 0)).tolist()
        }
        faults = rows.column(FAULT)
        for row in faults.is_valid().to_numpy(zero_copy_only=False).nonzero()[0].tolist():
            wrong = str(faults[row])
            if wrong.split("|")[1] not in wide:  # a row that cannot be read at all is one
                whole[row] = wrong
            else:
                own = self._texts(str(texts[row]))
                said |= {(row, at): self._wrong(wrong, wide[at], own) for at in np.flatnonzero(~filled[row]).tolist()}
        said = {place: wrong for place, wrong in said.items() if wrong and place[0] not in whole}
        for place in said:
            kept[place] = True
        for row, wrong in whole.items():
            kept[row], kept[row, 0], said[row, 0] = False, True, wrong
            own = rows.slice(row, 1).select(self.inner.names).to_pylist()[0]
            texts[row] = texts[row] or json.dumps(own, default=str)
        columns = {name: rows.column(name) for name in (*self._kept, LINE)} | {TEXT: pa.array(texts, pa.string())}
        found = self._long(columns, cells, kept, begin, places)
        wrongs = [said.get((row, at)) for row, at in np.argwhere(kept).tolist()] if said else [None] * int(kept.sum())
        found[FAULT] = pa.array(wrongs, pa.string())
        return pa.RecordBatch.from_arrays([found[name] for name in self.schema.names], names=self.schema.names)

    def _places(self, dates: pa.Array[Any], filled: Bools) -> tuple[Ints, Ints, dict[int, str]]:
        """Where the cells of days are.

        Args:
            dates: (N,) as the source has them. filled: (N, W) the cells that say something.

        Returns:
            (N,) the beginnings of the days, μs; (N, W) the places of the cells in them, -1 where they have none; and
            what is wrong with days.
        """
        days, texts = midnights(dates, self._form)
        begin, end = (
            (day.dt.epoch("us") if self._clock is None else self._clock.begins(day)).fill_null(0).to_numpy()
            for day in (days, days.dt.offset_by("1d"))
        )
        places = np.tile(np.where(self._surplus, -1, self._begins // self.periods.step), (len(days), 1))
        whole = {}
        for row in days.is_null().arg_true().to_list():
            reason, why = ("no time", "") if texts[row] is None else ("unparsable", f"{texts[row][:80]!r} is no day")
            whole[row] = fault(reason, self.name, why)
        if self._clock is None:
            sunday = (days.dt.weekday() == 7).fill_null(False).to_numpy()
            for row in np.flatnonzero(self._lacks_an_hour(filled) & sunday).tolist():
                whole[row] = fault(
                    "unclear day", self.name, f"it lacks the last hour, as where a clock is changed: {_SAY}"
                )
        for row in np.flatnonzero(end - begin != _DAY).tolist():
            found = self._changed(int(begin[row]), int(end[row]), filled[row])
            if found is not None:
                places[row] = found
            elif row not in whole:
                hours = (end[row] - begin[row]) / (60 * _MINUTE)
                why = f"it has {hours:g} hours in {self._zone}, and its cells do not say which of them they are"
                whole[row] = fault("unclear day", self.name, why)
        places[list(whole)] = -1
        return begin, places, whole

    def _changed(self, begin: int, end: int, filled: Bools) -> Ints | None:
        """(W,) the places of the columns in a day on which the clock is changed, by the clock or as they are counted,
        whichever fits all cells that say something; None where both do, at other places, or neither."""
        step = self.periods.step * _MINUTE
        if self._clock is None or end <= begin or (end - begin) % step:
            return None
        shown = self._clock.shown(begin, end, step)
        places = {number: [at for at, one in enumerate(shown) if one == number] for number in shown}
        numbers = (self._begins // self.periods.step + 1).tolist()
        by_clock = np.array(
            [[*places.get(one, ()), -1, -1][second] for one, second in zip(numbers, self.periods.second, strict=True)]
        )
        counted = np.arange(len(filled))
        counted[len(shown) :] = -1
        fits, other = ((way[filled] >= 0).all() for way in (by_clock, counted))
        if not self.periods.numbered or self._second.any():  # no numbers that could be counted
            return by_clock if fits or not other else None
        if fits and other:
            return by_clock if (by_clock == counted)[filled].all() else None
        return by_clock if fits else counted if other else None

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
        if cell is not None and _missing(pl.Series([cell]), self._nulls, self._decimal)[0]:
            return ""
        return fault("unparsable", name, "it is empty, or no number" if cell is None else f"{cell!r} is not a number")

    def _long(
        self, columns: dict[str, pa.Array[Any]], cells: list[pa.Array[Any]], kept: Bools, begin: Ints, places: Ints
    ) -> dict[str, pa.Array[Any]]:
        """The rows of the cells (N, W) that are kept, day by day."""
        day, period = kept.nonzero()
        found: dict[str, Any] = {name: column.take(pa.array(day, pa.int64())) for name, column in columns.items()}
        at = places[day, period]
        times = pa.array(begin[day] + at * (self.periods.step * _MINUTE), pa.timestamp("us"), mask=at < 0)
        found[self.name] = times.cast(self.schema.field(self.name).type)
        found[VALUE] = pa.concat_arrays(cells).take(pa.array(period * len(kept) + day, pa.int64()))
        return found


def midnights(dates: pa.Array[Any], form: str | None) -> tuple[pl.Series, pl.Series]:
    """(N,) days as naive midnights, null where there is none, and as text.

    Args:
        dates: as a source has them.
        form: how they are written; None as ISO 8601.

    Example:
        >>> midnights(pa.array(["31.01.2024", "soon"]), "%d.%m.%Y")[0].dt.date().to_list()
        [datetime.date(2024, 1, 31), None]
    """
    texts = days_of(dates, form)
    times = text_times(texts.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string()), False, None)[0]
    days = pl.Series(pl.from_arrow(times))
    return days.set((days != days.dt.truncate("1d")).fill_null(False), None), texts


def _missing(cells: pl.Series, nulls: Sequence[str], decimal: str) -> pl.Series:
    """(N,) the cells that stand for a missing value, or write a number otherwise that does."""
    found, named = cells.str.strip_chars().is_in(list(nulls)).fill_null(True), null_numbers(nulls, decimal)
    return found | convert(cells, pa.float64(), decimal, ())[0].is_in(named).fill_null(False) if named else found


_SAY = "say where, in a new table: --timezone Europe/Oslo, or --timezone UTC if it is never changed"


def _filled(cells: list[pa.Array[Any]]) -> Bools:
    """(N, W) whether cells say something; NaN says nothing."""
    missing = [cell.is_null(nan_is_null=True).to_numpy(zero_copy_only=False) for cell in cells]
    return ~np.stack(missing, 1)
