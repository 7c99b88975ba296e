"""What trees look at for a step ahead: lags and statistics of them, seasonal references, known inputs, the calendar.

They are read from the windows that every model has, and so follow its rules for gaps, late rows and series. Values of a
target are less its last value (`last`): departures from another base are moved from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamgp.base import Inputs, Shape
from streamgp.windows.calendar import Floats, Ints

RECENT, OTHERS = 8, 8
"""Lags of a channel that trees look at: the newest ones, and others evenly over the rest."""


BLOCKS = ("block", "coarse")
"""Numbers of the window that are means of neighbouring lags, and are left out."""


class PairRows(NamedTuple):
    """Pairs of a window and a step ahead. values: (R, F), of targets less their last; last: (R, O); bases: (R, B, O)
    less the last value."""

    values: Floats
    last: Floats
    bases: Floats


class PeerColumns:
    """The columns of a row of a forecaster's table.

    Args:
        shape: of the windows.

    Attributes:
        bases: what a forecast may be a departure from: `level` (nothing: the value itself), `last` value, and where
            there are seasons the value one `season` before (the shortest), one `long` season before, and the `mean` of
            the last season.
        own: (F,) target that a column has the units of; -1 is none. Its values move with the base.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        outputs, each = shape.outputs, shape.context
        self.channels = len(shape.past) - (outputs if shape.seasonal else 0)
        first = min(shape.lags, RECENT)
        self._lags = np.unique(np.r_[:first, np.linspace(first, max(shape.lags - 1, first), OTHERS).astype(int)])
        self._lags = self._lags[self._lags < shape.lags]
        self._statistics = [rows for rows in dict.fromkeys((shape.lags // 4, shape.lags)) if rows > 1]
        names = shape.past[: self.channels]
        self._known = [names.index(name) for name in shape.future if name in names] if shape.lags else []
        self._seen = [at for at in range(self.channels) if at not in self._known] if shape.lags else []
        window = [-1 if at >= outputs else at for at in self._seen for _ in self._lags]
        for at in self._seen:
            window += [at if at < outputs else -1] * 3 * len(self._statistics) + [-1] * len(self._statistics)
        step = [*range(outputs)] * shape.seasonal + [-1] * (len(shape.future) - outputs * shape.seasonal)
        step += [-1] * 2 * len(self._known)
        if each is not None:
            self._numbers = [at for at, entry in enumerate(each.window) if not entry.name.startswith(BLOCKS)]
            window += [
                channel if channel < outputs else -1 for channel in (each.window[at].channel for at in self._numbers)
            ]
            entries = replace(each, horizon=1).steps
            step += [entry.channel if entry.channel < outputs else -1 for entry in entries] + [-1] * each.PHASES
            self._short = [entry.name for entry in entries].index(f"short1({shape.targets[0]})")
            self._apart = sum(entry.channel == 0 for entry in entries)
            self._mean = [entry.name for entry in each.window].index(f"day({shape.targets[0]})")
            self._means = sum(entry.channel == 0 for entry in each.window)
        self.own: Ints = np.array([*window, *step, -1])
        self.bases = ["level"]
        if shape.lags:
            self.bases.append("last")
        if shape.seasonal:
            self.bases.append("season")
        if shape.seasonal and each is not None:
            self.bases += ["long"] * (each.long > 0) + ["mean"]

    def rows(self, x: Inputs, window: Ints, step: Ints) -> PairRows:
        """What is seen of these windows at these steps (from 0), (R,) each."""
        shape, outputs = self.shape, self.shape.outputs
        past, ahead = x.past.numpy(), x.future.numpy()
        future = ahead[window, step]
        last = past[:, -1, :outputs] if shape.lags else np.zeros((len(ahead), outputs))
        of_window, of_step = self._of_window(past), [future]
        seasons: list[Floats] = []
        if shape.lags and self._known:
            at = len(shape.future) - len(self._calendar) - len(self._known)
            whole = np.concatenate([past[:, :, self._known], ahead[:, :, at : at + len(self._known)]], 1)
            place = shape.lags + step
            total = np.concatenate([np.zeros((len(whole), 1, whole.shape[2])), whole.cumsum(1)], 1)
            begin = np.maximum(place - 5, 0)
            recent = (total[window, place + 1] - total[window, begin]) / (place + 1 - begin)[:, None]
            of_step += [whole[window, place] - whole[window, shape.lags - 1], recent]
        if shape.seasonal:
            seasons.append(future[:, :outputs])
        if x.context is not None and shape.context is not None:
            numbers, each = x.context.numpy(), shape.context
            first = len(each.window)
            own = numbers[:, first:].reshape(len(numbers), shape.horizon, each.per_step)[window, step]
            of_window.append(numbers[:, self._numbers])
            of_step.append(own)
            short = own[:, self._short + self._apart * np.arange(outputs)]
            mean = numbers[window][:, self._mean + self._means * np.arange(outputs)]
            seasons = [short, *(seasons if each.long else []), mean]
        last = last[window]
        values = np.concatenate([np.concatenate(of_window, 1)[window], *of_step, step[:, None] + 1.0], 1)
        for at in range(outputs):
            values[:, self.own == at] -= last[:, at, None]
        bases = [-last, *[np.zeros_like(last)] * (shape.lags > 0), *(season - last for season in seasons)]
        return PairRows(values, last, np.nan_to_num(np.stack(bases, 1)))

    @property
    def _calendar(self) -> tuple[str, ...]:
        return tuple(name for name in self.shape.future if name.startswith("calendar("))

    def _of_window(self, past: Floats) -> list[Floats]:
        """Lags of what is not known ahead, newest first, and the means, least, greatest and spread of the newest."""
        if not self.shape.lags:
            return [np.empty((len(past), 0))]
        newest = past[:, ::-1]
        found = [newest[:, self._lags, at] for at in self._seen]
        for at in self._seen:
            parts = [newest[:, :rows, at] for rows in self._statistics]
            found += [part.mean(1)[:, None] for part in parts] + [part.min(1)[:, None] for part in parts]
            found += [part.max(1)[:, None] for part in parts] + [part.std(1)[:, None] for part in parts]
        return found
