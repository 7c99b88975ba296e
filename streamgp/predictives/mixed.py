"""A mix of experts: a Gaussian around their weighted mean, which carries what each of them forecast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from streamgp.predictives.gaussian import Gaussian


@dataclass(frozen=True, eq=False)
class Mixed(Gaussian):
    """N(mean, latent_variance + noise), column by column, beside the K forecasts that the mean is made of.

    Attributes:
        experts: (K, N, T) target units; what each expert forecast.

    Example:
        >>> two = torch.tensor([[[1.0]], [[3.0]]])
        >>> m = Mixed(two.mean(0), torch.ones(1, 1), torch.ones(1, 1), two)
        >>> m.spread.item(), m.affine(torch.tensor(2.0), torch.tensor(1.0)).experts.flatten().tolist()
        (1.0, [3.0, 7.0])
        >>> Mixed.from_parameters(m.parameters()).variance.item()
        2.0
    """

    experts: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "experts", self.experts.expand(-1, *self.mean.shape))

    @property
    def spread(self) -> Tensor:
        """(N, T) standard deviation of the experts' forecasts, target units."""
        return self.experts.std(0, correction=0)

    def affine(self, scale: Tensor, shift: Tensor) -> Mixed:
        """The distribution of scale · y + shift, scale > 0."""
        moved = super().affine(scale, shift)
        return Mixed(moved.mean, moved.latent_variance, moved.noise, self.experts * scale + shift)

    def parameters(self) -> Tensor:
        """(3 + K, N, T): mean, latent variance, noise, the experts' forecasts."""
        return torch.cat((super().parameters(), self.experts))

    @classmethod
    def from_parameters(cls, parameters: Tensor) -> Self:
        """The inverse of `parameters`."""
        mean, latent, noise = parameters[:3].unbind(0)
        return cls(mean, latent, noise, parameters[3:])
