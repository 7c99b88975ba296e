"""Times as the source of a table wrote them: read from files of the user, written to forecasts, named on pictures.

Inside, every clock is int64: ns since 1970, or steps. A source that counts from its own start (elapsed seconds) or from
1970 (epochs) gets its own numbers back; every other clock is written as a timestamp in the zone of the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from streamgp.errors import DataError, UsageError
from streamgp_data.instants import COMPACT, ELAPSED, EPOCHS, epoch_years, number_times, periods_of
from streamgp_data.table import TableMeta
from streamgp_data.times import Clock, TimeReader, decide, suggestion
from streamgp_data.zones import clock_of, shown_in


@dataclass(frozen=True)
class Moments:
    """How the times of a table are written.

    Attributes:
        clock: whether times are instants; otherwise they are steps.
        zone: of the table: an IANA name, an offset, or None for a naive clock.
        form: how the source wrote them: iso, epoch-ms, elapsed-s, step, a strptime format; None where it is not known.
        whole: whether the source's numbers were whole ones.
        local: whether times without an offset show the clock of the zone, as `TableMeta.local`.

    Example:
        >>> import torch
        >>> ns = torch.tensor([0, 100_000_000])
        >>> Moments(form="elapsed-s", whole=False).write(ns).to_list()
        [0.0, 0.1]
        >>> Moments(form="epoch-ms").write(ns).to_list(), Moments(clock=False).write(ns).to_list()
        ([0, 100], [0, 100000000])
        >>> Moments().write(ns).dtype
        Datetime(time_unit='us', time_zone=None)
    """

    clock: bool = True
    zone: str | None = None
    form: str | None = None
    whole: bool = True
    local: bool | None = None

    @classmethod
    def of(cls, meta: TableMeta) -> Moments:
        """Those of a table."""
        return cls(meta.time is not None and meta.clock, meta.zone, meta.time_format, meta.time_whole, meta.local)

    @property
    def elapsed(self) -> bool:
        """Whether times count from a start of their own, so that they have no date."""
        return self.clock and self.form in ELAPSED

    @property
    def numbers(self) -> bool:
        """Whether times are written as numbers: steps, elapsed time, epochs."""
        return not self.clock or self.form in EPOCHS

    @property
    def unit(self) -> str:
        """s, ms, us or ns, where times are written as numbers of one."""
        return (self.form or "").rpartition("-")[2] if self.clock and self.numbers else ""

    def write(self, values: Any) -> pl.Series:
        """(R,) int64 tensor or array, ns or steps -> timestamps in the table's zone, or numbers.

        Numbers are whole where those of the source were and these are, else float64, exact to the microsecond.
        """
        series = pl.Series(np.asarray(values), dtype=pl.Int64)
        if not self.clock:
            return series
        if not self.numbers:
            stamps = series.cast(pl.Datetime("ns")).cast(pl.Datetime("us"))
            zone = shown_in(self.zone)
            return stamps if zone is None else stamps.cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)
        size = _NANOSECONDS[self.unit]
        if size == 1 or (self.whole and bool((series % size == 0).all())):
            return series // size
        micros, rest = np.divmod(series.to_numpy(), 1000)  # microseconds are exact as float64, ns are not
        return pl.Series(micros / (size / 1000) + rest / size)

    def say(self, value: int) -> str:
        """One time in a message; of an epoch its date too.

        Example:
            >>> Moments(form="epoch-ms").say(1577836800 * 10**9), Moments(form="elapsed-s").say(10**9)
            ('1577836800000 (2020-01-01 00:00:00+00:00)', '1 s')
        """
        written = self.write(np.array([value]))
        if self.clock and self.numbers and not self.elapsed:
            return f"{written[0]} ({self.shown(written)[0]})"
        return f"{written[0]}{f' {self.unit}' if self.elapsed else ''}"

    def read(
        self, column: pl.Series, series: pl.Series | None, where: str, first: int, given: str | None = None
    ) -> pl.Series:
        """A column of a user's file as int64 steps, or as instants in UTC.

        Text may be written as in the source or in ISO 8601. A repeated hour is first the earlier instant, then, within
        a series, the later one. Timestamps and dates are taken as they are.

        Args:
            column: as a reader of files made it.
            series: which series each row belongs to.
            where: the name of the file, for messages.
            first: the line of the first row.
            given: how these times are written, as `--time-format` of `ingest`; None as said above.

        Raises:
            DataError: a cell is not a time; the line is named.
            UsageError: what is given is no format, or one of a clock that the table has not.
        """
        kind = column.dtype
        if given is not None:
            return self._given(column, given, series, where, first)
        if not self.clock:
            return self._steps(column, where, first)
        if kind.is_numeric():
            if self.form in COMPACT:
                clock = Clock("format", self.form, self.zone, self.zone is not None)
                return self._checked(self._read(column, clock, series), column, where, first)
            if not self.numbers:
                raise DataError(f"{where}: column {column.name!r} holds {kind}, not times", hint=self._how())
            return self._checked(self._read(column, Clock(self.form, zone="UTC"), None), column, where, first)  # type: ignore[arg-type]
        if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
            return self._checked(self._read(column, Clock("timestamp", zone="UTC"), None), column, where, first)
        if not (isinstance(kind, pl.Datetime) or kind in (pl.String, pl.Date)):
            raise DataError(f"{where}: column {column.name!r} holds {kind}, not times", hint=self._how())
        if self.elapsed:
            raise DataError(f"{where}: column {column.name!r} holds dates, and the table {self.unit}", hint=self._how())
        local = self.zone is not None
        clocks = [Clock("iso", zone=self.zone, localise=local), Clock("iso-offset", zone="UTC")]
        if self._offsets:
            clocks, local = clocks[1:], False
        if kind != pl.String:
            if self._offsets:
                raise DataError(
                    f"{where}: column {column.name!r} has no time zone, and the table has", hint=self._how()
                )
            clocks = [Clock("timestamp", zone=self.zone, localise=local)]
        elif periods_of(self.form) is not None:
            clocks.insert(0, Clock("period", self.form, self.zone, local))
        elif self.form is not None and "%" in self.form:
            aware = "%z" in self.form or "%Z" in self.form
            clocks.insert(0, Clock("format", self.form, "UTC" if aware else self.zone, local and not aware))
        reads = [self._read(column, clock, series) for clock in clocks]
        found = min(reads, key=lambda read: read.null_count())
        if len(reads) > 1 and found.null_count():  # with an offset in some lines and without in others
            for other in reads:
                found = pl.select(pl.coalesce(found, other)).to_series()
        return self._checked(found, column, where, first)

    def _given(self, column: pl.Series, form: str, series: pl.Series | None, where: str, first: int) -> pl.Series:
        """A column of times that are written in this way, as `read`."""
        if form in ELAPSED or form == "step" or not self.clock or self.elapsed:
            if form not in (self.form, "step" if not self.clock else self.form):
                own = "steps" if not self.clock else f"elapsed time in {self.unit}" if self.elapsed else "dates"
                raise UsageError(f"--time-format {form}: the times of the table are {own}", hint="leave it out")
            return self.read(column, series, where, first)
        zone = None if self._offsets else self.zone
        clock = decide(_arrow(column), form, zone, f"{where}, column {column.name!r}", first)
        if self._offsets and clock.zone is None:
            raise DataError(f"{where}: column {column.name!r} has no time zone, and the table has", hint=self._how())
        return self._checked(self._read(column, clock, series), column, where, first, suggestion(_arrow(column)))

    @property
    def _offsets(self) -> bool:
        """Whether every time must have an offset, as those of the table had."""
        return self.zone is not None and self.local is False and not self.numbers

    def instant(self, text: str, flag: str) -> int:
        """A time as the user writes one in an option, ns: ISO 8601, or a number where the source has numbers.

        Raises:
            UsageError: it is none; the message names the flag.

        Example:
            >>> Moments(form="elapsed-s").instant("12.5", "--start"), Moments().instant("1970-01-02", "--start")
            (12500000000, 86400000000000)
        """
        if not self.clock:
            raise UsageError(f"{flag} {text}: this table has no clock", hint="give a number of rows")
        if self.numbers and (number := _number(text)) is not None:
            micros = number_times(pa.array([text.strip()]), str(self.form))[0].cast(pa.int64())[0].as_py()
            return round(number * _NANOSECONDS[self.unit]) if micros is None else int(micros) * 1000
        try:
            if self.elapsed:
                raise ValueError
            moment = datetime.fromisoformat(text)
        except ValueError:
            such = f"1344, or 12.5 {self.unit} as 12.5" if self.elapsed else "1344 or 2014-01-29"
            raise UsageError(f"{flag} {text} is neither rows nor a time", hint=f"such as {such}") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=clock_of(self.zone))
        if re.search(r"[.,]\d{6}[5-9]", text):  # as in a table; Python cuts
            moment += timedelta(microseconds=1)
        return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1) * 1000

    def counts_rows(self, text: str) -> bool:
        """Whether an option that takes rows or a time names rows: whole numbers do, but for epochs of 1980 to 2100.

        Example:
            >>> table = Moments(form="epoch-s")
            >>> table.counts_rows("1344"), table.counts_rows("1577836800"), Moments().counts_rows("1577836800")
            (True, False, True)
        """
        if not (text.isascii() and text.isdigit()):
            return False
        if len(text) > 18:
            raise UsageError(f"{text[:30]} is neither a number of rows nor a time", hint="such as 1344 or 2014-01-29")
        if not self.clock or self.elapsed or self.form not in EPOCHS:
            return True
        low, high = epoch_years(self.form)
        return not low <= int(text) <= high

    def on_axis(self, times: pl.Series) -> pl.Series:
        """Written times as the axis of a picture wants them: dates where they have one, else numbers."""
        if self.clock and self.numbers and not self.elapsed:
            micros = (times * (_NANOSECONDS[self.unit] / 1000)).round().cast(pl.Int64)
            return micros.cast(pl.Datetime("us"))
        return times

    def shown(self, times: pl.Series) -> pl.Series:
        """Written times as text for people: dates of an epoch too, with as many digits of a second as these need.

        Example:
            >>> Moments(form="epoch-ms").shown(pl.Series([1577836800000, 1577836800250])).to_list()
            ['2020-01-01 00:00:00.000+00:00', '2020-01-01 00:00:00.250+00:00']
            >>> Moments(form="elapsed-s").shown(pl.Series([0.5])).to_list()
            ['0.5']
        """
        times = self.on_axis(times)
        if not times.dtype.is_temporal():
            return times.cast(pl.String)
        if self.numbers:
            times = times.dt.replace_time_zone("UTC")
        rest = times.dt.microsecond()
        digits = "" if (rest == 0).all() else "%.3f" if (rest % 1000 == 0).all() else "%.6f"
        zone = "%:z" if getattr(times.dtype, "time_zone", None) else ""
        return times.dt.strftime(f"%Y-%m-%d %H:%M:%S{digits}{zone}")

    @property
    def label(self) -> str:
        """What the axis of a picture is called."""
        if not self.clock:
            return "step"
        if self.elapsed:
            return f"elapsed, {self.unit}"
        zone = shown_in(self.zone) or ""
        return f"UTC{self.zone}" if zone.startswith("Etc/") else zone  # Etc/GMT-10 is ten hours ahead of UTC

    def _steps(self, column: pl.Series, where: str, first: int) -> pl.Series:
        exact = column.cast(pl.Int64, strict=False) if column.dtype.is_numeric() else None
        if exact is None or (column.dtype.is_float() and bool((exact != column).any())):
            raise DataError(f"{where}: column {column.name!r} holds no steps", hint="write whole numbers")
        return self._checked(exact, column, where, first)

    def _read(self, column: pl.Series, clock: Clock, series: pl.Series | None) -> pl.Series:
        """Instants in UTC (a naive clock counts as UTC), null where a cell is none."""
        cells = _arrow(column)
        names: Any = None if series is None else series.to_arrow(compat_level=pl.CompatLevel.oldest())
        if clock.kind in EPOCHS:
            return pl.Series(column.name, pl.from_arrow(number_times(cells, clock.kind)[0]))
        found = pl.Series(column.name, pl.from_arrow(TimeReader(clock).read(cells, names).values))
        zoned = getattr(found.dtype, "time_zone", None) is not None
        return found if zoned else found.dt.replace_time_zone("UTC")

    def _checked(
        self, found: pl.Series, column: pl.Series, where: str, first: int, hint: str | None = None
    ) -> pl.Series:
        missing = found.is_null().arg_true()
        if len(missing):
            at = int(missing[0])
            raise DataError(f"{where}, line {first + at}: {column[at]!r} is not a time", hint=hint or self._how())
        return found.alias(column.name)

    def _how(self) -> str:
        if self.form in EPOCHS:
            what = "elapsed time" if self.elapsed else "the epoch"
            return f"write {what} in {self.unit}, as in the source"
        offset = "+01:00" if self._offsets else ""
        return f"write ISO 8601, such as 2015-01-01T00:30{offset}" + (
            f", or {self.form}" if "%" in (self.form or "") else ""
        )


def _arrow(column: pl.Series) -> Any:
    cells: Any = column.to_arrow(compat_level=pl.CompatLevel.oldest())
    return cells.cast(pa.string()) if pa.types.is_large_string(cells.type) else cells


_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None
