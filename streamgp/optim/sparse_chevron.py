"""A chevron covariance of which only some blocks of rows are known, and the others by their expectation.

Where a basis has far more blocks than were ever drawn, all others are alike: their weights still have the distribution
that a diagonal entry in closed form gives an average feature. E φ_r² = k(x, x)/m for random features, so that what they
add to the variance of f(x) is a share of the prior variance k(x, x), and costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.features import Features


class SparseChevron(NamedTuple):
    """Σ = CCᵀ, with the rows of C in the drawn blocks, and what is left of the prior in the others.

    Attributes:
        blocks: (P,) int64 numbers of the blocks that are held, ascending.
        diagonal: (P, m̃) c_rr, and 0 for the k dense columns; a shorter last block is filled up with 0.
        dense: (P, m̃, k) rows of the dense columns, 0 above the diagonal.
        rest: () what all other blocks add to the variance, in units of the prior variance of f(x).

    Example:
        >>> from streamgp.features import fourier
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), dims=1)
        >>> features = fourier.build(fourier.Config(size=10_000_000, width=100), kernel)
        >>> none = torch.zeros(0, dtype=torch.int64)
        >>> prior = SparseChevron(none, torch.zeros(0, 100), torch.zeros(0, 100, 0), torch.ones(()))
        >>> prior.variance(features, torch.zeros(2, 1)).tolist()
        [1.0, 1.0]
    """

    blocks: Tensor
    diagonal: Tensor
    dense: Tensor
    rest: Tensor

    @torch.no_grad()
    def variance(self, features: Features, x: Tensor) -> Tensor:
        """(N, W) -> (N,): the latent variance φᵀΣφ, in the dtype of x; O(N P m̃ (W + k)), whatever m is."""
        total, dense = x.new_zeros(len(x)), x.new_zeros(len(x), self.dense.shape[2])
        for place, block in enumerate(self.blocks.tolist()):
            phi = features.block(x, block)
            size = phi.shape[1]
            total += phi.square() @ self.diagonal[place, :size].square().to(phi.dtype)
            dense += phi @ self.dense[place, :size].to(phi.dtype)
        total += dense.square().sum(1)
        return total + self.rest.to(x.dtype) * features.prior_variance(x) if float(self.rest) > 0 else total

    def matrix(self, features: Features) -> Tensor:
        """(m, m) C, where every block is held: small m, for comparisons.

        Raises:
            ValueError: a block is not held.
        """
        if len(self.blocks) != features.blocks:
            raise ValueError(f"{len(self.blocks)} of {features.blocks} blocks are held")
        own = self.diagonal.flatten()[: features.size]
        columns = self.dense.flatten(0, 1)[: features.size]
        return torch.cat((columns, torch.diag(own)[:, columns.shape[1] :]), 1)
