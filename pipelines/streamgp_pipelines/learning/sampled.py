"""Batch training on more windows than fit into memory: a sample of them is held, the others are read again.

One pass draws the sample, and leaves a mark at the beginning of each block of rows: the offset there, and the windows
that are under way. From its mark the windows of a block are made as often as they are needed, with the same bits: a
window may look back on rows of other blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from streamgp.base import Inputs, Offset, Source
from streamgp.online.glitches import Usual
from streamgp.online.inputs import usable
from streamgp.online.reservoir import Reservoir
from streamgp.online.standardised import Standardised
from streamgp.online.summing import Absorb, Totals, blocks, in_blocks, sums_of
from streamgp.training.shared_gradients import added
from streamgp.windows.windows import WindowSpec
from streamgp_pipelines.learning.collect import ROWS, Collector, Pairing, stretches


class TableBlock(NamedTuple):
    """Rows of a table whose windows are made where they are needed.

    Attributes:
        rows: R.
        offset: before the first.
        since: windows that are under way there.
        hidden: (R,) which rows are held out.
        held: (K,) numbers of the windows of the block that are in memory, ascending.
    """

    rows: int
    offset: Offset
    since: Pairing
    hidden: Tensor
    held: Tensor


class UnsampledWindows(NamedTuple):
    """The windows that are not in memory, by blocks.

    Attributes:
        spec: of the windows.
        usual: what makes a value of a window a glitch.
        blocks: in the order of the table.
    """

    spec: WindowSpec
    usual: Usual
    blocks: Sequence[TableBlock]


class Sampled(NamedTuple):
    """What is held of a table's windows.

    Attributes:
        x: S windows.
        y: (S, T) their truths.
        rest: the others; None where there are none.
        windows: N in all.
        partly: windows left out, as they lack some of their truths.
    """

    x: Inputs
    y: Tensor
    rest: UnsampledWindows | None
    windows: int
    partly: int


def sample(
    source: Source,
    spec: WindowSpec,
    hidden: Tensor,
    size: int,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> Sampled | None:
    """At most `size` of the windows that have all their truths, each as likely as any other; None where there is none.

    Args:
        source: of the columns of `spec`.
        spec: of the windows.
        hidden: (R,) which of the first R rows are held out, see `collect`.
        size: windows held.
        seed: of the draw.
        progress: called with the rows read so far.
    """
    collector, partly = Collector(spec), 0
    kept = Reservoir(min(size, len(hidden)), collector.windows.shape, memory=None)
    generator = torch.Generator().manual_seed(seed)
    begins = {part.start: part for part in blocks(len(hidden), ROWS)}
    marks: list[tuple[slice, Offset, Pairing, int]] = []
    before: Offset = {}
    for batch, position, behind in stretches(source, len(hidden), ROWS):
        if position in begins:
            marks.append((begins[position], before, collector.state(), int(kept.seen)))
        x, y = collector.push(batch, hidden[position : position + batch.num_rows])
        x, y, some = whole(x, y)
        kept.offer(x, y, generator)
        partly, before = partly + some, behind
        progress(position + batch.num_rows)
    found, count = kept.sample(), int(kept.seen)
    if not count:
        return None
    usual = Usual.of(found.x, found.y)
    x, y = plausible(usual, found.x, found.y)
    if count == len(found.y):
        return Sampled(x, y, None, count, partly)
    numbers = kept.arrival[found.places]
    edges = [first for *_, first in marks] + [count]
    made = [
        TableBlock(
            part.stop - part.start,
            offset,
            since,
            hidden[part].clone(),
            numbers[(numbers >= first) & (numbers < last)] - first,
        )
        for (part, offset, since, first), last in zip(marks, edges[1:], strict=True)
    ]
    return Sampled(x, y, UnsampledWindows(spec, usual, made), count, partly)


def windows_of(source: Source, rest: UnsampledWindows, block: TableBlock) -> Iterator[tuple[Inputs, Tensor]]:
    """The windows of a block that are not in memory, with their truths (N, T)."""
    collector, number = Collector(rest.spec, block.since), 0
    for batch, position, _ in stretches(source, block.rows, ROWS, block.offset):
        x, y = collector.push(batch, block.hidden[position : position + batch.num_rows])
        x, y, _ = whole(x, y)
        others = ~torch.isin(torch.arange(number, number + len(y)), block.held)
        number += len(y)
        x, y = plausible(rest.usual, x.rows(others), y[others])
        if len(y):
            yield x, y


def whole(x: Inputs, y: Tensor) -> tuple[Inputs, Tensor, int]:
    """Windows that can be learned and lack no truth, and how many of the others have some."""
    x, y, _ = usable(x, y)
    complete = torch.isfinite(y).all(1)
    return x.rows(complete), y[complete], int((~complete).sum())


def plausible(usual: Usual, x: Inputs, y: Tensor) -> tuple[Inputs, Tensor]:
    """Windows without a glitch."""
    y, within = usual.admits(x, y)
    within = within & torch.isfinite(y).all(1)
    return x.rows(within), y[within]


class BlockLearning(NamedTuple):
    """How windows of a block are learned.

    Attributes:
        learner, absorb: see `Summing`.
        standardised: of now.
        weight: (1,) of each window.
        chunk: windows at once.
    """

    learner: Any
    absorb: Absorb
    standardised: Standardised
    weight: Tensor
    chunk: int


def block_totals(source: Source, rest: UnsampledWindows, block: TableBlock, way: BlockLearning) -> Totals:
    """The sums of a block."""

    def parts() -> Iterator[tuple[Tensor, ...]]:
        for x, y in windows_of(source, rest, block):
            device = way.weight.device
            z, target = way.standardised(x.to(device), y.to(device))
            own = (z, target, way.weight.expand(len(y)))
            yield from zip(*(part.split(way.chunk) for part in own), strict=True)

    return sums_of(way.learner, way.absorb, parts())


class WithRest:
    """A `Summing` that learns the rest of a table with the rows that it is given, which are of the sample.

    Args:
        source: of the table, at the version that training began with.
        rest: of the table.
        standardised: returns what standardises when rows are learned.
    """

    def __init__(self, source: Source, rest: UnsampledWindows, standardised: Callable[[], Standardised]) -> None:
        self.source, self.rest, self.standardised = source, rest, standardised

    def __call__(self, learner: Any, absorb: Absorb, rows: Sequence[Tensor], chunk: int) -> None:
        """See `Summing`. Rows given have equal weights, as those of a batch do, and so have the others."""
        in_blocks(learner, absorb, rows, chunk)
        total: Totals = learner.sums()
        learner.zero()
        way = BlockLearning(learner, absorb, self.standardised(), rows[2][:1].clone(), chunk)
        for block in self.rest.blocks:
            total = added(total, block_totals(self.source, self.rest, block, way))
        learner.put(total)
