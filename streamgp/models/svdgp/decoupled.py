"""Inducing functions of the generalised SE-ARD kernel: every basis point may carry its own lengthscales.

Convention (Cheng & Boots 2017, appendix C.1): k(x, x') = ρ² φ_xᵀφ_x', cov(basis m, f(x)) = ρ ψ_mᵀφ_x, and
cov(basis m, basis n) = ψ_mᵀψ_n without ρ. A basis point z with relative widths c has lengthscales l_d = s_d c_d; with
c = 1 its ψ is the φ of z, and everything is the plain SE-ARD kernel, for one matrix product.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.kernels.squared_exponential import correlation


class Basis(NamedTuple):
    """M basis points.

    Attributes:
        points: (M, D) in units of the inputs.
        log_widths: (M, D) log c, or None for c = 1.
    """

    points: Tensor
    log_widths: Tensor | None = None

    def rows(self, index: Tensor | slice) -> Basis:
        """The basis points at `index`."""
        return Basis(self.points[index], None if self.log_widths is None else self.log_widths[index])


def cross(x: Tensor, basis: Basis, lengthscale: Tensor) -> Tensor:
    """φ_xᵀψ_m, without ρ (eq. 19 with l_x = s); two matrix products of width D.

    Args:
        x: (N, D)
        basis: M points.
        lengthscale: (D,) s.

    Returns:
        (N, M)

    Example:
        >>> x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> wide = Basis(x[:1], torch.tensor([[2.0]], dtype=torch.float64).log())
        >>> [round(v, 4) for v in cross(x, wide, torch.ones(1).double())[:, 0].tolist()]  # (4/5)^½ and (4/5)^½ e^(−1/5)
        [0.8944, 0.7323]
    """
    x, z = x / lengthscale, basis.points / lengthscale
    if basis.log_widths is None:
        return correlation(x, z)
    c = basis.log_widths.exp()
    inverse = 1.0 / (1.0 + c.square())  # s²/(l_x² + l_m²)
    height = 0.5 * torch.log(2.0 * c * inverse).sum(1) - (inverse * z.square()).sum(1)
    left = torch.cat((x, x.square(), torch.ones_like(x[:, :1])), 1)
    right = torch.cat((2.0 * inverse * z, -inverse, height[:, None]), 1)
    return torch.exp(left @ right.T)


def gram(left: Basis, right: Basis, lengthscale: Tensor) -> Tensor:
    """ψ_mᵀψ_n (eq. 19); free of ρ, with ones where m and n are the same point.

    Each pair has its own denominators l² + l'², so that with widths this is D passes over (M, K) instead of one
    matrix product.

    Args:
        left: M points.
        right: K points, both with widths or both without.
        lengthscale: (D,) s.

    Returns:
        (M, K)

    Example:
        >>> two = Basis(torch.tensor([[0.0], [3.0]], dtype=torch.float64), torch.zeros(2, 1, dtype=torch.float64))
        >>> [round(v, 4) for v in gram(two, two, torch.ones(1).double())[0].tolist()]  # 1 and e^(−9/2)
        [1.0, 0.0111]
    """
    z, w = left.points / lengthscale, right.points / lengthscale
    if left.log_widths is None or right.log_widths is None:
        return correlation(z, w)
    c, e = left.log_widths.exp(), right.log_widths.exp()
    total = 0.5 * (left.log_widths.sum(1)[:, None] + right.log_widths.sum(1))
    for d in range(z.shape[1]):
        squares = c[:, d].square()[:, None] + e[:, d].square()
        total = total + 0.5 * torch.log(2.0 / squares) - (z[:, d][:, None] - w[:, d]).square() / squares
    return torch.exp(total)
