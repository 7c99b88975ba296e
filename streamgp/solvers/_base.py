"""What a solver is: the marginal likelihood and the posterior of T independent GPs that share a kernel.

y_t = f_t(h) + ε_t,  f_t ~ GP(0, k_θ),  ε_t ~ N(0, σ_t²),  t = 1 … T,  at latents h in R^d. With K_t = k(H, H) + σ_t² I

    NLML = Σ_t ½ [ y_tᵀ K_t⁻¹ y_t + log|K_t| + N log 2π ]

A row of weight w counts w times in the likelihood: N(y; f, σ²)^w. With weights λ^age that is forgetting, and the
prior stays as it is. Rows enter a `Data`, which keeps what the solver needs of them, at most; `nlml` and `condition`
read it under the hyper-parameters of the moment.

Shapes: N rows, T columns, d latent width, r rank, m grid points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT
from streamgp.kernels import Kernel
from streamgp.state import Declared


class Data(Declared, ABC):
    """What is kept of the rows learned; Stateful.

    Attributes:
        count: n, the sum of the rows' weights.
        rows: kept one by one, so that whoever learns a stream must bound them; 0 where only sums are kept.
    """

    count: float

    @property
    def rows(self) -> int:
        return 0

    @abstractmethod
    def add(self, h: Tensor, y: Tensor) -> None:
        """Learn N rows of weight 1. h: (N, d) without graph, y: (N, T), finite."""

    @abstractmethod
    def forget(self, kept: float) -> None:
        """Multiply the weight of every row learned so far by `kept`, 0 < kept <= 1."""

    def move(self, device: torch.device) -> None:
        """Go on there; it is no module, which PyTorch would move."""
        for name, part in [*vars(self).items()]:
            if isinstance(part, Tensor):
                setattr(self, name, part.to(device))


class Draw(Protocol):
    """P functions drawn from a posterior, each one function wherever it is asked."""

    def __call__(self, h: Tensor) -> Tensor:
        """(P, S, d) latents, S for each function -> (P, S, T) values, noise-free."""


class Conditional(ABC):
    """f given the data, frozen: later steps on θ or on the data do not change it.

    `mean` and `variance` are differentiable in h, and one row alone gives its row of the batch.

    Attributes:
        noise: (T,) σ_t².
        basis: functions that the mean is made of: rows, eigenpairs or grid points.
    """

    noise: Tensor

    @property
    def basis(self) -> int:
        return 0

    @abstractmethod
    def mean(self, h: Tensor) -> Tensor:
        """(N, d) -> (N, T)"""

    @abstractmethod
    def variance(self, h: Tensor) -> Tensor:
        """(N, d) -> (N, T), of the latent function; ≥ 0."""

    def moments(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """`mean` and `variance`, where a solver can share work between them."""
        return self.mean(h), self.variance(h)

    @abstractmethod
    def divergence(self) -> Tensor:
        """(T,) KL of the posterior from the prior over the function: KL₀ of the majoriser.

        ½ [αᵀK₀α − tr(K_t⁻¹K₀) + log|I + K₀/σ²|], K₀ = k(H, H), α = K_t⁻¹y_t. A solver that estimates it says so.
        """

    @abstractmethod
    def draw(self, paths: int, generator: Generator) -> Draw:
        """Draw P functions, jointly over all inputs that they will ever be asked at."""


class Solver(nn.Module, ABC):
    """Hyper-parameters θ and σ², and how the marginal likelihood is computed.

    A solver's module has a frozen pydantic `Config` and `build(config, kernel, columns) -> Solver`.

    Attributes:
        kernel: k_θ.
        log_noise: (T,) log σ_t².
        bounded: whether latents must lie in [−1, 1]^d: an encoder's tanh sees to it.
        additive: whether its `Data` are sums over rows, see `streamgp.online.summing.Additive`.
        floor: the least σ², so that the noise cannot collapse.
        limit: rows that a `Data` can hold at most; None where their number does not matter.
    """

    bounded: bool = False
    additive: bool = False
    limit: int | None = None

    def __init__(self, kernel: Kernel, columns: int, noise: float, floor: float) -> None:
        super().__init__()
        self.kernel = kernel
        self.floor = floor
        self.log_noise = nn.Parameter(torch.full((columns,), max(noise - floor, 1e-12), dtype=FLOAT).log())

    @property
    def noise(self) -> Tensor:
        """(T,) σ_t² = floor + exp(log_noise)."""
        return self.floor + self.log_noise.exp()

    def project(self) -> None:
        """Move hyper-parameters, after a step on them, back to where the solver is accurate."""

    @abstractmethod
    def data(self) -> Data:
        """No rows yet."""

    @abstractmethod
    def nlml(self, data: Data) -> Tensor:
        """() NLML, summed over columns; differentiable in θ and σ²."""

    @abstractmethod
    def condition(self, data: Data) -> Conditional:
        """The posterior under the present θ and σ²; without rows it is the prior. Its tensors carry no graph."""
