"""What a likelihood is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from streamgp.base import Predictive


class Likelihood(nn.Module, ABC):
    """p(y | f) for T target columns, each with its own noise.

    A likelihood's module has a frozen pydantic `Config` and `build(config, columns) -> Likelihood`.

    Attributes:
        columns: T.
        family: the class of what `predictive` returns.
    """

    columns: int
    family: type[Predictive]

    @abstractmethod
    def start(self, variance: Tensor) -> None:
        """Set the initial noise from the targets' variances. variance: (T,), squared target units."""

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
