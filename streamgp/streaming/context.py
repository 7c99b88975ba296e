"""Fill the context of windows from the rows that are kept: see `streamgp.context`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamgp.context import Context, Entry
from streamgp.streaming import calendar
from streamgp.streaming.calendar import Floats, Ints

LARGEST = 1e150
"""Absolute values beyond it are no references: sums of their squares may overflow float64."""

Look = Callable[[Ints], Floats]
"""(J,) offsets -> (N, J, C) values of every column, NaN where there is no row."""


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
        self._window = [self._plan(entry) for entry in context.window]
        self._steps = [self._plan(entry) for entry in context.steps]

    def _plan(self, entry: Entry) -> tuple[int, Ints]:
        """The channel, and (parts, points) places among the offsets; every part of an entry has as many points."""
        return entry.channel, np.searchsorted(self.offsets, np.array(entry.offsets))

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
        window = [_means(values, channel, at)[:, 0] for channel, at in self._window]
        steps = [_means(values, channel, at) for channel, at in self._steps]
        steps += self._phases(step, when)
        flat = np.stack(steps, 2).reshape(rows, context.horizon * context.per_step)
        return np.concatenate([np.stack(window, 1), flat], 1)

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


def _means(values: Floats, channel: int, at: Ints) -> Floats:
    """(N, parts) means over the points of each part; NaN where more than half of them are missing."""
    if at.shape[1] == 1:
        return np.asarray(values[:, at[:, 0], channel])
    total, known = np.zeros((len(values), len(at))), np.zeros((len(values), len(at)))
    for place in at.T:  # one after another, so that the order of the sum does not depend on how many windows there are
        found = values[:, place, channel]
        there = ~np.isnan(found)
        total += np.where(there, found, 0.0)
        known += there
    return np.asarray(np.where(2 * known >= at.shape[1], total / np.maximum(known, 1.0), np.nan))
