"""What the tests of both ways of tuning by cross-validation share: draws from kernels, and the dense optimum."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.kernels import Kernel, Tied
from streamgp.linalg.cholesky import cholesky, solve
from streamgp.objectives.cross_validation import Partition

ONE = torch.zeros(1, dtype=torch.int64)
SE: Any = {"name": "squared_exponential", "lengthscale": 0.5}
LP: Any = {"name": "locally_periodic", "lengthscale": 0.5, "period": 1.0, "tied": True}


def tied(options: Any, **changes: float) -> Tied:
    return Tied(choice.read("kernels", {**options, **changes}), ONE)


def drawn(kernel: Tied, n: int, *, noise: float = 0.1, columns: int = 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """x (n, 1) uniform in [0, 10], y (n, columns) a draw from the process with that noise variance."""
    generator = torch.Generator().manual_seed(seed)
    x = 10.0 * torch.rand(n, 1, generator=generator, dtype=FLOAT)
    with torch.no_grad():
        root = torch.linalg.cholesky(kernel(x, x) + noise * torch.eye(n))
    return x, root @ torch.randn(n, columns, generator=generator, dtype=FLOAT)


def dense(kernel: Kernel, noise: Tensor, x: Tensor, y: Tensor, folds: Sequence[Partition]) -> Tensor:
    """() l(θ), summed over the folds, with graph, through Cholesky factors: the oracle.

    Args:
        kernel: k_θ.
        noise: (T,) σ_t².
        x: (n, D)
        y: (n, T)
        folds: one for hold-out.

    """
    total = y.new_zeros(())
    for train, validation in folds:
        gram, cross = kernel(x[train], x[train]), kernel(x[validation], x[train])
        eye = torch.eye(len(train), dtype=y.dtype, device=y.device)
        for column, own in enumerate(noise):
            z = solve(cholesky(gram + own * eye, first=0.0).lower, y[train, column : column + 1])
            total = total + (cross @ z - y[validation, column : column + 1]).square().sum()
    return total


def optimum(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, folds: Sequence[Partition]) -> float:
    """The least error a value held out, by L-BFGS through dense factors."""
    own, noise = copy.deepcopy(kernel), log_noise.clone().requires_grad_()
    learned = [*own.parameters(), noise]
    values = sum(len(fold.validation) for fold in folds) * y.shape[1]

    def evaluate(at: Any) -> tuple[float, Any]:
        with torch.no_grad():
            parts = torch.from_numpy(at.copy()).split([value.numel() for value in learned])
            for value, part in zip(learned, parts, strict=True):
                value.copy_(part.view_as(value))
        loss = dense(own, noise.exp(), x, y, folds) / values
        slopes = torch.autograd.grad(loss, learned)
        return loss.item(), np.concatenate([slope.numpy().ravel() for slope in slopes])

    begin = np.concatenate([value.detach().numpy().ravel() for value in learned])
    options = {"maxiter": 300, "maxfun": 300, "ftol": 1e-13, "gtol": 1e-9}
    return float(minimize(evaluate, begin, jac=True, method="L-BFGS-B", options=options).fun)


def error(
    kernel: Tied, state: dict[str, Tensor], noise: Tensor, x: Tensor, y: Tensor, folds: Sequence[Partition]
) -> float:
    """The error a value held out of what was tuned, through dense factors."""
    own = copy.deepcopy(kernel)
    own.load_state_dict(state)
    with torch.no_grad():
        return dense(own, noise, x, y, folds).item() / (sum(len(fold.validation) for fold in folds) * y.shape[1])
