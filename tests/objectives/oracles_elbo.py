"""Dense twins of the decoupled posterior: Gaussians over every function value that it mentions, in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def gaussian_kl(mean: Array, cov: Array, prior: Array) -> float:
    """KL[N(mean, cov) ‖ N(0, prior)] by its textbook formula."""
    inverse = np.linalg.inv(prior)
    logs = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(cov)[1]
    return float(0.5 * (np.trace(inverse @ cov) + mean @ inverse @ mean - len(mean) + logs))


def decoupled(joint: Array, at_alpha: slice, at_beta: slice, a: Array, root: Array) -> tuple[Array, Array]:
    """Mean and covariance of q over all functions of `joint`, by eq. (8) with explicit inverses."""
    b = root @ root.T
    middle = np.linalg.inv(np.linalg.inv(b) + joint[at_beta, at_beta])
    return joint[:, at_alpha] @ a, joint - joint[:, at_beta] @ middle @ joint[at_beta, :]


def hybrid(joint: Array, at_inducing: slice, at_residual: slice, m: Array, s: Array, a: Array) -> tuple[Array, Array]:
    """Mean and covariance of the hybrid q over all functions of `joint`, with explicit inverses."""
    inverse = np.linalg.inv(joint[at_inducing, at_inducing])
    across = joint[:, at_inducing] @ inverse
    mean = across @ m + joint[:, at_residual] @ a
    return mean, joint - across @ (joint[at_inducing, at_inducing] - s) @ across.T


def log_evidence(y: Array, kernel: Array, noise: float) -> float:
    """log N(y | 0, K + σ²I)."""
    total = kernel + noise * np.eye(len(y))
    return float(-0.5 * (y @ np.linalg.solve(total, y) + np.linalg.slogdet(total)[1] + len(y) * np.log(2 * np.pi)))
