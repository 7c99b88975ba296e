"""The evidence lower bound in weight space from sampled rows and sampled features (Evans & Nair 2020, section 2).

f = φ(x)ᵀw, w ~ N(0, S⁻¹) a priori, q(w) = N(μ, CCᵀ); ELBO = −½ (L_μ + L_Σ + L_const) (eq. 2). A step sees ñ of n rows
and m̃ of m features; each term below has the expectation of its dense counterpart, and so has its gradient.

T target columns share Φ, S and C, and differ in μ_t and σ_t²: L_μ sums over columns; in L_Σ the data terms carry
Σ_t 1/σ_t² and the prior's trace and log-determinant count T times; L_const sums over columns.

Two weights carry every factor of the theorems:

- `precision` (ñ, T): how many rows a drawn row stands for (n/ñ), over σ_t²; 0 where y is not observed (`precisions`).
- `weight`: how many features a drawn feature stands for: m/m̃ when drawn one by one with replacement, the number of
  cells when a whole cell of a fixed partition is drawn (`draws`).

i and j must be independent draws; equal ones may occur, but must not be arranged, nor excluded. Every tensor may have
leading batch dimensions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from streamgp.linalg.cholesky import cholesky


def precisions(y: Tensor, noise: Tensor, rows: float | Tensor) -> Tensor:
    """What a drawn row weighs in each column: (rows it stands for)/σ_t², 0 where y is NaN.

    Args:
        y: (..., ñ, T)
        noise: (..., T) σ_t², squared target units.
        rows: n/ñ, or (ñ,) a number for each row.

    Returns:
        (..., ñ, T)

    Example:
        >>> precisions(torch.tensor([[1.0, 2.0], [3.0, torch.nan]]), torch.tensor([0.5, 2.0]), rows=10.0)
        tensor([[20.,  5.],
                [20.,  0.]])
    """
    return _counts(y, rows) / noise[..., None, :]


def fit_term(image_i: Tensor, image_j: Tensor, y: Tensor, precision: Tensor, weight: float) -> Tensor:
    """The data's part of L_μ: −(2nm/σ²ñm̃) y_ℓᵀΦ_{ℓi}μ_i + (nm²/σ²ñm̃²) μ_jᵀΦ_{ℓj}ᵀΦ_{ℓi}μ_i (Theorem 1).

    Args:
        image_i, image_j: (..., ñ, T) Φ_{ℓi}μ_i and Φ_{ℓj}μ_j.
        y: (..., ñ, T), NaN = not observed.
        precision: (..., ñ, T) of `precisions`.
        weight: features that a drawn one stands for.

    Returns:
        (...)
    """
    target = torch.where(y.isnan(), 0.0, y)
    return (precision * weight * image_i * (weight * image_j - 2.0 * target)).sum((-2, -1))


def prior_term(mu_i: Tensor, mu_j: Tensor, s_ji: Tensor, weight: float) -> Tensor:
    """The prior's part of L_μ for any S: (m²/m̃²) μ_jᵀS_{ji}μ_i (Theorem 1).

    Args:
        mu_i, mu_j: (..., m̃, T)
        s_ji: (..., m̃, m̃), rows j, columns i.
        weight: features that a drawn one stands for.

    Returns:
        (...)
    """
    return weight**2 * (mu_j * (s_ji @ mu_i)).sum((-2, -1))


def diagonal_prior_term(mu_i: Tensor, s_i: Tensor, weight: float) -> Tensor:
    """`prior_term` for a diagonal S as one sum, (m/m̃) Σ_{u∈i} s_uu μ_u² (ours).

    The product form is 0 for nearly all pairs of draws and (m/m̃)² times its share for the few that meet; this has the
    same expectation and the variance of a single draw.

    Args:
        mu_i: (..., m̃, T)
        s_i: (..., m̃) the diagonal of S at i.
        weight: features that a drawn one stands for.

    Returns:
        (...)
    """
    return weight * (s_i[..., None] * mu_i.square()).sum((-2, -1))


def mean_term(
    phi_i: Tensor, phi_j: Tensor, mu_i: Tensor, mu_j: Tensor, y: Tensor, precision: Tensor, s_ji: Tensor, weight: float
) -> Tensor:
    """L_μ as Theorem 1 prints it: `fit_term` and `prior_term`.

    Args:
        phi_i, phi_j: (..., ñ, m̃) the drawn features at the drawn rows.
        mu_i, mu_j: (..., m̃, T)
        y, precision: (..., ñ, T)
        s_ji: (..., m̃, m̃)
        weight: features that a drawn one stands for.

    Returns:
        (...)

    Example:
        >>> phi, mu, y = torch.eye(2), torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [1.0]])
        >>> mean_term(phi, phi, mu, mu, y, torch.ones(2, 1), torch.eye(2), weight=1.0).item()  # −2·3 + 5 + 5
        4.0
    """
    return fit_term(phi_i @ mu_i, phi_j @ mu_j, y, precision, weight) + prior_term(mu_i, mu_j, s_ji, weight)


def covariance_term(
    phi_i: Tensor,
    phi_j: Tensor,
    c_ir: Tensor,
    c_jr: Tensor,
    c_rr: Tensor,
    s_ji: Tensor,
    precision: Tensor,
    weight: float,
) -> Tensor:
    """L_Σ as Theorem 2 prints it, for any lower triangular C: columns r, rows i and j, and data rows ℓ all drawn.

    For a chevron the stratified form, `columns_term` + `diagonal_term` + `log_term`, has far less variance: i and j
    seldom meet the one entry of a diagonal column.

    Args:
        phi_i, phi_j: (..., ñ, m̃)
        c_ir, c_jr: (..., m̃, |r|) blocks of C; r drawn as i and j are, and independently of both.
        c_rr: (..., |r|) diagonal entries of C at r, positive.
        s_ji: (..., m̃, m̃)
        precision: (..., ñ, T)
        weight: features that a drawn one stands for.

    Returns:
        (...)
    """
    return weight * columns_term(phi_i, phi_j, c_ir, c_jr, s_ji, precision, weight) + log_term(
        c_rr, precision.shape[-1], weight
    )


def columns_term(
    phi_i: Tensor, phi_j: Tensor, c_i: Tensor, c_j: Tensor, s_ji: Tensor, precision: Tensor, weight: float
) -> Tensor:
    """Σ_r (nm²/σ²ñm̃²) c_{jr}ᵀΦ_{ℓj}ᵀΦ_{ℓi}c_{ir} + (m²/m̃²) c_{jr}ᵀS_{ji}c_{ir} over whole columns r (Theorem 2).

    Args:
        phi_i, phi_j: (..., ñ, m̃)
        c_i, c_j: (..., m̃, k) rows i and j of the dense columns of C. i and j may be those of the mean.
        s_ji: (..., m̃, m̃)
        precision: (..., ñ, T)
        weight: features that a drawn one stands for.

    Returns:
        (...)
    """
    fit = precision.sum(-1, keepdim=True) * (phi_i @ c_i) * (phi_j @ c_j)
    return weight**2 * fit.sum((-2, -1)) + precision.shape[-1] * prior_term(c_i, c_j, s_ji, weight)


def diagonal_term(phi_i: Tensor, c_ii: Tensor, s_i: Tensor, precision: Tensor, weight: float) -> Tensor:
    """The diagonal columns of C as one sum over i: (m/m̃) Σ_{u∈i, u≥k} c_uu² ((n/σ²ñ) φ_{ℓu}ᵀφ_{ℓu} + s_uu) (ours).

    Args:
        phi_i: (..., ñ, m̃)
        c_ii: (..., m̃) diagonal entries of C at i, **0 for u < k**: those are in the dense columns
            (`QuadrupleDescent.entries`).
        s_i: (..., m̃) diagonal of S at i.
        precision: (..., ñ, T)
        weight: features that a drawn one stands for.

    Returns:
        (...)
    """
    squares = (precision.sum(-1, keepdim=True) * phi_i.square()).sum(-2)
    return weight * (c_ii.square() * (squares + precision.shape[-1] * s_i)).sum(-1)


def log_term(c_rr: Tensor, columns: int, weight: float) -> Tensor:
    """−log|Σ| for T columns from drawn diagonal entries: −(m/m̃) 2T Σ_r log c_rr (Theorem 2).

    Args:
        c_rr: (..., |r|) diagonal entries of C, dense columns' and others' alike, positive.
        columns: T.
        weight: features that a drawn one stands for.

    Returns:
        (...)
    """
    return -2.0 * columns * weight * c_rr.log().sum(-1)


def constant_term(y: Tensor, noise: Tensor, rows: float | Tensor, s_i: Tensor, features: int, weight: float) -> Tensor:
    """L_const for a diagonal S: −(m/m̃) Σ_i log s_ii − m + n log 2πσ² + (n/σ²ñ) y_ℓᵀy_ℓ, summed over columns (Prop. 2).

    Needed for hyper-parameters only. n is the number of rows that the drawn ones stand for.

    Args:
        y: (..., ñ, T), NaN = not observed.
        noise: (..., T) σ_t².
        rows: n/ñ, or (ñ,).
        s_i: (..., m̃) diagonal of S at i.
        features: m.
        weight: features that a drawn one stands for.

    Returns:
        (...)
    """
    target, noise = torch.where(y.isnan(), 0.0, y), noise[..., None, :]
    data = (_counts(y, rows) * ((2.0 * math.pi * noise).log() + target.square() / noise)).sum((-2, -1))
    return data - y.shape[-1] * (weight * s_i.log().sum(-1) + features)


def diagonal_optimum(squares: Tensor, s: Tensor, precision: float | Tensor) -> Tensor:
    """The diagonal entries that maximise the ELBO, c_rr = (φ_rᵀφ_r/σ² + s_rr)^−½ (Prop. 1), free of the other columns.

    For T columns 1/σ² is the mean of 1/σ_t².

    Args:
        squares: (...) φ_rᵀφ_r over all rows.
        s: (...) s_rr.
        precision: 1/σ².

    Example:
        >>> diagonal_optimum(torch.tensor([6.0]), torch.tensor([1.0]), precision=0.5)
        tensor([0.5000])
    """
    return torch.rsqrt(squares * precision + s)


def dense_optimum(matrix: Tensor, columns: int) -> Tensor:
    """The dense columns that maximise the ELBO: c_r = A_rr⁻¹e₁ / √(e₁ᵀA_rr⁻¹e₁) on rows ≥ r, A_rr the rows ≥ r (ours).

    Every column has its own optimum, since L_Σ = Σ_r [c_rᵀA c_r − 2 log c_rr]. With A = UUᵀ, U upper triangular, c_r is
    column r of U⁻ᵀ: one factorisation, O(m³), and k triangular solves. With k = m, CCᵀ = A⁻¹, the exact posterior.

    Args:
        matrix: (m, m) A = ΦᵀΦ/σ² + S, float64; for T columns 1/σ² is the mean of 1/σ_t².
        columns: k ≤ m.

    Returns:
        (m, k), 0 above the diagonal.

    Raises:
        NotPositiveDefinite: A is not.

    Example:
        >>> a = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> c = dense_optimum(a, 2)
        >>> torch.allclose(c @ c.T, a.inverse())
        True
    """
    size = matrix.shape[0]
    upper = cholesky(matrix.flip(0, 1), first=0.0).lower.flip(0, 1)
    units = torch.eye(size, columns, dtype=matrix.dtype, device=matrix.device)
    result: Tensor = torch.linalg.solve_triangular(upper.mT, units, upper=False)
    return result


def _counts(y: Tensor, rows: float | Tensor) -> Tensor:
    """(..., ñ, T) rows that each observed value stands for."""
    each = rows[..., :, None] if isinstance(rows, Tensor) else rows
    return torch.where(y.isnan(), 0.0, torch.ones_like(y) * each)
