"""The report of an ingest: its progress, what became of every source, and what to do about it."""

from __future__ import annotations

import re
import resource
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamgp.base import Json
from streamgp.errors import DataError
from streamgp_data.delta import SEQ
from streamgp_data.ingestion.acceptance import GOING, NO_FAULTS
from streamgp_data.ingestion.chunk import Sorted
from streamgp_data.ingestion.naming import MOST, naming
from streamgp_data.ingestion.pieces import Pieces
from streamgp_data.ingestion.plan import Plan
from streamgp_data.ingestion.units import SaidUnits, is_number
from streamgp_data.instants import COMPACT, ELAPSED, MISSING, periods_of, serial_years, whole_numbers
from streamgp_data.pace import Pace
from streamgp_data.reading.cells import NULLS, said
from streamgp_data.reading.files import FileSource
from streamgp_data.recordings.joined import Joined
from streamgp_data.table import Table, TableMeta

if TYPE_CHECKING:
    from streamgp_pipelines.config import IngestConfig


class IngestProgress(NamedTuple):
    """How far ingest has come: the source at hand, and totals of this run."""

    source: str
    rows: int
    quarantined: int
    seconds: float


Progress = Callable[[IngestProgress], None]


@dataclass
class SourceReport:
    """What became of one source in this run.

    Attributes:
        state: unchanged, taken, no rows yet, dry run, or refused: counted as in a dry run, and not taken.
        reads: how its columns were understood.
        late: rows that came after a later row of their series. future: rows later than now.
        versions: rows that are another version of a row, with other values.
        fitting: in a dry run, rows that the table would take.
        redelivered: messages, or rows of them, that a broker has delivered again, and that the table has.
        waiting: whether a last line without newline was left.
        doubts: what may be misunderstood, and what to do about it.
        conflicts: the first rows that have the time of another one and other values.
        meta: of the table; first: the first rows of a dry run, which no table has.
        words: what stands in cells of numbers in place of one.
        pieces: where it seems to begin another recording.
        pace: the intervals between the rows taken.
        said: the units that columns of text say.
        refusal: why the source is refused as a whole, and what to do; in a dry run, why it would be.
    """

    name: str
    rows: int = 0
    late: int = 0
    versions: int = 0
    fitting: int = 0
    future: int = 0
    redelivered: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    state: str = "unchanged"
    waiting: bool = False
    doubts: list[str] = field(default_factory=list)
    reads: dict[str, Json] = field(default_factory=dict)
    conflicts: pa.Table | None = None
    meta: TableMeta | None = None
    first: pa.Table | None = None
    words: Counter[str] = field(default_factory=Counter)
    pieces: Pieces | None = None
    pace: Pace = field(default_factory=Pace)
    said: SaidUnits | None = None
    refusal: tuple[str, str] | None = None

    @property
    def counted(self) -> bool:
        """Whether its rows were counted, and not taken."""
        return self.state in ("dry run", "refused")

    def count(self, divided: Sorted, meta: TableMeta) -> None:
        """Add what one commit took."""
        self.state, self.meta = "taken", meta
        self.rows += divided.accepted.num_rows
        if self.said is not None:
            self.said.add(divided.accepted)
        self.late += int(divided.late.sum())
        self.versions += divided.versions
        self.future += _future(divided.accepted, meta)
        self.reasons.update(divided.reasons)
        found = (_WORD.fullmatch(detail or "") for detail in divided.quarantined.column("detail").to_pylist())
        self.words.update(word[1] for word in found if word is not None)
        self.words = Counter(dict(self.words.most_common(MOST)))
        if meta.time is not None and divided.accepted.num_rows:
            times = divided.accepted.column(meta.time).cast(pa.int64()).to_numpy()
            names = None if meta.series is None else divided.accepted.column(meta.series).combine_chunks()
            self.pace.add(times, names)
        self.keep(divided.conflicts)

    def keep(self, conflicts: pa.Table | None) -> None:
        """Rows that have the time of another one and other values: the first are kept."""
        if conflicts is not None and (self.conflicts is None or self.conflicts.num_rows < MOST):
            parts = [conflicts] if self.conflicts is None else [self.conflicts, conflicts]
            self.conflicts = pa.concat_tables(parts).slice(0, MOST)

    def summary(self) -> dict[str, Json]:
        return {
            "source": self.name,
            "state": self.state,
            "added": self.rows,
            "quarantined": sum(self.reasons.values()),
            "late": self.late,
            "versions": self.versions,
            **({"would_add": self.fitting} if self.counted else {}),
            **({"refused": self.refusal[0], "remedy": self.refusal[1]} if self.refusal else {}),
            **({"redelivered": self.redelivered} if self.redelivered else {}),
            "waiting": self.waiting,
            "reads": self.reads,
        }


