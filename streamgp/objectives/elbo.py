"""The evidence lower bound of a decoupled Gaussian process, term by term (Cheng & Boots 2017).

ELBO = Σ_n E_q log p(y_n | f_n) − KL[q ‖ p], for T target columns that share bases and covariance and differ in their
means and noise: the mean terms sum over columns, the covariance terms count T times.

Convention: k(x, x') = ρ² φᵀφ', bases ψ with Gram matrices K = ψᵀψ free of ρ, cov(basis, f(x)) = ρ ψᵀφ.
q is the hybrid (appendix A.3): mean k(x, X̃)K⁻¹m̃ + k(x, α_r)a_r; covariance
k(x, x') − k(x, X̃)K⁻¹(K − S̃)K⁻¹k(X̃, x'). Whitened by K = L_k L_kᵀ: m̃ = L_k m', S̃ = L_k S' L_kᵀ.
"""

from __future__ import annotations

from torch import Tensor

from streamgp.linalg.cholesky import log_determinant


def quadratic_sampled(a: Tensor, columns: Tensor, index: Tensor) -> Tensor:
    """½ (M/|J|) Σ_t a_tᵀ K_{:,J} a_{J,t}: ½ Σ_t a_tᵀKa_t, the KL of a mean (first term of eq. 9), from |J| columns.

    Unbiased, where these are drawn without replacement.

    Args:
        a: (M, T)
        columns: (M, |J|), the columns K_{:,J}.
        index: (|J|,) J.

    Returns:
        ()
    """
    weight = 0.5 * a.shape[0] / max(index.shape[0], 1)
    return weight * (a * (columns @ a[index])).sum()


def hybrid_whitened_kl(mean: Tensor, root: Tensor, image: Tensor) -> Tensor:
    """KL of the hybrid in whitened coordinates, without its last mean term, which `quadratic_sampled` adds.

    Σ_t [½(‖m'‖² + tr S' − M − log|S'|) + m'ᵀ L_k⁻¹K_{X̃,αr} a_r].

    Args:
        mean: (M, T) m'.
        root: (M, M) lower triangular, S' = root rootᵀ, positive diagonal.
        image: (M, T) L_k⁻¹K_{X̃,αr}a_r.

    Returns:
        ()
    """
    spread = 0.5 * (root.square().sum() - mean.shape[0] - log_determinant(root))
    return (mean * (0.5 * mean + image)).sum() + mean.shape[1] * spread


def hybrid_variance(prior: Tensor, half: Tensor, root: Tensor) -> Tensor:
    """diag [k(x, x) − k(x, X̃)K⁻¹(K − S̃)K⁻¹k(X̃, x)]; may exceed the prior where S̃ does.

    Args:
        prior: (N,) k(x, x).
        half: (M, N) L_k⁻¹ k(X̃, x).
        root: (M, M), S' = root rootᵀ.

    Returns:
        (N,)
    """
    return prior - half.square().sum(0) + (root.T @ half).square().sum(0)


def scaled(terms: Tensor, weights: Tensor) -> Tensor:
    """Σ_n w_n Σ_t terms_nt: the fit of N rows, estimated from a batch whose rows stand for w_n rows each.

    With w = N/|b| it is (N/|b|) Σ_b, unbiased for a uniformly drawn batch. On a stream, new rows stand for themselves
    and R replayed ones for N/R each.

    Args:
        terms: (|b|, T) expected log likelihoods, 0 where not observed.
        weights: (|b|,)

    Returns:
        ()
    """
    return (weights @ terms).sum()
