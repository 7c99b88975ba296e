"""Data frames as the rows of a table: polars, pandas and Arrow, read as `ingest` reads a file of the same columns."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow.parquet import write_table

from streamgp.base import Chunk, Offset
from streamgp.errors import DataError, SchemaError, TableError, UsageError
from streamgp_data.ingestion.chunk import Sieve
from streamgp_data.ingestion.ingest import ingest
from streamgp_data.ingestion.pairing import paired
from streamgp_data.ingestion.plan import plan
from streamgp_data.ingestion.report import readings
from streamgp_data.reading.bytes import Position
from streamgp_data.reading.cells import check_names, units_in, with_bookkeeping
from streamgp_data.reading.columnar import Columnar, own_units, plain, storable
from streamgp_data.reading.day_rows import periods_in
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.paired import pair_in
from streamgp_data.table import SEQ, Table, TableMeta
from streamgp_data.times import TEXTS, Clock, TimeReader
from streamgp_pipelines.config import IngestConfig

Kind: TypeAlias = Literal["polars", "pandas", "arrow"]
Frame: TypeAlias = "pl.DataFrame | pa.Table | pa.RecordBatch | Mapping[str, Any] | Any"
"""A polars or pandas data frame, an Arrow table or batch, or a mapping of columns to values."""
NAME = "the data frame"


def as_arrow(frame: Frame) -> tuple[pa.Table, Kind]:
    """The frame in Arrow, and what it was. The index of a pandas frame that has a name or holds times is a column.

    Raises:
        UsageError: it is no data frame.
        DataError: it has no columns, two of one name, or cells that no column of Arrow can hold.
    """
    rows, kind = _as_arrow(frame)
    if not rows.num_columns:
        raise DataError(f"{NAME} has no columns", hint="it needs a column to forecast, and one of times")
    check_names(rows.column_names, NAME)
    return rows, kind


def kind_of(name: Any) -> Kind:
    """The kind of frames of this name; polars where there is none, or no pandas."""
    if name == "pandas":
        return "pandas" if find_spec("pandas") else "polars"
    return "arrow" if name == "arrow" else "polars"


def _as_arrow(frame: Frame) -> tuple[pa.Table, Kind]:
    if isinstance(frame, pl.DataFrame):
        return _of_polars(frame), "polars"
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame]), "arrow"
    if isinstance(frame, pa.Table):
        return frame, "arrow"
    if isinstance(frame, Mapping):
        try:
            return _of_polars(pl.DataFrame(frame)), "polars"
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
            hint = "give every column as many values as the others, of one kind"
            raise DataError(f"the mapping is no data frame: {str(error).splitlines()[0]}", hint=hint) from None
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        return _of_pandas(frame), "pandas"
    raise UsageError(f"a {type(frame).__name__} is no data frame", hint=_instead_of(frame))


def _instead_of(given: Any) -> str:
    """How to make a data frame of something else."""
    kind = type(given).__name__
    if kind == "Series":
        return "give it a name and make it one: series.rename('y').to_frame()"
    if kind == "LazyFrame":
        return "collect it first: frame.collect()"
    if kind == "ndarray":
        return (
            "name its columns, and its times: {'ds': times, 'y': array}; for a matrix of inputs and a vector of "
            "targets there are the estimators of streamgp.sklearn"
        )
    if isinstance(given, list | tuple):
        return "make one of them: polars.DataFrame(rows), or a mapping of columns to values"
    if isinstance(given, str | Path):
        return "read the file first: polars.read_csv(path), or make a table of it: streamgp ingest"
    return "give a polars or pandas data frame, an Arrow table, or a mapping of columns to values"


def _of_polars(frame: pl.DataFrame) -> pa.Table:
    for name, kind in frame.schema.items():
        if kind in (pl.Object, pl.Int128):
            raise DataError(
                f"{NAME}, column {name!r}: it is {kind}", hint="cast it to numbers or text, or leave it out"
            )
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _of_pandas(frame: Any) -> pa.Table:
    """A pandas frame with the index that says something as columns."""
    frame = _with_index(frame)
    if twice := [str(name) for name in frame.columns[frame.columns.duplicated()]]:
        hint = "rename one of them, or keep the first: frame.loc[:, ~frame.columns.duplicated()]"
        raise DataError(f"{NAME}: two columns are called {', '.join(dict.fromkeys(twice))}", hint=hint)
    zones = {name: kind.tz for name, kind in frame.dtypes.items() if getattr(kind, "tz", None) is not None}
    frame = frame.assign(**{name: frame[name].dt.tz_convert(None) for name in zones})  # which Arrow takes as UTC
    rows = _table_of(frame)
    for name, zone in zones.items():
        at, column = rows.schema.get_field_index(name), rows.column(name)
        rows = rows.set_column(at, name, column.cast(pa.timestamp(column.type.unit, str(zone))))
    return rows


def _with_index(frame: Any) -> Any:
    """The index as columns, where it has a name or holds times."""
    pandas, index = sys.modules["pandas"], frame.index
    levels = [index.get_level_values(level) for level in range(index.nlevels)]
    if any(isinstance(level, pandas.PeriodIndex) for level in levels):
        raise DataError(f"{NAME}: its index holds periods", hint="make them times: frame.index.to_timestamp()")
    if all(name is None for name in index.names):
        if isinstance(index, pandas.DatetimeIndex):
            index, levels = index.rename("ds"), [index.rename("ds")]
        elif any(isinstance(level, pandas.DatetimeIndex) for level in levels):
            hint = "name them: frame.index.names = ['unique_id', 'ds']"
            raise DataError(f"{NAME}: the levels of its index have no names, and one holds times", hint=hint)
        else:
            return frame
    for name, level in zip(index.names, levels, strict=True):
        if name in frame.columns:
            own = frame[name]
            if getattr(own, "ndim", 1) != 1 or not pandas.Index(own).equals(level):
                hint = "leave one of them out: frame.reset_index(drop=True), or frame.drop(columns=...)"
                raise DataError(f"{NAME}: its index and a column of other values are both called {name}", hint=hint)
            frame = frame.drop(columns=name)
    return frame.set_axis(index, axis=0).reset_index()


def _table_of(frame: Any) -> pa.Table:
    """Column by column where a cell cannot be read, to name it."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        for name in frame.columns:
            try:
                pa.Table.from_pandas(frame[[name]], preserve_index=False)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as why:
                raise DataError(
                    f"{NAME}, column {str(name)!r}{_odd(frame[name])}: {why.args[0]}",
                    hint="make it of one kind, such as pandas.to_numeric(column, errors='coerce'), or leave it out",
                ) from None
        raise DataError(f"{NAME} cannot be read: {error}", hint="are its columns numbers, text and times?") from None


