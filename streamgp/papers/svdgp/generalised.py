"""Inducing functions of the generalised SE-ARD kernel: every basis point has its own lengthscales (equation 19).

    ψ_mᵀψ_n = Π_d (2 l_d l'_d/(l_d² + l'_d²))^½ exp(−(z_d − z'_d)²/(l_d² + l'_d²)),    l_d = s_d c_d

Convention (Cheng & Boots 2017, appendix C.1): k(x, x') = ρ²φ_xᵀφ_x', cov(basis m, f(x)) = ρψ_mᵀφ_x, and φ_x is the
function with l = s. With c = 1 everything is the plain SE-ARD kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.training.decoupled import GrowingBasis


class GeneralisedBasis(GrowingBasis):
    """Points (M, 2d): z, then log c, which begins at 0."""

    @staticmethod
    def stored(width: int) -> int:
        """2d."""
        return 2 * width

    @staticmethod
    def made(x: Tensor) -> Tensor:
        """(k, d) -> (k, 2d) with c = 1."""
        return torch.cat((x, torch.zeros_like(x)), 1)

    @staticmethod
    def cross_of(x: Tensor, points: Tensor, lengthscale: Tensor) -> Tensor:
        """φ_xᵀψ_m, l of x being s; two matrix products: O(N M d).

        Example:
            >>> x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
            >>> wide = torch.tensor([[0.0, 2.0]], dtype=torch.float64).log().nan_to_num(neginf=0.0)
            >>> found = GeneralisedBasis.cross_of(x, wide, torch.ones(1).double())[:, 0]
            >>> [round(v, 4) for v in found.tolist()]  # (4/5)^½ and (4/5)^½ e^(−1/5)
            [0.8944, 0.7323]
        """
        middle, log_c = points.chunk(2, 1)
        x, z = x / lengthscale, middle / lengthscale
        c = log_c.exp()
        inverse = 1.0 / (1.0 + c.square())  # s²/(s² + l²)
        height = 0.5 * torch.log(2.0 * c * inverse).sum(1) - (inverse * z.square()).sum(1)
        left = torch.cat((x, x.square(), torch.ones_like(x[:, :1])), 1)
        right = torch.cat((2.0 * inverse * z, -inverse, height[:, None]), 1)
        return torch.exp(left @ right.T)

    @staticmethod
    def gram_of(points: Tensor, others: Tensor, lengthscale: Tensor) -> Tensor:
        """ψ_mᵀψ_n. Each pair has its own l² + l'², so that this is d passes over (M, K): O(M K d).

        Example:
            >>> two = GeneralisedBasis.made(torch.tensor([[0.0], [3.0]], dtype=torch.float64))
            >>> found = GeneralisedBasis.gram_of(two, two, torch.ones(1).double())[0]
            >>> [round(v, 4) for v in found.tolist()]  # 1 and e^(−9/2)
            [1.0, 0.0111]
        """
        (z, log_c), (w, log_e) = points.chunk(2, 1), others.chunk(2, 1)
        z, w, c, e = z / lengthscale, w / lengthscale, log_c.exp(), log_e.exp()
        total = 0.5 * (log_c.sum(1)[:, None] + log_e.sum(1))
        for d in range(z.shape[1]):
            squares = c[:, d].square()[:, None] + e[:, d].square()
            total = total + 0.5 * torch.log(2.0 / squares) - (z[:, d][:, None] - w[:, d]).square() / squares
        return torch.exp(total)
