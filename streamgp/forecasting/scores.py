"""Scores of forecasts as they were issued, overall and per step ahead, in constant memory.

rmse  √ mean (y − μ)²          mae   mean |y − μ|         both of the raw mean, target units
nlpd  mean −log p(y)           crps  mean CRPS            both of the raw distribution
mase  mae / mean |y[t] − y[t−S]|, the denominator taken before scoring starts and the same for every step
coverage, width                of the calibrated band: mean + factor · (quantile − mean), as issued
raw_coverage, raw_width        of the distribution's own quantiles

Probabilities of outcomes 0 and 1 have those of `outcomes` beside them, and no bands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import Due, Json, Shape
from streamgp.forecasting import outcomes

_POINT = ("rows", "square", "absolute", "nlpd", "crps")
_BAND = ("coverage", "raw_coverage", "width", "raw_width")


class Scores:
    """Running sums per output column; Stateful.

    Args:
        shape: what the model is built for.
        levels: of the bands, in percent.
        binary: whether the forecasts are of outcomes 0 and 1.

    Example:
        >>> from streamgp.base import Inputs
        >>> from streamgp.predictives.gaussian import Gaussian
        >>> shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
        >>> scores = Scores(shape, [95.0])
        >>> scores.scale(torch.tensor([[3.0], [5.0]]), torch.tensor([[1.0], [1.0]]))
        >>> one = torch.ones(2, 1, dtype=torch.float64)
        >>> issued, nil = Gaussian(0 * one, 0.5 * one, 0.5 * one), torch.zeros(2, dtype=torch.int64)
        >>> y, x = torch.tensor([1.5, -2.5], dtype=torch.float64), Inputs(one[:0], one[:0])
        >>> scores.add(Due(nil, nil, nil, nil, nil, y, issued, torch.ones(1, 2), x, one[:0], one[None, :0]))
        >>> summary = scores.summary()
        >>> summary["mae"], round(summary["mase"], 3), summary["coverage"], round(summary["rmse"], 3)
        (2.0, 0.667, {'95': 0.5}, 2.062)
    """

    def __init__(self, shape: Shape, levels: Sequence[float], binary: bool = False) -> None:
        self.shape, self.levels, self.binary = shape, tuple(levels), binary
        count = len(_POINT) + len(_BAND) * len(self.levels) + outcomes.ROWS * binary
        self._sums = np.zeros((count, shape.columns))  # (M, T)
        self._before = np.zeros((count, shape.columns))  # (M, T) at the last lap
        self._naive = np.zeros((2, shape.outputs))  # (2, O) sum and count of |y[t] − y[t−S]|

    @property
    def scored(self) -> int:
        """Forecasts scored so far: one a truth and step ahead."""
        return int(self._sums[0].sum())

    def scale(self, y: Tensor, seasonal: Tensor) -> None:
        """Take rows into the denominator of MASE; call it with the rows before scoring starts, and with no others.

        Args:
            y: (R, O) truths; NaN is left out.
            seasonal: (R, O) the same targets one season before.
        """
        change = (y - seasonal).abs().numpy()
        known = ~np.isnan(change)
        self._naive += np.stack([np.where(known, change, 0.0).sum(0), known.sum(0)])

    def add(self, due: Due, scored: Tensor | None = None) -> None:
        """Score forecasts. scored: (R,) which of them count; None is all of them."""
        column, y, factors, issued = due.column, due.y, due.factors, due.predictive
        if scored is not None:
            column, y, factors = column[scored], y[scored], factors[:, scored]
            issued = type(issued).from_parameters(due.parameters[:, scored, None])
        if not len(y):
            return
        truth, mean = y[:, None], issued.mean
        error = truth - mean
        point = [torch.ones_like(error), error.square(), error.abs(), -issued.log_prob(truth), issued.crps(truth)]
        percent = torch.tensor(self.levels, dtype=torch.float64) / 100
        low, high = (issued.quantile(0.5 + side * percent / 2) - mean for side in (-1, 1))  # (K, R, 1)
        grown = factors[..., None]
        band = [
            (error >= grown * low) & (error <= grown * high),
            (error >= low) & (error <= high),
            grown * (high - low),
            high - low,
        ]
        parts = [torch.stack(point), *(part.to(error.dtype) for part in band)]
        parts += [outcomes.values(issued, truth)] * self.binary
        values = torch.cat(parts)[..., 0].numpy()  # (M, R)
        where = column.numpy()
        self._sums += np.stack([np.bincount(where, row, self.shape.columns) for row in values])

    def summary(self) -> dict[str, Json]:
        """All scores since the beginning.

        Returns:
            scored, rmse, mae, nlpd, crps, mase, coverage, raw_coverage, width, raw_width (the last four by level),
            those of `outcomes` where these are what is forecast, `steps`: the same for every step ahead (without
            the reliability), and, with several targets, `targets`: the same for each. The overall rmse, mae, … then
            mix the targets' units; mase is the mean of the targets'. None where nothing was scored.
        """
        return self._report(self._sums)

    def overall(self) -> dict[str, Json]:
        """The overall figures of `summary` alone: those of every step and target together."""
        return self._figures(self._sums, np.arange(self.shape.columns))

    def lap(self) -> dict[str, Json]:
        """The scores since the last lap: a curve over the stream. The overall figures only."""
        since, self._before = self._sums - self._before, self._sums.copy()
        return self._figures(since, np.arange(self.shape.columns))

    def naive(self) -> Json:
        """What MASE divides by: the mean |y[t] − y[t−S]| before scoring starts, S steps back; None without lags.

        Returns:
            steps_back: S, one season or 1; then for the target, or by the name of each of several, rows: how many
            pairs there were, and value: their mean, in the target's unit, None without any.
        """
        if not self.shape.lags:
            return None
        each: list[dict[str, Json]] = [
            {"rows": int(count), "value": change / count if count else None} for change, count in self._naive.T.tolist()
        ]
        found: dict[str, Json] = {"steps_back": self.shape.season}
        if len(each) == 1:
            return found | each[0]
        return found | {"targets": dict(zip(self.shape.targets, each, strict=True))}

    def _report(self, sums: NDArray[np.float64]) -> dict[str, Json]:
        outputs, horizon = self.shape.outputs, self.shape.horizon
        columns = np.arange(self.shape.columns).reshape(outputs, horizon)
        report = self._figures(sums, columns.reshape(-1))
        if self.binary:
            report["reliability"] = self._reliability(sums, columns.reshape(-1))
        report["steps"] = [{"step": h + 1} | self._figures(sums, columns[:, h]) for h in range(horizon)]
        if outputs > 1:
            report["targets"] = {
                name: self._figures(sums, columns[o])
                | ({"reliability": self._reliability(sums, columns[o])} if self.binary else {})
                | {"steps": [{"step": h + 1} | self._figures(sums, columns[o, h : h + 1]) for h in range(horizon)]}
                for o, name in enumerate(self.shape.targets)
            }
        return report

    def _figures(self, sums: NDArray[np.float64], columns: NDArray[np.int64]) -> dict[str, Json]:
        total = sums[:, columns].sum(1)
        rows = float(total[0])
        mean = [value / rows if rows else None for value in total[1:].tolist()]
        square, absolute, nlpd, crps = mean[:4]
        figures: dict[str, Json] = {
            "scored": int(rows),
            "rmse": None if square is None else square**0.5,
            "mae": absolute,
            "nlpd": nlpd,
            "crps": crps,
            "mase": self._mase(sums, columns),
        }
        for at, name in enumerate(_BAND):
            part = mean[4 + at * len(self.levels) :]
            figures[name] = {f"{level:g}": value for level, value in zip(self.levels, part, strict=False)}
        if self.binary:
            figures |= outcomes.figures(total[-outcomes.ROWS :], rows, nlpd, crps)
        return figures

    def _reliability(self, sums: NDArray[np.float64], columns: NDArray[np.int64]) -> Json:
        return outcomes.reliability(sums[-outcomes.ROWS :, columns].sum(1))

    def _mase(self, sums: NDArray[np.float64], columns: NDArray[np.int64]) -> float | None:
        """The mean over the targets of mae / scale; None without lags, or where a scale is zero or unknown."""
        if not self.shape.lags:
            return None
        ratios = []
        for target in np.unique(columns // self.shape.horizon):
            own = columns[columns // self.shape.horizon == target]
            rows, absolute = sums[0, own].sum(), sums[2, own].sum()
            change, count = self._naive[:, target]
            if not rows or not change:
                return None
            ratios.append((absolute / rows) / (change / count))
        return float(np.mean(ratios))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        parts = {"sums": self._sums, "before": self._before, "naive": self._naive}
        return {name: torch.from_numpy(array.copy()) for name, array in parts.items()}, {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self._sums, self._before, self._naive = (tensors[k].numpy().copy() for k in ("sums", "before", "naive"))
