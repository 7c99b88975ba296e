"""Which columns may name the series, where rows of several are taken for one and have the same times."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import polars as pl
import pyarrow as pa

from streamgp_data.table import TableMeta

MOST = 1000
"""Rows in conflict that are looked at, the first ones."""


def naming(meta: TableMeta, conflicts: pa.Table, before: Iterable[pa.Table]) -> list[tuple[str, ...]]:
    """Columns that differ between rows of one time, and whose values come again at other times; text before numbers. Of
    rows that have a series these are beside its column, and where no column differs, two together.

    Args:
        meta: of the table.
        conflicts: rows that have the time of a row before, and other values.
        before: rows among which those before are, with the columns of `conflicts`.
    """
    time, series = meta.time, meta.series
    if time is None or not conflicts.num_rows:
        return []
    keys = [time] if series is None else [time, series]
    kinds = {field.name: field.type for field in conflicts.schema if field.name not in keys}
    texts = [name for name, kind in kinds.items() if pa.types.is_string(kind)]
    numbers = [name for name, kind in kinds.items() if pa.types.is_integer(kind) or pa.types.is_floating(kind)]
    rows = pl.DataFrame(pl.from_arrow(conflicts.select([*keys, *texts, *numbers]).slice(0, MOST)))
    rows = pl.concat([rows, _partners(before, rows, keys)])
    key = _together(rows, keys)
    single = [name for name in (*texts, *numbers) if _names(rows[name], key)]
    if single or series is not None:
        return [(name,) if series is None else (series, name) for name in single]
    several = [pair for pair in combinations((*texts, *numbers), 2) if set(pair) & set(texts)]
    return [pair for pair in several if _names(_together(rows, pair), key, whole=True)]


def _together(rows: pl.DataFrame, names: Iterable[str]) -> pl.Series:
    return rows.select(pl.concat_str(pl.col(*names).cast(pl.String), separator="\x1f")).to_series()


def _partners(before: Iterable[pa.Table], rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The first rows with these keys."""
    missing, found = rows.select(keys).unique(), [rows.clear()]
    for chunk in before:
        here = pl.DataFrame(pl.from_arrow(chunk)).select(rows.columns).join(missing, on=keys, how="semi")
        found.append(here.unique(keys, keep="first", maintain_order=True))
        missing = missing.join(here, on=keys, how="anti")
        if not missing.height:
            break
    return pl.concat(found)


def _names(cells: pl.Series, times: pl.Series, whole: bool = False) -> bool:
    """Whether no time has a cell twice, and the cells of one time are, but for a few, those of every other.

    Of text, it is enough that cells come again, unless `whole`.
    """
    if cells.null_count():
        return False
    count, moments = cells.n_unique(), times.n_unique()
    apart = pl.DataFrame([cells.rename("cell"), times.rename("time")]).n_unique() == len(cells)
    if cells.dtype == pl.String and not whole:
        return apart and (count < len(cells) or moments == 1)
    integral = not cells.dtype.is_float() or bool((cells.floor() == cells).all())
    return apart and integral and moments > 1 and 3 * count * moments <= 4 * len(cells)
