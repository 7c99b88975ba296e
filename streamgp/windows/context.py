"""Fill the context of windows from the rows that are kept: see `streamgp.context`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from streamgp.context import Context, Entry
from streamgp.windows import calendar
from streamgp.windows.calendar import Floats, Ints

LARGEST = 1e150
"""Absolute values beyond it are no references: sums of their squares may overflow float64."""

Look = Callable[[Ints], Floats]
"""(J,) offsets -> (N, J, C) values of every column, NaN where there is no row."""


class _MeanPlan(NamedTuple):
    """Entries that are means over as many points each: which (E,), their channels (E, 1), and places among the offsets
    (E, parts, points)."""

    which: Ints
    channel: Ints
    at: Ints


class Filler:
    """Looks every row up once, however many numbers it is part of.

    Args:
        context: the layout.
        every_ns: the interval of the rows; None where there is no clock, or none that is known.
        zone: of the calendar.
    """

    def __init__(self, context: Context, every_ns: int | None, zone: str | None) -> None:
        self.context, self.every, self.zone = context, every_ns, zone
        entries = [*context.window, *context.steps]
        self.offsets = np.unique([off for entry in entries for part in entry.offsets for off in part])
        self._plans = [self._plan(context.window), self._plan(context.steps)]

    def _plan(self, entries: Sequence[Entry]) -> list[_MeanPlan]:
        """The entries by their points; every part of an entry has as many."""
        points = [len(entry.offsets[0]) for entry in entries]
        found = []
        for count in sorted(set(points)):
            which = [number for number, own in enumerate(points) if own == count]
            at = np.searchsorted(self.offsets, np.array([entries[number].offsets for number in which]))
            channel = np.array([entries[number].channel for number in which])
            found.append(_MeanPlan(np.array(which), channel[:, None], at))
        return found

    def fill(self, look: Look, step: Ints, when: Ints, future: Floats | None) -> Floats:
        """(N, C) contexts.

        Args:
            look: finds rows.
            step: (N,) of the windows' rows.
            when: (N, H) times of the steps ahead.
            future: (N, H, K) known inputs ahead, instead of those of the rows.
        """
        context, rows = self.context, len(step)
        values = look(self.offsets)
        values[np.abs(values) > LARGEST] = np.nan
        if future is not None:
            ahead = np.flatnonzero(self.offsets > 0)
            values[:, ahead, values.shape[2] - len(context.known) :] = future[:, self.offsets[ahead] - 1]
        window, steps = (
            _means(values, plans, len(entries), parts)
            for plans, entries, parts in zip(
                self._plans, (context.window, context.steps), (1, context.horizon), strict=True
            )
        )
        ahead_of = np.concatenate([steps, np.stack(self._phases(step, when)).transpose(0, 2, 1)])  # (per step, H, N)
        by_step = ahead_of.transpose(2, 1, 0).reshape(rows, context.horizon * context.per_step)
        return np.concatenate([window[:, 0].T, by_step], 1)

    def move(self, look: Look, known: Floats) -> Floats:
        """(N, C) what contexts change by where known inputs ahead change by `known` (N, H, K) and rows by what `look`
        finds: they are linear in both, but for the phases, which stay."""
        none = np.zeros(known.shape[:2], np.int64)
        moved = self.fill(look, none[:, 0], none, known)
        ahead = moved[:, len(self.context.window) :].reshape(*none.shape, self.context.per_step)
        ahead[..., self.context.per_step - self.context.PHASES :] = 0.0
        return moved

    def _phases(self, step: Ints, when: Ints) -> list[Floats]:
        """(N, H) each: the part of the short season, of the long one and of the year that has passed."""
        context = self.context
        at = step[:, None] + np.arange(1, context.horizon + 1)
        wall = when + calendar.offset(when, self.zone) if self.every else None
        found: list[Floats] = []
        for season, unit, start in ((context.short, calendar.DAY, 0), (context.long, calendar.WEEK, 3 * calendar.DAY)):
            if self.every and wall is not None and season * self.every == unit:
                found.append(((wall + start) % unit) / unit)
            else:
                found.append((at % season) / season if season else np.zeros(at.shape))
        year = np.zeros(at.shape) if wall is None else (wall / calendar.YEAR) % 1.0
        return [*found, year]


def _means(values: Floats, plans: Sequence[_MeanPlan], entries: int, parts: int) -> Floats:
    """(entries, parts, N) means over the points of each part; NaN where more than half of them are missing."""
    if len(values) == 1:  # NumPy sums the numbers of one window in another order than those of several
        return _means(values.repeat(2, 0), plans, entries, parts)[..., :1]
    found, columns = np.empty((entries, parts, len(values))), np.ascontiguousarray(values.transpose(1, 2, 0))
    for which, channel, at in plans:
        if at.shape[2] == 1:
            found[which] = columns[at[..., 0], channel]
            continue
        total, known = np.zeros((2, *at.shape[:2], len(values)))
        places = np.moveaxis(at, 2, 0)
        for some in places[None] if parts == 1 else places[:, None]:  # of many parts one by one, for they are large
            points = columns[some, channel]
            there = ~np.isnan(points)
            total += np.where(there, points, 0.0).sum(0)
            known += there.sum(0)
        found[which] = np.where(2 * known >= at.shape[2], total / np.maximum(known, 1.0), np.nan)
    return found
