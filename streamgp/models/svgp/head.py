"""The variational posterior q of an SVGP and its likelihood: natural parameters, their gradients, predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from torch import Tensor, nn

from streamgp.base import Predictive
from streamgp.objectives.sparse import Belief
from streamgp.training.natural_gradient import Natural


class Part(NamedTuple):
    """Rows as q sees them.

    Attributes:
        phi: (b, M) whitened features; for training they may be float32.
        prior: (b,) k(x, x).
        y: (b, T) standardised, NaN = not observed.
        weight: (b,) of each row.
    """

    phi: Tensor
    prior: Tensor
    y: Tensor
    weight: Tensor


Parts: TypeAlias = Callable[[], Iterator[Part]]
"""All rows, in parts; every call starts from the first."""


class BatchTerms(NamedTuple):
    """The expected log likelihood of a batch, its derivatives, and the targets of a natural-gradient step; weighted.

    Attributes:
        value: () Σ w E log p(y | f).
        slope: (b, T) its derivative in the means.
        curve: (b, P) in the variances, summed over the columns that share S.
        bent: (P, M, M) Σ_n curve_n φ_nφ_nᵀ.
        outer: (P, M, M) the target of Λ.
        moment: (M, T) the target of b.
        own: derivatives in the head's own parameters.
    """

    value: Tensor
    slope: Tensor
    curve: Tensor
    bent: Tensor
    outer: Tensor
    moment: Tensor
    own: dict[str, Tensor]


class VariationalHead(nn.Module, ABC):
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
        """Set the initial noise and offset. y: (N, T) standardised, noise: () an estimate of σ²."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all rows."""

    @abstractmethod
    def belief(self) -> Belief:
        """q of the present natural parameters, which training uses."""

    @abstractmethod
    def terms(self, part: Part, belief: Belief) -> BatchTerms:
        """The terms of these rows under this q."""

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
