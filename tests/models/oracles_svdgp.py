"""Dense twins of the closed-form SVDGP: NumPy and SciPy, written from the textbook formulas."""

from __future__ import annotations

import numpy as np
import scipy.linalg as sl
from numpy.typing import NDArray

Array = NDArray[np.float64]


def kernel(x: Array, z: Array, inverse: Array, outputscale: float) -> Array:
    """(N, W), (M, W) -> (N, M): ρ² exp(−½ Σ ((x − z) inverse)²), pair by pair."""
    apart = (x[:, None, :] - z[None, :, :]) * inverse
    return outputscale * np.exp(-0.5 * (apart**2).sum(-1))


def exact(train: Array, prior: Array, cross: Array, y: Array, noise: Array) -> tuple[Array, Array]:
    """GP regression (Rasmussen & Williams 2006, eqs. 2.25, 2.26) from Gram matrices.

    Args:
        train: (N, N) k(x, x); prior: (Q,) k(q, q); cross: (Q, N) k(q, x); y: (N, T); noise: (N,) of each row.

    Returns:
        mean (Q, T), latent variance (Q,)
    """
    solved = sl.solve(train + np.diag(noise), np.concatenate([y, cross.T], 1), assume_a="pos")
    columns = y.shape[1]
    return cross @ solved[:, :columns], prior - np.einsum("qn,nq->q", cross, solved[:, columns:])


def projected(x: Array, q: Array, basis: Array, y: Array, noise: Array, inverse: Array, rho: float, jitter: float):  # type: ignore[no-untyped-def]
    """The optimal sparse variational posterior on `basis` (Titsias 2009, eq. 10), without any whitening."""
    kzz = kernel(basis, basis, inverse, rho) + jitter * np.eye(len(basis))
    kxz, kqz = kernel(x, basis, inverse, rho), kernel(q, basis, inverse, rho)
    sigma = kzz + kxz.T @ (kxz / noise[:, None])
    mean = kqz @ sl.solve(sigma, kxz.T @ (y / noise[:, None]), assume_a="pos")
    lost = np.einsum("qm,mq->q", kqz, sl.solve(kzz, kqz.T, assume_a="pos"))
    kept = np.einsum("qm,mq->q", kqz, sl.solve(sigma, kqz.T, assume_a="pos"))
    return mean, rho - lost + kept


def negative_log_evidence(train: Array, y: Array, noise: float) -> float:
    """−log N(y; 0, K + σ²I) summed over columns, from SciPy's own density."""
    from scipy.stats import multivariate_normal

    covariance = train + noise * np.eye(len(train))
    return float(-sum(multivariate_normal(cov=covariance).logpdf(column) for column in y.T))
