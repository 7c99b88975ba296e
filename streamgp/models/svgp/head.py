"""What q is of an SVGP, whatever the likelihood: natural parameters, what a batch says of them, what they predict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from torch import Tensor, nn

from streamgp.base import Predictive
from streamgp.objectives.sparse import Belief
from streamgp.optim.natural_gradient import Natural


class Part(NamedTuple):
    """Rows as q sees them.

    Attributes:
        phi: (b, M) whitened features; for training they may be float32.
        prior: (b,) k(x, x).
        y: (b, T) standardised, NaN = not observed.
        weight: (b,) how many rows each stands for.
    """

    phi: Tensor
    prior: Tensor
    y: Tensor
    weight: Tensor


Parts: TypeAlias = Callable[[], Iterator[Part]]
"""All rows, in parts, as often as it is asked."""


class Lesson(NamedTuple):
    """What a batch says; every term is weighted.

    Attributes:
        value: () Σ w E log p(y | f).
        slope: (b, T) its derivative in the means.
        curve: (b, P) in the variances, summed over the columns that share S.
        bent: (P, M, M) Σ_n curve_n φ_nφ_nᵀ.
        outer: (P, M, M) what Λ should be.
        moment: (M, T) what b should be.
        own: derivatives in the head's own parameters.
    """

    value: Tensor
    slope: Tensor
    curve: Tensor
    bent: Tensor
    outer: Tensor
    moment: Tensor
    own: dict[str, Tensor]


class Head(nn.Module, ABC):
    """q(v) of T columns on M functions, and the likelihood.

    Its own parameters, those of the noise, are what `named_parameters` names.

    Attributes:
        natural: Λ and b.
        family: of what `predictive` returns.
    """

    natural: Natural
    family: type[Predictive]

    @property
    @abstractmethod
    def weight(self) -> Tensor:
        """() rows learned, after forgetting."""

    @abstractmethod
    def start(self, y: Tensor, noise: Tensor) -> None:
        """Noise, and whatever else targets tell at once. y: (N, T) standardised, noise: () an estimate of σ²."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all rows."""

    @abstractmethod
    def belief(self) -> Belief:
        """q as natural parameters have it now; what training goes by."""

    @abstractmethod
    def lesson(self, part: Part, belief: Belief) -> Lesson:
        """What rows say where q is this."""

    @abstractmethod
    def learn(self, parts: Parts, sweeps: int) -> None:
        """q of all these rows, and of no others; the kernel may have changed."""

    @abstractmethod
    def absorb(self, part: Part, kept: float) -> None:
        """Learn new rows of a stream, once, after forgetting: the old ones count `kept` times what they did."""

    @abstractmethod
    def moments(self, phi: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """(N, M), (N,) -> mean and latent variance of the function, (N, T) both."""

    @abstractmethod
    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive:
        """The distribution of standardised targets."""

    @abstractmethod
    def loss(self) -> float:
        """−ELBO a row and column of what was learned last."""
