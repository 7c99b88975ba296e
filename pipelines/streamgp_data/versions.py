"""Rows of one series and time with other values: versions of one row, and which of them a reader sees.

A table whose policy is not `first` keeps each as a row of its own, with the `_seq` of the row that it is a version of
in the column `_revises`, which is null for all others. A reader gets one row in place of them all, at the place of the
first.
"""

from __future__ import annotations

from math import fsum
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from streamgp.windows.calendar import Ints
from streamgp_data.delta import SEQ

REVISES = "_revises"
Policy: TypeAlias = Literal["first", "last", "mean", "quarantine"]


class Versions:
    """The versions that a table keeps.

    Args:
        rows: of all versions, in the order in which they arrived, with `_seq` and `_revises`.
        policy: last: the newest. mean: of the numbers; other cells where all agree, else missing. quarantine: a row
            without values.
        keys: columns of time and series.
        known: those that arrived before this `_seq` are known from the start.

    Example:
        >>> rows = pa.table({"_seq": [2, 5], "t": [0, 0], "y": [4.0, 9.0], "_revises": [0, 0]})
        >>> first = pa.record_batch({"_seq": [0, 1], "t": [0, 1], "y": [2.0, 3.0]})
        >>> Versions(rows, "last", ("t",), 0).resolve(first, np.array([3, 3]))["y"].to_pylist()
        [4.0, 3.0]
    """

    def __init__(self, rows: pa.Table, policy: Policy, keys: tuple[str, ...], known: int) -> None:
        order = np.argsort(rows.column(REVISES).to_numpy(), kind="stable")
        self._rows = rows.take(pa.array(order, pa.int64())).combine_chunks()
        self._of: Ints = rows.column(REVISES).to_numpy()[order]
        self._seq: Ints = rows.column(SEQ).to_numpy()[order]
        self._policy, self._keys, self._known = policy, keys, known

    def resolve(self, rows: pa.RecordBatch, until: Ints) -> pa.RecordBatch:
        """Rows with what their versions make of them.

        Args:
            rows: first versions; `_revises` is left out of what is returned.
            until: (N,) `_seq` before which a version of each must have arrived, if it was not known from the start.
        """
        rows = rows.drop_columns([REVISES]) if REVISES in rows.schema.names else rows
        seq = rows.column(SEQ).to_numpy()
        low, high = np.searchsorted(self._of, seq), np.searchsorted(self._of, seq, "right")
        parts = {
            int(at): found
            for at in np.flatnonzero(high > low)
            if len(found := self._arrived(int(low[at]), int(high[at]), int(until[at])))
        }
        if not parts:
            return rows
        columns = []
        for field in rows.schema:
            column = rows.column(field.name)
            columns.append(column if field.name in (SEQ, *self._keys) else self._cells(column, field, parts))
        return pa.record_batch(columns, schema=rows.schema)

    def _arrived(self, low: int, high: int, until: int) -> Ints:
        return low + np.flatnonzero(self._seq[low:high] < max(until, self._known))

    def _cells(self, column: pa.Array[Any], field: pa.Field[Any], parts: dict[int, Ints]) -> pa.Array[Any]:
        """A column with the cells of those rows that have versions replaced."""
        stored, at = self._rows.column(field.name), list(parts)
        if self._policy == "quarantine":
            cells = pa.nulls(len(at), field.type)
        elif self._policy == "last":
            cells = stored.take(pa.array([int(found[-1]) for found in parts.values()], pa.int64())).combine_chunks()
        else:
            every = [
                [column[row].as_py(), *stored.take(pa.array(found, pa.int64())).to_pylist()]
                for row, found in parts.items()
            ]
            cells = pa.array([_mean(values, field.type) for values in every], field.type)
        whole = pa.concat_arrays([column, cells.cast(field.type)])
        order = np.arange(len(column))
        order[at] = len(column) + np.arange(len(at))
        found: pa.Array[Any] = whole.take(pa.array(order, pa.int64()))
        return found


def _mean(values: list[Any], kind: pa.DataType) -> Any:
    """Of the values that are there, the same in every order of them."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    if pa.types.is_floating(kind):
        return fsum(there) / len(there)
    if pa.types.is_integer(kind):
        return round(sum(there) / len(there))
    return there[0] if len(there) == len(values) and all(value == there[0] for value in there) else None
