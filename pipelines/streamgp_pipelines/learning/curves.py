"""Scores over the rows seen: the points of a run's curves, bounded in number."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from streamgp.base import FLOAT, Json, Step
from streamgp.forecasting.metrics import Kind, of_kind

POINTS = 512
"""Most points that a curve keeps; when it is full, neighbours are merged two by two."""

LAP_ROWS = 1000
"""Rows of the stream in one point of the first LAPS, until points are merged."""
LAPS = 1000
"""Laps until their length doubles: a tracking store grows by this many points whenever the stream doubles."""


def next_lap(rows: int) -> int:
    """The row at which the lap ends that row `rows` (of 0, 1, ...) is in.

    Example:
        >>> next_lap(0), next_lap(1999), next_lap(2_000_000), next_lap(10**8)
        (1000, 2000, 2002000, 100032000)
    """
    length = LAP_ROWS << max(rows // (LAPS * LAP_ROWS), 1).bit_length() - 1
    return (rows // length + 1) * length


def lap_metrics(lap: dict[str, Json], step: Step | None) -> dict[str, float]:
    """The scores since the last lap as flat metrics: rmse, mae, ..., coverage_95, width_95, loss, basis."""
    values = {**flat(lap), "scored": float(lap["scored"])}  # type: ignore[arg-type]
    if step is not None:
        values |= {"loss": step.loss, "basis": float(step.basis)}
    return values


def flat(scores: dict[str, Any]) -> dict[str, float]:
    """Scores as flat metrics; those that are not known are left out.

    Example:
        >>> flat({"rmse": 1.5, "mae": None, "coverage": {"95": 0.9}})
        {'rmse': 1.5, 'coverage_95': 0.9}
    """
    single = (*of_kind(Kind.POINT, Kind.QUANTILES), "naive_mae", *of_kind(Kind.OUTCOME))
    found = {name: scores[name] for name in single if scores.get(name) is not None}
    for name in of_kind(Kind.BAND):
        found |= {f"{name}_{level}": value for level, value in scores.get(name, {}).items() if value is not None}
    return found


class Curves:
    """Named values at rows seen; Stateful. Memory is POINTS · names, however long the stream.

    Example:
        >>> curves = Curves()
        >>> for rows in range(1, 600):
        ...     curves.add(rows, 1, {"rmse": float(rows)})
        >>> len(curves.rows) <= POINTS, curves.get("rmse")[0]
        (True, (2, 1.5))
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.weight: list[float] = []
        self.values: dict[str, list[float]] = {}

    def add(self, rows: int, weight: float, values: dict[str, float]) -> None:
        """A point at `rows`; `weight` is how many forecasts it stands for."""
        if len(self.rows) >= POINTS:
            self._merge()
        self.rows.append(rows)
        self.weight.append(weight)
        for name in self.values.keys() | values.keys():
            curve = self.values.setdefault(name, [float("nan")] * (len(self.rows) - 1))
            curve.append(values.get(name, float("nan")))

    def get(self, name: str) -> list[tuple[int, float]]:
        """The points (rows, value) of one curve."""
        return list(zip(self.rows, self.values.get(name, []), strict=False))

    def _merge(self) -> None:
        """Neighbours become one point: the later row, the weighted mean value."""
        weight = torch.tensor(self.weight, dtype=FLOAT).reshape(-1, 2)
        share = weight / weight.sum(1, keepdim=True).clamp(min=1e-300)
        for name, curve in self.values.items():
            self.values[name] = (torch.tensor(curve, dtype=FLOAT).reshape(-1, 2) * share).sum(1).tolist()
        self.rows, self.weight = self.rows[1::2], weight.sum(1).tolist()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        names = sorted(self.values)
        table = [self.weight, *(self.values[name] for name in names)]
        return {"values": torch.tensor(table, dtype=FLOAT), "rows": torch.tensor(self.rows, dtype=torch.int64)}, {
            "names": cast(Json, names)
        }

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        names = cast("list[str]", rest["names"])
        table = tensors["values"].tolist()
        self.rows, self.weight = tensors["rows"].tolist(), table[0]
        self.values = dict(zip(names, table[1:], strict=True))
