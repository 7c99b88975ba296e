"""Options of training, and the method and optimiser that they name: those of the paper are imported where asked for."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from torch import nn

from streamgp.training.finite_descent import FiniteDescent, FiniteDescentConfig
from streamgp.training.finite_head import Estimator, FiniteHead, Scgd


class FiniteTrainingConfig(FiniteDescentConfig):
    """How features, weights and noise are trained, and by which of the paper's methods."""

    method: Literal["auto", "scgd", "minimax", "bsgd", "ldb", "none"] = Field(
        "auto",
        description="what stands for log|F| in a mini-batch: scgd (moving average), minimax (penalty), bsgd (the "
        "mini-batch's own, biased), ldb (variational, unbiased) or none; auto: scgd, and F^-1 held for an epoch at "
        "rebuilds on the window itself",
    )
    optimiser: Literal["adam", "adadelta"] = Field(
        "adam", description="of the steps; adadelta takes 200 times rate and weights_rate, so that 5e-3 is its usual 1"
    )
    mu: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        None, description="minimax: weight of the penalty at first; none: 1, or twice the features where whitened"
    )
    growth: Annotated[float, Field(ge=1, le=10)] | None = Field(
        None, description="minimax: of mu from epoch to epoch; none: 1.15, or 1 where whitened"
    )
    whitened: bool = Field(
        True, description="minimax: in coordinates where F is I as an epoch begins, so that mu >= features is enough"
    )

    @model_validator(mode="after")
    def _minimax(self) -> Self:
        given = self.mu is not None or self.growth is not None or not self.whitened
        if given and self.method != "minimax":
            raise ValueError(f"mu, growth and whitened are options of method=minimax, not of {self.method}")
        return self


def estimator(config: FiniteTrainingConfig) -> Estimator | None:
    """The method that a Config names; None: the driver's own, method=auto.

    Example:
        >>> type(estimator(FiniteTrainingConfig(method="minimax"))).__name__
        'Minimax'
    """
    if config.method == "minimax":
        from streamgp.papers.finite_rkhs.minimax import Minimax

        return Minimax(config.mu, config.growth, config.whitened)
    if config.method == "ldb":
        from streamgp.papers.finite_rkhs.ldb import Ldb

        return Ldb()
    if config.method == "bsgd":
        from streamgp.papers.finite_rkhs.bsgd import Bsgd

        return Bsgd()
    if config.method == "none":
        from streamgp.papers.finite_rkhs.no_determinant import NoDeterminant

        return NoDeterminant()
    return Scgd(config.b) if config.method == "scgd" else None


def descent(
    features: nn.Module, head: FiniteHead, config: FiniteTrainingConfig, epochs: int = 0, alone: bool = False
) -> FiniteDescent:
    """The driver with the method and the optimiser that a Config names; arguments as of `FiniteDescent`."""
    method = estimator(config)
    if config.optimiser == "adadelta":
        from streamgp.papers.finite_rkhs.adadelta import AdaDelta

        return FiniteDescent(features, head, config, epochs, alone, method, AdaDelta)
    return FiniteDescent(features, head, config, epochs, alone, method)
