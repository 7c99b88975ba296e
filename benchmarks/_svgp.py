"""GPyTorch's SVGP as a peer, with the settings of its own examples: SE-ARD kernel, 512 inducing points, Adam 0.01,
batches of 1024, float32."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import gpytorch
import torch
from _uci import Mark, Split, scores
from torch import Tensor

from streamgp.base import Step
from streamgp.predictives.gaussian import Gaussian

POINTS = 512


class Svgp(gpytorch.models.ApproximateGP):
    """GPyTorch's SVGP, as in its documentation."""

    def __init__(self, points: Tensor) -> None:
        family = gpytorch.variational.CholeskyVariationalDistribution(len(points))
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, family))
        self.mean_module = gpytorch.means.ConstantMean()
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=points.shape[1])
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def train(rows: Split, marks: Sequence[float]) -> Iterator[Mark]:
    """Train on, and score at every mark, in CPU-seconds of training; scoring is not counted."""
    torch.manual_seed(0)
    x, y, held = rows.x.float(), rows.y[:, 0].float(), rows.held.float()
    model, likelihood = Svgp(x[torch.randperm(len(x))[:POINTS]].clone()), gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    due, steps, began = sorted(marks), 0, time.process_time()
    while due:
        for batch in torch.randperm(len(x)).split(1024):
            optimiser.zero_grad()
            (-objective(model(x[batch]), y[batch])).backward()
            optimiser.step()
            steps += 1
            spent = time.process_time() - began
            if spent >= due[0]:
                model.eval()
                with torch.no_grad():
                    latent = model(held)
                    mean, variance = latent.mean.double()[:, None], latent.variance.double()[:, None]
                    issued = Gaussian(mean, variance, likelihood.noise.double())
                yield Mark(spent, Step(float("nan"), POINTS, True, f"{steps} steps"), scores(issued, rows.truth))
                model.train()
                due = [mark for mark in due if mark > spent]
                began = time.process_time() - spent
            if not due:
                return
