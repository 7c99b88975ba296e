"""Bound E: a sum over rows that lies above the negative log marginal likelihood of a deep kernel, and touches it.

With θ, σ² and the posterior at latents H₀ held, for any latents H of the same rows and T columns,

    NLML(H) ≤ E(H) = Σ_i e_i(h_i) + Σ_t [ (N/2) log 2πσ_t² + KL₀_t ]
    e_i(h) = Σ_t [ (y_it − m_t(h))² + v_t(h) ] / (2σ_t²)

m and v are the posterior mean and latent variance, KL₀ the divergence of that posterior from the prior over the
function. It is minus the evidence lower bound of a sparse variational GP (Titsias 2009; Hensman et al. 2013) whose
inducing inputs are H₀ and whose q is the optimal one at H₀: hence E = NLML and ∇E = ∇NLML at H = H₀. Σ_i e_i has
unbiased mini-batches, so that an encoder can take large steps on it without a kernel solve; Al-Shedivat et al. (2017)
linearise NLML instead. Only the encoder may step on Σ_i e_i: in θ and σ² the constant counts too, without which σ²
would grow for ever.

N rows, T columns, d latent width.
"""

from __future__ import annotations

from torch import Tensor

from streamgp.solvers import Conditional


def rows(posterior: Conditional, h: Tensor, y: Tensor) -> Tensor:
    """e_i, the part of E that the encoder can change; differentiable in h.

    Args:
        posterior: frozen, at the stale latents.
        h: (N, d)
        y: (N, T)

    Returns:
        (N,) in nats.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> noise = torch.tensor([0.5, 2.0]).double()
        >>> flat = SimpleNamespace(noise=noise, moments=lambda h: (h.expand(-1, 2), 0 * h + noise))
        >>> rows(flat, torch.tensor([[1.0]]).double(), torch.tensor([[2.0, 3.0]]).double())  # (1 + ½)/1 + (4 + 2)/4
        tensor([3.], dtype=torch.float64)
    """
    mean, variance = posterior.moments(h)
    spread = (y - mean).square() + variance
    return (spread / (2 * posterior.noise)).sum(1)
