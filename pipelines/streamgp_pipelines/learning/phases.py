"""The cycle that calibration goes by: the shortest season, or the day where the clock has one, and the place in it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from streamgp.windows.calendar import DAY, offset
from streamgp.windows.windows import Asks, WindowSpec

FEWEST = 4
"""Rows of a day, below which it is no cycle."""
MOST = 1440
"""Rows of a day, above which it is too long to be one: on a clock of seconds a phase hardly comes back."""


class Phases:
    """Where in the cycle a row lies.

    Args:
        spec: of the windows.

    Attributes:
        period: rows in the cycle; 1 where there is none.
        local: whether the cycle goes by the clock of the zone; by that of UTC where a day is no whole cycles.

    Example:
        >>> Phases(WindowSpec(targets=("y",), season=336, time="ds", every_ns=1800 * 10**9)).period
        48
        >>> Phases(WindowSpec(targets=("y",), season=12)).period, Phases(WindowSpec(targets=("y",))).period
        (12, 1)
    """

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        day = 0  # rows of a day
        if spec.lags and spec.time is not None and spec.every_ns is not None and DAY % spec.every_ns == 0:
            rows = DAY // spec.every_ns
            day = rows if FEWEST <= rows <= MOST else 0
        periods = [rows for rows in (*(spec.seasons or (spec.season,)), day) if rows > 1]
        self.period = min(periods, default=1)
        self.local = day > 0 and day % self.period == 0

    def of(self, asks: Asks) -> Tensor:
        """(N, H) place in the cycle, 0 to period − 1, of the rows that are asked about.

        By the clock, that of the zone where a day is whole cycles; by the steps of the series where there is none.
        """
        spec = self.spec
        if spec.every_ns is None or spec.time is None:
            ahead = torch.arange(1, spec.horizon + 1)
            return (asks.origin[:, None] + ahead) % self.period
        when = asks.ds.numpy()
        if self.local:
            when = when + offset(when, spec.zone)
        return torch.from_numpy(np.asarray((when + spec.every_ns // 2) // spec.every_ns % self.period))
