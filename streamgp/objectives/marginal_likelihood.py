"""The negative log marginal likelihood of T columns that share their noise as well as their kernel.

With C = k(X, X) + σ²I, the same for all columns, and A = C⁻¹Y

    NLML = ½ [ tr(YᵀA) + T log|C| + T n log 2π ],   ∂NLML/∂C = ½ [ T C⁻¹ − A Aᵀ ]

(Rasmussen & Williams 2006, equations 2.30 and 5.9, summed over columns): one factorisation for all of them, where
columns with a noise of their own (`streamgp.solvers.exact`) need one each.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from streamgp.kernels import Kernel
from streamgp.linalg.cholesky import cholesky, log_determinant, solve
from streamgp.solvers import attach


def shared_noise(kernel: Kernel, noise: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """() NLML, differentiable in the hyper-parameters, the noise and x; O(n³ + n²(T + W)).

    Args:
        kernel: over W columns.
        noise: () σ².
        x: (n, W)
        y: (n, T), none missing.

    Raises:
        NotPositiveDefinite: C cannot be factorised.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), 1)
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> noise = torch.tensor(1.0).double()
        >>> round(shared_noise(kernel, noise, 0 * one, 2 * one).item(), 6)  # ½ [4/2 + log 2 + log 2π]
        2.265512
    """
    gram: Tensor = kernel(x, x)
    with torch.no_grad():
        covariance = gram.detach().clone()
        covariance.diagonal().add_(noise.detach())
        lower = cholesky(covariance, first=0.0).lower
        alpha = solve(lower, y)
        columns = y.shape[1]
        constant = len(y) * math.log(2.0 * math.pi)
        value = 0.5 * ((y * alpha).sum() + columns * (log_determinant(lower) + constant))
    if not (torch.is_grad_enabled() and (gram.requires_grad or noise.requires_grad)):
        return value
    with torch.no_grad():
        slope = torch.cholesky_inverse(lower).mul_(0.5 * columns).addmm_(alpha, alpha.mT, alpha=-0.5)
    return attach(attach(value, gram, slope), noise, slope.trace())
