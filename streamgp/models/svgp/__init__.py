"""SVGP: a Gaussian process seen through inducing inputs (Titsias 2009; Hensman, Fusi & Lawrence 2013; Hensman,
Matthews & Ghahramani 2015), whitened.

With Gaussian noise the best posterior of given inducing inputs and hyper-parameters is had in closed form from sums
over rows, in batch and on a stream. Under other likelihoods it is found by natural gradients. Hyper-parameters,
inducing inputs and an encoder are trained by mini-batches.
"""

from __future__ import annotations

from streamgp.base import Shape
from streamgp.models.svgp.config import Config
from streamgp.models.svgp.posterior import SvgpPosterior
from streamgp.online.inputs import KernelInputs
from streamgp.online.model import StreamModel

__all__ = ["Config", "build"]


def build(config: Config, shape: Shape) -> StreamModel:
    """The model, before any data.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> model = build(Config(points=32), Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",)))
        >>> u = torch.linspace(-3, 3, 200, dtype=torch.float64)
        >>> x = Inputs(torch.zeros(200, 0, 2).double(), u.view(200, 1, 1))
        >>> for start in range(0, 200, 50):
        ...     step = model.update(x.rows(slice(start, start + 50)), torch.sin(u[start : start + 50, None]))
        >>> step.healthy, bool((model.predict(x).mean[:, 0] - torch.sin(u)).abs().max() < 0.05)
        (True, True)
    """
    return StreamModel(SvgpPosterior(config, shape, KernelInputs(shape).groups), config, shape)
