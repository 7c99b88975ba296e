"""Windows of a table with their truths, for whatever learns in batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Offset, Source
from streamgp.predictives.gaussian import Gaussian
from streamgp.streaming.batches import SKIP, micro_batches
from streamgp.streaming.ledger import Ledger
from streamgp.streaming.windows import Windows, WindowSpec
from streamgp_pipelines.learning.heldout import hide
from streamgp_pipelines.learning.learner import WarmUp

ROWS = 4096
"""Rows read at a time while windows are collected: nothing depends on it."""


def stretches(source: Source, rows: int, size: int) -> Iterator[tuple[pa.RecordBatch, int, Offset]]:
    """The first `rows` rows, `size` at a time; each with its place in the table, and the offset behind it."""
    position = 0
    before: Offset = {}
    for batch, after in micro_batches(source, {}, size):
        room = rows - position
        if room < batch.num_rows:
            if room:
                yield batch.slice(0, room), position, {**before, SKIP: int(before.get(SKIP, 0)) + room}
            return
        yield batch, position, after
        position, before = position + batch.num_rows, after


def collect(
    source: Source,
    spec: WindowSpec,
    hidden: Tensor,
    chosen: Tensor | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[Inputs, Tensor] | None:
    """Every window that has a truth: x, and y (N, T), NaN = missing; None where there is none.

    Memory is N · (L·D + H·F + T) numbers.

    Args:
        source: of the columns of `spec`.
        spec: of the windows.
        hidden: (R,) which of the first R rows are held out: their targets are missing, as truth and as lag. No row
            behind these R is read.
        chosen: (R,) rows at which windows are wanted; None is all of them.
        progress: called with the rows read so far.
    """
    windows = Windows(spec)
    ledger = Ledger(windows.shape, 0, 0, Gaussian)  # it pairs questions with their truths
    kept = WarmUp()
    for batch, position, _ in stretches(source, len(hidden), ROWS):
        asks, answers = windows.push(hide(batch, spec.targets, hidden[position : position + batch.num_rows]))
        if chosen is not None:
            asks = asks.rows(chosen[asks.position])
        if len(asks.origin):
            nothing = torch.zeros(len(asks.origin), windows.shape.columns, dtype=FLOAT)
            ledger.add(asks, Gaussian(nothing, nothing, nothing))
        due = ledger.pop(answers)
        kept.add(due.x, spec.learned(due.target))
        progress(position + batch.num_rows)
    return kept.windows()
