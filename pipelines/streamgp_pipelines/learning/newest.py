"""The newest scored forecasts of a run, in its checkpoint: what its report and live page show without --predictions.

Of each value of the first PANELS series there is one forecast: every H-th window is kept, H the steps ahead, from the
first to the last step. Where values are judged there are also the newest forecasts one step ahead, the newest rows
that raised an alarm, and the newest targets that fell silent. Memory is bounded, and nothing of a run depends on it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal, Self, TypeAlias, cast

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import FLOAT, Due, Json, Shape
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.silence import Silent
from streamgp.windows.calendar import Ints
from streamgp_data.checkpoint import Saved
from streamgp_pipelines.learning.frames import Naming, band_ends, percent
from streamgp_pipelines.learning.predictions import WORDS, silent_alarms

PART = "newest"
"""Name of the part in a checkpoint."""
PANELS = 6
"""Series, or targets of a series, that are kept: as many as a report draws."""
WINDOWS, LEAST, MOST = 28, 24, 2048
"""Windows of a series; each counts as this many values at least; values at most."""
JUDGED, RAISED = 672, 1000
"""Newest forecasts one step ahead of a series, and newest rows with an alarm of all series."""
OPEN = 8
"""Chosen windows that later steps may still come of."""
JOINED = 64
"""Micro-batches that are joined at a time."""

Kind: TypeAlias = Literal["windows", "judged", "raised"]
Bools: TypeAlias = NDArray[np.bool_]
KINDS: tuple[Kind, ...] = ("windows", "judged", "raised")

_SERIES, _DS, _CUTOFF, _COLUMN, _ALARM = range(5)


class NewestScored:
    """The newest scored forecasts; Stateful.

    Args:
        shape: of the windows.
        calibration: the bands that are kept.
    """

    def __init__(self, shape: Shape, calibration: Calibration) -> None:
        self.shape, self.calibration = shape, calibration
        bands = 0 if calibration.none else 2 * len(calibration.levels)
        self._places = {kind: torch.zeros(5, 0, dtype=torch.int64) for kind in KINDS}
        """(5, R) series, time, origin, column, alarms"""
        self._values = {kind: torch.zeros(3 + bands, 0, dtype=FLOAT) for kind in KINDS}
        """(3 + 2K, R) truth, forecast, tail probability, ends of the bands"""
        self._more: dict[Kind, list[tuple[Tensor, Tensor]]] = {kind: [] for kind in KINDS}
        """Later ones: joined seldom, as a single row must cost little."""
        self._silent = torch.zeros(5, 0, dtype=torch.int64)
        """(5, R) fields of `Silent`"""
        self._seen = [0] * PANELS  # windows of a panel so far
        self._open: list[list[int]] = [[] for _ in range(PANELS)]  # origins of those that were chosen

    @classmethod
    def of(cls, saved: Saved, shape: Shape, calibration: Calibration) -> Self:
        """What a checkpoint holds; nothing, where it is of a forecaster that keeps none."""
        found = cls(shape, calibration)
        if PART in saved.rest:
            saved.restore({PART: found})
        return found

    @property
    def most(self) -> int:
        """Values of a series, at most: two windows at least."""
        horizon = self.shape.horizon
        return max(min(WINDOWS * max(horizon, LEAST), MOST), 2 * horizon)

    def add(self, due: Due) -> None:
        """Take in forecasts whose truth has come."""
        if not len(due.y):
            return
        series, column, cutoff = (part.numpy(force=True) for part in (due.series, due.column, due.cutoff))
        horizon = self.shape.horizon
        panel, first = series * self.shape.outputs + column // horizon, column % horizon == 0
        self._append("windows", due, self._chosen(panel, first, cutoff))
        if due.alarm is not None:
            self._append("judged", due, first & (panel < PANELS))
            self._append("raised", due, due.alarm.numpy(force=True) > 0)

    def add_silent(self, found: Sequence[Silent]) -> None:
        """Take in targets that fell silent."""
        if found:
            more = [torch.from_numpy(np.stack(one)) for one in found]
            self._silent = torch.cat([self._silent, *more], 1)[:, -RAISED:]

    def ahead(self, last: Sequence[Due], silent: Sequence[Silent] = ()) -> NewestScored:
        """A copy that has taken in those after the last full micro-batch, too."""
        found = copy.deepcopy(self)
        for due in last:
            found.add(due)
        found.add_silent(silent)
        return found

    def alarms(self, names: Sequence[str], naming: Naming) -> pl.DataFrame:
        """The newest rows that raised an alarm and targets that fell silent, as of `predictions.alarms_of`, by time."""
        found = self.frame("raised", names, naming)
        keys = [name for name in ("unique_id", "ds", "target", "y") if name in found.columns]
        none = pl.lit(None, found.schema["ds"]).alias("since"), pl.lit(None, pl.Int64).alias("ticks")
        found = found.select(*keys, pl.col(naming.model).alias("forecast"), "p", "alarm", *none)
        if self._silent.shape[1]:
            silent = silent_alarms(Silent(*self._silent.numpy()), names, naming, self.shape)
            found = pl.concat([found, silent.select(found.columns)])
        return found.sort("ds", maintain_order=True).tail(RAISED)

    def frame(self, kind: Kind, names: Sequence[str], naming: Naming) -> pl.DataFrame:
        """unique_id, ds, cutoff, [target,] y, the forecast and its bands by series and time; p and alarm if judged.

        Rows with an alarm are in the order in which they came.

        Args:
            kind: windows, that follow one another; judged, one step ahead; raised, with an alarm.
            names: of the series.
            naming: of the columns; its bands are those of the calibration.
        """
        self._trim(kind)
        places, values = self._places[kind], self._values[kind]
        columns: dict[str, Any] = {
            "unique_id": pl.Series(names, dtype=pl.String).gather(places[_SERIES].numpy()),
            "ds": naming.times(places[_DS]),
            "cutoff": naming.times(places[_CUTOFF]),
        }
        if self.shape.outputs > 1:
            at = (places[_COLUMN] // self.shape.horizon).numpy()
            columns["target"] = pl.Series(self.shape.targets, dtype=pl.String).gather(at)
        columns |= {"y": values[0].numpy(), naming.model: values[1].numpy()}
        sides = [f"{naming.model}-{side}-{percent(level)}" for level in naming.levels for side in ("lo", "hi")]
        columns |= dict(zip(sides, values[3:].numpy(), strict=True))
        if kind != "windows":
            columns["p"] = pl.Series(values[2].numpy()).fill_nan(None)
            columns["alarm"] = pl.Series(WORDS, dtype=pl.String).gather(places[_ALARM].numpy())
        keys = [name for name in ("unique_id", "target", "ds", "cutoff") if name in columns]
        found = pl.DataFrame(columns)
        return found if kind == "raised" else found.sort(keys, maintain_order=True)

    def _chosen(self, panel: Ints, first: Bools, cutoff: Ints) -> Bools:
        """(R,) whether a pair is of a window that is kept: every H-th one of its panel."""
        found = np.zeros_like(first)
        for one in np.unique(panel[panel < PANELS]).tolist():
            own = panel == one
            begun = np.sort(cutoff[own & first])
            rank = self._seen[one] + np.arange(len(begun))
            self._seen[one] += len(begun)
            self._open[one] += begun[rank % self.shape.horizon == 0].tolist()
            found |= own & np.isin(cutoff, self._open[one])
            self._open[one] = self._open[one][-OPEN:]
        return found

    def _append(self, kind: Kind, due: Due, keep: Bools) -> None:
        if not keep.any():
            return
        at = torch.from_numpy(np.flatnonzero(keep)).to(due.y.device)
        nothing = torch.zeros_like(due.series)
        alarm = nothing if due.alarm is None else due.alarm
        places = torch.stack([part[at] for part in (due.series, due.ds, due.cutoff, due.column, alarm)])
        tail = due.y.new_full(due.y.shape, float("nan")) if due.tail is None else due.tail
        quantiles = due.quantiles[:, at]
        point = self.calibration.of(due.predictive.mean[at, 0], quantiles)
        values = torch.stack([due.y[at], point, tail[at], *band_ends(quantiles, self.calibration)])
        self._more[kind].append((places.cpu(), values.to(FLOAT).cpu()))
        if len(self._more[kind]) == JOINED:
            self._trim(kind)

    def _trim(self, kind: Kind) -> None:
        """Keep the newest of each panel, in the order in which they came."""
        if self._more[kind]:
            every = [(self._places[kind], self._values[kind]), *self._more[kind]]
            self._places[kind], self._values[kind] = (torch.cat(parts, 1) for parts in zip(*every, strict=True))
            self._more[kind] = []
        places = self._places[kind]
        if kind == "raised":
            kept = torch.arange(places.shape[1])[-RAISED:]
        else:
            panel = places[_SERIES] * self.shape.outputs + places[_COLUMN] // self.shape.horizon
            most = self.most if kind == "windows" else JUDGED
            parts = [(panel == one).nonzero()[-most:, 0] for one in panel.unique().tolist()]
            kept = torch.cat([panel[:0], *parts]).sort().values
        self._places[kind], self._values[kind] = places[:, kept], self._values[kind][:, kept]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors: dict[str, Tensor] = {}
        for kind in KINDS:
            self._trim(kind)
            tensors |= {f"{kind}.places": self._places[kind], f"{kind}.values": self._values[kind]}
        if self._silent.shape[1]:
            tensors["silent"] = self._silent
        return tensors, {"seen": cast(Json, self._seen), "open": cast(Json, self._open)}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        for kind in KINDS:
            places, values = tensors[f"{kind}.places"], tensors[f"{kind}.values"]
            if len(places) != 5 or len(values) != len(self._values[kind]) or places.shape[1:] != values.shape[1:]:
                raise ValueError(f"{kind} has {tuple(places.shape)} places and {tuple(values.shape)} values")
            self._places[kind], self._values[kind], self._more[kind] = places, values, []
        self._silent = tensors.get("silent", self._silent[:, :0])
        if self._silent.dim() != 2 or len(self._silent) != 5 or self._silent.dtype != torch.int64:
            raise ValueError(f"silent is {tuple(self._silent.shape)} {self._silent.dtype}")
        seen, opened = rest["seen"], rest["open"]
        if not _counts(seen) or len(cast("list[int]", seen)) != PANELS:
            raise ValueError(f"seen is no list of {PANELS} counts")
        if not isinstance(opened, list) or len(opened) != PANELS or not all(_counts(one) for one in opened):
            raise ValueError(f"open is no list of {PANELS} lists of times")
        self._seen, self._open = list(cast("list[int]", seen)), [list(cast("list[int]", one)) for one in opened]


def _counts(given: Json) -> bool:
    """Whether it is a list of integers."""
    return isinstance(given, list) and all(type(one) is int and abs(one) < 2**63 for one in given)
