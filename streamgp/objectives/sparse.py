"""The gradient of a whitened sparse variational bound in the kernel, in closed form (Hensman et al. 2013, 2015).

With inducing inputs Z, K_ZZ = LLᵀ, u = Lv and q(v_t) = N(m_t, S_t), the bound of T columns is

    ELBO = Σ_nt E log p(y_nt | f_nt) − Σ_t KL[N(m_t, S_t) ‖ N(0, I)],    f_nt ~ N(φ_nᵀm_t, k_nn − φ_nᵀ(I − S_t)φ_n)

with φ_n = L⁻¹k(Z, x_n). For a given q the kernel enters by φ and k_nn alone, so that its gradient needs no graph
through the factorisation: with g = ∂E/∂mean and h = ∂E/∂variance of each row and column and A = [φ_1 … φ_b],

    ∂/∂A = Σ_t m_t g_tᵀ + 2 (S_t − I) A diag(h_t),    ∂/∂K_ZX = L⁻ᵀ ∂/∂A,    ∂/∂k_nn = Σ_t h_nt,
    ∂/∂K_ZZ = −sym[L⁻ᵀ Φ((∂/∂A) Aᵀ) L⁻¹]

where Φ takes the lower triangle and half of the diagonal (Murray 2016, reverse mode of the Cholesky factor). Columns
that share S share one product. What is left to differentiate automatically is the kernel function itself.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class KernelGradient(NamedTuple):
    """∂ELBO in covariances.

    Attributes:
        cross: (b, M) in k(x, Z).
        gram: (M, M) in K_ZZ, symmetric.
        diagonal: (b,) in k(x, x).
    """

    cross: Tensor
    gram: Tensor
    diagonal: Tensor


class Belief(NamedTuple):
    """q(v) of T columns, P of which differ in S: P = 1 where all share it, else P = T.

    Attributes:
        mean: (M, T) m.
        excess: (P, M, M) S − I.
        logs: (P,) log |S|.
    """

    mean: Tensor
    excess: Tensor
    logs: Tensor

    def moments(self, phi: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """(b, M) features, (b,) prior variances -> mean (b, T), latent variance (b, P), of these' dtype; O(P b M²).

        Example:
            >>> belief = Belief(torch.ones(2, 1), -0.5 * torch.eye(2)[None], torch.tensor([-1.386]))
            >>> mean, variance = belief.moments(torch.tensor([[0.6, 0.0]]), torch.ones(1))
            >>> round(mean.item(), 2), round(variance.item(), 2)  # 1 − 0.36/2
            (0.6, 0.82)
        """
        reduced = torch.stack([((phi @ excess) * phi).sum(1) for excess in self.excess], 1).to(prior.dtype)
        return (phi @ self.mean).to(prior.dtype), (prior[:, None] + reduced).clamp(min=1e-12)

    def leading(self, m: int, kind: torch.dtype) -> Belief:
        """Of the leading m functions, in another dtype but for log |S|."""
        return Belief(self.mean[:m].to(kind), self.excess[:, :m, :m].to(kind), self.logs)

    def divergence(self) -> Tensor:
        """Σ_t KL[N(m_t, S_t) ‖ N(0, I)] = ½ Σ_t (‖m_t‖² + tr S_t − M − log |S_t|).

        Example:
            >>> Belief(torch.zeros(2, 1), torch.zeros(1, 2, 2), torch.zeros(1)).divergence().item()
            0.0
        """
        shared = self.mean.shape[1] / len(self.excess)
        trace = self.excess.diagonal(dim1=1, dim2=2).sum()
        return 0.5 * (self.mean.square().sum() + shared * (trace - self.logs.sum()))


def kernel_gradient(
    inverse: Tensor, phi: Tensor, belief: Belief, slope: Tensor, curve: Tensor, outer: Tensor
) -> KernelGradient:
    """See the module; O(P (b M² + M³)).

    Args:
        inverse: (M, M) L⁻¹.
        phi: (b, M) whitened features of a batch.
        belief: q, held.
        slope: (b, T) g.
        curve: (b, P) h, summed over the columns that share S.
        outer: (P, M, M) Σ_n h_n φ_nφ_nᵀ, which natural gradients need as well.

    Example:
        >>> one = torch.ones(1, 1)
        >>> belief = Belief(2.0 * one, torch.zeros(1, 1, 1), torch.zeros(1))
        >>> kernel_gradient(one, one, belief, slope=one, curve=0.0 * one, outer=torch.zeros(1, 1, 1)).cross
        tensor([[2.]])
    """
    cross = slope @ (belief.mean.T @ inverse)
    inner = belief.mean @ (slope.T @ phi)  # (∂/∂A) Aᵀ
    for p, excess in enumerate(belief.excess):
        cross += (2.0 * curve[:, p, None] * phi) @ (excess @ inverse)
        inner += 2.0 * excess @ outer[p]
    lower = inner.tril()
    lower.diagonal().mul_(0.5)
    gram = -0.5 * inverse.T @ (lower + lower.T) @ inverse
    return KernelGradient(cross, gram, curve.sum(1))
