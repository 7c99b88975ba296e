"""Where forecasts begin: the last value of each target, how it got there, and its state relative to the masses."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from streamgp.forecasting.masses import Masses

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

SLOPE_ROWS = 3
"""Rows over which the slope is taken."""
DRIFT = 0.5
"""How far, in e^b, y₀ must move until the step at its present slope, not to be steady."""
STATES = 4
"""States of y₀: steady, rising, falling, at a mass."""


def course(masses: Masses, past: Tensor | None, none: Floats, units: Ints, unit: Ints) -> tuple[Floats, Floats, Floats]:
    """(N, O, H) last value, run and slope of `AtOrigin`; NaN, 0 and 0 where the past is not known.

    Args:
        masses: of the units.
        past: (N, L, O) the newest values of the targets.
        none: (N, O, H) zeros.
        units: (V,) of the outputs.
        unit: (N, O) which of these.
    """
    if past is None or not past.shape[1]:
        return none + np.nan, none, none
    values = past.numpy()
    last, back = values[:, -1], min(SLOPE_ROWS, values.shape[1] - 1)
    near = masses.widths(units)[unit]
    run = np.isfinite(last).astype(np.float64)
    again = np.flatnonzero((np.abs(values[:, -2:-1] - last[:, None]) <= near[:, None]).any((1, 2)))  # few
    same = np.abs(values[again] - last[again, None]) <= near[again, None]
    run[again] = np.cumprod(same[:, ::-1], 1).sum(1)
    slope = (last - values[:, -1 - back]) / max(back, 1)
    found = [none + part[..., None] for part in (last, run, slope)]
    return found[0], found[1], found[2]


def states(
    masses: Masses, last: Floats, slope: Floats, base: Floats, units: Ints, unit: Ints
) -> tuple[dict[int, list[int]], Ints]:
    """The masses of each of the units that has some, and (N, O, H) the states of y₀; 0 without masses.

    Args:
        masses: of the units.
        last: (N, O, H) y₀.
        slope: (N, O, H) of `course`.
        base: (N, O, H) b.
        units: as of `course`.
        unit: as of `course`.
    """
    state, slots = np.zeros(last.shape, np.int64), dict[int, list[int]]()
    met = np.flatnonzero(masses.met[units]).tolist()
    if not met:
        return slots, state
    moving = slope * np.arange(1, last.shape[-1] + 1) / np.exp(base)  # until the step, in e^b
    for v in met:
        n, o = np.nonzero(unit == v)
        now, way = last[n, o], moving[n, o]
        slots[v] = masses.active(units[v]) if np.isfinite(now).all() else []
        if not slots[v]:
            continue
        found = np.where(way > DRIFT, 1, np.where(way < -DRIFT, 2, 0))
        for slot in slots[v]:
            found[masses.at(units[v], slot, now)] = STATES - 1
        state[n, o] = found
    return slots, state
