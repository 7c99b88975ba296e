"""`describe FILE`: what is in a file, before any of it is in a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streamgp.base import Json
from streamgp.errors import UsageError
from streamgp_data.ingestion.pairing import by_periods, two_columns
from streamgp_data.instants import PERIOD
from streamgp_data.reading.cells import FAULT, LINE, TEXT
from streamgp_data.reading.day_rows import DayRows
from streamgp_data.reading.files import open_source
from streamgp_data.reading.header import seems_in
from streamgp_data.reading.paired import Paired, pair_in
from streamgp_data.recordings.joined import Joined
from streamgp_data.times import decide
from streamgp_pipelines.config import IngestConfig

if TYPE_CHECKING:
    from streamgp_pipelines.config import DescribeConfig


def describe_file(config: DescribeConfig) -> dict[str, Json]:
    """The signals of a recording, with samples, rate (1/s), unit, first and last time; of another file the columns.

    Raises:
        DataError: there is no such file, or it is damaged.
        UsageError: its format is unknown, or needs an extra.
    """
    uri = str(config.source)
    names = ("time", "time_format", "signals", "dbc", "salvage", "sheet", "header_row", "columns", "no_header")
    options = {name: getattr(config, name) for name in names}
    source = open_source(uri, config.format, {**options, "look": True}, looking=True)
    if not isinstance(source, Joined):
        two, times = None if config.time else two_columns(source), dict[str, str]()
        if config.time and (pair := pair_in(config.time, source.names)) is not None and source.sample.num_rows:
            made = Paired(source, *pair, config.time_format, None, "UTC")
            form = f"{PERIOD}{made.periods}" if made.periods and made.first else config.time_format
            clock = decide(made.sample.column(made.name), form, None, f"{uri}, column {made.name!r}")
            source, times = made, {made.name: str(clock.type)}
        columns: list[Json] = [
            {"column": field.name, "type": times.get(field.name, str(field.type)), "unit": source.units.get(field.name)}
            for field in source.schema
            if field.name not in (LINE, FAULT, TEXT)
        ]
        note: dict[str, Json] = {} if source.header is None else {"note": seems_in(source.header)}
        if two is not None and not note:
            note = {"note": f"the time seems to be in two columns: {two.options}"}
        if not note and source.sample.num_rows:
            asked = IngestConfig(source=(uri,), table=uri, timezone="UTC", time_format=config.time_format)
            try:
                unrolled, _ = by_periods(source, asked, None)
                note = {"note": f"ingest: {unrolled.note(None)}"} if isinstance(unrolled, DayRows) else {}
            except UsageError as error:
                note = {"note": f"{error.message}: {error.hint}"}
        return {"file": uri, **note, "columns": columns}
    units = source.recording.units
    signals: list[Json] = []
    for name, one in sorted(source.samples.signals.items()):
        seconds = (one.last - one.first) / 1e9
        rate = (one.count - 1) / seconds if seconds else None
        dates = source.time_format is None
        first, last = (_when(time) if dates else time / 1e9 for time in (one.first, one.last))
        entry: dict[str, Json] = {"signal": name, "unit": units.get(name), "samples": one.count, "rate": rate}
        entry |= {"first": first, "last": last, "backwards": one.moved}
        value = source.samples.constant(name)
        signals.append(entry if value is None else {**entry, "constant": value})
    signals.sort(key=lambda one: isinstance(one, dict) and "constant" in one)  # those that never change last
    return {
        "file": uri,
        "unreadable": source.lost,
        "signals": signals,
        "left_out": dict(source.recording.left_out),
    }


def _when(time: int) -> str:
    """Nanoseconds since 1970 in ISO 8601; what no date holds, as the number."""
    try:
        return datetime.fromtimestamp(time / 1e9, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{time} ns"
