"""What a block solver keeps from one visit to the next, in the order of what a byte of it saves."""

from __future__ import annotations

from typing import NamedTuple


class Plan(NamedTuple):
    """Within a number of bytes.

    Attributes:
        factors: whether all blocks' factors are kept, m m̃ numbers that took O(p m̃²) a block.
        blocks: how many blocks' features are kept, R m̃ numbers each that took O(R m̃ W).
        directions: of earlier sweeps that are kept, (2m + 2R) T float64 numbers each, at most.
    """

    factors: bool
    blocks: int
    directions: int


def plan(budget: int, rows: int, size: int, width: int, columns: int, itemsize: int) -> Plan:
    """A quarter of the budget is for directions at most; factors come before features.

    Args:
        budget: bytes.
        rows, size, width, columns: R, m, m̃, T.
        itemsize: bytes of a number of features and factors.

    Example:
        >>> plan(4 * 2**30, rows=36_000, size=10_000, width=1000, columns=1, itemsize=4)
        Plan(factors=True, blocks=29, directions=1458)
        >>> plan(10**8, rows=36_000, size=10_000, width=1000, columns=1, itemsize=4)
        Plan(factors=True, blocks=0, directions=33)
    """
    factors = size * width * itemsize
    kept = factors <= budget
    left = budget - factors if kept else budget
    directions = budget // max(64 * (rows + size) * columns, 1)
    return Plan(kept, left // max(rows * width * itemsize, 1), directions)
