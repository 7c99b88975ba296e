"""Which columns may name the series, where rows of several are in a table of one and have the same times."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from streamgp_data.table import Table

MOST = 1000
"""Rows in conflict that are looked at, the first ones."""


def naming(table: Table, conflicts: pa.Table) -> list[str]:
    """Columns that differ between rows of one time, and whose values come again at other times; text before numbers.

    Args:
        table: without a column of series.
        conflicts: rows that have the time of a row of the table, and other values.
    """
    time = table.meta.time
    if time is None or table.meta.series is not None or not conflicts.num_rows:
        return []
    kinds = {field.name: field.type for field in conflicts.schema if field.name != time}
    texts = [name for name, kind in kinds.items() if pa.types.is_string(kind)]
    numbers = [name for name, kind in kinds.items() if pa.types.is_integer(kind) or pa.types.is_floating(kind)]
    columns = [time, *texts, *numbers]
    rows = pl.DataFrame(pl.from_arrow(conflicts.select(columns).slice(0, MOST)))
    rows = pl.concat([rows, _partners(table, rows, time)])
    return [name for name in (*texts, *numbers) if _names(rows[name], rows[time])]


def _partners(table: Table, rows: pl.DataFrame, time: str) -> pl.DataFrame:
    """The rows of the table at these times."""
    missing, found = rows.select(time).unique(), [rows.clear()]
    for chunk in table.read(columns=rows.columns, batch_rows=1 << 18):
        here = pl.DataFrame(pl.from_arrow(chunk.rows)).select(rows.columns).join(missing, on=time, how="semi")
        found.append(here)
        missing = missing.join(here, on=time, how="anti")
        if not missing.height:
            break
    return pl.concat(found)


def _names(cells: pl.Series, times: pl.Series) -> bool:
    """Whether no time has a cell twice, and the cells of one time are, but for a few, those of every other.

    Of text, it is enough that cells come again.
    """
    if cells.null_count():
        return False
    count, moments = cells.n_unique(), times.n_unique()
    apart = pl.DataFrame([cells.rename("cell"), times.rename("time")]).n_unique() == len(cells)
    if cells.dtype == pl.String:
        return apart and (count < len(cells) or moments == 1)
    whole = not cells.dtype.is_float() or bool((cells.floor() == cells).all())
    return apart and whole and moments > 1 and 3 * count * moments <= 4 * len(cells)
