"""Bayesian regression on features trained by the evidence: Fourier features, or a net (Shoham & Avron 2025).

k(x, x') = φ(x)ᵀφ(x') is a kernel of finite dimension. φ is what a net makes of a window, or random Fourier features of
a kernel, on the window itself or on a net. What of φ can be learned is trained by mini-batches of the marginal
likelihood at O(d³ + |b| d²) a step (`streamgp.training.finite_descent`); for fixed φ the posterior is Bayesian linear
regression, and rows of a stream are learned exactly (`regression.recursive`), at a cost that does not depend on the
rows seen.

Departures from the paper: the noise has a floor, without which the likelihood of a net that fits its rows has no bound;
the regression that predicts integrates its noise out; a stream is winsorised, forgotten, and rebuilt from a reservoir.
"""

from __future__ import annotations

from streamgp.base import Shape
from streamgp.models.finite_rkhs.config import Config
from streamgp.models.finite_rkhs.posterior import FinitePosterior
from streamgp.online.model import SimulatedStreamModel

__all__ = ["Config", "build"]


def build(config: Config, shape: Shape) -> SimulatedStreamModel:
    """The model, before any data.

    Raises:
        UsageError: encoder, kernel, target and windows do not go together.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
        >>> model = build(Config(fourier={"size": 256}), shape)
        >>> u = torch.linspace(-3, 3, 200, dtype=torch.float64).view(50, 4).T.flatten()  # not in order
        >>> x = Inputs(torch.zeros(200, 0, 2).double(), u.view(200, 1, 1))
        >>> for start in range(0, 200, 50):
        ...     step = model.update(x.rows(slice(start, start + 50)), torch.sin(u[start : start + 50, None]))
        >>> step.healthy, bool((model.predict(x).mean[:, 0] - torch.sin(u)).abs().max() < 0.05)
        (True, True)
    """
    return SimulatedStreamModel(FinitePosterior(config, shape), config, shape)
