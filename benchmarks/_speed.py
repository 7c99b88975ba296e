"""Deep kernels for the speed benchmarks: rows of a made system, our training, GPyTorch's, and who is judged by what."""

from __future__ import annotations

import copy
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn

from streamgp.encoders import BoundedEncoder, Encoder, Layout, lstm, mlp
from streamgp.kernels import squared_exponential
from streamgp.models.deep.alternating import Alternating
from streamgp.models.deep.config import DeepGpConfig
from streamgp.solvers import exact, kiss

LAYOUT = Layout(lags=10, past=2)
SPREAD = 0.35
"""Of the latents before the tanh, at the start of both: as in the models."""
LENGTHSCALE, OUTPUTSCALE, NOISE = 0.5, 1.0, 0.1
"""Where both start."""


class Rows(NamedTuple):
    """z (N, 20) standardised windows, y (N,) standardised."""

    z: Tensor
    y: Tensor


class Judged(NamedTuple):
    """What a NLML is computed of: z -> latents, lengthscales (2,), outputscale, noise variance."""

    encoder: Encoder
    lengthscale: Tensor
    outputscale: float
    noise: float


def rows(count: int) -> Rows:
    """A second-order system driven by a random input, with dead zone and saturation; 10 lags of output and input."""
    random, size = np.random.default_rng(0), count + LAYOUT.lags
    u, y = np.convolve(random.normal(size=size + 8), np.ones(8) / 3, "same")[:size], np.zeros(size)
    shocks = 0.1 * random.normal(size=size)
    for t in range(2, size):
        drive = math.tanh(2.0 * u[t - 1]) * (abs(u[t - 2]) > 0.3) + 0.5 * u[t - 4] * y[t - 1]
        y[t] = 1.2 * math.sin(y[t - 1]) - 0.4 * y[t - 2] + drive + shocks[t]
    table = torch.from_numpy(np.stack([y, u], 1))
    table = (table - table.mean(0)) / table.std(0)
    windows = table.unfold(0, LAYOUT.lags, 1)[:count].transpose(1, 2)  # (N, L, 2)
    return Rows(windows.flatten(1).contiguous(), table[LAYOUT.lags : LAYOUT.lags + count, 0].clone())


def encoder(name: str, z: Tensor) -> Encoder:
    """mlp: 20-64-64-2, tanh; lstm: 32 units, 2 latents. Both end in a tanh."""
    inner: Encoder = (
        mlp.build(mlp.Config(width=2), LAYOUT) if name == "mlp" else lstm.build(lstm.Config(width=2), LAYOUT)
    )
    bounded = BoundedEncoder(inner)
    bounded.settle(z[:2048], SPREAD)
    return bounded


class Ours:
    """The models' own training, with their default options but for the batch."""

    def __init__(self, data: Rows, net: str, batch: int | None = None, grid: int = 32) -> None:
        self.data, self.encoder = data, encoder(net, data.z)
        config = squared_exponential.Config(lengthscale=LENGTHSCALE, outputscale=OUTPUTSCALE)
        self.solver = kiss.build(kiss.Config(noise=NOISE, grid=grid), squared_exponential.build(config, 2), 1)
        training = DeepGpConfig.model_fields["training"].default
        self.training = Alternating(
            self.encoder, self.solver, training.model_copy(update={"batch": batch or training.batch})
        )
        self.generator = Generator().manual_seed(0)

    def epoch(self) -> None:
        """Refresh, θ-steps, mini-batches."""
        self.encoder.train()
        self.training.epoch(self.data.z, self.data.y[:, None], self.generator)
        self.encoder.eval()

    def predicts(self, learned: Rows, z: Tensor) -> Callable[[], None]:
        """Mean and variance at z with the head of the rows learned and the weights and θ as they are: to be timed."""
        posterior = self.training.refresh(learned.z, learned.y[:, None]).posterior

        @torch.no_grad()
        def ask() -> None:
            for some in z.split(4096):
                posterior.moments(self.encoder(some))

        return ask

    def judged(self) -> Judged:
        parts = dict(self.solver.kernel.named_parameters())
        scale = parts["log_lengthscale"].detach().exp()
        size = float(parts["log_outputscale"].detach().exp())
        return Judged(copy.deepcopy(self.encoder), scale, size, float(self.solver.noise.detach()))


class Peer:
    """GPyTorch: the same encoder and grid, RBF-ARD, Adam on the exact marginal log likelihood; default settings."""

    def __init__(self, data: Rows, net: str, dtype: torch.dtype, rate: float = 0.01) -> None:
        import gpytorch

        class Deep(gpytorch.models.ExactGP):  # type: ignore[misc]
            def __init__(self, x: Tensor, y: Tensor, likelihood: Any, net: nn.Module) -> None:
                super().__init__(x, y, likelihood)
                self.encoder, self.mean_module = net, gpytorch.means.ZeroMean()
                base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))
                base.outputscale, base.base_kernel.lengthscale = OUTPUTSCALE, LENGTHSCALE
                self.covar_module = gpytorch.kernels.GridInterpolationKernel(
                    base, grid_size=32, num_dims=2, grid_bounds=[(-1, 1), (-1, 1)]
                )

            def forward(self, x: Tensor) -> Any:
                h = self.encoder(x)
                return gpytorch.distributions.MultivariateNormal(self.mean_module(h), self.covar_module(h))

        self.net, self.dtype, own = net, dtype, Rows(data.z.to(dtype), data.y.to(dtype))
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.likelihood.noise = NOISE
        self.model = Deep(own.z, own.y, self.likelihood, encoder(net, data.z)).to(dtype)
        self.likelihood.to(dtype)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=rate)
        self.mll, self.data = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self.model), own

    def epoch(self) -> None:
        """One full-batch step: all rows once."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # conjugate gradients that end early, in float32
            self.adam.zero_grad()
            loss = -self.mll(self.model(self.data.z), self.data.y)
            loss.backward()
            self.adam.step()

    def judged(self) -> Judged:
        base = self.model.covar_module.base_kernel
        scale = base.base_kernel.lengthscale.detach().double().flatten()
        net = copy.deepcopy(self.model.encoder).double()
        return Judged(net, scale, float(base.outputscale.detach()), float(self.likelihood.noise.detach()))


@torch.no_grad()
def nlml(found: Judged, data: Rows) -> float:
    """Nats a row: the exact GP at the latents, dense Cholesky in float64, for either."""
    config = squared_exponential.Config(lengthscale=1.0, outputscale=found.outputscale)
    kernel = squared_exponential.build(config, 2)
    dict(kernel.named_parameters())["log_lengthscale"].copy_(found.lengthscale.log())
    solver = exact.build(exact.Config(noise=found.noise, floor=1e-9, limit=len(data.y)), kernel, 1)
    kept = solver.data()
    kept.add(found.encoder(data.z), data.y[:, None])
    return float(solver.nlml(kept)) / len(data.y)


def seconds(work: Callable[[], object], times: int, warm: int = 1) -> list[float]:
    """CPU-seconds of each call, sorted."""
    return sorted(list(clocked(work, warm + times))[warm:])


def clocked(work: Callable[[], object], times: int) -> Iterator[float]:
    """CPU-seconds of one call after another."""
    for _ in range(times):
        began = time.process_time()
        work()
        yield time.process_time() - began


def turns(works: Sequence[Callable[[], object]], times: int = 15) -> list[float]:
    """Median CPU-seconds of each, called in turn: what the machine does meanwhile meets all of them alike."""
    rounds = [[next(clocked(work, 1)) for work in works] for _ in range(times + 1)][1:]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]
