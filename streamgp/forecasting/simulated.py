"""Calibration of free simulations: sample paths against what then happened, step by step.

Simulations of the past, whose inputs and truth have come, are compared with that truth at K steps ahead. Learned are

    τ_h     a dead zone: the centre is c_h = y₀ + sign(d) max(0, |d| − τ_h s_h), with the last value y₀, the
            simulated movement d = m_h − y₀, and mean m_h and standard deviation s_h of the paths, winsorised: a few
            that diverge say nothing of the others. τ_h minimises
            Σ |y_h − c_h| / (|y_h − m_h| + |y_h − y₀|) over past simulations on a grid, with PRIOR simulations
            behind τ = 0. So a model that drifts on its own output is held at the last value, and its large
            movements are believed;
    q_h(p)  the quantiles of y_h around c_h: those of `bands.Bands`, whose horizon are the K steps.

Between the K steps τ_h is that of the nearest, and q_h(p) − c_h is interpolated. A calibrated path takes at each step
the quantile of its rank there, so that ranks, and with them the paths' course, stay (ensemble copula coupling:
Schefzik, Thorarinsdottir & Gneiting 2013).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import FLOAT, Due, Inputs, Json, Shape
from streamgp.forecasting.bands import Bands, Floats, Ints, Issued, Questions
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.volatility import Errors
from streamgp.predictives.gaussian import Gaussian

Bools: TypeAlias = NDArray[np.bool_]

KNOTS = 24
"""Most steps at which simulations are compared; they grow geometrically."""
GRID = np.array([0.0, *np.geomspace(0.1, 100.0, 25), np.inf])
"""Dead zones that are tried, in s_h."""
PRIOR = 32.0
"""Simulations that stand behind none: those of two rounds, as those of one are alike."""
FAR = 4.0
"""Halves of the middle 68 % of the paths from their median at which a path is winsorised."""
HALF_LIFE = 1000.0
"""Simulations after which the loss of one counts half."""


class Paths(NamedTuple):
    """Simulations of n series.

    Attributes:
        series: (n,) codes.
        first: (n, O) the last values before them.
        y: (P, n, H, O) the paths.
    """

    series: Tensor
    first: Tensor
    y: Tensor


class Calibrated(NamedTuple):
    """The distribution of each step.

    Attributes:
        mean: (n, H, O) the centre.
        quantiles: (Q, n, H, O).
    """

    mean: Tensor
    quantiles: Tensor


class SimulationBands:
    """See the module; Stateful.

    Args:
        shape: what the model is built for: one step ahead.
        steps: N, the most that are simulated.
        calibration: which quantiles are wanted.

    Example:
        >>> shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
        >>> bands = SimulationBands(shape, 4, Calibration((95.0,)))
        >>> g = torch.Generator().manual_seed(0)
        >>> def simulated(n):  # paths drift, and the truth stays where it was
        ...     y = torch.randn(40, n, 4, 1, generator=g, dtype=FLOAT) + torch.arange(1, 5)[:, None]
        ...     return Paths(torch.zeros(n, dtype=torch.int64), torch.zeros(n, 1, dtype=FLOAT), y)
        >>> bands.learn(simulated(50), torch.randn(50, 4, 1, generator=g, dtype=FLOAT))
        >>> bool((bands.calibrated(simulated(1), (0.5,)).mean.abs() < 0.5).all())
        True
    """

    def __init__(self, shape: Shape, steps: int, calibration: Calibration) -> None:
        self.steps, self.calibration = steps, calibration
        self.knots = (
            np.unique(np.geomspace(1, steps, KNOTS).round().astype(np.int64))
            if steps > KNOTS
            else (np.arange(1, steps + 1))
        )
        self.shape = replace(shape, horizon=len(self.knots))
        self.bands = Bands(self.shape, calibration)
        outputs, count = shape.outputs, len(self.knots)
        self._loss = np.zeros((outputs, count, len(GRID)))
        self._weight = np.zeros((outputs, count))  # simulations behind it
        self._scores = np.zeros((count, 4 + 2 * len(calibration.levels)))
        # (K, ·) forecasts; squared errors of the centre, of the paths' mean and of the last value; then how often the
        # calibrated bands, and those of the paths, held the truth

    @property
    def scored(self) -> int:
        """Simulations compared with their truth, at the first step."""
        return int(self._scores[0, 0])

    def dead_zone(self) -> Floats:
        """(O, K) τ_h; of neighbouring steps it is alike."""
        least = self._loss.min(-1, keepdims=True)
        typical = least / np.maximum(self._weight, 1.0)[..., None] + 1e-300
        loss = self._loss / typical + PRIOR * np.linspace(0.0, 1.0, len(GRID))
        near = np.pad(loss, ((0, 0), (1, 1), (0, 0)), mode="edge")
        return np.asarray(GRID[(0.25 * near[:, :-2] + 0.5 * loss + 0.25 * near[:, 2:]).argmin(-1)])

    def calibrated(self, paths: Paths, probabilities: Sequence[float]) -> Calibrated:
        """The distribution of each of the H ≤ N steps; nothing is learned."""
        horizon = paths.y.shape[2]
        steps = np.arange(1, horizon + 1)
        between = np.stack([np.interp(steps, self.knots, one) for one in np.eye(len(self.knots))], 1)  # (H, K)
        centre = _centre(paths, slice(None), self.dead_zone()[:, between.argmax(1)].T)  # (n, H, O)
        at = np.minimum(self.knots, horizon) - 1
        asked = self._asked(paths, at, centre[:, at])
        found = self._by_step(self.bands.quantiles(asked, probabilities)) - centre[:, at]  # (Q, n, K, O)
        quantiles = centre + np.einsum("hk,qnko->qnho", between, found)
        return Calibrated(torch.from_numpy(centre), torch.from_numpy(quantiles))

    def paths(self, paths: Paths) -> Tensor:
        """(P, n, H, O) calibrated paths: each value becomes the quantile of its rank among the P at its step."""
        count = len(paths.y)
        levels = [(rank + 1) / (count + 1) for rank in range(count)]
        return self.calibrated(paths, levels).quantiles.gather(0, paths.y.argsort(0).argsort(0))

    def learn(self, paths: Paths, truth: Tensor) -> None:
        """Score simulations of N steps by what is known before them, and then learn from them.

        Args:
            paths: in the order in which their truth came.
            truth: (n, N, O), NaN where there is none.
        """
        at = self.knots - 1
        y, mean = truth.numpy()[:, at], paths.y.mean(0).numpy()[:, at]
        centre = _centre(paths, at, self.dead_zone().T)  # (n, K, O)
        known = np.isfinite(y) & np.isfinite(mean)
        asked, nobody = self._asked(paths, at, centre), paths.series[:0]
        none = Errors(nobody, nobody, nobody, torch.zeros(0, dtype=FLOAT))
        issued = self.bands.issue(asked, none)
        self._score(paths, y, centre, mean, issued, known)
        self._search(paths, at, y, known)
        by_column = known.transpose(0, 2, 1).reshape(len(y), -1)  # (n, O · K)
        row, column = (torch.from_numpy(part) for part in by_column.nonzero())
        value = torch.from_numpy(np.ascontiguousarray(y.transpose(0, 2, 1)).reshape(by_column.shape))[row, column]
        error = value - asked.issued.mean[row, column]
        codes, own = paths.series.unique(return_inverse=True)  # simulations of one round overlap: one error a series
        of_all = torch.zeros(2, len(codes), self.shape.columns, dtype=FLOAT)
        of_all.index_put_((torch.ones_like(row), own[row], column), torch.ones_like(error), accumulate=True)
        of_all.index_put_((torch.zeros_like(row), own[row], column), error.abs(), accumulate=True)
        at_series, at_column = of_all[1].nonzero(as_tuple=True)
        typical = (of_all[0] / of_all[1])[at_series, at_column]
        silence = Gaussian.from_parameters(asked.issued.parameters()[:, :0])
        silent = Questions(nobody, nobody, nobody[:, None], silence, asked.reference[:0])
        self.bands.issue(silent, Errors(codes, at_series, at_column, typical))
        self.bands.update(self._due(paths.series, asked, issued, row, column, value))

    def summary(self) -> dict[str, Json]:
        """Scores by step ahead: the RMSE of the calibrated centre, of the paths' mean and of the last value, and
        coverage of the calibrated bands and of the paths' own."""
        levels, found = self.calibration.levels, []
        for step, row in zip(self.knots.tolist(), self._scores, strict=True):
            if not row[0]:
                continue
            rmse, raw, last = np.sqrt(row[1:4] / row[0]).tolist()
            shares = (row[4:] / row[0]).tolist()
            names = [f"{level:g}" for level in levels]
            found.append(
                {
                    "step": step,
                    "rmse": rmse,
                    "raw_rmse": raw,
                    "persistence_rmse": last,
                    "coverage": dict(zip(names, shares[: len(levels)], strict=True)),
                    "raw_coverage": dict(zip(names, shares[len(levels) :], strict=True)),
                }
            )
        return {"scored": self.scored, "steps": cast(Json, found)}

    def _score(self, paths: Paths, y: Floats, centre: Floats, mean: Floats, issued: Issued, known: Bools) -> None:
        low, high = self.calibration.ends()
        ends = [self.calibration.probabilities[at] for at in (*low, *high)]
        raw = np.quantile(paths.y.numpy()[:, :, self.knots - 1], ends, axis=0, method="weibull")
        own = self._by_step(issued.quantiles[[*low, *high]])
        first = paths.first.numpy()[:, None]
        parts = [known * 1.0, *((y - value) ** 2 for value in (centre, mean, first + 0 * mean))]
        for found in (own, raw):
            below, above = np.split(found, 2)
            parts += [(one <= y) & (y <= other) for one, other in zip(below, above, strict=True)]
        total = np.stack([np.where(known, part, 0.0).sum((0, 2)) for part in parts], -1)
        self._scores += total

    def _search(self, paths: Paths, at: Ints, y: Floats, known: Bools) -> None:
        """Add what each dead zone would have missed."""
        tried = np.stack([_centre(paths, at, np.full(known.shape[1:], zone)) for zone in GRID], -1)  # (n, K, O, G)
        missed = np.abs(y[..., None] - tried)
        share = missed / (missed[..., :1] + missed[..., -1:] + 1e-300)  # one that goes astray weighs as any other
        lost = np.where(known[..., None], share, 0.0).sum(0).swapaxes(0, 1)
        kept = 0.5 ** (known.sum(0).T / HALF_LIFE)  # (O, K)
        self._loss = kept[..., None] * self._loss + lost
        self._weight = kept * self._weight + known.sum(0).T

    def _asked(self, paths: Paths, at: Ints, centre: Floats) -> Questions:
        """What the bands look at: the centre, the variance of the paths, the last value."""
        columns = self.shape.columns
        spread = torch.from_numpy(_moments(paths.y[:, :, at])[1])
        variance = spread.square().nan_to_num(0.0).mT.reshape(-1, columns).clamp(1e-300, 1e200)
        mean = torch.from_numpy(np.ascontiguousarray(centre.transpose(0, 2, 1)).reshape(-1, columns))
        phase = torch.zeros(len(mean), len(self.knots), dtype=torch.int64)
        reference = paths.first.repeat_interleave(len(self.knots), 1)
        return Questions(paths.series, paths.series, phase, Gaussian(mean, variance, 0 * variance), reference)

    def _due(self, series: Tensor, asked: Questions, issued: Issued, row: Tensor, column: Tensor, y: Tensor) -> Due:
        parameters = asked.issued.parameters()[:, row, column]
        none, nothing = row[:0], torch.zeros(0, 0, dtype=FLOAT)
        return Due(
            series=series[row],
            position=row,
            cutoff=row,
            ds=row,
            column=column,
            y=y,
            predictive=Gaussian.from_parameters(parameters[..., None]),
            quantiles=issued.quantiles[:, row, column],
            features=issued.features[:, row, column],
            x=Inputs(nothing, nothing),
            target=nothing,
            issued=none[:, None, None],
        )

    def _by_step(self, values: Tensor) -> Floats:
        """(Q, n, O · K) -> (Q, n, K, O)"""
        return np.asarray(values.unflatten(2, (self.shape.outputs, -1)).mT.numpy())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors = {f"bands.{name}": part for name, part in self.bands.state()[0].items()}
        own = {"loss": self._loss, "weight": self._weight, "scores": self._scores}
        return tensors | {name: torch.from_numpy(part.copy()) for name, part in own.items()}, {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self._loss, self._weight, self._scores = (tensors[name].numpy().copy() for name in ("loss", "weight", "scores"))
        inner = {name.removeprefix("bands."): part for name, part in tensors.items() if name.startswith("bands.")}
        self.bands.restore(inner, {})


def _moments(y: Tensor) -> tuple[Floats, Floats]:
    """(P, n, K, O) -> mean and standard deviation of the paths, (n, K, O), winsorised."""
    low, middle, high = np.quantile(y.numpy(), (0.16, 0.5, 0.84), axis=0)
    room = FAR * (high - low) / 2
    limited = y.numpy().clip(middle - room, middle + room)
    return limited.mean(0), limited.std(0)


def _centre(paths: Paths, at: Ints | slice, zone: Floats) -> Floats:
    """(n, K, O) c_h at some of the steps. zone: (K, O)."""
    first = paths.first.numpy()[:, None]
    middle, spread = _moments(paths.y[:, :, at])
    moved = middle - first
    dead = np.where(np.isfinite(zone), np.where(np.isfinite(zone), zone, 0.0) * spread, np.inf)
    return np.asarray(first + np.sign(moved) * np.maximum(np.abs(moved) - dead, 0.0))
