"""Toys and dense twins that the tests of SVGP share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape, Step
from streamgp.encoders import Layout, identity
from streamgp.kernels import squared_exponential
from streamgp.models import svgp
from streamgp.models.svgp.head import Part
from streamgp.models.svgp.posterior import SvgpPosterior
from streamgp.models.svgp.prior import JITTER, SparsePrior
from streamgp.online.model import StreamModel

Array = NDArray[np.float64]
RHO, WIDTH, COLUMNS = 1.7, 3, 2
LENGTH = torch.tensor([1.0, 2.0, 0.7], dtype=FLOAT)
REGRESSION = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u", "k"), future=("u", "k"))


def data(rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """x (N, 3), y (N, 2) with noise of different size."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, WIDTH, generator=generator, dtype=FLOAT)
    wave = torch.stack((torch.sin(x[:, 0] + x[:, 1]), x[:, 2] * torch.cos(x[:, 0])), 1)
    noise = torch.randn(rows, COLUMNS, generator=generator, dtype=FLOAT)
    return x, wave + torch.tensor([0.1, 0.4], dtype=FLOAT) * noise


def prior(points: Tensor, capacity: int | None = None) -> SparsePrior:
    """On these inducing inputs."""
    kernel = squared_exponential.build(squared_exponential.Config(outputscale=RHO), WIDTH)
    with torch.no_grad():
        kernel.log_lengthscale.copy_(LENGTH.log())
    found = SparsePrior(kernel, identity.build(identity.Config(), Layout(0, 0, 1, WIDTH)), capacity or len(points))
    found.put(points)
    return found


def part(sparse: SparsePrior, x: Tensor, y: Tensor, weight: float = 1.0) -> Part:
    """Rows as a head sees them."""
    phi, variance = sparse.features(x)
    return Part(phi, variance, y, y.new_full((len(y),), weight))


def gram(x: Tensor, z: Tensor) -> Array:
    """The kernel, pair by pair."""
    apart = (x.numpy()[:, None] - z.numpy()[None]) / LENGTH.numpy()
    return np.asarray(RHO * np.exp(-0.5 * (apart**2).sum(2)))


def bound(x: Tensor, z: Tensor, y: Array, noise: float) -> float:
    """log N(y; 0, Q + σ²I) − tr(K − Q)/2σ² (Titsias 2009, eq. 9), dense. y: (N,)."""
    kzz = gram(z, z) + JITTER * RHO * np.eye(len(z))
    cross = gram(z, x)
    low = cross.T @ np.linalg.solve(kzz, cross)
    return evidence(low, y, noise) - float(np.trace(gram(x, x) - low)) / (2 * noise)


def evidence(k: Array, y: Array, noise: float) -> float:
    """log N(y; 0, K + σ²I)."""
    full = k + noise * np.eye(len(y))
    logarithm = float(np.linalg.slogdet(full)[1])
    return -0.5 * (float(y @ np.linalg.solve(full, y)) + logarithm + len(y) * float(np.log(2 * np.pi)))


def surface(rows: int, seed: int = 0, noise: float = 0.0) -> tuple[Inputs, Tensor]:
    """A smooth function of two inputs, of level 100 and spread 5."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(rows, 2, generator=generator, dtype=FLOAT) * 6 - 3
    y = 100 + 10 * torch.sin(u[:, 0]) * torch.cos(u[:, 1])
    y = y + noise * torch.randn(rows, generator=generator, dtype=FLOAT)
    return Inputs(torch.zeros(rows, 0, 3, dtype=FLOAT), u[:, None]), y[:, None]


def built(shape: Shape = REGRESSION, **options: Any) -> StreamModel:
    torch.set_num_threads(1)
    return svgp.build(svgp.Config.model_validate(options), shape)


def posterior_of(model: StreamModel) -> SvgpPosterior:
    assert isinstance(model.posterior, SvgpPosterior)
    return model.posterior


def run(model: StreamModel, x: Inputs, y: Tensor, batch: int = 50) -> list[Step]:
    parts = [slice(start, start + batch) for start in range(0, len(y), batch)]
    return [model.update(x.rows(rows), y[rows]) for rows in parts]


def error(model: StreamModel, x: Inputs, y: Tensor) -> float:
    return float((model.predict(x).mean - y).square().mean().sqrt())
