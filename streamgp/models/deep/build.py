"""From a preset to a module with `Config` and `build`."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from streamgp.base import Shape
from streamgp.errors import UsageError
from streamgp.models.deep.config import DeepConfig, DeepGpConfig, DeepNetConfig, preset
from streamgp.models.deep.gp import GpPosterior
from streamgp.models.deep.net import NetPosterior
from streamgp.models.deep.on_regression import OnRegression
from streamgp.models.deep.variants import PRESETS
from streamgp.online.inputs import KernelInputs
from streamgp.online.model import SimulatedStreamModel
from streamgp.online.recent import RecentWindows

SETTLED = 1000.0
"""Rows to learn before targets are winsorised: a net that was trained on a few hundred is too sure of itself."""


@cache
def module(name: str, doc: str) -> ModuleType:
    """The module of one model, as if it were a file of its own."""
    made = ModuleType(f"{__package__}.{name}", doc)
    build = {"gp": build_gp, "net": build_net}[PRESETS[name].head]
    vars(made).update(Config=preset(name), build=build)
    return made


def build_gp(config: DeepGpConfig, shape: Shape) -> SimulatedStreamModel | OnRegression:
    """The model, before any data.

    Raises:
        UsageError: the shape does not go with the mode, the encoder or the solver, or draws are asked of an encoder
            without dropout.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs
        >>> y = torch.sin(0.3 * torch.arange(304, dtype=torch.float64)) ** 3
        >>> x = Inputs(y.unfold(0, 4, 1)[:300, :, None], y.new_zeros(300, 1, 0))
        >>> shape = Shape(targets=("y",), horizon=1, lags=4, past=("y",), future=())
        >>> model = build_gp(preset("gp_lstm")(encoder={"hidden": 8}), shape)
        >>> steps = list(model.fit(x, y[4:, None], epochs=10))
        >>> found = model.predict(x)
        >>> bool((found.mean - y[4:, None]).abs().mean() < 0.04), bool((found.latent_variance < found.variance).all())
        (True, True)
    """
    inputs = inputs_of(config, shape)
    posterior = GpPosterior(config, shape, inputs.layout)
    window = config.online.window
    if posterior.solver.limit is not None:
        window = min(window, max(posterior.solver.limit // 2, 2))
    memory = RecentWindows(window, shape)
    net = SimulatedStreamModel(posterior, config.learned(shape), shape, memory, SETTLED, inputs)
    return OnRegression(net, config, shape) if config.on_regression(shape) else net


def build_net(config: DeepNetConfig, shape: Shape) -> SimulatedStreamModel | OnRegression:
    """The model, before any data.

    Raises:
        UsageError: the shape does not go with the mode or the encoder.
    """
    inputs = inputs_of(config, shape)
    posterior = NetPosterior(config, shape, inputs.layout)
    memory = RecentWindows(config.online.window, shape)
    net = SimulatedStreamModel(posterior, config.learned(shape), shape, memory, SETTLED, inputs)
    return OnRegression(net, config, shape) if config.on_regression(shape) else net


def inputs_of(config: DeepConfig, shape: Shape) -> KernelInputs:
    """What the net sees of a window.

    Raises:
        UsageError: nothing.
    """
    hidden = {*shape.targets, *(f"season({name})" for name in shape.targets)} if config.mode == "regression" else ()
    inputs = KernelInputs(shape, hidden)
    if not inputs.layout.width:
        raise UsageError(
            f"mode={config.mode} leaves the model nothing to look at", hint="name inputs with --inputs, or known ones"
        )
    return inputs
