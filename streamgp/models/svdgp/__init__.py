"""Sparse variational Gaussian process in closed form, and with inference=gradient decoupled (Cheng & Boots 2017).

With a Gaussian likelihood and no encoder the posterior of a given kernel and basis is known in closed form, and a batch
of a stream is learned exactly (`conjugate`, `posterior`); mean and covariance then share a basis. Everything else goes
by stochastic gradients on the ELBO, the paper's Algorithm 1 (`gradient`).
"""

from __future__ import annotations

import torch

from streamgp.base import Model, Shape
from streamgp.models.svdgp.config import Config
from streamgp.models.svdgp.fleet import SharedFleet
from streamgp.models.svdgp.gradient import GradientPosterior
from streamgp.models.svdgp.posterior import SvdgpPosterior
from streamgp.online.inputs import KernelInputs
from streamgp.online.model import StreamModel

__all__ = ["Config", "SharedFleet", "build", "build_fleet"]


def build(config: Config, shape: Shape) -> Model:
    """The model, before any data.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> model = build(Config(basis=32), Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",)))
        >>> u = torch.linspace(-3, 3, 200, dtype=torch.float64)
        >>> x = Inputs(torch.zeros(200, 0, 2).double(), u.view(200, 1, 1))
        >>> for start in range(0, 200, 50):
        ...     step = model.update(x.rows(slice(start, start + 50)), torch.sin(u[start : start + 50, None]))
        >>> step.healthy, bool((model.predict(x).mean[:, 0] - torch.sin(u)).abs().max() < 0.05)
        (True, True)
    """
    if config.by_gradient:
        plain = KernelInputs(shape)
        return StreamModel(GradientPosterior(config, shape, plain.count), config, shape, inputs=plain)
    inputs = KernelInputs(shape, jumps=config.turning)
    return StreamModel(SvdgpPosterior(config, shape, inputs.groups, inputs.count), config, shape, inputs=inputs)


def build_fleet(config: Config, shape: Shape, device: torch.device) -> SharedFleet | None:
    """The models of many series in one, where they share their kernel; else None."""
    return SharedFleet(config, shape, device) if config.shared else None
