"""Truths of rows that are missing among the values before: spikes, until their rows have answered; and the last spikes
of all columns, which may prove to be new levels."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from streamgp.base import Json
from streamgp.windows.calendar import Floats, Ints


class TruthsApart:
    """Targets of rows that windows look back on as missing, and that are truths all the same.

    Memory and cost are those of the spikes whose rows are not current yet, nearly always none, and of the last spike of
    each column of a series that had one.

    Args:
        targets: O.

    Example:
        >>> apart = TruthsApart(1)
        >>> apart.take(np.array([0, 0]), np.array([4, 5]), np.array([[1.0], [np.nan]]), np.array([[1.0], [900.0]]))
        >>> y = torch.tensor([[1.0], [torch.nan]]).double()
        >>> apart.put(np.array([0, 0]), np.array([4, 5]), y).flatten().tolist(), apart.state()["kept"]
        ([1.0, 900.0], [])
        >>> apart.last(0, 0)
        (5, 900.0)
    """

    def __init__(self, targets: int) -> None:
        self.targets = targets
        self._kept = dict[tuple[int, int], tuple[float, ...]]()  # (series, step) -> targets, NaN: none apart
        self._last = dict[tuple[int, int], tuple[int, float]]()  # (series, column) -> step and value of its last spike

    def take(self, code: Ints, step: Ints, values: Floats, truths: Floats) -> None:
        """Keep what differs in rows (N,) of these series and steps: values (N, C), truths (N, C)."""
        differ = np.isnan(values) & ~np.isnan(truths)
        for row in np.flatnonzero(differ.any(1)).tolist():
            own = np.where(differ[row], truths[row], np.nan)
            if differ[row, : self.targets].any():
                self._kept[int(code[row]), int(step[row])] = tuple(own[: self.targets].tolist())
            for column in np.flatnonzero(differ[row]).tolist():
                self._last[int(code[row]), column] = int(step[row]), float(own[column])

    def last(self, code: int, column: int) -> tuple[int, float] | None:
        """Step and value of the last spike of a column of a series."""
        return self._last.get((code, column))

    def all(self) -> list[tuple[tuple[int, int], tuple[int, float]]]:
        """(series, column) and step and value of its last spike, of all that had one."""
        return sorted(self._last.items())

    def put(self, code: Ints, step: Ints, y: Tensor) -> Tensor:
        """The truths y (N, O) of rows that answer now, with those that were kept, which are forgotten."""
        if not self._kept:
            return y
        place = {
            key: row for row, key in enumerate(zip(code.tolist(), step.tolist(), strict=True)) if key in self._kept
        }
        if not place:
            return y
        y = y.clone()
        for key, row in place.items():
            own = torch.tensor(self._kept.pop(key), dtype=y.dtype)
            y[row] = torch.where(own.isnan(), y[row], own)
        return y

    def state(self) -> Json:
        """Lists of [series, step, targets], None where a target is not apart, and of [series, column, step, value]."""
        kept = [
            [code, step, [None if np.isnan(value) else value for value in own]]
            for (code, step), own in sorted(self._kept.items())
        ]
        return {"kept": cast(Json, kept), "last": [[*key, *value] for key, value in sorted(self._last.items())]}

    def restore(self, held: Json) -> None:
        """The inverse of `state`.

        Raises:
            ValueError: it does not fit.
        """
        about: Any = held
        self._kept = {}
        self._last = {(int(c), int(at)): (int(step), float(value)) for c, at, step, value in about["last"]}
        for code, step, own in about["kept"]:
            if len(own) != self.targets:
                raise ValueError(f"a spike of {len(own)} targets, where there are {self.targets}")
            self._kept[int(code), int(step)] = tuple(np.nan if value is None else float(value) for value in own)
