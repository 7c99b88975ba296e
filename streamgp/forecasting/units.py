"""Forecasts of transformed targets, back in the units of the targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from streamgp.base import FLOAT, Due, Predictive, Shape
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.quantiles import crps
from streamgp.transforms import Floats, Transforms, Way, by_row, means


def in_units(due: Due, transforms: Transforms, shape: Shape, calibration: Calibration) -> Due:
    """The same forecasts with distributions and quantiles of y, where those of z were issued; `due.y` is y already.

    Quantiles go through the transform. The mean is that of the calibrated distribution, whose quantiles are taken as
    linear in the normal score Φ⁻¹(p) between those that were issued; what is beyond `ENDS` counts as there.
    """
    if not transforms:
        return due
    way = _RowTransforms(transforms, due.column.numpy() // shape.horizon, calibration.probabilities)
    z = due.quantiles.numpy()
    mean, _ = way.moments(z)
    quantiles = calibration.inside(torch.from_numpy(way.apply("backward", z)))
    issued = Transformed(due.predictive, way, torch.from_numpy(mean)[:, None])
    return due._replace(quantiles=quantiles, predictive=issued)


def raw_in_units(issued: Predictive, output: Tensor, transforms: Transforms, calibration: Calibration) -> Predictive:
    """The distributions (R, 1) of y, where those of z were issued, with their own means. output: (R,) the targets."""
    if not transforms:
        return issued
    way = _RowTransforms(transforms, output.numpy(), calibration.probabilities)
    p = torch.tensor(calibration.probabilities, dtype=FLOAT)
    mean, _ = way.moments(issued.quantile(p)[..., 0].numpy())
    return Transformed(issued, way, torch.from_numpy(mean)[:, None])


ENDS = (0.005, 0.995)
"""Quantiles beyond which nothing counts in a mean: through exp, a tail that nobody has seen would decide it."""


class _RowTransforms:
    """The transforms of R rows, and the mean and variance of y by quantiles of z.

    Args:
        transforms: one a target.
        output: (R,) the target of each row.
        probabilities: (Q,) of the quantiles that stand for a distribution.
    """

    def __init__(self, transforms: Transforms, output: NDArray[np.int64], probabilities: tuple[float, ...]) -> None:
        self.transforms, self.output, self.probabilities = transforms, output, probabilities
        self.ends = [probabilities.index(p) for p in ENDS] if set(ENDS) <= set(probabilities) else [0, -1]
        self.weights, self.matrix = means(torch.special.ndtri(torch.tensor(probabilities, dtype=FLOAT)).numpy())

    def apply(self, way: Way, values: Floats) -> Floats:
        """(..., R) values through the transform of each row."""
        return by_row(self.transforms, way, values, self.output)

    def moments(self, z: Floats) -> tuple[Floats, Floats]:
        """(Q, R) quantiles of z -> (R,) mean and (R,) variance of y."""
        low, high = self.apply("backward", z[self.ends])
        y = self.apply("backward", self.matrix @ z).clip(low, high)
        mean = self.weights @ y
        with np.errstate(over="ignore"):
            return mean, self.weights @ (y - mean) ** 2


@dataclass(frozen=True, eq=False)
class Transformed:
    """R distributions of y = g⁻¹(z), where `inner` is the distribution of z.

    Attributes:
        inner: (R, 1) of z.
        way: the transforms of the rows.
        mean: (R, 1) of y, by the calibrated distribution.
    """

    inner: Predictive
    way: _RowTransforms
    mean: Tensor

    binary: ClassVar[bool] = False

    @property
    def variance(self) -> Tensor:
        """(R, 1) by the quantiles of `inner`, squared target units."""
        p = torch.tensor(self.way.probabilities, dtype=self.mean.dtype)
        return torch.from_numpy(self.way.moments(self.inner.quantile(p)[..., 0].numpy())[1])[:, None]

    @property
    def latent_variance(self) -> Tensor:
        """(R, 1) the same share of the variance as that of z."""
        return self.variance * (self.inner.latent_variance / self.inner.variance)

    def quantile(self, p: Tensor) -> Tensor:
        """(K,) -> (K, R, 1)"""
        return self._through("backward", self.inner.quantile(p))

    def sample(self, paths: int, generator: Generator) -> Tensor:
        """(paths, R, 1)"""
        return self._through("backward", self.inner.sample(paths, generator))

    def log_prob(self, y: Tensor) -> Tensor:
        """(R, 1) log p(z) + log dz/dy; beyond the limits of the transform, that at the limit."""
        return self.inner.log_prob(self._through("forward", y)) + self._through("log_slope", y)

    def crps(self, y: Tensor) -> Tensor:
        """(R, 1) by the quantiles that are issued of the calibrated distribution."""
        p = torch.tensor(self.way.probabilities, dtype=y.dtype)
        return crps(self.way.probabilities, self.quantile(p)[..., 0], y[:, 0])[:, None]

    def affine(self, scale: Tensor, shift: Tensor) -> NoReturn:
        """Raises TypeError: forecasts are in the units of the targets already."""
        raise TypeError("a transformed distribution is not scaled")

    def parameters(self) -> Tensor:
        """(P, R, 1) those of `inner`."""
        return self.inner.parameters()

    @classmethod
    def from_parameters(cls, parameters: Tensor) -> NoReturn:
        """Raises TypeError: the transform is not among the parameters."""
        raise TypeError("a transformed distribution is made of that of z and the transform")

    def _through(self, way: Way, values: Tensor) -> Tensor:
        return torch.from_numpy(self.way.apply(way, values[..., 0].numpy()))[..., None]
