"""The models of this package: presets of one, an encoder with a head. Reading this does not import torch."""

from __future__ import annotations

from types import ModuleType
from typing import Literal, NamedTuple

GP = """{title}: Gaussian process on {encoder}; learns what `linear` leaves (after Al-Shedivat et al. 2017).

With target=level it learns the target itself, as in the paper. The encoder is trained through the kernel's marginal
likelihood, by mini-batches of a bound above it that stays tight at every refresh (docs/decisions/0008); kernel, solver
and training are options.
Departures from the paper: a linear mean function{note}.
"""
NET = """Plain net, {encoder} with a linear head.

Trained on squared error; the baseline of the Gaussian process on the same encoder.
"""
ENCODERS = {
    "gru": "gated recurrent units over the lags",
    "lstm": "long short-term memory over the lags",
    "mlp": "a perceptron over the flattened lags (NARX)",
    "rnn": "an Elman network over the lags",
}
NO_PEEPHOLES = ", no peepholes in the cell (encoder=lstm_peephole has them), and a forget bias of 1"


class Preset(NamedTuple):
    """Attributes:
    head: a Gaussian process, or a linear map.
    encoder: that stands there unless another one is set.
    title: of the docstring.
    note: on departures from the paper.
    """

    head: Literal["gp", "net"]
    encoder: str
    title: str = ""
    note: str = ""


PRESETS = {
    "gp_gru": Preset("gp", "gru", "GP-GRU", "; the paper has no GRU"),
    "gp_lstm": Preset("gp", "lstm", "GP-LSTM", NO_PEEPHOLES),
    "gp_narx": Preset("gp", "mlp", "GP-NARX"),
    "gp_rnn": Preset("gp", "rnn", "GP-RNN"),
    "gru": Preset("net", "gru"),
    "lstm": Preset("net", "lstm"),
    "narx": Preset("net", "mlp"),
    "rnn": Preset("net", "rnn"),
}
DOCSTRINGS = {
    name: (GP if one.head == "gp" else NET).format(title=one.title, encoder=ENCODERS[one.encoder], note=one.note)
    for name, one in PRESETS.items()
}


def variant(name: str) -> ModuleType:
    """The module of one of them: `Config` and `build`."""
    from streamgp.models.deep.build import module

    return module(name, DOCSTRINGS[name])
