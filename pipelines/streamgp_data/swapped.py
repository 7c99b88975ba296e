"""Formats of times in which the day and the month have changed places: `%m.%d.%Y` for times that are `%d.%m.%Y`.

Two in five of such times can be read all the same, each as another day. Two things tell: times of many days that can
be read the other way alone, where all others can be read both ways and are closer together that way; and times that
are evenly spaced the other way alone, for more than a week.

One day a month looks like days one after another, and they like one day a month: `%m/%d` reads 05/01, 05/02, … as the
first days of May, `%d/%m` as the fifth of each month. What tables of one day a month may show as well is no sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgp_data.instants import text_times

Ints = NDArray[np.int64]

MOST = 100_000
"""First times of a source that are looked at."""
FEWEST = 32
"""Different times that must be evenly spaced: four a day. One or two are read on one day a month, too."""
DAYS = range(8, 12)
"""On how many days: on a few may be what was read on one day a month, and on twelve what was on one of each month."""
WRONG = 2
"""Days that must be days the other way alone."""
SHARE, SHARE_WITHIN = 1 / 3, 1 / 10
"""Share of such days. Days one after another, for more than one month, have two in five at least, as 13 to 28 are 16 of
40; those of one month alone have fewer where they end soon after its 12th."""
_DAY = 86_400_000_000  # microseconds
_MONTH = 31 * _DAY
_PLACES = re.compile(r"%-?([dm])")


def swapped(form: str | None) -> str | None:
    """The format with the day and the month in each other's places; None where it has not one of each.

    Example:
        >>> swapped("%m.%d.%Y %H:%M"), swapped("%d %b %Y"), swapped("%m%d"), swapped("epoch-s")
        ('%d.%m.%Y %H:%M', None, None, None)
    """
    if form is None or sorted(_PLACES.findall(form)) != ["d", "m"] or re.search(r"%[dm]%-?[dm]", form):
        return None
    return _PLACES.sub(lambda found: found[0][:-1] + ("m" if found[1] == "d" else "d"), form)


def read_as(cells: pa.Array[Any], form: str) -> tuple[Ints, NDArray[np.bool_]]:
    """(N,) microseconds since 1970, and which cells are times of this format."""
    values, _ = text_times(cells, False, form)
    there = values.is_valid().to_numpy(zero_copy_only=False)
    return values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), there


def likelier(cells: pa.Array[Any], form: str | None) -> str | None:
    """The swapped format, where a fair share of days are days by that alone, and all cells can be read by it.

    A few cells are strays: in a table of one day a month, which can be read both ways, they say nothing of the others.

    Example:
        >>> likelier(pa.array(["11.01.2024", "12.01.2024", "13.01.2024", "14.01.2024"]), "%m.%d.%Y")
        '%d.%m.%Y'
        >>> likelier(pa.array(["11.01.2024", "12.01.2024", "13.01.2024", "14.01.2024"]), "%d.%m.%Y")
    """
    other = swapped(form)
    if other is None or form is None or not pa.types.is_string(cells.type):
        return None
    (given, good), (turned, fits) = (read_as(cells, one) for one in (form, other))
    wrong = fits & ~good
    days = len(np.unique(turned[wrong] // _DAY))
    if days < WRONG or (good & ~fits).any() or _others(cells, good | fits):
        return None
    span = np.ptp(turned[fits])
    if good.any() and span >= np.ptp(given[good]):
        return None
    least = SHARE_WITHIN if span < _MONTH else SHARE
    return other if days >= least * len(np.unique(turned[fits] // _DAY)) else None


def _others(cells: pa.Array[Any], read: NDArray[np.bool_]) -> bool:
    """Whether cells say something that is no time by either format."""
    rest = cells.filter(pa.array(~read))
    return bool(text_times(rest, False, "%Y")[1].any()) if len(rest) else False


def evenly(times: Ints) -> bool:
    """Whether times, in any order and some of them more than once, have one interval."""
    return len(np.unique(np.diff(np.unique(times)))) == 1


class SwappedDays:
    """Looks at the times of one source, and says if they seem to be read with day and month swapped.

    Args:
        column: of the times.
        form: by which they are read; None where by none.

    Example:
        >>> looked = SwappedDays("t", "%m.%d.%Y %H:%M")
        >>> looked.look(pa.array([f"0{day}.01.2024 {hour:02}:00" for day in range(1, 9) for hour in range(24)]))
        >>> looked.other()
        '%d.%m.%Y %H:%M'
    """

    def __init__(self, column: str | None, form: str | None) -> None:
        self._column, self._form, self._other = column, form, swapped(form)
        self._given: list[Ints] = []
        self._turned: list[Ints] = []
        self._read = 0

    def look(self, cells: pa.Array[Any]) -> None:
        """Cells as they are read, after those before."""
        if self._other is None or self._read >= MOST or not pa.types.is_string(cells.type):
            return
        assert self._form is not None
        cells = cells.slice(0, MOST - self._read)
        self._read += len(cells)
        (given, good), (turned, fits) = (read_as(cells, form) for form in (self._form, self._other))
        if (good & ~fits).any():  # a day beyond 12: the format is right
            self._other = None
            return
        self._given.append(given[good])
        self._turned.append(turned[good])

    def seen(self, parts: Iterable[Any]) -> Iterator[Any]:
        """The same chunks, looked at."""
        for part in parts:
            if self._column is not None and self._other is not None and part.rows.num_rows:
                self.look(part.rows.column(self._column))
            yield part

    def other(self) -> str | None:
        """The format by which the times are evenly spaced for more than a week, where by that of the source they are
        not."""
        if self._other is None or not self._given:
            return None
        given, turned = np.concatenate(self._given), np.concatenate(self._turned)
        if len(np.unique(turned)) < FEWEST or len(np.unique(turned // _DAY)) not in DAYS:
            return None
        return self._other if evenly(turned) and not evenly(given) else None

    def notes(self, uri: str) -> list[str]:
        """What to say of it."""
        other = self.other()
        if other is None:
            return []
        return [
            f"{uri}: by {self._form} the times {self._column!r} are not evenly spaced; by {other}, with day and month "
            "in each other's places, they are: if they are written so, ingest the source into a new table with "
            f"--time-format '{other}'"
        ]
