"""Relevance vector machine: a Gaussian process on few functions, chosen from very many (Tipping 2001).

Functions k(x, z_j) on rows that were seen have weights with precisions s_j of their own. Maximising the evidence makes
most s_j infinite; what is left are the relevance vectors z_j. The selection makes one change at a time (Tipping & Faul
2003), many at a time, or by the quadruply stochastic bound (QSRVM; Evans & Nair 2020, appendix I.3): `solver`.
"""

from __future__ import annotations

from streamgp.base import Model, Shape
from streamgp.models.rvm.config import Config
from streamgp.models.rvm.posterior import RelevanceVectors, RvmPosterior
from streamgp.online.model import StreamModel

__all__ = ["Config", "RelevanceVectors", "build"]


def build(config: Config, shape: Shape) -> Model:
    """The model, before any data.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> model = build(Config(), Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",)))
        >>> u = torch.linspace(-3, 3, 200, dtype=torch.float64)
        >>> x = Inputs(torch.zeros(200, 0, 2).double(), u.view(200, 1, 1))
        >>> y = torch.sin(u[:, None]) + 0.1 * torch.cos(100.0 * u[:, None])
        >>> for step in model.fit(x, y, epochs=1):
        ...     step.healthy, step.basis < 20
        (True, True)
        >>> bool((model.predict(x).mean[:, 0] - torch.sin(u)).abs().max() < 0.1)
        True
    """
    return StreamModel(RvmPosterior(config, shape), config, shape)
