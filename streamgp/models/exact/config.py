"""What can be set of an exact GP."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from streamgp.base import Shape
from streamgp.choice import OneOf
from streamgp.kernels import linear, squared_exponential
from streamgp.kernels import sum as sums
from streamgp.online.reference import Kind
from streamgp.optim.marginal_likelihood import MarginalLikelihoodConfig


class Config(BaseModel):
    """Exact GP (Rasmussen & Williams 2006, algorithm 2.1): Cholesky factors, hyper-parameters by marginal likelihood.

    The yardstick of all others, for up to some thousand rows: time is cubic in them and memory their square.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    target: Kind = Field(
        "auto",
        description="what is learned of a target: its level, its change from the present value, or its departure from "
        "the season; auto: its departure from a mixture of these that each refit learns, column by column",
    )
    decay: float = Field(
        0.9, ge=0, le=1, description="season: part of the present departure that is expected to be left after 4 rows"
    )
    kernel: Annotated[BaseModel, OneOf("kernels")] = Field(
        squared_exponential.Config(),
        description="covariance of standardised windows; a lengthscale that is set is where the search starts, "
        "otherwise the data says where",
    )
    linear: bool = Field(
        True, description="add a linear kernel to it, whose variances are learned with the other hyper-parameters"
    )
    ard: Literal["channel", "column"] = Field(
        "channel", description="one lengthscale a channel, shared by its lags and steps, or one a column of the window"
    )
    rows: int = Field(
        3000,
        ge=2,
        le=50_000,
        description="rows that the posterior stands on at most: a fit refuses more, a stream keeps the newest, "
        "between four fifths of them and all",
    )
    training: MarginalLikelihoodConfig = Field(
        MarginalLikelihoodConfig(prior=2.0),
        description="search for hyper-parameters; later ones go on from it, with a third of the evaluations",
    )
    evidence_rows: int | None = Field(
        800,
        ge=0,
        description="rows at most, thinned in time, that the hyper-parameters are learned from; "
        "0: they stay as set; none: all",
    )
    learn: Literal["refit", "once"] = Field(
        "refit",
        description="hyper-parameters: learned anew at every refit, from those before, or once; those of --init stay "
        "with once, without the linear kernel",
    )
    refit: int = Field(
        4000,
        ge=0,
        description="rows from one search (scaling, hyper-parameters) to the next on a stream; early on more often; "
        "0: never",
    )
    temper: Annotated[float, Field(gt=0, le=1e6)] | Literal["auto"] = Field(
        "auto",
        description="factor on the noise of the rows learned, as windows that overlap are not independent; "
        "auto: √horizon",
    )
    rescale: bool = Field(
        True,
        description="scale each column's variance by the mean squared error, in its own standard deviations, of its "
        "rows as forecast from those that were known by then",
    )
    limit: float | None = Field(
        5.0,
        gt=0,
        description="standard deviations of its own forecast that a row of a stream counts for at most; none: any",
    )

    @property
    def whole(self) -> BaseModel:
        """The kernel with its linear part."""
        return sums.Config(parts=(self.kernel, linear.Config())) if self.linear else self.kernel

    def search(self, shape: Shape) -> MarginalLikelihoodConfig:
        """The search, with noise=auto decided: several steps ahead share it.

        The truths of windows that overlap repeat each other; with a noise of its own, a far step's goes to nothing,
        because its neighbours explain it.
        """
        if self.training.noise != "auto" or shape.horizon == 1:
            return self.training
        return self.training.model_copy(update={"noise": "shared"})

    def tempering(self, shape: Shape) -> float:
        """The factor on the noise."""
        return float(shape.horizon) ** 0.5 if self.temper == "auto" else float(self.temper)
