"""A small problem with something for an encoder to find, and a way to see where training stands."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from streamgp.encoders import Encoder, Layout, identity, mlp
from streamgp.kernels import squared_exponential
from streamgp.models.deep.alternating import Alternating, AlternatingConfig
from streamgp.solvers.exact import Config, Exact

LAGS = 4


class Toy(NamedTuple):
    """An encoder and an exact solver in training on (z, y)."""

    training: Alternating
    z: Tensor
    y: Tensor
    generator: torch.Generator

    def epoch(self) -> float:
        return self.training.epoch(self.z, self.y, self.generator)

    def nlml(self) -> float:
        """Per row, at the present weights."""
        return self.training.refresh(self.z, self.y).loss

    def parameters(self) -> dict[str, Tensor]:
        return parameters(self.training.encoder, self.training.solver)


def rows(n: int, columns: int = 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(n, LAGS), (n, T): a sine of a bent mixture of the lags, and noise of variance 0.01."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, LAGS, dtype=torch.float64, generator=generator)
    bent = torch.tanh(z[:, :1] - z[:, 1:2]) + 0.5 * z[:, 2:3]
    noise = 0.1 * torch.randn(n, columns, dtype=torch.float64, generator=generator)
    return z, torch.sin(3 * bent + torch.arange(columns)) + noise


def toy(n: int = 60, columns: int = 1, encoder: Encoder | None = None, epochs: int = 0, **options: Any) -> Toy:
    """Freshly built; the options are those of AlternatingConfig."""
    net = encoder or mlp.build(mlp.Config(hidden=8, layers=1, width=2, seed=3), Layout(LAGS, 1))
    solver = Exact(Config(), squared_exponential.build(squared_exponential.Config(), net.width), columns)
    training = Alternating(net, solver, AlternatingConfig(**{"batch": 16, **options}), epochs)
    return Toy(training, *rows(n, columns), torch.Generator().manual_seed(0))


def no_encoder() -> Encoder:
    return identity.build(identity.Config(), Layout(LAGS, 1))


def parameters(*modules: nn.Module) -> dict[str, Tensor]:
    """Copies."""
    return {f"{i}.{k}": v.detach().clone() for i, module in enumerate(modules) for k, v in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
