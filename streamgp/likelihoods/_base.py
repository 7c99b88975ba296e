"""What a likelihood is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from streamgp.base import Predictive

REACH, ROUNDS = 3.0, 12
"""Of the logarithm of a scale, in one search; sections of it."""
GOLDEN = 0.5 * (5.0**0.5 - 1.0)


class Likelihood(nn.Module, ABC):
    """p(y | f) for T target columns, each with its own noise.

    A likelihood's module has a frozen pydantic `Config` and `build(config, columns) -> Likelihood`.

    Attributes:
        columns: T.
        family: the class of what `predictive` returns.
        units: whether targets have units: a model may learn them shifted and scaled, and move the distribution back
            (`Predictive.affine`). Where they have none they are learned as they are, around `origin`.
    """

    columns: int
    family: type[Predictive]
    units: bool = True

    def check(self, y: Tensor, names: Sequence[str]) -> None:
        """See that targets are what this likelihood is of; models call it on the targets that they are given to learn.

        Args:
            y: (N, T), NaN = not observed.
            names: of the O target columns; column t belongs to names[t · O // T].

        Raises:
            DataError: a value is none; the message names its target.
        """

    def origin(self, y: Tensor) -> Tensor:
        """(T,) the function value that stands for the targets as a whole, so that a model may begin there; 0 where
        targets have units, as their mean is taken out then. y: (N, T), NaN = not observed."""
        return y.new_zeros(self.columns)

    @abstractmethod
    def start(self, variance: Tensor) -> None:
        """Set the initial noise from the targets' variances. variance: (T,), squared target units."""

    @torch.no_grad()
    def fit(self, y: Tensor, mean: Tensor, variance: Tensor, weight: Tensor) -> None:
        """Set the noise's scale to where Σ weight E log p(y | f) is largest, within a factor e^±`REACH` of what it is,
        by golden sections; a likelihood without `log_scale` (T,) stays as it is.

        Args:
            y: (N, T), NaN = not observed.
            mean: (N, T)
            variance: broadcasts against (N, T).
            weight: (N,)
        """
        log = getattr(self, "log_scale", None)
        if log is None:
            return
        low, high = log - REACH, log + REACH

        def value(at: Tensor) -> Tensor:
            log.copy_(at)
            found: Tensor = (weight[:, None] * self.expected_log_prob(y, mean, variance)).sum(0)
            return found

        for _ in range(ROUNDS):
            left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
            better = value(left) > value(right)
            low, high = torch.where(better, low, left), torch.where(better, right, high)
        log.copy_(0.5 * (low + high))

    @property
    @abstractmethod
    def scale(self) -> Tensor:
        """(T,) the noise's scale in target units: how far an ordinary observation lies from the function."""

    @abstractmethod
    def expected_log_prob(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E log p(y | f) over f ~ N(mean, variance), elementwise; 0 where y is NaN.

        Args:
            y: (N, T), NaN = not observed.
            mean: (N, T)
            variance: broadcasts against (N, T).
        """

    @abstractmethod
    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive:
        """The distribution of y where f ~ N(mean, variance); both (N, T)."""
