"""The precision S of weights, as blocks of a feature map need it: diagonal, or dense with its product Sμ kept."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from streamgp.features import Features
from streamgp.linalg.cholesky import cholesky, log_determinant

KEPT = 2**29
"""Bytes up to which a dense S is held, so that it is computed once: m = 8192."""


def version(features: Features) -> tuple[int, ...]:
    """Another one after every change of the features' parameters or buffers in place."""
    held = (*features.parameters(), *features.buffers())
    return (features.size, *(tensor._version for tensor in held), *(tensor.data_ptr() for tensor in held))


class Prior:
    """S in blocks, as the features have it now: when their `version` is another, so is S.

    Products with a dense S touch all of its columns: S_{:,b}δ costs O(m |b| (W + T)).

    Args:
        features: whose S it is.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self.version = version(features)
        self.dense = not features.diagonal_precision
        self._held: dict[tuple[int, int], Tensor] = {}
        self._hold = self.dense and 8 * features.size**2 <= KEPT
        self._diagonal: dict[int, Tensor] = {}

    def block(self, i: int, j: int) -> Tensor:
        """(|i|, |j|) S_ij."""
        if (i, j) not in self._held:
            found = self.features.precision(i, j)
            if not self._hold:
                return found
            self._held[i, j] = found
        return self._held[i, j]

    def diagonal(self, b: int) -> Tensor:
        """(|b|,) the diagonal of S_bb."""
        if b not in self._diagonal:
            self._diagonal[b] = self.features.precision(b, b).diagonal().clone()
        return self._diagonal[b]

    def within(self, b: int, delta: Tensor) -> Tensor:
        """(|b|, T) -> (|b|, T): S_bb δ."""
        return self.block(b, b) @ delta if self.dense else self.diagonal(b)[:, None] * delta

    def times(self, weights: Tensor) -> Tensor:
        """(m, T) -> (m, T): Sw; O(m T), and O(m² (W + T)) where S is dense."""
        out = torch.zeros_like(weights)
        spans = list(enumerate(self.features.spans()))
        if not self.dense:
            for b, span in spans:
                out[span] = self.within(b, weights[span])
            return out
        for (i, rows), (j, columns) in product(spans, spans):
            out[rows] += self.block(i, j) @ weights[columns]
        return out

    def log_determinant(self) -> Tensor:
        """() log|S|; O(m), and O(m³) where S is dense."""
        blocks = range(self.features.blocks)
        if not self.dense:
            return torch.stack([self.diagonal(b).log().sum() for b in blocks]).sum()
        whole = torch.cat([torch.cat([self.block(i, j) for j in blocks], 1) for i in blocks])
        return log_determinant(cholesky(whole).lower)

    def spread(self, b: int, delta: Tensor) -> Tensor:
        """(|b|, T) -> (m, T): S_{:,b}δ."""
        return torch.cat([self.block(i, b) @ delta for i in range(self.features.blocks)])
