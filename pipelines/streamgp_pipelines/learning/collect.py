"""Windows of a table with their truths, for whatever learns in batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Offset, Source
from streamgp.predictives.gaussian import Gaussian
from streamgp.windows.ledger import Ledger
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_data.batches import SKIP, micro_batches
from streamgp_pipelines.learning.heldout import hide
from streamgp_pipelines.learning.warming import WarmUp

ROWS = 4096
"""Rows read at a time while windows are collected: nothing depends on it."""

Pairing: TypeAlias = tuple[Any, Any]
"""States of windows and of those that wait for their truths."""


def stretches(
    source: Source, rows: int, size: int, after: Offset | None = None
) -> Iterator[tuple[pa.RecordBatch, int, Offset]]:
    """The first `rows` rows from an offset on, `size` at a time; each with its place among them, and the offset after
    it."""
    position = 0
    before: Offset = after or {}
    for batch, behind in micro_batches(source, before, size):
        room = rows - position
        if room < batch.num_rows:
            if room:
                yield batch.slice(0, room), position, {**before, SKIP: int(before.get(SKIP, 0)) + room}
            return
        yield batch, position, behind
        position, before = position + batch.num_rows, behind


class Collector:
    """Makes windows of rows, and pairs them with their truths.

    Args:
        spec: of the windows.
        since: what `state` returned; None before the first row.
    """

    def __init__(self, spec: WindowSpec, since: Pairing | None = None) -> None:
        self.spec, self.windows = spec, Windows(spec)
        self.ledger = Ledger(self.windows.shape, 0, 0, Gaussian)  # it pairs questions with their truths
        if since is not None:
            self.windows.restore(*since[0])
            self.ledger.restore(*since[1])

    def state(self) -> Pairing:
        """What another collector continues from."""
        return self.windows.state(), self.ledger.state()

    def push(self, rows: pa.RecordBatch, hidden: Tensor, chosen: Tensor | None = None) -> tuple[Inputs, Tensor]:
        """The windows whose last truth has come, and these (N, T), NaN = missing.

        Args:
            rows: the next R.
            hidden: (R,) which of them are held out.
            chosen: rows of the stream at which windows are wanted; None is all of them.
        """
        asks, answers = self.windows.push(hide(rows, self.spec.targets, hidden))
        if chosen is not None:
            asks = asks.rows(chosen[asks.position])
        if len(asks.origin):
            nothing = torch.zeros(len(asks.origin), self.windows.shape.columns, dtype=FLOAT)
            self.ledger.add(asks, Gaussian(nothing, nothing, nothing))
        due = self.ledger.pop(answers)
        return due.x, self.spec.learned(due.target)


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
            after these R is read.
        chosen: (R,) rows at which windows are wanted; None is all of them.
        progress: called with the rows read so far.
    """
    collector, kept = Collector(spec), WarmUp()
    for batch, position, _ in stretches(source, len(hidden), ROWS):
        kept.add(*collector.push(batch, hidden[position : position + batch.num_rows], chosen))
        progress(position + batch.num_rows)
    found = kept.windows()
    return None if found is None else found[:2]
