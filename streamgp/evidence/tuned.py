"""What every way of choosing hyper-parameters takes and returns, so that they can be exchanged.

    tune(kernel, log_noise, x, y, config) -> Tuned

`kernel` is where to start, with the hyper-parameters that it has (it is not changed); `log_noise` (T,) is log σ_t²;
x (n, W) and y (n, T) are standardised, float64, none missing; `config` is the way's own frozen Config.

A way that tries several starts takes `each` too: it runs them as `map` does, here or in other processes. A start is
tried without anything that another one has left, so that the numbers are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from torch import Tensor

from streamgp.evidence.minimise import Minimum


class Attempt(NamedTuple):
    """Where one start led.

    Attributes:
        found: the best place.
        evaluations: of the objective.
        failure: what went wrong last, if anything did.
        seconds: of CPU time.
    """

    found: Minimum
    evaluations: int
    failure: str
    seconds: float


Each: TypeAlias = Callable[[Callable[[Tensor], Attempt], Sequence[Tensor]], Iterable[Attempt]]
"""`map`, or one that spreads the starts over processes."""


def attempts(each: Each, attempt: Callable[[Tensor], Attempt], starts: Sequence[Tensor]) -> tuple[list[Attempt], float]:
    """Every start tried, and the CPU seconds of it that this process has not spent, wherever it was done."""
    begun = time.process_time()
    found = list(each(attempt, starts))
    return found, sum(one.seconds for one in found) - (time.process_time() - begun)


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
        judged: where several ways were tried, each with its score on rows not seen, the best first.
    """

    kernel: dict[str, Tensor]
    noise: Tensor
    loss: float
    history: tuple[float, ...]
    seconds: float
    evaluations: int
    failures: tuple[str, ...] = ()
    capped: bool = False
    judged: tuple[tuple[str, float], ...] = ()