def _odd(cells: Any) -> str:
    """The first row of another type than the first cell, counted from 1."""
    kinds = cells.dropna().map(type)
    other = (kinds != kinds.iloc[0]).to_numpy() if len(kinds) else np.zeros(0, bool)
    return f", row {int(np.flatnonzero(cells.notna().to_numpy())[other.argmax()]) + 1}" if other.any() else ""


def as_polars(rows: pa.Table) -> pl.DataFrame:
    """The rows, with instants in UTC: polars knows no offsets such as +10:00.

    Example:
        >>> as_polars(pa.table({"t": pa.array([0], pa.timestamp("us", "+10:00"))})).schema["t"]
        Datetime(time_unit='us', time_zone='UTC')
    """
    fields = [
        field.with_type(pa.timestamp(field.type.unit, "UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in rows.schema
    ]
    return pl.DataFrame(pl.from_arrow(rows.cast(pa.schema(fields))))


def back(frame: pl.DataFrame, kind: Kind) -> Any:
    """A frame of ours as the user's kind."""
    if kind == "pandas":
        return frame.to_pandas()
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest()) if kind == "arrow" else frame


def stored(
    frame: Frame,
    path: Path,
    columns: Mapping[str, str | None],
    set_aside: Callable[[], object],
) -> list[str]:
    """Make a table on disk of a frame, or see that it is the one made of it before; returns what should be known of it.

    Args:
        frame: the rows.
        path: directory of the table.
        columns: what the columns mean, the arguments of `FrameReader`.
        set_aside: moves a table that was made of another frame out of the way; returns where to.

    Raises:
        DataError: a cell cannot be read.
        UsageError, SchemaError: as `plan`.
    """
    rows, _ = as_arrow(frame)
    if not rows.num_rows:
        raise DataError(f"{NAME} has no rows", hint="give those that models are to be compared on")
    FrameReader(rows, **columns)  # which names the cell that cannot be read
    with TemporaryDirectory() as folder:
        file = Path(folder) / "frame.parquet"
        write_table(rows, file)
        kept = () if periods_in(rows.column_names) is None else ("*",)
        config = IngestConfig.read(
            {"source": (str(file),), "table": str(path), "as_name": NAME, "signals": kept, **columns}
        )
        found = list[str]()
        try:
            hints: Any = ingest(config)["hints"]
        except (DataError, SchemaError, TableError):
            if not Table.exists(path):
                raise
            what = f"{path.parent} had the comparison of another data frame, or of one that was read otherwise"
            found = [f"{what}, which is in {set_aside()} now"]
            hints = ingest(config)["hints"]
    return [*found, *hints]


class FrameSource(Columnar):
    """A FileSource over a table in memory.

    Attributes:
        for_table: whether numbers that say no unit are in those of the table; False: they are put aside.
    """

    for_table = True

    def __init__(self, rows: pa.Table) -> None:
        self.uri, self.waiting, self.doubts, self.stopped = NAME, False, {}, None
        self.natural, self.rows = rows.schema, rows
        self.names = self.natural.names
        check_names(self.names, NAME)
        self._kinds = {field.name: storable(field.type, field.name, NAME) for field in self.natural}
        self.sample = plain(rows.slice(0, 1000))
        self.schema = with_bookkeeping(self._kinds)
        self.units = {**units_in(self.names), **own_units(self.natural)}
        self._end = Position(0, rows.num_rows, 0)

    def begin(self, uri: str) -> tuple[pa.Schema, Position]:
        """There is no file."""
        return self.natural, self._end

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        """The rows, as one batch."""
        yield from self.rows.slice(start).combine_chunks().to_batches()


class FrameReader:
    """Reads frames of one stream, front to back: the columns mean what the first frame says.

    Args:
        rows: the first frame.
        time, series, every, timezone, tolerance, time_format, lateness, duplicates: as the flags of `streamgp ingest`.

    Attributes:
        rows: of the first frame.
        table: them as they are read, for what is found from them. `forget` lets go of both.
        notes: what may be misunderstood of the times.

    Raises:
        UsageError, SchemaError, DataError: as `plan`.
    """

    def __init__(
        self,
        rows: pa.Table,
        time: str | None = None,
        series: str | None = None,
        every: str | None = None,
        timezone: str | None = None,
        tolerance: str | None = None,
        time_format: str | None = None,
        lateness: str | None = None,
        duplicates: str | None = None,
    ) -> None:
        given = {"time": time, "series": series, "every": every, "timezone": timezone, "tolerance": tolerance}
        given |= {"time_format": time_format, "lateness": lateness, "duplicates": duplicates}
        self.config: IngestConfig = IngestConfig.read({"source": (NAME,), "table": NAME, **given})
        source: FileSource
        source, config = paired(FrameSource(rows), self.config, None)
        found = plan(source, config, None)
        self.meta, self.schema = found.meta, found.schema
        if found.clock is not None and found.clock.kind == "timestamp" and found.clock.zone not in (None, "UTC"):
            self.meta = replace(self.meta, local=True)  # a frame's zone is the clock of later frames without one
        self.notes = readings(source, found, time is not None) if time_format is None else []
        self._times = dict[Clock, TimeReader]()
        self._settled: Clock | None = None
        self._rows = 0
        self.rows = self.read(rows)
        self.table = TableInMemory(self.rows, self.meta)

    @classmethod
    def going_on(cls, rows: pa.Table, spec: Any, moments: Any, columns: Sequence[str]) -> Self:
        """Reads frames that go on with a stream that was learned before.

        Args:
            rows: the first of them. spec: a WindowSpec, and moments: of what was learned. columns: that it reads.

        Raises:
            SchemaError: a column is missing.
            DataError: times have no time zone, and those before had.
        """
        own = rows.column_names
        if missing := [name for name in columns if name not in own and pair_in(name, own) is None]:
            hint = f"it has: {', '.join(rows.column_names)}; the forecaster reads: {', '.join(columns)}"
            raise SchemaError(f"{NAME} lacks the column {missing[0]!r}", hint=hint)
        every = None if spec.every_ns is None or not moments["clock"] else f"{spec.every_ns}ns"
        tolerance = None if spec.tolerance_ns is None else f"{spec.tolerance_ns}ns"
        form = moments["form"] if "%" in (moments["form"] or "") else None  # other kinds are detected
        zone = moments["zone"]
        said = zone if moments.get("local") is not False else None
        found = cls(rows, spec.time or "row", spec.series, every, said, tolerance, form)
        if zone is not None and found.meta.zone is None:
            message = f"column {spec.time!r} has no time zone, and the rows before had"
            raise DataError(message, hint="write times with an offset")
        return found

    def read(self, rows: pa.Table) -> pa.Table:
        """The columns of the stream, with the types of the first frame.

        Raises:
            SchemaError: a column is missing, or of another kind.
            DataError: a cell cannot be read; the row is named, counted from 1 over all frames.
        """
        if self._settled is not None:
            try:
                return self._read(rows, self._settled)
            except DataError:  # the times may be written otherwise from here on
                pass
        return self._read(rows, None)

    def _read(self, rows: pa.Table, known: Clock | None) -> pa.Table:
        """`read`, with text of times read as `known`. Nothing changes where it raises an error."""
        pair = pair_in(self.meta.time or "", rows.column_names) or ()
        kept = [name for name in rows.column_names if name in self.schema.names or name in pair]
        table = TableInMemory(self.schema.empty_table(), self.meta) if self._rows else None
        source, config = paired(FrameSource(rows.select(kept)), self.config, table)
        found = plan(source, config, table, known=known)
        times_of = None  # a frame without offsets shows the clock of the stream's zone, also where others have them
        if found.clock is not None:
            times_of = self._times.get(found.clock, TimeReader(found.clock)).copy()
        form = None if found.clock is None else found.clock.format
        sieve, parts, series = Sieve(self.schema, self.meta.time, self.meta.series, NAME, form), [], None
        for chunk in source.read({}):
            if self.meta.series is not None:
                series = chunk.rows.column(self.meta.series)
            times = None if times_of is None else times_of.read(chunk.rows.column(self.meta.time or ""), series)
            part = sieve.prepare(chunk.rows, times, Position.of(chunk.after), found.units)
            if part.faults:
                row, (reason, column, detail) = min(part.faults.items())
                raise DataError(
                    f"{NAME}, row {self._rows + row + 1}, column {column!r}: {reason}{f', {detail}' if detail else ''}",
                    hint=f"{len(part.faults)} rows cannot be read: correct them or leave them out; nothing was learned",
                )
            parts.append(part.table)
        if times_of is not None:
            self._times[times_of.clock] = times_of
        self._settled = found.clock if self._rows and found.clock and found.clock.kind in TEXTS else None
        self._rows += rows.num_rows
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    def begin_with(self, rows: pa.RecordBatch) -> None:
        """The rows of the first frame as they are read; their `_seq` is not used."""
        self.table = TableInMemory(pa.Table.from_batches([rows]).drop_columns(SEQ), self.meta, self.table.id)

    def forget(self) -> None:
        """Let go of the rows of the first frame."""
        self.rows = self.schema.empty_table()
        self.table = TableInMemory(self.rows, self.meta, self.table.id)


class TableInMemory(Table):
    """A table in memory, for reading."""

    def __init__(self, rows: pa.Table, meta: TableMeta, name: str | None = None) -> None:
        self.path, self.meta = "memory", meta
        numbers = pa.array(np.arange(rows.num_rows))
        self._rows = rows.add_column(0, pa.field(SEQ, pa.int64()), numbers)
        self.schema = self._rows.schema
        self._id = name or uuid.uuid4().hex

    @property
    def version(self) -> int:
        return 0

    @property
    def versions(self) -> int:
        return 0

    @property
    def id(self) -> str:
        return self._id

    @property
    def rows(self) -> int:
        return self._rows.num_rows

    def arrived(self, after: Offset, columns: Sequence[str] | None = None, batch_rows: int = 65_536) -> Iterator[Chunk]:
        start = int(after.get(SEQ, 0))
        names = self.schema.names if columns is None else [SEQ, *(name for name in columns if name != SEQ)]
        for batch in self._rows.select(names).slice(start).combine_chunks().to_batches(max_chunksize=batch_rows):
            yield Chunk(batch, {SEQ: batch.column(SEQ)[-1].as_py() + 1, "table": self.id})
