"""SVDGP fitted to kin40k has an RMSE of at most 0.225 within 60 CPU-seconds of one thread, and at most 0.95 of that of
GPyTorch's SVGP with 512 inducing points after the same CPU time.

SVDGP runs with its defaults, an epoch a line; what counts is the last epoch that ended within the budget. GPyTorch:
SE-ARD kernel, 512 inducing points, Adam 0.01, batches of 1024, float32, the settings of its own examples.

    python benchmarks/svdgp_beats_svgp_on_kin40k.py [--data uci_kin40k.parquet] [--budget 60]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import gpytorch
import torch
from _kin40k import DEFAULT, SHAPE, load, rmse, scores, windows
from torch import Tensor

from streamgp.models import svdgp

LIMIT, RATIO, POINTS = 0.225, 0.95, 512


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


def gpytorch_rmse(x: Tensor, y: Tensor, held: Tensor, truth: Tensor, budget: float) -> tuple[float, int]:
    """RMSE on the held-out rows after `budget` CPU-seconds of training, and the steps taken."""
    torch.manual_seed(0)
    x, y, held = x.float(), y[:, 0].float(), held.float()
    model, likelihood = Svgp(x[torch.randperm(len(x))[:POINTS]].clone()), gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    began, steps = time.process_time(), 0
    while time.process_time() - began < budget:
        for rows in torch.randperm(len(x)).split(1024):
            optimiser.zero_grad()
            (-objective(model(x[rows]), y[rows])).backward()
            optimiser.step()
            steps += 1
            if time.process_time() - began >= budget:
                break
    model.eval()
    with torch.no_grad():
        return rmse(model(held).mean.double()[:, None], truth), steps


def main(data: Path, budget: float) -> int:
    if not data.exists():
        print(f"there is no {data.name} at {data.parent}: give it with --data")
        return 0
    torch.set_num_threads(1)
    x, y, held, truth = load(data)
    model, taken, best, spent = svdgp.build(svdgp.Config(), SHAPE), 0.0, float("inf"), 0.0
    began = time.process_time()
    for step in model.fit(windows(x), y, epochs=100):
        taken = time.process_time() - began
        issued = model.predict(windows(held))
        print(f"svdgp  {step.basis:5d} functions  {taken:5.1f} CPU-s  {scores(issued, truth)}", flush=True)
        if taken <= budget:
            best, spent = rmse(issued.mean, truth), taken
        began = time.process_time() - taken
    other, steps = gpytorch_rmse(x, y, held, truth, spent)
    print(f"svgp   {POINTS:5d} points     {spent:5.1f} CPU-s  rmse {other:.4f}  ({steps} steps)")
    print(f"svdgp {best:.4f} within {budget:.0f} CPU-s (limit {LIMIT}), ratio {best / other:.3f} (limit {RATIO})")
    return 0 if best <= LIMIT and best <= RATIO * other else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--budget", type=float, default=60.0)
    asked = parser.parse_args()
    sys.exit(main(asked.data, asked.budget))