def innermost(source: FileSource) -> Any:
    """The file of a source of some of its columns, of a long table, or of times in two columns."""
    file: Any = source
    while hasattr(file, "inner"):
        file = file.inner
    return file


def understood(source: FileSource, chosen: Plan) -> dict[str, Json]:
    """How a source is read, in words: what was found out and what was given."""
    clock = chosen.clock
    entry: dict[str, Json] = {"format": type(innermost(source)).__name__.lower()}
    if isinstance(source, Joined):
        entry = {"format": source.format, **source.reads()}
    dialect = getattr(source, "dialect", None)
    if dialect is not None:
        entry |= {"separator": dialect.separator, "decimal": dialect.decimal, "encoding": dialect.encoding}
        entry |= {"thousands": dialect.thousands, "trailing_separator": dialect.trailing}
    entry |= {"time": chosen.meta.time, "series": chosen.meta.series}
    if clock is not None:
        entry |= {"clock": clock.format or clock.kind, "zone": clock.zone}
    entry["columns"] = {field.name: str(field.type) for field in chosen.schema}
    return entry


def summary(path: str, table: Table | None, sources: list[SourceReport], began: float, sort: bool) -> dict[str, Json]:
    """Totals of a run. `began`: time.monotonic() at its start; `sort`: whether rows were to be ordered."""
    seconds = time.monotonic() - began
    reasons = _reasons(sources)
    names = ("rows", "late", "future", "versions")
    added, late, future, versions = (sum(getattr(one, name) for one in sources) for name in names)
    return {
        "table": path,
        "table_version": None if table is None else table.version,
        "rows": 0 if table is None else table.rows,
        "read": added + sum(one.fitting for one in sources) + reasons.total(),
        "added": added,
        "duplicates": reasons.get("duplicate", 0),
        "conflicts": reasons.get("conflict", 0),
        "versions": versions,
        "quarantined": dict(sorted(reasons.items())),
        "late": late,
        "future": future,
        "sources": [one.summary() for one in sources],
        "hints": _hints_of_all(path, table, sources, sort),
        "seconds": round(seconds, 3),
        "rows_per_second": round(added / seconds, 1) if seconds else None,
        "peak_mb": round(peak_mb(), 1),
    }


def _reasons(sources: list[SourceReport]) -> Counter[str]:
    return sum((one.reasons for one in sources), Counter[str]())


def _hints_of_all(path: str, table: Table | None, sources: list[SourceReport], sort: bool) -> list[Json]:
    """What to know of a run, and what to do: first of all about rows of several series, then about their order."""
    reasons, added, late = _reasons(sources), sum(one.rows for one in sources), sum(one.late for one in sources)
    future, versions = sum(one.future for one in sources), sum(one.versions for one in sources)
    dry = any(one.counted for one in sources)
    pieces: list[Json] = [note for one in sources for note in _pieces(one)]
    parted = any(one.pieces is not None and one.pieces.starts for one in sources) and bool(pieces)
    order = _mixed(table, sources) or ([] if parted else _order_hints(table, added, late, sort))
    repeated = [] if parted else _repeated(table, reasons["conflict"], versions, dry)
    if repeated and reasons["conflict"] and not order and reasons["conflict"] + reasons["duplicate"] > added:
        repeated.append(
            "most rows have a time that comes more than once, as where the clock is coarser than the rows: in a new "
            "table --duplicates mean has one row of each time; or number the rows in a column, and name it with --time"
        )
    return order + pieces + _hints(path, sources, future, reasons) + repeated


def _pieces(one: SourceReport) -> list[str]:
    """Where a source seems to begin another recording."""
    in_doubt = bool(one.late or one.versions or one.reasons["duplicate"] or one.reasons["conflict"])
    return [] if one.pieces is None else one.pieces.notes(in_doubt)


