"""Calibration of free simulations: sample paths compared with the truths that followed, step by step.

Simulations of the past, whose inputs and truth have come, are compared with that truth at K steps ahead. Everything is
measured from the last value y₀ along the simulated movement d_h = m_h − y₀, in z = sign(d_h) (y − y₀), with mean m_h
and standard deviation s_h of the paths, winsorised: a few that diverge say nothing of the others. So what was seen of
movements up holds of movements down; where paths do both, the quantiles of both are mixed by Φ(d_h/s_h). Learned are

    τ_h     a dead zone: the centre is c_h = max(0, |d_h| − τ_h s_h). τ_h minimises Σ |z_h − c_h| / (|z_h − |d_h|| +
            |z_h|) over past simulations on a grid, with a prior τ = 0 that counts for PRIOR simulations. So a model
            that drifts on its own output is held at the last value, and its large movements are believed;
    q_h(p)  the quantiles of z_h around c_h: those of `bands.Bands`, whose horizon are the K steps, times
            t_n⁻¹(p)/Φ⁻¹(p), as their scale was estimated from n independent simulations. Simulations of one series that
            begin within N steps overlap: they count for 1 + N/h at most.

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
from streamgp.forecasting.bands import Bands, Floats, Ints, Questions
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.issued import Issued
from streamgp.forecasting.volatility import TINY, Errors
from streamgp.predictives.gaussian import Gaussian
from streamgp.state import Arrays, Declared, Nested

Bools: TypeAlias = NDArray[np.bool_]

KNOTS = 24
"""Most steps at which simulations are compared; they grow geometrically."""
GRID = np.array([0.0, *np.geomspace(0.1, 100.0, 25), np.inf])
"""Dead zones that are tried, in s_h."""
PRIOR = 32.0
"""Simulations that the prior counts for: those of two rounds, as those of one are alike."""
FAR = 4.0
"""Halves of the middle 68 % of the paths from their median at which a path is winsorised."""
START = 12
"""Rows that the first deviation counts as: it is that of paths, and the simulations of a round have one error."""
HALF_LIFE = 1000.0
"""Simulations after which the loss of one counts half."""
MIDDLE = 1e-6
"""Probabilities so near ½ count as this far: both quantiles of the ratio are 0 there."""
FORECASTS, SQUARES, INSIDE = 0, slice(1, 4), slice(4, None)
"""Columns of the scores: how many forecasts; squared errors of the centre, of the paths' mean and of the last value;
how often the calibrated bands, and then those of the paths, held the truth."""
OWN = ("loss", "weight", "independent", "scores")
"""Parts of the state beside the bands'."""


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


class PathChanges(NamedTuple):
    """How paths move away from the last value.

    Attributes:
        up: (n, H, O) 1 where they rise, −1 where they fall.
        far: (n, H, O) |d|.
        spread: (n, H, O) s.
    """

    up: Floats
    far: Floats
    spread: Floats

    @classmethod
    def of(cls, paths: Paths, at: Ints | slice) -> PathChanges:
        """At some of the steps."""
        y = paths.y[:, :, at].numpy()
        low, middle, high = np.quantile(y, (0.16, 0.5, 0.84), axis=0)
        room = FAR * (high - low) / 2
        limited = y.clip(middle - room, middle + room)
        moved = limited.mean(0) - paths.first.numpy()[:, None]
        return cls(np.where(moved < 0, -1.0, 1.0), np.abs(moved), limited.std(0))

    def at(self, steps: Ints) -> PathChanges:
        """At some of its steps."""
        return PathChanges(*(part[:, steps] for part in self))

    def centre(self, zone: Floats) -> Floats:
        """(n, H, O) c. zone: (H, O)."""
        dead = np.where(np.isfinite(zone), np.where(np.isfinite(zone), zone, 0.0) * self.spread, np.inf)
        return np.asarray(np.maximum(self.far - dead, 0.0))


