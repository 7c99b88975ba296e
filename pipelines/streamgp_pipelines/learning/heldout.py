"""Rows that are held out of training: hidden while windows are collected, alone scored afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from streamgp.windows.windows import Answers, Asks, WindowSpec
from streamgp_pipelines.config import DataConfig

if TYPE_CHECKING:
    from streamgp_pipelines.learning.survey import Survey

CROWDED = 0.5
"""Part of the held-out rows beside training rows from which on scores are too good."""
ALIKE = 0.5
"""Correlation of a target with its neighbour from which on rows are a trajectory."""


def held_out(config: DataConfig, survey: Survey, rows: int) -> Tensor:
    """(rows,) which of the first `rows` rows of the table are held out."""
    if config.test_column is None:
        parts = torch.arange(rows).tensor_split(config.test_blocks or 1)
        return torch.cat([_tail(len(part), config.test_tail or 0.0) for part in parts])
    return torch.from_numpy(survey.held[:rows])


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


class HeldOut(NamedTuple):
    """rows: (R,) which rows of the stream are held out; asked: (R,) at which rows a question can be about one."""

    rows: Tensor
    asked: Tensor


def asked(survey: Survey, spec: WindowSpec, only: Tensor) -> Tensor:
    """(R,) the rows at which a question can be about a held-out row.

    Those are the `horizon` rows of its series before it; rows that came late count among them, so that beside one
    a step may go unscored. Without lags it is the row itself.
    """
    if not spec.lags:
        return only
    held, rows = only.numpy(), len(only)
    code = survey.codes[:rows]
    order = np.argsort(code, kind="stable")  # series by series
    place = np.where(held[order], np.arange(rows), rows)
    following = np.append(np.minimum.accumulate(place[::-1])[::-1][1:], rows)  # (R,) the next held-out place
    near = following - np.arange(rows) <= spec.horizon
    inside = np.minimum(following, rows - 1)
    found = np.zeros(rows, bool)
    found[order] = near & (following < rows) & (code[order][inside] == code[order])
    return torch.from_numpy(found)


def restrict(asks: Asks, answers: Answers, only: HeldOut) -> tuple[Asks, Answers]:
    """The truths that are held out, and the questions that can be about one."""
    heard = answers._replace(y=answers.y.masked_fill(~only.rows[answers.position][:, None], float("nan")))
    return asks.rows(only.asked[asks.position]), heard


def beside(survey: Survey, spec: WindowSpec, only: Tensor) -> list[str]:
    """A warning about the scores of a regression whose held-out rows (R,) lie beside training rows.

    Rows of one recording resemble their neighbours: a model that has learned these repeats them, and its errors say
    nothing of another recording. Held-out rows in blocks have few such neighbours.
    """
    if spec.lags or not bool(only.any()):
        return []
    code, held = survey.codes[: len(only)], only.numpy()
    order = np.argsort(code, kind="stable")
    held, same = held[order], np.diff(code[order]) == 0
    edge = same & (held[1:] != held[:-1])
    near = int(((np.append(edge, False) | np.append(False, edge)) & held).sum())
    if near <= CROWDED * held.sum():
        return []
    found = []
    for values in survey.targets.T:
        y = values[: len(only)][order]
        one, two = y[:-1][same], y[1:][same]
        both = np.isfinite(one) & np.isfinite(two)
        if both.sum() > 2 and min(np.std(one[both]), np.std(two[both])) > 0:
            found.append(float(np.corrcoef(one[both], two[both])[0, 1]))
    if max(found, default=0.0) < ALIKE:
        return []
    return [
        f"{near} of the {int(held.sum())} test rows stand beside training rows, and neighbours correlate by "
        f"{max(found):.2f}: scores are too good for another recording; use --test-tail 0.2 --test-blocks 10"
    ]


def _tail(rows: int, part: float) -> Tensor:
    """(rows,) whether a row is among the last `part` of them."""
    return torch.arange(rows) >= rows - int(part * rows)
