"""A recording as a Source: rows on one clock, a column a signal, positions by the file's identity and the row."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamgp.base import Chunk, Json, Offset
from streamgp.errors import DataError, StreamgpError, UsageError
from streamgp_data.intervals import nanoseconds
from streamgp_data.reading.bytes import Position, digest
from streamgp_data.reading.cells import FAULT, LINE, TEXT, fault
from streamgp_data.reading.columnar import ROWS, Columnar, spooled
from streamgp_data.reading.matching import matching
from streamgp_data.recordings.joining import join
from streamgp_data.recordings.recording import Lost, Recording, RecordingOptions, Times, Wanted
from streamgp_data.recordings.samples import Samples

CELLS = 1 << 22
"""Cells of a chunk of rows."""
COLUMNS = 2000
"""Signals that become columns of one table."""
KEPT = 1000
"""Unreadable samples that are put aside one by one; the rest is counted."""
_1980 = 315_532_800 * 10**9
_TICKS = 100
"""Rows of a clock of equal intervals for each sample that there is."""


@dataclass(frozen=True)
class _Clock:
    """count rows: at the samples of `signal`, or `every` ns from `first` on."""

    count: int
    signal: str | None = None
    first: int = 0
    every: int = 0


class Joined(Columnar):
    """A Source over one recording.

    Args:
        uri: the file, or "-".
        config: how signals become rows, and what the format needs.
        reader: opens the recording at a path.
        also: files that decide what is read, such as a DBC: part of its identity.

    Attributes:
        samples: of every wanted signal. recording: units, and what is left out.
        time_column: name of the column of times; time_format: how they are written, None for timestamps.
        every_ns: the interval of a clock of equal intervals.

    Raises:
        DataError: it is damaged, or has no signals.
        UsageError: a pattern fits no signal, or an extra is missing.
    """

    CHANGED = (
        "the file was changed, or is read with other --signals, --clock, --join, --max-age or --dbc than before: "
        "repeat those, or ingest it into another table, or under another name: --as NAME"
    )

    def __init__(
        self, uri: str, config: RecordingOptions, reader: Callable[[str], Recording], also: tuple[Path, ...] = ()
    ) -> None:
        self._config, self._reader, self._also = config, reader, also
        self._lost: list[Lost] = []
        self._uncounted = 0
        super().__init__(uri)

    def begin(self, uri: str) -> tuple[pa.Schema, Position]:
        path, end, temporary = spooled(uri)
        try:
            self._load(path, end.bytes)
        finally:
            if temporary:
                os.unlink(path)
        config, signals = self._config, self.samples.signals
        self.time_column = next(name for name in ("time", "ds", "clock") if name not in signals)
        self._elapsed = min((signal.first for signal in signals.values()), default=_1980) < _1980
        self.time_format = "elapsed-s" if self._elapsed else None
        self._columns = [name for name in sorted(signals) if self._column(name)]
        self._clock = _Clock(0) if config.look else self._chosen_clock()
        self.every_ns = self._clock.every or None
        if len(self._columns) > COLUMNS and not config.look:
            raise UsageError(
                f"{uri}: {len(self._columns):,} signals are too many columns", hint="choose some: --signals 'a*,b'"
            )
        options = config.model_dump_json(exclude={"look"}) + json.dumps(
            [digest(path.read_bytes()) for path in self._also]
        )
        end = end._replace(hash=digest(f"{end.hash}|{options}".encode()))
        time = pa.field(self.time_column, pa.float64() if self._elapsed else pa.timestamp("us", "UTC"))
        units = self.recording.units
        fields = [pa.field(name, pa.float64(), metadata=_unit(units.get(name))) for name in self._columns]
        return pa.schema([time, *fields]), end

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        size = max(256, min(ROWS, CELLS // (len(self._columns) + 1)))
        for first in range(start, self._clock.count, size):
            yield self._rows(first, min(first + size, self._clock.count))

    def read(self, after: Offset) -> Iterator[Chunk]:
        """Rows, and after the last one a faulty row for each sample that could not be read."""
        yield from super().read(after)
        start = max(Position.of(after).lines, self._clock.count)
        lost = self._lost[start - self._clock.count :]
        if lost:
            bad = [{LINE: start + at, FAULT: fault(*one[:3]), TEXT: one.text} for at, one in enumerate(lost, 1)]
            rows = pa.RecordBatch.from_pylist(bad, schema=self.schema)
            yield Chunk(rows, self._end._replace(lines=start + len(lost)).offset())

    @property
    def lost(self) -> int:
        """Samples that could not be read."""
        return len(self._lost) + self._uncounted

    @property
    def format(self) -> str:
        """The format's name."""
        return type(self._config).__module__.rsplit(".", 1)[-1]

    @property
    def numbered(self) -> bool:
        """Whether the number of a sample, times an interval that was given, is its time."""
        return (getattr(self._config, "interval", None) or 0) > 0

    def reads(self) -> dict[str, Json]:
        """How rows were made."""
        clock = self._clock.signal or f"{self._clock.every / 1e9:g} s"
        return {"clock_of": clock, "join": self._config.join}

    def notes(self) -> list[str]:
        """What is in the file and not in its rows, and what was put in order."""
        out, signals = self.recording.left_out, self.samples.signals
        moved = sum(signals[name].moved > 0 for name in self._columns)
        found = [f"{self.uri}: rows are at the samples of {self._clock.signal}, the signal of most samples: --clock"]
        found = found if self._config.clock is None and len({one.count for one in signals.values()}) > 1 else []
        if out:
            found.append(f"{self.uri}: left out: {_listed(out)}")
        if moved:
            found.append(f"{self.uri}: samples of {moved} signals came after later ones, and were put in order")
        return found

    def _load(self, path: str, size: int) -> None:
        """Read the samples into their temporary file."""
        self.samples = Samples(size, self.uri)
        try:
            self.recording = self._reader(path)
            for item in self.recording.blocks(self._wanted()):
                if isinstance(item, Lost):
                    self._put_aside(item)
                elif count := self.samples.add(item):
                    what = ", ".join(item.values)[:200]
                    self._put_aside(Lost("no time", "", f"a sample of {what} has no usable time"), count)
        except StreamgpError:
            raise
        except Exception as error:  # what the libraries raise on damaged bytes is documented nowhere
            place = self.recording.place if hasattr(self, "recording") else ""
            wrong = f"{place or 'its beginning'}: {type(error).__name__} {error}".splitlines()[0][:300]
            if not (self._config.salvage and self.samples.signals):
                more = "; --salvage takes what comes before" if self.samples.signals else ""
                raise DataError(
                    f"{self.uri}: damaged or cut short at {wrong}", hint=f"bring the whole file{more}"
                ) from None
            self._put_aside(Lost("damaged", "", f"nothing is read after {wrong}"))
        if self._uncounted:
            self._lost.append(Lost("unparsable", "", f"{self._uncounted:,} more samples could not be read"))
        self.samples.sort()
        self._check_names()

    def _put_aside(self, lost: Lost, count: int = 1) -> None:
        kept = count if lost.reason == "damaged" else min(count, max(0, KEPT - len(self._lost)))
        self._lost += [lost] * kept
        self._uncounted += count - kept

    def _wanted(self) -> Wanted:
        """Which signals are read: those of --signals, and that of --clock."""
        config = self._config
        if not config.signals:
            return lambda name: True
        return lambda name: self._column(name) or name == config.clock

    def _column(self, name: str) -> bool:
        patterns = self._config.signals
        return not patterns or any(matching(pattern, [name]) for pattern in patterns)

    def _check_names(self) -> None:
        found, out = list(self.samples.signals), self.recording.left_out
        for pattern in self._config.signals:
            if not matching(pattern, found):
                why = next((f"{name}: {why}" for name, why in out.items() if fnmatchcase(name, pattern)), "")
                if why and self._config.look:
                    continue
                hint = why or f"streamgp describe {self.uri} shows the signals"
                raise UsageError(f"--signals {pattern!r}: {self.uri} has no such signal", hint=hint)
        if not found and not (out and self._config.look):
            raise DataError(f"{self.uri}: it has no signals", hint=_listed(out) or "is it an empty recording?")

    def _chosen_clock(self) -> _Clock:
        signals, asked = self.samples.signals, self._config.clock
        if asked is None:
            asked = max(self._columns, key=lambda name: signals[name].count)
        if asked in signals:
            return _Clock(signals[asked].count, asked)
        every = nanoseconds(asked)
        if every is None:
            hint = f"streamgp describe {self.uri} shows the signals; an interval is like 10ms"
            raise UsageError(f"--clock {asked!r} is neither a signal of {self.uri} nor an interval", hint=hint)
        used = [signals[name] for name in self._columns]
        first = -(-min(signal.first for signal in used) // every) * every
        count = max(0, (max(signal.last for signal in used) - first) // every + 1)
        if count > _TICKS * sum(signal.count for signal in used) + ROWS:
            raise DataError(
                f"{self.uri}: --clock {asked} makes {count:,} rows of far fewer samples",
                hint="a time is wrong, or the interval is too short: streamgp describe shows first and last times",
            )
        return _Clock(count, None, first, every)

    def _rows(self, start: int, stop: int) -> pa.RecordBatch:
        """The rows `start` to `stop`."""
        clock, rule = self._clock, self._config.join
        if clock.signal is None:
            times: Times = clock.first + clock.every * np.arange(start, stop)
        else:
            times = self.samples.rows(clock.signal, start, stop)
        micros = (times + 500) // 1000
        columns = [pa.array(micros / 1e6) if self._elapsed else pa.array(micros).cast(pa.timestamp("us", "UTC"))]
        for name in self._columns:
            found = join(times, *self.samples.between(name, int(times[0]), int(times[-1])), rule, self._config.max_age)
            columns.append(pa.array(found, from_pandas=True))
        return pa.RecordBatch.from_arrays(columns, names=[self.time_column, *self._columns])


def _listed(out: dict[str, str]) -> str:
    """What is left out, in words.

    Example:
        >>> _listed({"loose": "no time", "frames that are not in the database": "31,280"})
        'loose: no time; 31,280 frames that are not in the database'
    """
    counts = {name: why.replace(",", "").isdigit() for name, why in out.items()}
    parts = [f"{why} {name}" if counts[name] else f"{name}: {why}" for name, why in list(out.items())[:3]]
    return "; ".join([*parts, f"and {len(out) - 3:,} more"] if len(out) > 3 else parts)


def _unit(unit: str | None) -> dict[str, str]:
    return {"unit": unit} if unit else {}
