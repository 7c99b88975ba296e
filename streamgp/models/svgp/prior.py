"""The prior of an SVGP at its inducing inputs: encoder, kernel and Z, and the whitened features that they make."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.encoders import Dropout, Encoder
from streamgp.kernels import Kernel
from streamgp.linalg.cholesky import cholesky, whiten

JITTER = 1e-6
"""Relative jitter of K_ZZ: whitening then amplifies rounding by 1e3 at most."""


class Covariances(NamedTuple):
    """Of a batch, with their graph.

    Attributes:
        cross: (b, m) k(x, Z) at the points in use.
        gram: (m, m) K_ZZ.
        diagonal: (b,) k(x, x).
    """

    cross: Tensor
    gram: Tensor
    diagonal: Tensor


class SparsePrior(nn.Module):
    """f(x) = g(h(x)), g ~ GP(0, k), seen through up to M inducing inputs in the latent space.

    Inducing inputs are inputs of the kernel, latents of the encoder: they need no encoding, and the encoder's gradient
    comes from the rows alone (as in stochastic variational deep kernel learning, Wilson et al. 2016).

    Args:
        kernel: of the latents.
        encoder: h; its width is the kernel's.
        points: M.

    Attributes:
        points: (M, d) Z; rows from `count` on are not in use, and their features are 0.
        count: () int64, points in use.
        inverse: (M, M) L⁻¹ of the kernel and Z at the last `refresh`, 0 outside of the points in use.

    Example:
        >>> from streamgp.encoders import identity
        >>> from streamgp.encoders import Layout
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), 1)
        >>> prior = SparsePrior(kernel, identity.build(identity.Config(), Layout(0, 0, 1, 1)), points=3)
        >>> prior.put(torch.tensor([[0.0], [1.0]], dtype=FLOAT))
        >>> phi, variance = prior.features(torch.zeros(1, 1, dtype=FLOAT))
        >>> [round(value, 4) for value in phi[0].tolist()], variance.tolist()
        ([1.0, 0.0, 0.0], [1.0])
    """

    def __init__(self, kernel: Kernel, encoder: Encoder, points: int) -> None:
        super().__init__()
        self.kernel, self.encoder = kernel, encoder
        self.points = nn.Parameter(torch.zeros(points, kernel.dims, dtype=FLOAT))
        self.count: Tensor
        self.inverse: Tensor
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("inverse", torch.zeros(points, points, dtype=FLOAT))

    @property
    def used(self) -> Tensor:
        """(m, d) the points in use."""
        return self.points[: int(self.count)]

    @torch.no_grad()
    def put(self, z: Tensor) -> None:
        """Take these as inducing inputs, at most M of them. z: (m, d) latents."""
        m = min(len(z), len(self.points))
        self.points.zero_()
        self.points[:m] = z[:m]
        self.count.fill_(m)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute L⁻¹ again from the present kernel and Z; O(M³).

        Raises:
            NotPositiveDefinite: K_ZZ is not finite.
        """
        m = int(self.count)
        inverse = self.whitening(self.kernel(self.used, self.used))
        self.inverse.zero_()
        self.inverse[:m, :m] = inverse

    @staticmethod
    def whitening(gram: Tensor) -> Tensor:
        """(m, m) K_ZZ -> L⁻¹ of K_ZZ with its jitter."""
        lower = cholesky(gram, first=JITTER).lower
        return whiten(lower, torch.eye(len(gram), dtype=gram.dtype, device=gram.device))

    @torch.no_grad()
    def features(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(N, W) standardised windows -> φ (N, M), k(x, x) (N,), as of the last `refresh`."""
        m, latent = int(self.count), self.encoder(z)
        phi = z.new_zeros(len(z), len(self.points))
        if m:
            phi[:, :m] = self.kernel(latent, self.used) @ self.inverse[:m, :m].T
        return phi, self.kernel.diagonal(latent)

    def covariances(self, z: Tensor, dropout: Dropout | None = None) -> Covariances:
        """(b, W) -> what the bound needs, with its graph."""
        latent, points = self.encoder(z, dropout), self.used
        return Covariances(self.kernel(latent, points), self.kernel(points, points), self.kernel.diagonal(latent))
