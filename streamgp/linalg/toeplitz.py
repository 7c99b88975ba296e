"""Products with symmetric Toeplitz matrices, their Kronecker products, and sums of these.

A stationary kernel on a regular grid is K_UU = Σ_p T_p1 ⊗ … ⊗ T_pd (Wilson & Nickisch 2015, section 4; Saatçi 2011,
section 5). A Toeplitz matrix is the corner of a circulant one, which the Fourier transform makes diagonal: its
product costs O(m log m). A departure: factors of up to `DENSE` points are multiplied as matrices, which is faster
there, by three times for 32 × 32 points and 16 right-hand sides on one thread.

Shapes: m_d grid points along dimension d, m = Π m_d in all, the last dimension fastest; k right-hand sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from streamgp.errors import NotPositiveDefinite

DENSE = 128
"""Points of a factor up to which it is multiplied as a matrix."""
_NEGATIVE = 1e-8
"""Size of a negative eigenvalue, relative to the largest, that rounding explains."""


def matrix(column: Tensor) -> Tensor:
    """The symmetric Toeplitz matrix (m, m) with the first column (m,).

    Example:
        >>> matrix(torch.tensor([3.0, 1.0, 0.0]))
        tensor([[3., 1., 0.],
                [1., 3., 1.],
                [0., 1., 3.]])
    """
    place = torch.arange(len(column), device=column.device)
    return column[(place[:, None] - place).abs()]


def multiply(column: Tensor, right: Tensor) -> Tensor:
    """T right by the FFT of the circulant embedding of T (Golub & Van Loan 2013, section 4.8); differentiable in both.

    Args:
        column: (m,), the first column of T.
        right: (..., m, k)

    Returns:
        (..., m, k)

    Example:
        >>> multiply(torch.tensor([3.0, 1.0, 0.0]).double(), torch.eye(3).double()[:, :1]).T.round(decimals=9).abs()
        tensor([[3., 1., 0.]], dtype=torch.float64)
    """
    size = len(column)
    embedded = torch.cat((column, column.new_zeros(1), column[1:].flip(0)))  # (2m,) symmetric, so its spectrum is real
    spectrum = torch.fft.rfft(embedded).real[:, None]
    product = torch.fft.irfft(torch.fft.rfft(right, n=2 * size, dim=-2) * spectrum, n=2 * size, dim=-2)
    out: Tensor = product.narrow(-2, 0, size)
    return out


class KroneckerSum:
    """K = Σ_p T_p1 ⊗ … ⊗ T_pd, known by the first columns of its factors and never formed.

    Attributes:
        terms: the terms p, each the first columns (m_d,) of its d factors.
        sizes: (m_1, …, m_d).
        count: m.

    Example:
        >>> a, b = torch.tensor([2.0, 1.0]).double(), torch.tensor([3.0, 0.0]).double()
        >>> KroneckerSum([[a, b]]).multiply(torch.ones(4, 1).double()).T
        tensor([[9., 9., 9., 9.]], dtype=torch.float64)
    """

    def __init__(self, terms: Sequence[Sequence[Tensor]]) -> None:
        self.terms = [list(term) for term in terms]
        self.sizes = tuple(len(column) for column in self.terms[0])
        self.count = math.prod(self.sizes)
        self._matrices = [[matrix(c) if len(c) <= DENSE else None for c in term] for term in self.terms]

    def detach(self) -> KroneckerSum:
        """The same matrix, a constant that later steps on the hyper-parameters do not change."""
        return KroneckerSum([[column.detach().clone() for column in term] for term in self.terms])

    def multiply(self, right: Tensor) -> Tensor:
        """(m, k) -> (m, k): K right, one dimension after the other; differentiable in the columns and in `right`.

        O(k m Σ_d min(m_d, log m_d)) a term.
        """
        total = torch.zeros_like(right)
        for term, matrices in zip(self.terms, self._matrices, strict=True):
            product = right
            for dim, (column, dense) in enumerate(zip(term, matrices, strict=True)):
                folded = product.reshape(math.prod(self.sizes[:dim]), len(column), -1)
                product = multiply(column, folded) if dense is None else dense @ folded
            total = total + product.reshape(right.shape)
        return total

    def sample(self, count: int, generator: Generator) -> Tensor:
        """Draw `count` vectors from N(0, K): (m, count).

        Each term is drawn from the symmetric eigenvalue roots of its factors, O(Σ m_d³), and the terms are added.

        Raises:
            NotPositiveDefinite: a factor has an eigenvalue below −1e-8 of its largest.
        """
        total = self.terms[0][0].new_zeros(self.count, count)
        for term in self.terms:
            product = torch.randn(total.shape, generator=generator, dtype=total.dtype).to(term[0])
            for dim, column in enumerate(term):
                folded = product.reshape(math.prod(self.sizes[:dim]), len(column), -1)
                product = _root(column) @ folded
            total = total + product.reshape(total.shape)
        return total


def _root(column: Tensor) -> Tensor:
    """(m,) -> (m, m): R with RRᵀ = T; rounding may leave T indefinite, which a Cholesky factor would not survive."""
    values, vectors = torch.linalg.eigh(matrix(column.detach()))
    if values[0] < -_NEGATIVE * values[-1].abs():
        raise NotPositiveDefinite(
            f"a kernel on a grid of {len(column)} points has the eigenvalue {values[0]:.3g}",
            hint="use a kernel whose Toeplitz factors are positive semi-definite",
        )
    root: Tensor = vectors * values.clamp(min=0.0).sqrt()
    return root


def circulant_eigenvalues(column: Tensor) -> Tensor:
    """Eigenvalues (m,) of the circulant matrix nearest to T in the Frobenius norm, in the order of the frequencies.

    Its first column is c_i = ((m − i) t_i + i t_{m−i})/m (T. Chan 1988, eq. 2.4). It is positive definite where T is.

    Example:
        >>> circulant_eigenvalues(torch.tensor([2.0, 1.0]).double())
        tensor([3., 1.], dtype=torch.float64)
    """
    size = len(column)
    share = torch.arange(size, dtype=column.dtype, device=column.device) / size
    mirrored = torch.cat((column[:1], column[1:].flip(0)))  # t_{m−i}; the first is not used
    eigenvalues: Tensor = torch.fft.fft((1 - share) * column + share * mirrored).real
    return eigenvalues


def scaled_log_determinant(terms: Sequence[Sequence[Tensor]], count: int, noise: Tensor) -> Tensor:
    """log|W K_UU Wᵀ + σ²I| ≈ Σ_{i ≤ n} log((n/m) λ_i + σ²), λ the circulant eigenvalues of K_UU, largest first.

    The scaled eigenvalue method (Wilson & Nickisch 2015, section 4.2; Wilson, Dann & Nickisch 2015, section 3.1.1 for
    the circulant eigenvalues) for n rows that lie evenly over the grid. All circulants share their eigenvectors, so
    that those of a sum of terms are sums. Eigenvalues below 0 count as 0; where n > m the rest are 0.

    Args:
        terms: as `KroneckerSum` takes them.
        count: n, rows.
        noise: (), σ².

    Returns:
        (), differentiable in the columns and in σ².

    Example:
        >>> white = [[torch.tensor([1.0, 0.0, 0.0, 0.0]).double()]]
        >>> scaled_log_determinant(white, 4, torch.tensor(1.0).double()).item()  # 4 log 2
        2.772588722239781
    """
    total: Tensor | None = None
    for term in terms:
        product = torch.ones((), dtype=noise.dtype, device=noise.device)
        for column in term:
            product = (product[..., None] * circulant_eigenvalues(column)).reshape(-1)
        total = product if total is None else total + product
    assert total is not None
    size = len(total)
    largest = total.sort(descending=True).values[:count].clamp(min=0.0)
    return torch.log(count / size * largest + noise).sum() + max(count - size, 0) * noise.log()
