"""WISKI: KISS-GP on windows or a few linear projections of them, online at a constant cost (Stanton et al. 2021).

K ≈ W K_UU Wᵀ, W the cubic interpolation from a fixed grid. What is kept of the rows are the sums WᵀW and Wᵀy, whose
size is that of the grid (`streamgp.solvers.kiss`); what a window is projected on, and the hyper-parameters, are
estimated at rebuilds (`projection`, `posterior`).
"""

from __future__ import annotations

from streamgp.base import Shape
from streamgp.models.wiski.config import Config
from streamgp.models.wiski.posterior import WiskiPosterior
from streamgp.online.model import SimulatedStreamModel

__all__ = ["Config", "build"]


def build(config: Config, shape: Shape) -> SimulatedStreamModel:
    """The model, before any data.

    Raises:
        UsageError: its windows have no column, or with projection=none more than a grid has dimensions; or the kernel
            has no Toeplitz structure.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> model = build(Config(), Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",)))
        >>> u = torch.linspace(-3, 3, 200, dtype=torch.float64)
        >>> x = Inputs(torch.zeros(200, 0, 2).double(), u.view(200, 1, 1))
        >>> step = next(model.fit(x, torch.sin(u[:, None]), epochs=1))
        >>> step.healthy, bool((model.predict(x).mean[:, 0] - torch.sin(u)).abs().max() < 0.05)
        (True, True)
    """
    return SimulatedStreamModel(WiskiPosterior(config, shape), config, shape)
