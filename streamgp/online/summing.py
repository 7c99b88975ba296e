"""Sums over the rows of a batch, in blocks: one after the other here, or side by side in other processes.

Rows are cut into at most `BLOCKS` blocks, whose sums are added in the order of the rows. How many processes there are
changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from torch import Tensor

from streamgp.training.shared_gradients import added

BLOCKS = 16
"""Parts that rows are cut into, at most."""

Totals: TypeAlias = tuple[Tensor, ...]


class Additive(Protocol):
    """A learner whose state is sums over rows."""

    def sums(self) -> Totals:
        """The sums now; they do not change with what is learned later."""

    def put(self, sums: Totals) -> None:
        """Replace the sums by these."""

    def zero(self) -> None:
        """Forget the rows, and nothing else."""


F = TypeVar("F")
R = TypeVar("R", bound=Additive)


class OnFeatures(NamedTuple, Generic[F, R]):
    """The sums of a regression on features of the rows; Additive."""

    features: F
    regression: R

    def sums(self) -> Totals:
        """Those of the regression."""
        return self.regression.sums()

    def put(self, sums: Totals) -> None:
        """Replace the sums by these."""
        self.regression.put(sums)

    def zero(self) -> None:
        """Forget the rows."""
        self.regression.zero()


L = TypeVar("L", bound=Additive)
Absorb: TypeAlias = Callable[..., None]
"""A learner and parts of the tensors of rows: adds these rows to its sums."""


class Summing(Protocol):
    """Lets a learner learn rows, and nothing but them, as sums."""

    def __call__(self, learner: Any, absorb: Absorb, rows: Sequence[Tensor], chunk: int) -> None:
        """Learn these rows.

        Args:
            learner: what has the sums; other processes get it pickled.
            absorb: see `Absorb`; a function of a module, which can be pickled.
            rows: standardised windows (N, W), targets (N, T) and weights (N,).
            chunk: rows that are absorbed at once.
        """


def running(learner: Any, absorb: Absorb, rows: Sequence[Tensor], chunk: int) -> None:
    """See `Summing`: in one running sum, for a stream."""
    learner.zero()
    for some in chunks(rows, chunk):
        absorb(learner, *some)


def in_blocks(learner: Any, absorb: Absorb, rows: Sequence[Tensor], chunk: int) -> None:
    """See `Summing`: in this process.

    Example:
        >>> import torch
        >>> class Mean:
        ...     def zero(self): self.total = torch.zeros(2)
        ...     def sums(self): return (self.total,)
        ...     def put(self, sums): (self.total,) = sums
        >>> mean, rows = Mean(), torch.arange(100.0)
        >>> def absorb(mean, x): mean.total = mean.total + torch.stack([x.sum(), torch.tensor(float(len(x)))])
        >>> in_blocks(mean, absorb, [rows], chunk=4)
        >>> mean.total.tolist()
        [4950.0, 100.0]
    """
    total = None
    for block in blocks(len(rows[0]), chunk):
        total = added(total, block_sums(learner, absorb, [part[block] for part in rows], chunk))
    assert total is not None
    learner.put(total)


def blocks(rows: int, chunk: int) -> list[slice]:
    """Blocks of whole chunks, of nearly equal length.

    Example:
        >>> blocks(10, 4)
        [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
        >>> len(blocks(10**6, 1024))
        16
    """
    chunks = -(-rows // chunk)
    edges = [chunk * (chunks * at // min(BLOCKS, chunks)) for at in range(min(BLOCKS, chunks))]
    return [slice(start, stop) for start, stop in zip(edges, [*edges[1:], rows], strict=True)]


def chunks(rows: Sequence[Tensor], chunk: int) -> Iterator[Sequence[Tensor]]:
    """The same rows of all tensors, this many at a time."""
    for start in range(0, len(rows[0]), chunk):
        yield [part[start : start + chunk] for part in rows]


def block_sums(learner: Any, absorb: Absorb, rows: Sequence[Tensor], chunk: int) -> Totals:
    """The sums of one block."""
    return sums_of(learner, absorb, chunks(rows, chunk))


def sums_of(learner: Any, absorb: Absorb, parts: Iterable[Sequence[Tensor]]) -> Totals:
    """The sums of rows that come in parts."""
    learner.zero()
    for some in parts:
        absorb(learner, *some)
    found: Totals = learner.sums()
    return found
