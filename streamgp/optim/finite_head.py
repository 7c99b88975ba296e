"""What the optimisers of a finite-dimensional GP have in common: the head that they step on, and their estimates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Json
from streamgp.objectives.finite_evidence import Determinant, Gradients, Statistics, gradients, ridge


class FiniteHead(nn.Module):
    """Weights and noise of T columns on d features, float64. The features are no part of it.

    Without a floor on the noise the likelihood of a network that fits its rows has no bound.

    Args:
        width, columns: d, T.
        noise: σ² to begin with, in squared units of y; one for all columns.
        floor: below which σ² cannot fall, less than `noise`.

    Attributes:
        weights: (d, T), zeros at first.
        log_noise: (T,) σ² = floor + exp(log_noise).

    Example:
        >>> head = FiniteHead(3, 2, noise=0.5, floor=0.1)
        >>> head.noise.tolist(), head(torch.ones(4, 3, dtype=FLOAT)).shape
        ([0.5, 0.5], torch.Size([4, 2]))
    """

    def __init__(self, width: int, columns: int, noise: float = 0.1, floor: float = 1e-3) -> None:
        super().__init__()
        self.floor = floor
        self.weights = nn.Parameter(torch.zeros(width, columns, dtype=FLOAT))
        self.log_noise = nn.Parameter(torch.full((columns,), noise - floor, dtype=FLOAT).log())

    @property
    def noise(self) -> Tensor:
        """(T,) σ_t², squared units of y."""
        return self.log_noise.exp() + self.floor

    def forward(self, phi: Tensor) -> Tensor:
        """(n, d) -> (n, T) φᵀw."""
        out: Tensor = phi.to(FLOAT) @ self.weights
        return out


class Estimate(NamedTuple):
    """Of l per row from a mini-batch, with its gradients; all without graph.

    Attributes:
        value: () l̂/N, twice nats a row.
        phi: (|b|, d) gradient in the rows' features.
        weights, log_noise: (d, T), (T,) gradients in the head's parameters of these names.
    """

    value: Tensor
    phi: Tensor
    weights: Tensor
    log_noise: Tensor


class Estimator(ABC):
    """A mini-batch estimate of l, of one method; Stateful.

    Attributes:
        looks: whether it asks for all rows once an epoch (`begin`).
        ascends: whether it asks for independent mini-batches beside the others (`ascend`).
    """

    looks = False
    ascends = False

    def begin(self, data: Statistics, head: FiniteHead) -> None:
        """All rows at the present features, before an epoch."""
        del data, head

    @abstractmethod
    def determinant(self, phi: Tensor, kappa: Tensor, total: int) -> Determinant:
        """What stands in for log|F| on these rows, and a step of what is kept of F.

        Args:
            phi: (|b|, d) finite, without graph; `rows` are of its dtype, factorisations float64.
            kappa: () κ
            total: N

        Raises:
            NotPositiveDefinite: what is kept of F could not be factorised.
        """

    def estimate(self, phi: Tensor, y: Tensor, head: FiniteHead, total: int) -> Estimate:
        """l̂/N and its gradients from a mini-batch, and a step of what is kept of F.

        Args:
            phi: (|b|, d) finite, without graph; factorisations are in float64.
            y: (|b|, T) finite.
            head: w and σ².
            total: N

        Raises:
            NotPositiveDefinite: what is kept of F could not be factorised.
        """
        with torch.no_grad():
            noise = head.noise
            part = self.determinant(phi, ridge(noise), total)
            found = gradients(phi, y.to(phi.dtype), head.weights, noise, part, total)
            return through_floor(found, noise, head)

    def ascend(self, phi: Tensor, head: FiniteHead, total: int) -> None:
        """A step on dual variables with a mini-batch (|b|, d) that is independent of the last estimate's."""
        del phi, head, total

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return {}, {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        del tensors, rest


def through_floor(found: Gradients, noise: Tensor, head: FiniteHead) -> Estimate:
    """An estimate from gradients in log σ², by the chain rule through σ² = floor + exp(log_noise)."""
    return Estimate(found.value, found.phi, found.weights, found.log_noise * (1.0 - head.floor / noise))


class NoDeterminant(Estimator):
    """A control: log|F| left out, which leaves ridge regression with (N − d) log σ².

    Example:
        >>> part = NoDeterminant().determinant(torch.ones(2, 3, dtype=FLOAT), torch.ones(()), 10)
        >>> float(part.value), float(part.trace)
        (0.0, 0.0)
    """

    def determinant(self, phi: Tensor, kappa: Tensor, total: int) -> Determinant:
        zero = torch.zeros_like(kappa)
        return Determinant(zero, torch.zeros_like(phi), zero)
