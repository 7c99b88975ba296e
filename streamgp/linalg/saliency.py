"""Which basis points a posterior mean needs."""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.linalg.cholesky import whiten


def salient(lower: Tensor, coefficients: Tensor, count: int) -> Tensor:
    """(count,) the basis points, in their order, that the means need most.

    Without point j the mean moves by a_j²/(K⁻¹)_jj in the RKHS norm, a = C⁻ᵀw; summed over columns.

    Args:
        lower: (m, m) C.
        coefficients: (m, T) the mean of w.
        count: of those that stay, at most m.

    Example:
        >>> salient(torch.eye(3).double(), torch.tensor([[1.0], [-3.0], [2.0]]).double(), 2).tolist()
        [1, 2]
    """
    inverse = whiten(lower, torch.eye(len(lower), dtype=FLOAT, device=lower.device))
    worth = (inverse.T @ coefficients).square().sum(1) / inverse.square().sum(0)
    return torch.sort(torch.argsort(worth, descending=True, stable=True)[:count]).values