def check_share(config: IngestConfig, found: Mapping[str, Any]) -> None:
    """See that no source was refused, and that a run over files could read at least half of the rows; the same rows
    again are no fault.

    Args:
        config: of the run.
        found: its summary.

    Raises:
        DataError: it could not, and --keep-going was not given; the rows are where the summary says.
    """
    if config.keep_going or config.follow:
        return
    for one in found["sources"]:
        if "refused" in one:
            raise DataError(one["refused"], hint=one["remedy"])
    reasons = {reason: count for reason, count in found["quarantined"].items() if reason not in NO_FAULTS}
    refused, read = sum(reasons.values()), found["read"]
    if 2 * refused <= read:
        return
    most = max(reasons, key=lambda reason: reasons[reason])
    would = "would go" if config.dry_run else "went"
    raise DataError(
        f"{refused:,} of {read:,} rows {would} to the quarantine, {reasons[most]:,} as {most!r}",
        hint=f"{_NOTHING if config.dry_run else _OTHERS}; {GOING}",
    )


_NOTHING = "nothing was written"
_OTHERS = "the others are in the table: see what is wrong with streamgp describe --table, and ingest into a new one"


def peak_mb() -> float:
    """The largest memory that this process has held, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def doubts(source: FileSource, chosen: Plan) -> list[str]:
    """What may be misunderstood of the columns of text and numbers; what a recording has and rows have not."""
    if isinstance(source, Joined):
        return source.notes()
    kinds = {
        field.name: field.type for field in chosen.schema if field.name not in (chosen.meta.time, chosen.meta.series)
    }
    read = [name for name, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_floating(kind)]
    return [source.doubts[name] for name in read if name in source.doubts] + _missing(source, chosen)


def _missing(source: FileSource, chosen: Plan) -> list[str]:
    """Which words among the first numbers of a text file are read as missing values."""
    found: Counter[tuple[str, str]] = Counter()
    for name in source.names if hasattr(source, "dialect") else ():
        cells = source.sample.column(name)
        if is_number(chosen.schema.field(name).type) and pa.types.is_string(cells.type):
            words = (cell.strip() for cell in cells.to_pylist() if cell)
            found.update((name, word) for word in words if word in _WORDS)
    if not found:
        return []
    named = ", ".join(f"{word!r} of {name!r} ({count:,})" for (name, word), count in found.most_common(5))
    more = " and others" if len(found) > 5 else ""
    return [
        f"{source.uri}: in its first {source.sample.num_rows:,} rows these are read as missing values: {named}{more}"
    ]


def epochs(source: FileSource, chosen: Plan) -> list[str]:
    """Of numbers that were found to be an epoch: which one."""
    name, clock = chosen.meta.time, chosen.clock
    if name is None or clock is None or clock.kind not in _EPOCHS:
        return []
    cells = [said(value) for value in source.sample.column(name).drop_null()]
    first = next(cell for cell in cells if cell.strip() not in MISSING)
    fine = clock.kind == "epoch-ns" and any(cell.isdecimal() and int(cell) % 1000 for cell in cells)
    whole = chosen.meta.time_whole and not fine
    kept = "" if whole else ", to the microseconds that a table keeps"
    return [
        f"{source.uri}: column {name!r} is read as {_EPOCHS[clock.kind]} since 1970{kept}, such as {first}: if it is "
        "not, say in a new table what it is with --time-format"
    ]


def dates(source: FileSource, chosen: Plan) -> list[str]:
    """Of numbers that are read as dates: how."""
    name, clock = chosen.meta.time, chosen.clock
    if name is None or clock is None or clock.format not in COMPACT:
        return []
    first = next(said(value) for value in source.sample.column(name).drop_null()).removesuffix(".0")
    return [
        f"{source.uri}: column {name!r} is read as dates ({clock.format}), such as {first}: if these numbers count "
        "steps, ingest into a new table with --time-format step"
    ]


def known_format(source: FileSource, chosen: Plan) -> list[str]:
    """Of times in a format that the table's first source taught: which one."""
    name, clock = chosen.meta.time, chosen.clock
    if name is None or clock is None or "%" not in (clock.format or "") or clock.format in COMPACT:
        return []
    return [f"{source.uri}: column {name!r} is read as {clock.format}, like the first source of the table"]


def numbered(source: FileSource, chosen: Plan) -> list[str]:
    """Of numbers that are read as periods of a day: how many it has, and where it has others."""
    name, clock = chosen.meta.time, chosen.clock
    if name is None or clock is None or (count := periods_of(clock.format)) is None:
        return []
    changed = (
        f", as days of {clock.zone} have them" if clock.zone else "; if the clock is changed, say where: --timezone"
    )
    return [f"{source.uri}: column {name!r} is read as {count} periods of a day, of which 1 begins at 00:00{changed}"]


