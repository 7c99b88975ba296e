"""What a quadruply stochastic step is, sees and leads to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from streamgp.papers.qsgp.draws import Cells


@dataclass(frozen=True)
class Steps:
    """What steps are.

    Attributes:
        optimiser: see `streamgp.papers.qsgp.descent`.
        rate: step size; of `adagrad` in units of targets over prior standard deviations, of `preconditioned` 1 for a
            whole Newton step in a block.
        batch: ñ.
        support: n̄; 0: no control variate.
        columns: k.
        hyper: step size of the logarithms of hyper-parameters and noise; 0: they are frozen.
        restart: steps between restarts of the control variate, where hyper-parameters learn.
    """

    optimiser: Literal["adagrad", "preconditioned"] = "adagrad"
    rate: float = 0.1
    batch: int = 500
    support: int = 500
    columns: int = 0
    hyper: float = 0.0
    restart: int = 500


class Drawn(NamedTuple):
    """What a step sees: two blocks, a mini-batch, and the features of both on it and on the support rows."""

    cells: Cells
    some: Tensor
    phi: dict[int, Tensor]
    support: dict[int, Tensor]


class Image(NamedTuple):
    """Attributes:
    mean: (N, T) Φμ.
    variance: (N,) latent.
    """

    mean: Tensor
    variance: Tensor
