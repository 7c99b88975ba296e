"""What is wrong with a table, a checkpoint or a source, how to mend it, and what can be mended here."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

import streamgp
from streamgp.errors import StateError, StreamgpError, UsageError
from streamgp_data.compaction import Compaction, due, leftovers, remove
from streamgp_data.delta import filesystem, spans
from streamgp_data.instants import ELAPSED
from streamgp_data.messages import Away, is_feed, open_feed
from streamgp_data.moments import Moments
from streamgp_data.quarantine import Quarantine
from streamgp_data.reading.bytes import Position, name_of
from streamgp_data.reading.cells import FAULT, LINE
from streamgp_data.reading.files import FileSource, open_source
from streamgp_data.remote import shown
from streamgp_data.table import Table
from streamgp_pipelines.config import DoctorConfig
from streamgp_pipelines.health import others

if TYPE_CHECKING:
    from streamgp_data.checkpoint import Saved

SMALL_DISK = 1 << 30
"""Free bytes below which a disk is nearly full."""
AHEAD = 86_400.0
"""Seconds that the newest row may be ahead of this machine's clock."""
LEFT = 10
"""Rows that are all older than one before them, from which on that one is in doubt."""
MANY = 0.01
"""Share of the rows in quarantine from which on it is worth a look."""


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        of: the table, checkpoint or source.
        what: that was looked at.
        state: "fault" keeps commands from working, or loses rows; "note" is worth knowing; "mended" was a note.
        about: what was found.
        remedy: what to do; "" where nothing is to be done.
    """

    of: str
    what: str
    state: Literal["ok", "note", "mended", "fault"]
    about: str
    remedy: str = ""


def doctor(config: DoctorConfig, now: float | None = None) -> list[Finding]:
    """Look at each table, checkpoint and source; with `mend`, do what is safe. Rows are never changed.

    A table is read once as a whole. Mended are: small files (merged), files of killed writers (deleted after an hour),
    half-written checkpoints where nobody trains.

    Args:
        config: what to look at.
        now: seconds since the epoch; by default those of this machine.
    """
    moment = time.time() if now is None else now
    found: list[Finding] = []
    table = None
    if config.table is not None:
        table, findings = _table(config.table, config.mend, moment)
        found += findings
    if config.checkpoint is not None:
        found += _checkpoint(config.checkpoint, config.mend)
    for uri in config.source:
        found += _broker(uri, table) if is_feed(uri) else _source(uri, table)
    return found


def _fault(of: str, what: str, error: StreamgpError) -> Finding:
    return Finding(of, what, "fault", error.message, error.hint or "")


def _table(path: str, mend: bool, now: float) -> tuple[Table | None, list[Finding]]:
    try:
        table = Table.open(path)
    except StreamgpError as error:
        return None, [_fault(path, "log", error)]
    found = [Finding(path, "log", "ok", f"version {table.version}, {table.rows:,} rows")]
    damaged = list(_damaged(table))
    found += damaged
    if not damaged:
        found += _rows(table, now)
        found += _files(table, mend)
    found.append(_quarantine(table))
    if "://" not in path:
        found += [_left(table, mend), _disk(Path(path))]
    return table, [one._replace(of=path) for one in found]


def _damaged(table: Table) -> Iterator[Finding]:
    """Files whose bytes are not those that were written."""
    try:
        store = filesystem(table.log, table.path)
        for span in spans(table.log):
            try:
                table.verified.check(store, span.path)
            except FileNotFoundError:
                hint = "bring it back from a copy, or ingest the sources into a new table"
                yield Finding(table.path, "files", "fault", f"the file {span.path} is gone", hint)
            except StreamgpError as error:
                yield _fault(table.path, "files", error)
    except StreamgpError as error:
        yield _fault(table.path, "files", error)


def _rows(table: Table, now: float) -> Iterator[Finding]:
    """Whether all rows can be read, and whether their times are as they should be."""
    meta, late, newest = table.meta, 0, np.iinfo(np.int64).min
    last, since, behind = (newest, newest), 0, 0  # the newest time with that before it; rows after it; those older
    columns = () if meta.time is None else (meta.time,)
    try:
        for chunk in table.read({}, columns):
            if meta.time is None or not chunk.rows.num_rows:
                continue
            times = chunk.rows.column(meta.time).cast(pa.int64()).to_numpy()
            before = np.maximum.accumulate(np.append(newest, times))
            counted, rising = (times < before[:-1]).sum(), np.flatnonzero(times > before[:-1])
            if len(rising):
                last, since, behind = (int(before[rising[-1]]), int(before[-1])), 0, 0
                times, before = times[rising[-1] + 1 :], before[rising[-1] + 1 :]
            late, newest = late + int(counted), int(before[-1])
            since, behind = since + len(times), behind + int((times < newest).sum())
    except StreamgpError as error:
        yield _fault(table.path, "rows", error)
        return
    yield Finding(table.path, "rows", "ok", "every file is whole, and every row is there")
    if table.versions:
        what = f"{table.versions:,} rows have the time of another one and other values: read as {meta.duplicates}"
        yield Finding(table.path, "versions", "note", what, "train --fresh learns rows as they are now")
    if late and meta.series is None:
        takes = "train --fresh --online --late use takes them; or " if meta.every_ns is not None else ""
        hint = f"{takes}ingest into a new table with --lateness, or with --sort where the sources are complete"
        yield Finding(table.path, "order", "note", f"training leaves out {late:,} rows after a newer one", hint)
    if meta.clock and meta.series is None and since == behind >= LEFT and last[0] > np.iinfo(np.int64).min:
        newer, before_it = (Moments.of(meta).say(1000 * value) for value in reversed(last))
        what = f"all {since:,} rows after that of {newer}, which followed {before_it}, are older, and are not learned"
        hint = "if its clock was wrong, ingest the sources without that row into a new table"
        yield Finding(table.path, "leap", "fault", what, hint)
    ahead = newest * 1e-6 - now
    if meta.clock and meta.time is not None and meta.time_format not in ELAPSED and table.rows and ahead > AHEAD:
        hint = "ingest into a new table with --max-ahead 1d; is the clock of this machine right?"
        loses = meta.lateness is None
        harm = "rows of its series that come are left out" if loses else "forecasts of its series begin there"
        what = f"the newest row is {ahead / 86_400:,.0f} days ahead of now: {harm}"
        yield Finding(table.path, "clock", "fault" if loses else "note", what, hint)


def _files(table: Table, mend: bool) -> Iterator[Finding]:
    """Many small files make a table slow to read."""
    files = spans(table.log)
    if not due(files) or len(files) <= 2:
        yield Finding(table.path, "files", "ok", _counted(len(files)))
        return
    what = f"{len(files):,} files, many of them small"
    if mend:
        Compaction(table).tidy()
        yield Finding(table.path, "files", "mended", f"{what}: now {len(spans(table.log)):,}")
    else:
        yield Finding(table.path, "files", "note", what, "merge them: --mend; older versions cannot be read then")


def _counted(files: int) -> str:
    return f"{files:,} file{'s' * (files != 1)}"


def _left(table: Table, mend: bool) -> Finding:
    """What killed writers left."""
    try:
        files = leftovers(table)
        if mend:
            remove(table, files)
    except StreamgpError as error:
        return _fault(table.path, "left over", error)
    if not files:
        return Finding(table.path, "left over", "ok", "nothing")
    size = sum(one.size for one in files)
    what = f"{_counted(len(files))} of killed writers or merged ones, {size / 1e6:.1f} MB"
    if mend:
        return Finding(table.path, "left over", "mended", f"{what}: deleted")
    return Finding(table.path, "left over", "note", what, "delete them: --mend")


def _quarantine(table: Table) -> Finding:
    """Rows that were put aside."""
    try:
        quarantine = Quarantine(table)
        reasons = quarantine.reasons()
    except StreamgpError as error:
        return _fault(table.path, "quarantine", error)
    count = sum(reasons.values())
    what = ", ".join(f"{number:,} {reason}" for reason, number in sorted(reasons.items(), key=lambda one: -one[1]))
    if count <= MANY * (count + table.rows):
        return Finding(table.path, "quarantine", "ok", what or "empty")
    return Finding(table.path, "quarantine", "note", what, f"streamgp describe --table {table.path} shows the newest")


def _disk(directory: Path) -> Finding:
    """Whether there is room, and whether it may be written."""
    free = shutil.disk_usage(directory).free
    if not os.access(directory, os.W_OK):
        return Finding(str(directory), "disk", "note", "it may be read only", "run as a user who may write there")
    if free < SMALL_DISK:
        return Finding(str(directory), "disk", "note", f"{free / 1e6:,.0f} MB are free", "make room")
    return Finding(str(directory), "disk", "ok", f"{free / 1e9:,.0f} GB are free")


def _checkpoint(directory: Path, mend: bool) -> list[Finding]:
    from streamgp_pipelines.forecasting.forecast import learner_of  # these import torch, which a table does not need
    from streamgp_pipelines.learning.checkpointing import passed_over
    from streamgp_pipelines.learning.restored import read_checkpoint, recipe_of
    from streamgp_pipelines.learning.tail import Tail

    of = shown(directory)
    try:
        saved = read_checkpoint(directory)
    except StreamgpError as error:
        return [_fault(of, "state", error)]
    tail = Tail()
    rows = saved.rows
    with suppress(StreamgpError, ValueError, KeyError):
        saved.restore({"tail": tail})
        rows += 0 if tail.rows is None else tail.rows.num_rows
    found = [Finding(of, "state", "ok", f"{rows:,} rows")]
    if passed := passed_over(saved):
        found = [
            Finding(of, "state", "note", passed[0], "run train again with the same line: it learns the rest again")
        ]
    about: dict[str, Any] = saved.manifest
    if about["streamgp"] != streamgp.__version__:
        found.append(Finding(of, "version", "note", f"written by streamgp {about['streamgp']}"))
    found.append(_try(of, "model", f"{recipe_of(saved).model} is restored", lambda: learner_of(saved)))
    found.append(_its_table(of, saved))
    found += _half_written(directory, mend)
    return [*found, _disk(directory)]


def _try(of: str, what: str, fine: str, call: Callable[[], object]) -> Finding:
    """Whether a call raises an error."""
    try:
        call()
    except StreamgpError as error:
        return _fault(of, what, error)
    return Finding(of, what, "ok", fine)


def _its_table(of: str, saved: Saved) -> Finding:
    """Whether the table of a checkpoint is there, and how far it has got."""
    from streamgp_pipelines.learning.session import check_table
    from streamgp_pipelines.learning.tail import Tail

    about: dict[str, Any] = saved.manifest
    path = about["table"]["path"]
    if path == "memory":
        return Finding(of, "table", "ok", "it has learned frames, and no table")
    try:
        table = Table.open(path)
        check_table(saved, table)
    except StreamgpError as error:
        return _fault(of, "table", error)
    tail = Tail()
    saved.restore({"tail": tail})
    behind = table.readable - saved.rows - (0 if tail.rows is None else tail.rows.num_rows)
    return Finding(of, "table", "ok", f"{path}" + (f" has {behind:,} rows more" if behind else ""))


def _half_written(directory: Path, mend: bool) -> list[Finding]:
    """What a killed training left; a running one may still be writing it."""
    from streamgp_data import checkpoint
    from streamgp_pipelines.learning.checkpointing import held

    of = shown(directory)
    try:
        with held(directory):
            parts = checkpoint.half_written(directory)
            for part in parts if mend else ():
                shutil.rmtree(part)
    except StateError as error:  # another process learns there, or it may not be written
        return [Finding(of, "process", "ok", error.message)]
    if not parts:
        return []
    what = f"{len(parts)} half-written checkpoints"
    if mend:
        return [Finding(of, "left over", "mended", f"{what}: deleted")]
    return [Finding(of, "left over", "note", what, "the next training deletes them, and --mend does")]


def _broker(uri: str, table: Table | None) -> list[Finding]:
    """Whether a broker answers, and what members of its group hold that are silent."""
    address, feed = open_feed(uri, "doctor")
    of = address.name
    with closing(feed):
        try:
            pending = feed.look()
        except Away as error:
            hint = "is the address right, and does the broker run?"
            return [Finding(of, "broker", "fault", f"it cannot be read: {error}", hint)]
        except StreamgpError as error:
            return [_fault(of, "broker", error)]
    found = [Finding(of, "broker", "ok", "it answers")]
    if pending is None:
        return found
    if not pending.messages:
        return [*found, Finding(of, "group", "ok", "every message that a member was sent is acknowledged")]
    into = f" --table {table.path}" if table is not None else ""
    hint = f"where that member is dead, streamgp ingest{into} --follow with this URL takes them over"
    return [*found, Finding(of, "group", "note", others(pending), hint)]


def _source(uri: str, table: Table | None) -> list[Finding]:
    """Whether a file can be read and, with a table, whether what was ingested of it is as it was."""
    try:
        source = open_source(uri, None, {})
        found = [Finding(uri, "format", "ok", f"{len(source.names)} columns: {', '.join(source.names)}")]
        found += [Finding(uri, "columns", "note", doubt) for doubt in source.doubts.values()]
        start = Position()
        if table is not None:
            start = Position(*(table.mark(f"{name_of(uri)}#{key}", 0) for key in Position._fields))
        lines, wrong = _read(source, start)
    except UsageError as error:  # it needs an option that only ingest has
        return [Finding(uri, "source", "note", error.message, error.hint or "")]
    except StreamgpError as error:
        return [_fault(uri, "source", error)]
    if wrong:
        found.append(Finding(uri, "rows", "note", wrong, "they go to the quarantine"))
    if table is None:
        return found
    hint = "" if not lines else f"streamgp ingest {uri} --table {table.path}"
    what = f"{start.lines:,} lines are in the table or its quarantine, {lines:,} rows are not"
    return [*found, Finding(uri, "position", "note" if lines else "ok", what, hint)]


def _read(source: FileSource, start: Position) -> tuple[int, str]:
    """How many rows there are after a position, and what is wrong with those that cannot be read."""
    lines, bad, first = 0, 0, ""
    for chunk in source.read(start.offset()):
        lines += chunk.rows.num_rows
        faults = chunk.rows.column(FAULT)
        for row in np.flatnonzero(faults.is_valid().to_numpy(zero_copy_only=False)).tolist():
            bad += 1
            reason, column, detail = faults[row].as_py().split("|", 2)
            place = f"line {chunk.rows.column(LINE)[row].as_py()}"
            first = first or " ".join(
                part for part in (place, f"column {column}" if column else "", reason, detail) if part
            )
    return lines, f"{bad:,} cannot be read, the first at {first}" if bad else ""