def readings(source: FileSource, chosen: Plan, named: bool) -> list[str]:
    """What may be misunderstood of the times of a new table whose format was found.

    Args:
        source: with the times.
        chosen: how it is read.
        named: whether the user said which column the time is.
    """
    return (
        serials(source, chosen)
        + dates(source, chosen)
        + numbered(source, chosen)
        + ([] if named else epochs(source, chosen))
    )


def serials(source: FileSource, chosen: Plan) -> list[str]:
    """Of whole numbers that are read as steps, and look like the days of a workbook, or are written with a fraction of
    0: what they may be."""
    name, clock = chosen.meta.time, chosen.clock
    if name is None or clock is None or clock.kind != "step":
        return []
    cells = source.sample.column(name).combine_chunks()
    first = next((said(value) for value in cells.drop_null()), "")
    if not serial_years(cells, 2060):
        if whole_numbers(cells) or not first:
            return []
        return [
            f"{source.uri}: column {name!r} is read as a counter of steps, such as {first}: if it counts seconds or "
            "another unit, say so in a new table: --time-format elapsed-s"
        ]
    return [
        f"{source.uri}: column {name!r} is read as a counter of steps, such as {first}: if these are the days of a "
        "workbook (45292 is 2024-01-01), ingest into a new table with --time-format excel"
    ]


_FEW = 10
"""One row in _FEW has the time of another one: more likely a correction than a series."""
_WORD = re.compile(r"'([^\d']{1,20})' is not a number")
"""What the quarantine says of a word in a cell of numbers."""
_WORDS = frozenset(NULLS) - {"", "NaN", "nan"}
_EPOCHS = {"epoch-s": "seconds", "epoch-ms": "milliseconds", "epoch-us": "microseconds", "epoch-ns": "nanoseconds"}


def _order_hints(table: Table | None, added: int, late: int, sort: bool) -> list[Json]:
    """What can be done about rows that come late."""
    return (_several(table, added, late) if late else []) or _order(table, late, sort)


def _mixed(table: Table | None, sources: list[SourceReport]) -> list[Json]:
    """Where rows of one time differ in a column that may name their series: first of all, which it is."""
    conflicts = [one.conflicts for one in sources if one.conflicts is not None]
    meta = next((one.meta for one in sources if one.meta is not None), None)
    if not conflicts or meta is None:
        return []
    columns = [name for name in conflicts[0].column_names if name != SEQ]
    stored = () if table is None else table.arrived({}, columns, 1 << 18)
    before = (pa.Table.from_batches([chunk.rows]) for chunk in stored)
    new = sum(one.rows + one.fitting for one in sources)
    rows = new if table is None else table.rows
    few = _FEW * sum(one.reasons["conflict"] + one.versions for one in sources) < rows
    if meta.duplicates != "first" and (few or rows != new):  # versions, as was said that there are
        return []
    named = naming(meta, pa.concat_tables(conflicts), chain(before, (one.first for one in sources if one.first)))
    if not named:
        return []
    if len(named[0]) > 1:
        first, second = map(repr, named[0])
        among = "time" if meta.series is None else f"time and {first}"
        differ = f"{first} and {second} together" if meta.series is None else second
        return [
            f"rows of the same {among} have different values of {differ}: if they are no corrections, and each pair of "
            f"{first} and {second} is a series, write both into one column before ingest, and name that with --series, "
            "in a new table; else take the rows of one alone"
        ]
    which = " or ".join(f"--series {name!r}" for (name,) in named[:3])
    columns = [repr(name) for (name,) in named[:3]]
    if few:
        return [
            f"few rows have the time of another one, and differ in {' and in '.join(columns)}: if they correct it, as "
            f"replacement values do, ingest into a new table with --duplicates last; if they are of several series, "
            f"with {which}"
        ]
    return [
        f"rows of the same time have different values of {' and of '.join(columns)}: if these are several series, "
        f"ingest into a new table with {which}; nothing is in conflict then"
    ]


def _several(table: Table | None, added: int, late: int) -> list[Json]:
    """Where a new table has one series, and its rows may be of several: which columns may name them. Those of rows that
    have the time of another one are known by their values."""
    if table is None or table.meta.series is not None or table.meta.time is None or table.rows != added:
        return []
    named = [field.name for field in table.schema if pa.types.is_string(field.type) and field.name != table.meta.time]
    if not named:
        return []
    which = " or ".join(f"--series {name!r}" for name in named[:3])
    return [
        f"{_rows(late)} come after a later row: if they are of several series, ingest into a new table with {which}; "
        "if not, with --sort"
    ]


