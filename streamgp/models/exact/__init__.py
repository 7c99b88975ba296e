"""The exact Gaussian process: nothing is approximated, so that it is the baseline of the models that scale.

Hyper-parameters maximise the marginal likelihood (`evidence.marginal_likelihood`: L-BFGS or Adam, restarts), the
posterior is of all rows of a fit, or of the newest of a stream (`posterior`).
"""

from __future__ import annotations

from streamgp.base import Shape
from streamgp.errors import UsageError
from streamgp.models.exact.config import Config
from streamgp.models.exact.posterior import DROPPED, ExactPosterior
from streamgp.online.inputs import KernelInputs
from streamgp.online.model import SimulatedStreamModel
from streamgp.online.recent import RecentWindows
from streamgp.online.winsorise import SETTLED

__all__ = ["Config", "build"]


def build(config: Config, shape: Shape) -> SimulatedStreamModel:
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
    if not shape.width:
        raise UsageError("the windows of a GP need a column", hint="use --lags 1 or more, or name --inputs")
    posterior = ExactPosterior(config, shape, KernelInputs(shape).groups)
    settled = min(SETTLED, config.rows - config.rows // DROPPED)
    return SimulatedStreamModel(posterior, config, shape, RecentWindows(config.rows, shape), settled)