class SimulationBands(Declared):
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

    STATE = (Arrays(*OWN, grows=False), Nested("bands", bare=True))

    def __init__(self, shape: Shape, steps: int, calibration: Calibration) -> None:
        self.steps, self.calibration = steps, calibration
        self.knots = (
            np.unique(np.geomspace(1, steps, KNOTS).round().astype(np.int64))
            if steps > KNOTS
            else (np.arange(1, steps + 1))
        )
        self.shape = replace(shape, horizon=len(self.knots))
        self.bands = Bands(self.shape, replace(calibration, lower=None, upper=None, finds=False), start=START)
        outputs, count = shape.outputs, len(self.knots)
        self._loss = np.zeros((outputs, count, len(GRID)))
        self._weight = np.zeros((outputs, count))  # simulations that it rests on
        self._independent = np.zeros((outputs, count))
        self._scores = np.zeros((count, INSIDE.start + 2 * len(calibration.levels)))  # (K, ·)

    @property
    def scored(self) -> int:
        """Simulations compared with their truth, at the first step."""
        return int(self._scores[0, FORECASTS])

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
        course = PathChanges.of(paths, slice(None))
        centre = course.centre(self.dead_zone()[:, between.argmax(1)].T)  # (n, H, O)
        at = np.minimum(self.knots, horizon) - 1
        found = self._around(paths.series, course.at(at), centre[:, at], probabilities)
        first = paths.first.numpy()[:, None]
        quantiles = first + course.up * centre + np.einsum("hk,qnko->qnho", between, found)
        inside = self.calibration.inside
        return Calibrated(inside(torch.from_numpy(first + course.up * centre)), inside(torch.from_numpy(quantiles)))

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
        course, first = PathChanges.of(paths, at), paths.first.numpy()[:, None]
        z, centre = course.up * (y - first), course.centre(self.dead_zone().T)  # (n, K, O)
        known = np.isfinite(z) & np.isfinite(centre)
        asked, nobody = self._asked(paths.series, course, centre), paths.series[:0]
        none = Errors(nobody, nobody, nobody, torch.zeros(0, dtype=FLOAT))
        self._score(paths, y, first + course.up * centre, mean, course, centre, known)
        issued = self.bands.issue(asked, none)
        self._search(course, z, known)
        by_column = known.transpose(0, 2, 1).reshape(len(y), -1)  # (n, O · K)
        row, column = (torch.from_numpy(part) for part in by_column.nonzero())
        value = torch.from_numpy(np.ascontiguousarray(z.transpose(0, 2, 1)).reshape(by_column.shape))[row, column]
        error = value - asked.issued.mean[row, column]
        codes, own = paths.series.unique(return_inverse=True)  # simulations of one round overlap: one error a series
        count, size = torch.zeros(2, len(codes), self.shape.columns, dtype=FLOAT)
        count.index_put_((own[row], column), torch.ones_like(error), accumulate=True)
        size.index_put_((own[row], column), error.abs(), accumulate=True)
        apart = count.clamp(max=torch.from_numpy(1 + self.steps / self.knots).repeat(self.shape.outputs))
        self._independent += apart.sum(0).numpy().reshape(self._independent.shape)
        at_series, at_column = count.nonzero(as_tuple=True)
        typical = (size / count)[at_series, at_column]
        silence = Gaussian.from_parameters(asked.issued.parameters()[:, :0])
        silent = Questions(nobody, nobody, nobody[:, None], silence, asked.reference[:0])
        self.bands.issue(silent, Errors(codes, at_series, at_column, typical))
        self.bands.update(self._due(paths.series, asked, issued, row, column, value))

    def summary(self) -> dict[str, Json]:
        """Scores by step ahead: the RMSE of the calibrated centre, of the paths' mean and of the last value, and
        coverage of the calibrated bands and of the paths' own."""
        levels, found = self.calibration.levels, []
        for step, row in zip(self.knots.tolist(), self._scores, strict=True):
            count = row[FORECASTS]
            if not count:
                continue
            rmse, raw, last = np.sqrt(row[SQUARES] / count).tolist()
            shares = (row[INSIDE] / count).tolist()
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

    def _around(self, series: Tensor, course: PathChanges, centre: Floats, probabilities: Sequence[float]) -> Floats:
        """(Q, n, K, O) quantiles of y around the centre, in target units. centre: (n, K, O)."""
        from scipy.special import ndtr, ndtri, stdtrit  # a run without simulations does not wait for it

        p = np.array(probabilities)
        both, place = np.unique(np.concatenate([p, 1.0 - p]), return_inverse=True)
        along = self._by_step(self.bands.quantiles(self._asked(series, course, centre), both.tolist())) - centre
        p = np.where(np.abs(p - 0.5) < MIDDLE, 0.5 + MIDDLE, p)[:, None, None]
        n = self._independent.T  # (K, O)
        wider = np.where(n > 0, stdtrit(np.maximum(n, 1.0), p), ndtri(p)) / ndtri(p)  # (Q, K, O)
        rising, falling = along[place[: len(p)]], -along[place[len(p) :]]
        share = ndtr(course.up * course.far / np.maximum(course.spread, TINY))  # of the paths that rise
        return np.asarray((share * rising + (1.0 - share) * falling) * wider[:, None])

    def _score(
        self, paths: Paths, y: Floats, held: Floats, mean: Floats, course: PathChanges, centre: Floats, known: Bools
    ) -> None:
        low, high = self.calibration.ends()
        ends = [self.calibration.probabilities[at] for at in (*low, *high)]
        raw = np.quantile(paths.y.numpy()[:, :, self.knots - 1], ends, axis=0, method="weibull")
        own = held + self._around(paths.series, course, centre, ends)
        first = paths.first.numpy()[:, None]
        parts = [known * 1.0, *((y - value) ** 2 for value in (held, mean, first + 0 * mean))]
        for found in (own, raw):
            below, above = np.split(found, 2)
            parts += [(one <= y) & (y <= other) for one, other in zip(below, above, strict=True)]
        total = np.stack([np.where(known, part, 0.0).sum((0, 2)) for part in parts], -1)
        self._scores += total

    def _search(self, course: PathChanges, z: Floats, known: Bools) -> None:
        """Add the error that each dead zone would have had."""
        tried = np.stack([course.centre(np.full(known.shape[1:], zone)) for zone in GRID], -1)  # (n, K, O, G)
        missed = np.abs(z[..., None] - tried)
        share = missed / (missed[..., :1] + missed[..., -1:] + 1e-300)  # one that goes astray weighs as any other
        lost = np.where(known[..., None], share, 0.0).sum(0).swapaxes(0, 1)
        kept = 0.5 ** (known.sum(0).T / HALF_LIFE)  # (O, K)
        self._loss = kept[..., None] * self._loss + lost
        self._weight = kept * self._weight + known.sum(0).T

    def _asked(self, series: Tensor, course: PathChanges, centre: Floats) -> Questions:
        """The questions for the bands: the centre, the variance of the paths, and the last value, which is 0 here."""
        columns = self.shape.columns
        spread = torch.from_numpy(course.spread)
        variance = spread.square().nan_to_num(0.0).mT.reshape(-1, columns).clamp(1e-300, 1e200)
        mean = torch.from_numpy(np.ascontiguousarray(centre.transpose(0, 2, 1)).reshape(-1, columns))
        phase = torch.zeros(len(mean), len(self.knots), dtype=torch.int64)
        return Questions(series, series, phase, Gaussian(mean, variance, 0 * variance), torch.zeros_like(mean))

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
