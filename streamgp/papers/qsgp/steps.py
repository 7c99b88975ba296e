"""What a quadruply stochastic step is, sees and leads to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from streamgp.papers.qsgp.draws import CellPair


@dataclass(frozen=True)
class StepOptions:
    """What steps are.

    Attributes:
        optimiser: see `streamgp.papers.qsgp.descent`.
        rate: step size; of `adagrad` in units of targets over prior standard deviations, of `preconditioned` 1 for a
            whole Newton step in a block, and None for 0.02 of it, or 0.2 with one block.
        batch: ñ.
        support: n̄; 0: no control variate.
        columns: k.
        hyper: step size of the logarithms of hyper-parameters and noise; 0: they are frozen.
        restart: steps between restarts of the control variate, where hyper-parameters learn.
        augment: add the variance of a function at the test point (proposition 4), of inducing functions.
    """

    optimiser: Literal["adagrad", "preconditioned"] = "adagrad"
    rate: float | None = 0.1
    batch: int = 500
    support: int = 500
    columns: int = 0
    hyper: float = 0.0
    restart: int = 500
    augment: bool = True


class Drawn(NamedTuple):
    """What a step sees: two blocks, a mini-batch, and the features of both on it and on the support rows."""

    cells: CellPair
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


@dataclass(frozen=True)
class SiteSteps:
    """What steps of a likelihood that is not Gaussian are.

    Attributes:
        optimiser: see `streamgp.papers.qsgp.site_descent`.
        rate: step size; of `adagrad` in units of prior standard deviations of weights, of `preconditioned` 1 for a
            whole Newton step in all drawn blocks together.
        batch: ñ.
        cells: blocks of features that are drawn.
        columns: k.
        form: of f̂, see `streamgp.papers.qsgp.site_bounds`.
        start: c_rr at the start, in units of the prior standard deviation of a weight.
        support: n̄, rows whose Φμ is kept up to date; 0: none.
        temper: a row has weight 1/temper.
    """

    optimiser: Literal["adagrad", "preconditioned"] = "adagrad"
    rate: float = 0.1
    batch: int = 500
    cells: int = 4
    columns: int = 0
    form: Literal["tight", "theorem"] = "tight"
    start: float = 0.1
    support: int = 0
    temper: float = 1.0
