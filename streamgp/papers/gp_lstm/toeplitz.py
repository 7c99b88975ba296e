"""Products with symmetric Toeplitz matrices, their Kronecker products, and sums of these.

A stationary kernel on a regular grid is K_UU = Σ_p T_p1 ⊗ … ⊗ T_pd (Wilson & Nickisch 2015, section 4; Saatçi 2011,
section 5). A Toeplitz matrix is the corner of a circulant one, which the Fourier transform makes diagonal: its
product costs O(m log m). Factors of up to `DENSE` points are multiplied as matrices unless FFT is asked for, which is
faster there: by about three times for 32 × 32 points, five to eight for 12^4, on one thread.

Shapes: m_d grid points along dimension d, m = Π m_d in all, the last dimension fastest; k right-hand sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from streamgp.errors import NotPositiveDefinite
from streamgp.linalg.interpolate import toeplitz

DENSE = 128
"""Points of a factor up to which it is multiplied as a matrix."""
_NEGATIVE = 1e-8
"""Size of a negative eigenvalue, relative to the largest, that rounding explains."""


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

    Args:
        terms: the terms p, each the first columns (m_d,) of its d factors.
        dense: points up to which a factor is multiplied as a matrix; 0: never.

    Attributes:
        terms: the terms p, each the first columns (m_d,) of its d factors.
        sizes: (m_1, …, m_d).
        count: m.

    Example:
        >>> a, b = torch.tensor([2.0, 1.0]).double(), torch.tensor([3.0, 0.0]).double()
        >>> KroneckerSum([[a, b]]).multiply(torch.ones(4, 1).double()).T
        tensor([[9., 9., 9., 9.]], dtype=torch.float64)
    """

    def __init__(self, terms: Sequence[Sequence[Tensor]], dense: int = DENSE) -> None:
        self.terms = [list(term) for term in terms]
        self.sizes = tuple(len(column) for column in self.terms[0])
        self.count, self.dense = math.prod(self.sizes), dense
        self._matrices = [[toeplitz(c) if len(c) <= dense else None for c in term] for term in self.terms]

    def detach(self) -> KroneckerSum:
        """The same matrix, a constant that later steps on the hyper-parameters do not change."""
        return KroneckerSum([[column.detach().clone() for column in term] for term in self.terms], self.dense)

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
    values, vectors = torch.linalg.eigh(toeplitz(column.detach()))
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


class Circulant:
    """The circulant matrix C on the grid next to K_UU: Σ_p of the Kronecker products of the nearest circulants.

    All circulants share their eigenvectors, so that the eigenvalues of the sum are sums; what rounding and the
    approximation leave below 0 counts as 0 (T. Chan 1988; Wilson, Dann & Nickisch 2015, section 3.1).

    Attributes:
        values: (m_1, …, m_d) eigenvalues ≥ 0, in the order of the frequencies.

    Example:
        >>> c = Circulant([[torch.tensor([2.0, 1.0]).double()]])  # [[2, 1], [1, 2]] is circulant
        >>> c.apply(lambda values: 1 / values, torch.tensor([[3.0], [3.0]]).double()).T
        tensor([[1., 1.]], dtype=torch.float64)
    """

    def __init__(self, terms: Sequence[Sequence[Tensor]]) -> None:
        total = torch.zeros(tuple(len(column) for column in terms[0])).to(terms[0][0])
        for term in terms:
            product = total.new_ones(())
            for column in term:
                product = product[..., None] * circulant_eigenvalues(column.detach())
            total = total + product
        self.values = total.clamp(min=0.0)

    def apply(self, function: Callable[[Tensor], Tensor], right: Tensor) -> Tensor:
        """(m, k) -> (m, k): f(C) right by FFT; f takes (m_1, …, m_d, 1) and gives that or k columns."""
        sizes = self.values.shape
        dims = tuple(range(len(sizes)))
        folded = torch.fft.fftn(right.reshape(*sizes, -1), dim=dims) * function(self.values[..., None])
        out: Tensor = torch.fft.ifftn(folded, dim=dims).real.reshape(right.shape)
        return out
