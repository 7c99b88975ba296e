"""Numbers of the periods of a day on the days on which a clock is changed, where they are those of the clock.

Such a day has more periods than others, or fewer. Most sources count them: 1 to 23 hours, or 1 to 25. Others number the
hours that the clock shows: 3 is left out, or 2 is there twice, or 25 stands for the second 2. Rows are read front to
back, and the first number that only one of the two has tells which it is, for that day of that series.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class _Day:
    """What was read of a day of a series: the number before, those that the clock shows twice, whether its numbers are
    those of the clock, and whether the repeated ones have begun again."""

    day: Any
    last: int = 0
    seen: set[int] = field(default_factory=set)
    wall: bool = False
    again: bool = False


class WallPeriods:
    """Where in their days periods are.

    Args:
        count: periods of a day on which the clock is not changed.

    Example:
        >>> read, autumn = WallPeriods(24), (1, 2, *range(2, 25))
        >>> [read.place("a", "3 Nov", autumn, number) for number in (1, 2, 2, 3, 24)]
        [1, 2, 3, 4, 25]
        >>> [read.place("b", "3 Nov", autumn, number) for number in (1, 2, 25, 3, 24)]
        [1, 2, 3, 4, 25]
        >>> [read.place("c", "3 Nov", autumn, number) for number in (1, 2, 3, 24, 25)]
        [1, 2, 3, 24, 25]
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._days: dict[Any, _Day] = {}

    def place(self, series: Any, day: Any, shown: tuple[int, ...], number: int) -> int:
        """The place of a period in its day, from 1.

        Args:
            series: that the row is of. day: that it is of.
            shown: number of each period of this day by the clock, in their order; 1 begins at 00:00.
            number: of the row.
        """
        state = self._days.get(series)
        if state is None or state.day != day:
            state = self._days[series] = _Day(day)
        found = (self._of_short if len(shown) < self._count else self._of_long)(state, shown, number)
        state.last = number
        return found

    def _of_short(self, state: _Day, shown: tuple[int, ...], number: int) -> int:
        gone = [one for one in range(1, self._count + 1) if one not in shown]
        if number in gone:
            state.wall = False
        elif (state.last, number) == (gone[0] - 1, gone[-1] + 1) and state.last:
            state.wall = True
        return shown.index(number) + 1 if state.wall and number in shown else number

    def _of_long(self, state: _Day, shown: tuple[int, ...], number: int) -> int:
        second = [at for at, one in enumerate(shown) if one in shown[:at]]
        twice = [shown[at] for at in second]
        if number in twice and number in state.seen:
            state.wall = state.again = True
        elif self._count < number <= len(shown) and state.last == twice[-1]:
            state.wall = True
        state.seen.add(number)
        if not state.wall or number > len(shown):
            return number
        if number > self._count:
            return second[number - self._count - 1] + 1
        first = shown.index(number)
        return (second[twice.index(number)] if number in twice and state.again else first) + 1
