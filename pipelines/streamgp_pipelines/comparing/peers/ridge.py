"""Ridge regression, direct: one for each step ahead, on lags, seasonal references, known inputs and the calendar.

Values of a target are less the mean of its last long season. Sums over all windows are kept, so that a fit, once a
week, is exact; of the penalties, on standardised columns, that of least past error is taken, step by step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field
from torch import Tensor

from streamgp.base import Inputs, Shape
from streamgp.context import Context
from streamgp.windows.calendar import Floats, Ints
from streamgp_pipelines.comparing.peers.direct import LEAST, Direct
from streamgp_pipelines.comparing.peers.peer import PeerOptions

HARMONICS, CROSSED = 4, 2
"""Of the day, and those of them that have weights of their own at weekends and for each known input."""
FADE = 0.8
"""What an error counts at the next fit."""
MEANS = ("day(", "week(", "now-long(", "now-longs(", "day-long(", "day-longs(")
"""Numbers of the window that are no means of its lags."""
_SHORT, _LONG = range(2)
"""Columns of the phases of a context: those of its two seasons."""


class Config(PeerOptions):
    """Penalties, and when they are fitted."""

    refit: int | None = Field(
        None, ge=1, description="windows between two fits, at most; default: the longest season, at least 100"
    )
    penalties: tuple[float, ...] = Field(
        (0.3, 3.0, 30.0, 300.0, 3000.0), min_length=1, description="in rows; that of least past error is taken"
    )
    lags: int = Field(96, ge=1, description="newest lags of a channel that are looked at, at most")
    errors: int = Field(1000, ge=10, description="newest errors of a series and a step that the quantiles are of")

    def build(self, name: str, shape: Shape, probabilities: tuple[float, ...], seed: int) -> Ridge:
        return Ridge(self, shape, probabilities)


class Ridge(Direct):
    """A ridge regression for each step, on a stream.

    Args:
        config: its options.
        shape: of the windows.
        probabilities: (Q,) of the quantiles that are issued.
    """

    def __init__(self, config: Config, shape: Shape, probabilities: tuple[float, ...]) -> None:
        super().__init__(shape, probabilities, config.refit or max(shape.season, 100), config.errors)
        self.penalties, self.lags = np.array(config.penalties), config.lags
        self.forget()

    def forget(self) -> None:
        self._gram: list[Floats] = []  # of each step, (W, W)
        self._moment: list[Floats] = []  # (W, O)
        self._weights: list[Floats] = []  # (P, W, O)
        self._loss = np.zeros((self.shape.horizon, len(self.penalties)))
        self._tried = False

    def keep(self, x: Inputs, y: Tensor) -> None:
        """Add windows to the sums, a fit apart at most, after the penalties were tried on them."""
        for begin in range(0, len(y), self.refit):
            if begin:
                self.estimate()
            self._add(x.rows(slice(begin, begin + self.refit)), y[begin : begin + self.refit].numpy())

    def estimate(self) -> None:
        count = self._gram[0][-1, -1] if self._gram else 0.0
        if count < 1:
            return
        pairs = zip(self._gram, self._moment, strict=True)
        self._weights = [solved(gram, moment, self.penalties) for gram, moment in pairs]
        if self._tried:
            self._loss *= FADE
        self._tried = count >= LEAST

    def mean(self, x: Inputs) -> Floats:
        level = self._level(x)
        found = np.repeat(level[:, :, None], self.shape.horizon, 2)
        for step, weights in enumerate(self._weights):
            found[:, :, step] += self._table(x, level, step) @ weights[int(np.argmin(self._loss[step]))]
        return found.reshape(len(level), self.shape.columns)

    def _add(self, x: Inputs, y: Floats) -> None:
        level = self._level(x)
        departure = y.reshape(len(y), self.shape.outputs, self.shape.horizon) - level[:, :, None]
        for step in range(self.shape.horizon):
            known = np.isfinite(departure[:, :, step]).all(1)
            table, truth = self._table(x, level, step)[known], departure[known, :, step]
            if len(self._gram) <= step:
                self._gram.append(np.zeros((table.shape[1],) * 2))
                self._moment.append(np.zeros((table.shape[1], self.shape.outputs)))
            if self._tried:
                self._loss[step] += np.abs(table @ self._weights[step] - truth).sum((1, 2))
            self._gram[step] += table.T @ table
            self._moment[step] += table.T @ truth

    def _level(self, x: Inputs) -> Floats:
        """(N, O) what values are less: the mean of the last season, or of the lags."""
        outputs, each = self.shape.outputs, self.shape.context
        if each is not None and x.context is not None:
            name = "week" if each.long else "day"
            names = [entry.name for entry in each.window]
            found = x.context.numpy()[:, [names.index(f"{name}({target})") for target in each.targets]]
        elif self.shape.lags:
            found = x.past[:, :, :outputs].mean(1).numpy()
        else:
            found = np.zeros((len(x.future), outputs))
        return np.asarray(np.nan_to_num(found))

    def _table(self, x: Inputs, level: Floats, step: int) -> Floats:
        """(N, W) what is seen at a step ahead (from 0); the last column is the constant."""
        shape, outputs = self.shape, self.shape.outputs
        past, future, count = x.past.numpy(), x.future[:, step].numpy(), len(level)
        channels = len(shape.past) - (outputs if shape.seasonal else 0)
        lags = past[:, -self.lags :, :channels].copy()
        lags[:, :, :outputs] -= level[:, None]
        found = [lags.reshape(count, -1), level]
        named = dict(zip(shape.future, future.T, strict=True))
        known = [named[name] for name in shape.future if not name.startswith(("calendar(", "season("))]
        found += [value[:, None] ** power for value in known for power in (1, 2)]
        if shape.seasonal:
            found.append(future[:, :outputs] - level)
        phases = np.empty((count, 0))
        if shape.context is not None and x.context is not None:
            numbers, each = x.context.numpy(), shape.context
            first = len(each.window) + step * each.per_step
            entries = replace(each, horizon=1).steps
            means = [at for at, entry in enumerate(each.window) if entry.name.startswith(MEANS)]
            found.append(numbers[:, means] - levels([each.window[at].channel for at in means], level))
            ahead = numbers[:, first : first + len(entries)]
            found.append(ahead - levels([entry.channel for entry in entries], level))
            phases = numbers[:, first + len(entries) : first + each.per_step]
        found += calendar(named, phases, shape.context, known)
        return np.asarray(np.nan_to_num(np.concatenate([*found, np.ones((count, 1))], 1)))


def levels(channels: list[int], level: Floats) -> Floats:
    """(N, C) the level of the target that a column is of; 0 for other channels."""
    padded = np.concatenate([level, np.zeros((len(level), 1))], 1)
    own: Ints = np.array([at if at < level.shape[1] else -1 for at in channels], np.int64)
    return np.asarray(padded[:, own])


def calendar(named: dict[str, Floats], phases: Floats, context: Context | None, known: list[Floats]) -> list[Floats]:
    """Harmonics of the day, the weekday, and products of the first with the weekend and known inputs.

    The year is left out: in the first weeks it is a trend, which would be extrapolated. Where rows have no
    clock, the phase of the shortest season stands for the day, and that of the longest for the week.
    """
    found: list[Floats] = []
    kinds = list(known)
    day = None
    if "calendar(day,sin)" in named:
        day = np.arctan2(named["calendar(day,sin)"], named["calendar(day,cos)"])
    elif context is not None:
        day = 2 * np.pi * phases[:, _SHORT]
    if "calendar(week,sin)" in named:
        week = np.arctan2(named["calendar(week,sin)"], named["calendar(week,cos)"]) % (2 * np.pi)
        weekday = np.floor(week / (2 * np.pi) * 7 + 1e-6).astype(np.int64) % 7
        found.append(np.eye(7)[weekday])
        kinds.append(named["calendar(weekend)"])
    elif context is not None and context.long:
        found.append(harmonics(2 * np.pi * phases[:, _LONG], HARMONICS))
    if day is not None:
        found.append(harmonics(day, HARMONICS))
        found += [kind[:, None] * harmonics(day, CROSSED) for kind in kinds]
    return found


def harmonics(angle: Floats, count: int) -> Floats:
    """(N, 2 · count) sin and cos of multiples of an angle, in radians."""
    return np.stack([turn(times * angle) for times in range(1, count + 1) for turn in (np.sin, np.cos)], 1)


def solved(gram: Floats, moment: Floats, penalties: Floats) -> Floats:
    """(P, W, O) weights for every penalty, on standardised columns; the last column is the constant, not penalised."""
    count, total = gram[-1, -1], gram[-1]
    mean = total / count
    scale = np.sqrt(np.maximum(np.diag(gram) / count - mean**2, 0.0))
    scale = np.where(scale < 1e-9, np.inf, scale)[:-1]  # a constant column has no weight
    centred = (gram - np.outer(total, total) / count)[:-1, :-1] / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(centred)
    side = vectors.T @ ((moment[:-1] - np.outer(mean[:-1], moment[-1])) / scale[:, None])
    shrunk = side / (np.maximum(values, 0.0)[:, None] + penalties[:, None, None])  # (P, W - 1, O)
    slopes = (vectors @ shrunk) / scale[:, None]
    return np.concatenate([slopes, (moment[-1] / count - mean[:-1] @ slopes)[:, None]], 1)
