"""BSGD: the marginal likelihood of a mini-batch by itself, as though it were all rows (Chen et al. 2020). Biased.

By Theorem B.1 its loss is l of those rows at their own w (Shoham & Avron, section 4.2, print another
form, which it is not). So its gradients are those of SCGD's form with

    P = F_b⁻¹,   F_b = Σ_b φ_iφ_iᵀ + κI,   w_b = F_b⁻¹Φᵀy,   N = |b|

and the head's w is not looked at: its gradient is 0. F_b lacks the factor N/|b|, thus P is too large, and a mini-batch
fits its |b| < d rows as well as it likes: the noise falls far below the error on all rows, slower with a smaller
`noise_rate`, and without a floor on it training often ends in overfitted features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.linalg.cholesky import log_determinant
from streamgp.objectives.finite_evidence import Determinant, factorised, gradients, regularised, ridge
from streamgp.training.finite_head import Estimate, Estimator, FiniteHead, through_floor


class Bsgd(Estimator):
    """The mini-batch's own l per row. O(min(|b|, d)³ + |b|d min(|b|, d)) a step; nothing is kept.

    Example:
        >>> phi, y = torch.eye(3, 2, dtype=FLOAT), torch.ones(3, 1, dtype=FLOAT)
        >>> head = FiniteHead(2, 1, noise=1.0)
        >>> round(float(3 * Bsgd().estimate(phi, y, head, total=100).value), 6)  # 2·½ + 1 + 2 log 2
        3.386294
    """

    def estimate(self, phi: Tensor, y: Tensor, head: FiniteHead, total: int) -> Estimate:
        """l_b/|b| and its gradients; `total` is not looked at."""
        with torch.no_grad():
            rows, targets, noise = phi.to(FLOAT), y.to(FLOAT), head.noise
            kappa = ridge(noise)
            weights, part = _own(rows, targets, kappa)
            found = gradients(rows, targets, weights, noise, part, len(rows))
            own = found._replace(phi=found.phi.to(phi.dtype), weights=torch.zeros_like(found.weights))
            return through_floor(own, noise, head)

    def determinant(self, phi: Tensor, kappa: Tensor, total: int) -> Determinant:
        """log|F_b|, F_b⁻¹φ_i and tr F_b⁻¹; `total` is not looked at."""
        return _own(phi, phi.new_zeros(len(phi), 1), kappa)[1]


def _own(phi: Tensor, y: Tensor, kappa: Tensor) -> tuple[Tensor, Determinant]:
    """(d, T) w_b and the determinant's part, by way of the smaller of ΦᵀΦ and ΦΦᵀ."""
    count, width = phi.shape
    if width < count:
        lower = factorised(regularised(phi.T @ phi, kappa))
        inverse = torch.cholesky_inverse(lower)
        part = Determinant(log_determinant(lower), phi @ inverse, inverse.trace())
        return inverse @ (phi.T @ y), part
    lower = factorised(regularised(phi @ phi.T, kappa))
    inverse = torch.cholesky_inverse(lower)
    rest = width - count
    part = Determinant(rest * kappa.log() + log_determinant(lower), inverse @ phi, rest / kappa + inverse.trace())
    return phi.T @ (inverse @ y), part
