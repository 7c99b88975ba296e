"""The streams that rows belong to, and the rows of many streams side by side, so that no loop goes over them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)


class StreamIndex(NamedTuple):
    """The streams that rows belong to: all of them to one, or each series to its own.

    Attributes:
        own: (K,) the streams there are.
        at: (R,) which of these each row belongs to.
    """

    own: Ints
    at: Ints

    @classmethod
    def of(cls, series: Ints) -> StreamIndex:
        """Each series a stream; where the codes (R,) increase, as in a fleet, nothing is sorted.

        Example:
            >>> StreamIndex.of(np.array([4, 4, 7])).at.tolist(), StreamIndex.of(np.array([7, 4])).at.tolist()
            ([0, 0, 1], [1, 0])
        """
        if (series[1:] < series[:-1]).any():
            return cls(*np.unique(series, return_inverse=True))
        new = np.diff(series, prepend=-1) > 0
        return cls(series[new], np.cumsum(new) - 1)

    def units(self, outputs: int) -> Ints:
        """(K · O,) the units of the streams: a unit is an output of a stream."""
        return np.asarray((self.own[:, None] * outputs + np.arange(outputs)).reshape(-1))


class AlignedStreams(NamedTuple):
    """Streams with about as many rows, side by side.

    Attributes:
        own: (B,) which streams.
        there: (B, N) whether a stream has a row at this place.
        rows: (B, N) which they are, in their order; where there are fewer, the first again. None: all, side by side.
    """

    own: Ints
    there: Bools
    rows: Ints | None

    def laid(self, values: Floats, empty: float) -> Floats:
        """(R, ...) of all rows -> (B, N, ...), `empty` where there is none."""
        if self.rows is None:
            return values.reshape(*self.there.shape, *values.shape[1:])
        found = values[self.rows]
        found[~self.there] = empty
        return found

    def put(self, found: Floats, values: Floats) -> None:
        """Put values (B, N, ...) where they belong in (R, ...)."""
        if self.rows is None:
            found[:] = values.reshape(found.shape)
        else:
            found[self.rows[self.there]] = values[self.there]


def whole(values: Floats) -> Ints:
    """Whole numbers that were kept as floats; 0 where nothing was.

    Example:
        >>> whole(np.array([2.0, np.nan])).tolist()
        [2, 0]
    """
    return np.nan_to_num(values).astype(np.int64)


def longer(array: NDArray[Number], rows: int) -> NDArray[Number]:
    """An array with this many rows of zeros after its own.

    Example:
        >>> longer(np.ones((1, 2)), 1).tolist()
        [[1.0, 1.0], [0.0, 0.0]]
    """
    return np.concatenate([array, np.zeros((rows, *array.shape[1:]), array.dtype)])


def extended(array: NDArray[Number], more: NDArray[Number]) -> NDArray[Number]:
    """An array with these rows after its own, in the room that an earlier call left, else in twice the room.

    Rows that come one by one so cost nothing on the whole. The result takes the place of the array, whose memory it
    may share; a slice of another array is no argument, as the rows after it would be lost.

    Example:
        >>> one = extended(np.ones((2, 1)), np.zeros((1, 1)))
        >>> two = extended(one, np.full((1, 1), 5.0))
        >>> two.tolist(), np.shares_memory(one, two)
        ([[1.0], [1.0], [0.0], [5.0]], True)
    """
    count, room = len(array) + len(more), array.base
    spare = isinstance(room, np.ndarray) and room.dtype == array.dtype and room.shape[1:] == array.shape[1:]
    if not (spare and isinstance(room, np.ndarray) and len(room) >= count and room.flags.c_contiguous):
        room = np.empty((max(count, 2 * len(array)), *array.shape[1:]), array.dtype)
        room[: len(array)] = array
    room[len(array) : count] = more
    return room[:count]


def blocks(at: Ints, count: int) -> Iterator[AlignedStreams]:
    """The rows of streams side by side, those that have about as many together: at most as many again are left empty.

    Args:
        at: (R,) the stream of each row, 0 to count − 1.
        count: how many streams there are; one without rows is in no block.

    Example:
        >>> [(block.own.tolist(), block.there.sum(1).tolist()) for block in blocks(np.array([2, 0, 2, 2, 1]), 3)]
        [([0, 1], [1, 1]), ([2], [3])]
    """
    lengths = np.bincount(at, minlength=count)
    increasing = not (at[1:] < at[:-1]).any()
    if increasing and len(at) and (lengths == lengths[0]).all():
        yield AlignedStreams(np.arange(count), np.ones((count, lengths[0]), bool), None)
        return
    order = np.arange(len(at)) if increasing else np.argsort(at, kind="stable")
    begin, about = np.cumsum(lengths) - lengths, np.ceil(np.log2(np.maximum(lengths, 1)))
    for size in np.unique(about[lengths > 0]):
        own = np.flatnonzero((about == size) & (lengths > 0))
        column = np.arange(lengths[own].max())
        there = column < lengths[own, None]
        yield AlignedStreams(own, there, order[begin[own, None] + np.where(there, column, 0)])


def firsts(series: Ints) -> tuple[Ints, Ints]:
    """The codes there are, and the first place of each.

    Example:
        >>> [part.tolist() for part in firsts(np.array([4, 4, 7]))]
        [[4, 7], [0, 2]]
    """
    if (series[1:] < series[:-1]).any():
        return np.unique(series, return_index=True)
    begin = np.flatnonzero(np.diff(series, prepend=-1))
    return series[begin], begin
