"""The last known value of each target at each phase of the season: what a seasonal naive forecast would use, however
long an outage lasts. Memory is series · season · targets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from streamgp.windows.calendar import Floats, Ints
from streamgp.windows.timeline import NEVER


class Recent(NamedTuple):
    """Rows of the present micro-batch: (R,) series and step, (R, O) targets, NaN = not known."""

    code: Ints
    step: Ints
    y: Floats


class LastKnown:
    """Last known targets by phase of the season.

    Args:
        season: phases; 1: the last known target at all.
        outputs: O targets.

    Example:
        >>> last = LastKnown(season=2, outputs=1)
        >>> rows = Recent(np.zeros(4, np.int64), np.arange(4), np.array([[5.0], [7.0], [np.nan], [9.0]]))
        >>> value, step = last.find(np.zeros(3, np.int64), np.array([4, 5, 5]), np.array([3, 3, 2]), rows)
        >>> value[:, 0].tolist(), step[:, 0].tolist()  # at row 3, of phases 0 and 1; at row 2, of phase 1
        ([5.0, 9.0, 7.0], [0, 3, 1])
        >>> last.take(rows)
        >>> last.find(np.zeros(1, np.int64), np.array([7]), np.array([6]))[0].tolist()
        [[9.0]]
    """

    def __init__(self, season: int, outputs: int) -> None:
        self.season, self.outputs = season, outputs
        self.step = np.empty((0, season, outputs), np.int64)
        self.value = np.empty((0, season, outputs))

    def reserve(self, series: int) -> None:
        """Room for this many series; it doubles."""
        if series <= len(self.step):
            return
        more = max(series, 2 * len(self.step)) - len(self.step)
        shape = (more, self.season, self.outputs)
        self.step = np.concatenate([self.step, np.full(shape, NEVER)])
        self.value = np.concatenate([self.value, np.full(shape, np.nan)])

    def take(self, rows: Recent) -> None:
        """Take in rows, of each series in the order of their steps; one older than what is known teaches nothing."""
        if not len(rows.code):
            return
        self.reserve(int(rows.code.max()) + 1)
        phase = rows.step % self.season
        for output in range(self.outputs):
            y = rows.y[:, output]
            kept = ~np.isnan(y) & (rows.step >= self.step[rows.code, phase, output])
            at = rows.code[kept], phase[kept], output
            self.step[at], self.value[at] = rows.step[kept], y[kept]  # of several at one place the last stays

    def forget(self, code: int, output: int, value: float) -> None:
        """Nothing is known any more at the phases where a target of a series was last of this value."""
        self.reserve(code + 1)
        gone = self.value[code, :, output] == value
        self.step[code, gone, output], self.value[code, gone, output] = NEVER, np.nan

    def find(self, code: Ints, step: Ints, limit: Ints, recent: Recent | None = None) -> tuple[Floats, Ints]:
        """(Q, O) the last known target at the phase of each step, and the step it is of; NaN and NEVER: none is known.

        Args:
            code: (Q,) series.
            step: (Q,) steps whose phases are looked up.
            limit: (Q,) the last step that each may see.
            recent: rows that have not been taken in yet.
        """
        self.reserve(int(code.max(initial=-1)) + 1)
        phase = step % self.season
        value, where = self.value[code, phase], self.step[code, phase]
        if recent is None or not len(recent.code):
            return value, where
        low = int(recent.step.min())
        span = max(int(recent.step.max()), int(limit.max(initial=low))) - low + 2  # small: no key overflows
        group, wanted = recent.code * self.season + recent.step % self.season, code * self.season + phase
        key = wanted * span + np.maximum(limit - low, -1) + 1
        for output in range(self.outputs):
            known = np.flatnonzero(~np.isnan(recent.y[:, output]))
            if not len(known):
                continue
            keys = group[known] * span + recent.step[known] - low + 1
            by = np.argsort(keys)
            at = np.searchsorted(keys[by], key, "right") - 1
            row = known[by[np.maximum(at, 0)]]
            hit = (at >= 0) & (group[row] == wanted)
            value[hit, output], where[hit, output] = recent.y[row[hit], output], recent.step[row[hit]]
        return value, where

    def of(self, codes: Ints) -> LastKnown:
        """Of these series, in this order."""
        found = LastKnown(self.season, self.outputs)
        self.reserve(int(codes.max(initial=-1)) + 1)
        found.step, found.value = self.step[codes], self.value[codes]
        return found

    def put(self, codes: Ints, other: LastKnown) -> None:
        """Know of these series what `other` knows of its first ones."""
        self.reserve(int(codes.max(initial=-1)) + 1)
        other.reserve(len(codes))
        self.step[codes], self.value[codes] = other.step[: len(codes)], other.value[: len(codes)]

    def state(self, series: int) -> dict[str, Tensor]:
        """Tensors of the first `series` series."""
        self.reserve(series)
        arrays = {"step": self.step[:series], "value": self.value[:series]}
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `state`.

        Raises:
            ValueError: the tensors do not fit.
        """
        step, value = (tensors[name].numpy().copy() for name in ("step", "value"))
        if step.shape != value.shape or step.shape[1:] != (self.season, self.outputs):
            raise ValueError(f"last known values of {step.shape[1:]}, not {(self.season, self.outputs)}")
        self.step, self.value = step, value