def _order(table: Table | None, late: int, sort: bool) -> list[Json]:
    """What --sort can do for the order of the rows, and what it could not."""
    behind = _behind(table) if sort and table is not None else 0
    if behind:
        return [
            f"{behind} rows of the table come after a later row: --sort orders the new rows of one source, and what "
            "is in the table stays where it is; for all in the order of time, ingest into a new table with --sort"
        ]
    if late and table is not None and table.meta.lateness is not None:
        return [
            f"{late} rows came later than the lateness of the table: train leaves out those after a newer row of their "
            "series that it has learned"
        ]
    if late:
        return [
            f"{late} rows came after a later row of their series, and train leaves such rows out: "
            "ingest into a new table with --sort to have them in order, or with --lateness where rows go on coming so"
        ]
    return []


def _behind(table: Table) -> int:
    """Rows of the table that come after a row with a later time, of any series; one pass over the time column."""
    name = table.meta.time
    if name is None:
        return 0
    found, newest = 0, np.iinfo(np.int64).min
    for chunk in table.read(columns=[name], batch_rows=1 << 18):
        times = chunk.rows.column(name).cast(pa.int64()).to_numpy()
        before = np.maximum.accumulate(np.append(newest, times))
        found, newest = found + int((times < before[:-1]).sum()), before[-1]
    return found


def _rows(count: int) -> str:
    return f"{count:,} row{'s' if count != 1 else ''}"


def _hints(path: str, sources: list[SourceReport], future: int, reasons: Counter[str]) -> list[Json]:
    hints: list[Json] = []
    if future:
        hints.append(
            f"{future} rows are later than now, and rows that come after them are left out: is the clock or the "
            "--time-format right? If these rows alone are wrong, ingest into a new table with --max-ahead 1d"
        )
    if reasons["skipped hour"]:
        what = f"{_rows(reasons['skipped hour'])} with a local time that the clock skipped"
        hints.append(f"{what}: is the --timezone right?")
    fitting = sum(one.fitting for one in sources)
    if any(one.counted for one in sources):
        aside = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        versions = sum(one.versions for one in sources)
        found = f"{fitting:,} rows would be added"
        found += f", {versions:,} of them versions of others, with the same time and other values" if versions else ""
        hints.append(found + (f"; the quarantine would take: {aside}" if aside else ""))
    elif reasons.total():
        count = _rows(reasons.total())
        hints.append(f"in the quarantine, with reason and line: {count}; streamgp describe --table {shlex.quote(path)}")
    words = sum((one.words for one in sources), Counter[str]()).most_common(1)
    hints += [
        f"{count:,} of them have {word!r} where a number should be: if that says that a value is missing, ingest into "
        f"a new table with --null {shlex.quote(word)}"
        for word, count in words
        if count > 1
    ]
    hints += [
        f"{one.name}: its last line has no newline: it may be half a line, and waits for the rest; if the file is "
        "whole, --final takes it"
        for one in sources
        if one.waiting
    ]
    hints += [doubt for one in sources for doubt in one.doubts]
    return hints


def _repeated(table: Table | None, conflicts: int, versions: int, dry: bool) -> list[Json]:
    """What was done with rows that have the time of another one and other values, and what else can be."""
    if versions and table is not None and not dry:
        said = {"last": "the last of them is read", "mean": "their mean is read", "quarantine": "neither is read"}
        return [
            f"{versions:,} rows have the time of another row and other values: {said[table.meta.duplicates]}. A run "
            "that has learned such a row continues; train --fresh learns it as it is now"
        ]
    if not conflicts:
        return []
    found = f"{conflicts:,} rows have the time of another row and other values: the first is read"
    if table is not None and (not table.meta.clock or table.meta.time_format in ELAPSED):
        found += "; if each file has a clock of its own, name it in a column, and ingest into a new table with --series"
    elif table is not None and table.meta.clock and table.meta.zone is None:
        found += "; if a clock was set back there, ingest into a new table with --timezone"
    found += "; if the others correct it, or have a target that comes later, ingest into a new table with "
    return [f"{found}--duplicates last, and --lateness as long as they take"]


def _future(rows: pa.Table, meta: TableMeta) -> int:
    """Rows later than now; of a naive clock, later than now anywhere on Earth."""
    if meta.time is None or not meta.clock or not rows.num_rows:
        return 0
    kind = rows.schema.field(meta.time).type
    now = int(time.time() * 1e6) + (0 if kind.tz else 14 * 3600 * 10**6)
    return int((rows.column(meta.time).cast(pa.int64()).to_numpy() > now).sum())
