"""GPyTorch's SVGP on a perceptron, a peer of finite-dimensional GPs: as many inducing inputs as rows of a batch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import gpytorch
import torch
from torch import Tensor, nn

RATE, NOISE, CHUNK = 1e-2, 0.1, 2048


class DeepSvgp(gpytorch.models.ApproximateGP):
    """Whitened, inducing inputs in front of the net: two layers of 128 rectified units, begun as those of `_finite`."""

    def __init__(self, points: Tensor, linear: bool) -> None:
        family = gpytorch.variational.CholeskyVariationalDistribution(len(points))
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, family))
        first, second = nn.Linear(points.shape[1], 128), nn.Linear(128, 128)
        with torch.no_grad():
            for layer, gain in ((first, 1.0), (second, 128**-0.5)):
                layer.weight.normal_(0.0, gain * math.sqrt(2.0 / layer.in_features))
                layer.bias.zero_()
        self.net = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())
        self.mean_module = gpytorch.means.ZeroMean()
        kernels = gpytorch.kernels
        self.covar_module = kernels.LinearKernel() if linear else kernels.ScaleKernel(kernels.RBFKernel())
        if linear:
            self.covar_module.variance = 1.0

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        latent = self.net(x)
        return gpytorch.distributions.MultivariateNormal(self.mean_module(latent), self.covar_module(latent))


def course(
    x: Tensor, y: Tensor, held: Tensor, linear: bool, batch: int, marks: Sequence[float], seed: int, most: int = 0
) -> Iterator[tuple[float, int, float, Tensor]]:
    """Train by Adam with a cosine that ends at the last mark.

    Args:
        x, y, held: (N, W), (N,), (H, W) standardised, float32.
        linear: the kernel on the net's outputs; else Gaussian.
        batch: rows of a mini-batch, and inducing inputs.
        marks: CPU-seconds of training, increasing.
        most: steps, which end it too; 0: no limit.

    Yields:
        at every mark: seconds, steps, −ELBO of all rows over their number, (H,) mean.
    """
    torch.manual_seed(seed)
    model, likelihood = (
        DeepSvgp(x[torch.randperm(len(x))[:batch]].clone(), linear),
        gpytorch.likelihoods.GaussianLikelihood(),
    )
    likelihood.noise = NOISE
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=RATE)
    due, steps, began = list(marks), 0, time.process_time()
    while True:
        for rows in torch.randperm(len(x)).split(batch):
            optimiser.zero_grad()
            (-objective(model(x[rows]), y[rows])).backward()
            optimiser.step()
            steps, spent = steps + 1, time.process_time() - began
            last = bool(most) and steps >= most
            part = max(spent / marks[-1], steps / most if most else 0.0)
            for group in optimiser.param_groups:
                group["lr"] = RATE * (0.01 + 0.495 * (1.0 + math.cos(math.pi * min(part, 1.0))))
            if spent < due[0] and not last:
                continue
            yield spent, steps, *_judged(model, likelihood, x, y, held)
            if last:
                return
            due = [mark for mark in due if mark > spent]
            if not due:
                return
            began = time.process_time() - spent


@torch.no_grad()
def _judged(model: DeepSvgp, likelihood: nn.Module, x: Tensor, y: Tensor, held: Tensor) -> tuple[float, Tensor]:
    model.eval()
    fit = 0.0
    for some, targets in zip(x.split(CHUNK), y.split(CHUNK), strict=True):
        fit += float(likelihood.expected_log_prob(targets, model(some)).double().sum())
    mean = torch.cat([model(some).mean for some in held.split(CHUNK)])
    divergence = float(model.variational_strategy.kl_divergence())
    model.train()
    return (divergence - fit) / len(y), mean
