"""The models of this package, by name. Reading this does not import torch."""

from __future__ import annotations

from types import ModuleType

GP = """{title}: Gaussian process on {encoder}; learns what `linear` leaves (after Al-Shedivat et al. 2017).

With target=level it learns the target itself, as in the paper. The encoder is trained through the kernel's marginal
likelihood, by mini-batches of a bound above it that stays tight at every refresh (docs/decisions/0008); kernel, solver
and training are options.
Departures from the paper: a linear mean function{note}.
"""
NET = """Plain net, {encoder} with a linear head.

Trained on squared error; the baseline of the Gaussian process on the same encoder.
"""
LSTM, GRU = "long short-term memory over the lags", "gated recurrent units over the lags"
RNN, MLP = "an Elman network over the lags", "a perceptron over the flattened lags (NARX)"
DOCSTRINGS = {
    "gp_gru": GP.format(title="GP-GRU", encoder=GRU, note="; the paper has no GRU"),
    "gp_lstm": GP.format(
        title="GP-LSTM",
        encoder=LSTM,
        note=", no peepholes in the cell (encoder=lstm_peephole has them), and a forget bias of 1",
    ),
    "gp_narx": GP.format(title="GP-NARX", encoder=MLP, note=""),
    "gp_rnn": GP.format(title="GP-RNN", encoder=RNN, note=""),
    "gru": NET.format(encoder=GRU),
    "lstm": NET.format(encoder=LSTM),
    "narx": NET.format(encoder=MLP),
    "rnn": NET.format(encoder=RNN),
}


def variant(name: str) -> ModuleType:
    """The module of one of them: `Config` and `build`."""
    from streamgp.models.deep.build import module

    return module(name, DOCSTRINGS[name])
