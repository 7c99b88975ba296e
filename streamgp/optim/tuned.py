"""What every way of choosing hyper-parameters takes and returns, so that they can be exchanged.

    tune(kernel, log_noise, x, y, config) -> Tuned

`kernel` is where to start, with the hyper-parameters that it has (it is not changed); `log_noise` (T,) is log σ_t²;
x (n, W) and y (n, T) are standardised, float64, none missing; `config` is the way's own frozen Config.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Tuned(NamedTuple):
    """Hyper-parameters, and how they were found.

    Attributes:
        kernel: for `Tied.load_state_dict`.
        noise: (T,) σ_t², in squared standardised units of the targets; more than 0.
        loss: the way's own objective there, a row and column: comparable only within one way.
        history: the loss after each iteration of the start that won.
        seconds: of CPU time.
        evaluations: of the objective, over all starts.
        failures: what went numerically wrong on the way, a sentence each; the rest of the starts went on.
        capped: whether cross-validation came to its limit of iterations before its rule for stopping was met.
    """

    kernel: dict[str, Tensor]
    noise: Tensor
    loss: float
    history: tuple[float, ...]
    seconds: float
    evaluations: int
    failures: tuple[str, ...] = ()
    capped: bool = False
