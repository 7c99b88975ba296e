"""The KL divergence of two decoupled Gaussian measures, for any prior (Cheng & Boots 2017, theorem 1, equation 17).

    q = N(Ψ_α a, (I + Ψ_βBΨ_βᵀ)⁻¹),    p = N(Ψ_ᾱ ā, (I + Ψ_β̄B̄Ψ_β̄ᵀ)⁻¹),    R = (B⁻¹ + K_β)⁻¹,    G_uv = K_uv + K_uβ̄B̄K_β̄v

    KL[q ‖ p] = ½ log|I + K_βB| − ½ log|I + K_β̄B̄| + ½ tr(K_β̄B̄) − ½ tr(G_ββR) + ½ Σ (aᵀG_αα a − 2aᵀG_αᾱ ā + āᵀG_ᾱᾱ ā)

It holds in any dimension; with B̄ = 0 and ā = 0 the prior is normal, and it is equation 9.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from streamgp.kernels.squared_exponential import correlation
from streamgp.linalg.cholesky import log_determinant, whiten
from streamgp.papers.svdgp.decoupled import covariance_factor


class Measure(NamedTuple):
    """A decoupled Gaussian measure.

    Attributes:
        alpha: (M_α, d) points of the mean, divided by the lengthscales.
        a: (M_α, T)
        beta: (M_β, d) points of the covariance, divided by the lengthscales.
        root: (M_β, M_β) L, B = LLᵀ.
    """

    alpha: Tensor
    a: Tensor
    beta: Tensor
    root: Tensor


def divergence(q: Measure, p: Measure) -> Tensor:
    """KL[q ‖ p], () summed over T columns. O(M³), M all points together.

    Example:
        >>> import torch
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> normal, q = Measure(one, 0.0 * one, one, 0.0 * one), Measure(one, one, one, one)
        >>> round(divergence(q, normal).item(), 4)  # ½ (1 + log 2 − ½)
        0.5966
        >>> round(divergence(q, q).item(), 4)
        0.0
    """
    columns = q.a.shape[1]

    def gram(u: Tensor, v: Tensor) -> Tensor:
        """G_uv"""
        return correlation(u, v) + (correlation(u, p.beta) @ p.root) @ (correlation(v, p.beta) @ p.root).T

    own, other = (covariance_factor(correlation(m.beta, m.beta), m.root) for m in (q, p))
    half = whiten(own, q.root.T)  # R = halfᵀhalf
    spread = log_determinant(own) - log_determinant(other)
    spread = spread + (p.root * (correlation(p.beta, p.beta) @ p.root)).sum()
    spread = spread - (half @ gram(q.beta, q.beta) * half).sum()
    mean = (q.a * (gram(q.alpha, q.alpha) @ q.a)).sum() - 2.0 * (q.a * (gram(q.alpha, p.alpha) @ p.a)).sum()
    mean = mean + (p.a * (gram(p.alpha, p.alpha) @ p.a)).sum()
    return 0.5 * (columns * spread + mean)
