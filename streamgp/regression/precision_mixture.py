"""Several prior precisions of a regression's weights, mixed column by column by how well each has forecast of late.

    F_m = G + mκI,  W_m = F_m⁻¹c,  m in (0.1, 1, 10);  L_mt = Σ e^(−a/2000) (y_t − φᵀw_mt)² over rows of age a
    served are Σ_m p_mt w_mt with p_mt ∝ exp( −½ ν n/2000 (L_mt / min_m L_mt − 1) )

Rows are scored before they are learned, so that L is a prequential loss. The evidence of thinned rows chooses one ridge
for all columns; steps far ahead want a larger one than the next step. The weights are those of exponential weighting
(Vovk 1990) with ν independent errors for every 2000 rows: windows that overlap are not 2000 independent ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.regression.recursive import RecursiveRegression

TIMES = (0.1, 1.0, 10.0)
"""m"""
STRONGER = 3.0
"""κ of a mixture, in units of the one that training or the evidence found: on streams the best is above that."""
MEMORY = 2000.0
"""Rows after which a squared error counts 1/e."""
INDEPENDENT = 40.0
"""ν: errors that as many rows are worth."""
HUGE = 1e200
"""Squared error above which one is as good as another: sums of them are numbers still."""


class PrecisionMixture(nn.Module):
    """Losses of T columns under each of M prior precisions. Its buffers are its state.

    Args:
        columns: T.
        mixed: whether there are several precisions; else κ alone serves, and nothing is scored.

    Attributes:
        loss: (M, T) L.
        rows: () Σ e^(−a/2000).

    Example:
        >>> phi = torch.ones(4, 1, dtype=FLOAT)
        >>> regression, mixture = RecursiveRegression(width=1, columns=1), PrecisionMixture(1)
        >>> regression.add(phi, 3 * phi)
        >>> mixture.shares[:, 0].tolist()
        [0.0, 1.0, 0.0]
        >>> for _ in range(500):
        ...     mixture.score(regression, phi, 3 * phi)
        >>> bool(mixture.shares[0, 0] > 0.99)  # the weakest prior
        True
    """

    loss: Tensor
    rows: Tensor

    def __init__(self, columns: int, mixed: bool = True) -> None:
        super().__init__()
        self.times = TIMES if mixed else (1.0,)
        self.register_buffer("loss", torch.zeros(len(self.times), columns, dtype=FLOAT))
        self.register_buffer("rows", torch.zeros((), dtype=FLOAT))

    @property
    def shares(self) -> Tensor:
        """(M, T) p"""
        if not self.rows:
            first = torch.zeros_like(self.loss)
            first[self.times.index(1.0)] = 1.0
            return first
        worse = self.loss / self.loss.amin(0).clamp(min=1e-300) - 1.0
        return torch.softmax(-0.5 * INDEPENDENT * self.rows / MEMORY * worse, 0)

    def score(self, regression: RecursiveRegression, phi: Tensor, y: Tensor) -> None:
        """Take note of rows that are not learned yet.

        Args:
            phi: (N, d)
            y: (N, T), NaN = not observed.
        """
        if len(self.times) == 1 or not len(y):
            return
        squares = torch.stack([(y - phi @ regression.under(m).weights).square() for m in self.times]).clamp(max=HUGE)
        kept = math.exp(-len(y) / MEMORY)
        self.rows.mul_(kept).add_(len(y))
        self.loss.mul_(kept).add_(squares.nanmean(1).nan_to_num(0.0), alpha=len(y))

    def weights(self, regression: RecursiveRegression) -> Tensor:
        """(d, T) Σ_m p_m W_m"""
        if len(self.times) == 1:
            return regression.posterior.weights
        shares = self.shares
        parts = [share * regression.under(m).weights for m, share in zip(self.times, shares, strict=True)]
        return torch.stack(parts).sum(0)
