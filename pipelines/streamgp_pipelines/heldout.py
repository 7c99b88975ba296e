"""Rows that are held out of training: hidden while windows are collected, alone scored afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from streamgp.base import Inputs
from streamgp.errors import SchemaError, UsageError
from streamgp.streaming.table import Table
from streamgp.streaming.windows import Answers, Asks
from streamgp_pipelines.config import TrainConfig


def held_out(config: TrainConfig, table: Table, rows: int) -> Tensor:
    """(rows,) which of the first `rows` rows of the table are held out.

    Raises:
        UsageError: there is no such column.
        SchemaError: the column is neither true/false nor a number.
    """
    if config.test_column is None:
        first = rows if config.test_tail is None else rows - int(config.test_tail * rows)
        return torch.arange(rows) >= first
    if config.test_column not in table.schema.names:
        raise UsageError(
            f"--test-column: the table has no column {config.test_column!r}",
            hint=f"there are: {', '.join(table.schema.names)}",
        )
    kind = table.schema.field(config.test_column).type
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise SchemaError(f"column {config.test_column!r} is {kind}, not true/false", hint="use a 0/1 column")
    flags = [_flags(chunk.rows.column(config.test_column)) for chunk in table.read({}, (config.test_column,))]
    return torch.from_numpy(np.concatenate([*flags, np.zeros(0, bool)])[:rows])


def hide(rows: pa.RecordBatch, columns: tuple[str, ...], hidden: Tensor) -> pa.RecordBatch:
    """The rows with these columns missing where `hidden` (R,) is true.

    Example:
        >>> rows = pa.record_batch({"x": [1.0, 2.0], "y": [3.0, 4.0]})
        >>> hide(rows, ("y",), torch.tensor([False, True])).to_pydict()
        {'x': [1.0, 2.0], 'y': [3.0, None]}
    """
    if not bool(hidden.any()):
        return rows
    mask = pa.array(hidden.numpy())
    for name in columns:
        at = rows.schema.get_field_index(name)
        column: Any = rows.column(at)
        missing = pa.scalar(None, column.type)
        rows = rows.set_column(at, rows.schema.field(at).with_nullable(True), pc.if_else(mask, missing, column))
    return rows


def restrict(asks: Asks, answers: Answers, only: Tensor, reach: int) -> tuple[Asks, Answers]:
    """The truths that are held out, and the questions that can reach one.

    Args:
        only: (rows,) which rows of the stream are held out.
        reach: rows behind its own that a question may ask about; 0 where it asks about its own row.
    """
    heard = answers._replace(y=answers.y.masked_fill(~only[answers.position][:, None], float("nan")))
    if reach:
        first = int(only.int().argmax()) if bool(only.any()) else len(only)
        wanted = asks.position >= first - reach
    else:
        wanted = only[asks.position]
    parts = (part[wanted] for part in asks[:-1])
    series, origin, position, cutoff, ds = parts
    return Asks(series, origin, position, cutoff, ds, Inputs(asks.x.past[wanted], asks.x.future[wanted])), heard


def _flags(column: Any) -> Any:
    values = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    return np.nan_to_num(values) != 0
