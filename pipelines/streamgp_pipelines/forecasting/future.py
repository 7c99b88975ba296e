"""The file of `--future`: values of the inputs at the steps to be forecast or simulated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from streamgp import registry
from streamgp.errors import DataError, UsageError
from streamgp.windows.windows import WindowSpec
from streamgp_data.ingestion.pairing import one_column
from streamgp_data.ingestion.units import is_number, units_of
from streamgp_data.moments import Moments
from streamgp_data.presence import check_file
from streamgp_data.reading.cells import FAULT, LINE, said
from streamgp_data.reading.columnar import storable
from streamgp_data.reading.files import FileSource, format_of, open_source, suffixes
from streamgp_data.reading.paired import pair_in
from streamgp_data.reading.units import times_power
from streamgp_data.recordings.recording import RecordingOptions
from streamgp_data.table import TableMeta


class FutureRows(NamedTuple):
    """What a file holds: its rows, as windows want them, and what should be known of it."""

    rows: pa.Table
    notes: list[str]


def read_future(
    path: Path,
    spec: WindowSpec,
    moments: Moments,
    columns: tuple[str, ...] | None = None,
    units: Mapping[str, str] | None = None,
    form: str | None = None,
) -> FutureRows:
    """Read a file as `ingest` does, with the table's own column names; times as its source wrote them or in ISO 8601.

    A last line without newline may be half a line, and is left out. Numbers that say another unit than the table's are
    converted where it differs by an SI prefix; those that say none are in the table's.

    Args:
        path: of the file.
        spec: which columns are wanted.
        moments: how times are written.
        columns: the inputs wanted; the known inputs when left out.
        units: of the columns of the table.
        form: how the file writes times, where the user says so: as `--time-format` of `ingest`.

    Raises:
        UsageError: there is no such file, its suffix or `form` is unknown, or the table has no such times.
        DataError: it cannot be read, a column is missing or empty, it holds no row, a cell is none of its column, or a
            unit is another one; the line is named.
    """
    check_file(path, "--future")
    kind = format_of(str(path))
    if kind is None or _is_recording(kind):
        known = sorted(suffix for suffix, other in suffixes().items() if not _is_recording(other))
        raise UsageError(f"--future {path}: read are {', '.join(known)}", hint="convert the file")
    source = open_source(str(path), kind, {})
    wanted = spec.known or spec.inputs if columns is None else columns
    notes = []
    if source.waiting:
        notes.append(f"--future {path}: its last line has no newline: it may be half a line, and is left out")
    if not source.sample.num_rows:
        raise DataError(f"--future {path} holds no row", hint="; ".join([_NEEDED, *notes]))
    data = _read(source, spec, wanted, moments, units or {})
    notes += [doubt for name, doubt in source.doubts.items() if name in wanted]
    try:
        return FutureRows(as_future(data, spec, moments, columns, f"--future {path}", source.first_line, form), notes)
    except DataError as error:
        raise DataError(error.message, hint="; ".join([error.hint, *notes])) from None


_NEEDED = "it must hold the rows after the newest row seen"


def as_future(
    data: pl.DataFrame,
    spec: WindowSpec,
    moments: Moments,
    columns: tuple[str, ...] | None,
    where: str,
    first: int = 1,
    form: str | None = None,
) -> pa.Table:
    """Values of inputs at the steps ahead, with times as windows count them.

    Args:
        data: with the table's own column names.
        spec, moments, columns: of `read_future`.
        where: what the data is called in messages.
        first: number of its first row there.
        form: of `read_future`.

    Raises:
        DataError: a column is missing, it holds no row, or a time is not one.
    """
    columns = spec.known or spec.inputs if columns is None else columns
    if spec.time is not None:
        data = one_column(data, spec.time, form or moments.form)
    wanted = [name for name in (spec.time, spec.series, *columns) if name is not None]
    missing = [name for name in wanted if name not in data.columns]
    if missing:
        raise DataError(f"{where} lacks the column {missing[0]!r}", hint=f"it must have: {', '.join(wanted)}")
    if not data.height:
        raise DataError(f"{where} holds no row", hint=_NEEDED)
    for name in columns:
        if data[name].null_count() == data.height:
            raise DataError(
                f"{where}, line {first}: column {name!r} is empty",
                hint=f"give {name} a value in every row: it is an input whose future the model must know",
            )
    if spec.time is not None:
        names = None if spec.series is None else data[spec.series]
        data = data.with_columns(moments.read(data[spec.time], names, where, first, form))
    return data.select(wanted).to_arrow()


def _read(
    source: FileSource, spec: WindowSpec, columns: tuple[str, ...], moments: Moments, units: Mapping[str, str]
) -> pl.DataFrame:
    """The wanted columns that the file has: keys as they are written, inputs as numbers in the units of the table."""
    pair = None if spec.time is None else pair_in(spec.time, source.names)
    clocks = (spec.time,) if pair is None else pair
    text, needed = hasattr(source, "dialect"), {*clocks, spec.series, *columns}
    kinds = {}
    for name in source.names:
        own = source.schema.field(name).type
        if name in (*clocks, spec.series):
            raw = source.sample.schema.field(name).type
            kinds[name] = raw if name in clocks else storable(raw, name, source.uri)
        elif name not in columns:
            kinds[name] = pa.string() if text else own
        else:
            if pa.types.is_string(own) and name in source.doubts:
                raise DataError(
                    f"--future {source.uri}: nobody knows whether the cells of {name!r} are thousands or decimals",
                    hint="write a point before decimals, and no sign between thousands",
                )
            kinds[name] = pa.float64() if pa.types.is_string(own) else own
    described = [pa.field(name, kinds[name], metadata=_unit(units.get(name))) for name in source.names]
    held = pa.schema([field for field in described if field.name in columns and is_number(field.type)])
    powers = units_of(source, (), (), TableMeta(spec.time, spec.series), held, assumed=True).powers
    source.expect(pa.schema(described))
    rows = pa.Table.from_batches([chunk.rows for chunk in source.read({})], source.schema)
    _check(source, rows, needed)
    for name, between in powers.items():
        numbers = times_power(rows.column(name).cast(pa.float64()).to_numpy(), between)
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(numbers, from_pandas=True))
    data = pl.DataFrame(pl.from_arrow(rows.select([name for name in source.names if name in needed])))
    if text and spec.time in data.columns and moments.numbers:
        data = data.with_columns(_as_numbers(data[spec.time]))
    return data


def _is_recording(form: str) -> bool:
    return issubclass(registry.load("sources", form).Config, RecordingOptions)


def _unit(unit: str | None) -> dict[str, str] | None:
    return {"unit": unit} if unit else None


def _check(source: FileSource, rows: pa.Table, wanted: set[str | None]) -> None:
    """See that all cells could be read.

    Raises:
        DataError: one could not; its line is named.
    """
    for line, wrong in zip(rows.column(LINE), rows.column(FAULT), strict=True):
        if wrong.is_valid:
            reason, column, detail = wrong.as_py().split("|", 2)
            if not column or column in wanted:
                where = f", column {column!r}" if column else ""
                raise DataError(
                    f"--future {source.uri}, line {said(line)}{where}: {detail or reason}",
                    hint="correct it: none is left out",
                )


def _as_numbers(cells: pl.Series) -> pl.Series:
    """Text as whole numbers, or as numbers, where all of it is that."""
    for kind in (pl.Int64(), pl.Float64()):
        found = cells.str.strip_chars().cast(kind, strict=False)
        if found.null_count() == cells.null_count():
            return found
    return cells
