"""The exact Gaussian process: nothing is approximated, so that it is the yardstick of the models that scale.

Hyper-parameters maximise the marginal likelihood (`streamgp.optim.marginal_likelihood`: L-BFGS or Adam, restarts), the
posterior stands on all rows of a fit, or on the newest of a stream (`online`).
"""

from __future__ import annotations

from streamgp.base import Shape
from streamgp.models.exact.config import Config
from streamgp.models.exact.online import ExactGp

__all__ = ["Config", "build"]


def build(config: Config, shape: Shape) -> ExactGp:
    """The model, before any data.

    Raises:
        UsageError: its windows have no column, or target and shape do not go together.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> model = build(Config(), Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",)))
        >>> u = torch.linspace(-3, 3, 100, dtype=torch.float64)
        >>> x = Inputs(torch.zeros(100, 0, 2).double(), u.view(100, 1, 1))
        >>> step = next(model.fit(x, torch.sin(u[:, None]), epochs=1))
        >>> step.healthy, bool((model.predict(x).mean[:, 0] - torch.sin(u)).abs().max() < 0.01)
        (True, True)
    """
    return ExactGp(config, shape)
