"""From a variant to a module with `Config` and `build`."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from pydantic import BaseModel

from streamgp.base import Shape
from streamgp.errors import UsageError
from streamgp.models.deep.config import (
    DeepConfig,
    DeepGpConfig,
    DeepNetConfig,
    GpGruConfig,
    GpLstmConfig,
    GpNarxConfig,
    GpRnnConfig,
    GruConfig,
    LstmConfig,
    NarxConfig,
    RnnConfig,
)
from streamgp.models.deep.gp import GpPosterior
from streamgp.models.deep.net import NetPosterior
from streamgp.models.deep.on_regression import OnRegression
from streamgp.online.inputs import KernelInputs
from streamgp.online.model import SimulatedStreamModel
from streamgp.online.recent import RecentWindows

SETTLED = 1000.0
"""Rows to learn before targets are winsorised: a net that was trained on a few hundred is too sure of itself."""
CONFIGS: dict[str, type[DeepConfig]] = {
    "gp_gru": GpGruConfig,
    "gp_lstm": GpLstmConfig,
    "gp_narx": GpNarxConfig,
    "gp_rnn": GpRnnConfig,
    "gru": GruConfig,
    "lstm": LstmConfig,
    "narx": NarxConfig,
    "rnn": RnnConfig,
}


@cache
def module(name: str, doc: str) -> ModuleType:
    """The module of one model, as if it were a file of its own."""
    made = ModuleType(f"{__package__}.{name}", doc)
    config = CONFIGS[name]
    vars(made).update(Config=config, build=build_gp if issubclass(config, DeepGpConfig) else build_net)
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
        >>> model = build_gp(GpLstmConfig(encoder={"hidden": 8}), shape)
        >>> steps = list(model.fit(x, y[4:, None], epochs=10))
        >>> found = model.predict(x)
        >>> bool((found.mean - y[4:, None]).abs().mean() < 0.04), bool((found.latent_variance < found.variance).all())
        (True, True)
    """
    inputs = inputs_of(config, shape)
    posterior = GpPosterior(config, shape, encoder_of(config), inputs.layout)
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
    posterior = NetPosterior(config, shape, encoder_of(config), inputs.layout)
    memory = RecentWindows(config.online.window, shape)
    net = SimulatedStreamModel(posterior, config.learned(shape), shape, memory, SETTLED, inputs)
    return OnRegression(net, config, shape) if config.on_regression(shape) else net


def encoder_of(config: DeepConfig) -> BaseModel:
    """The encoder's Config, which every variant has."""
    encoder: BaseModel = getattr(config, "encoder")  # noqa: B009
    return encoder


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
