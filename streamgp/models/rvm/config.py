"""Options of a relevance vector machine."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamgp.choice import OneOf
from streamgp.likelihoods import gaussian
from streamgp.online.options import StreamOptions


class StochasticConfig(BaseModel):
    """Selection by the quadruply stochastic bound (`solver=stochastic`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(1000, ge=1, description="in all")
    rows: int = Field(100, ge=1, description="rows of a mini-batch")
    support: int = Field(250, ge=1, description="rows of the control variates")
    functions: int = Field(200, ge=1, description="functions in a cell; a step draws two cells")
    dense: int = Field(10, ge=0, description="dense columns of the covariance's factor")
    rate: float = Field(0.2, gt=0, le=1, description="of the first step; it falls to a tenth")


class Config(StreamOptions):
    """Relevance vector machine (Tipping 2001; Evans & Nair 2020, appendix I.3), online."""

    few: ClassVar[tuple[str, ...]] = (
        *("solver", "dictionary", "basis", "linear", "augment"),
        *("target", "memory", "rebuild", "learn", "limit"),
    )
    """The options that matter first."""

    likelihood: Annotated[BaseModel, OneOf("likelihoods")] = Field(
        gaussian.Config(), description="of a target around the function; gaussian is the only one here"
    )
    solver: Literal["auto", "sequential", "batched", "stochastic"] = Field(
        "auto",
        description="selection one change at a time, many at a time, or by the stochastic bound; auto: sequential for "
        "a dictionary of up to 600 functions, else batched",
    )
    dictionary: int = Field(2000, ge=1, description="functions at most that a rebuild or an epoch selects from")
    basis: int = Field(500, ge=1, description="functions at most that are kept")
    linear: bool | Literal["auto"] = Field(
        "auto", description="columns of the window and a constant are functions to select from, too; auto: with lags"
    )
    widening: float = Field(
        1.2, gt=0, description="lengthscales of the functions, relative to those of a GP that explains the same rows"
    )
    augment: bool = Field(
        True, description="add the variance of a function at the test point, which grows away from the rows"
    )
    stochastic: StochasticConfig = Field(StochasticConfig(), description="selection by the stochastic bound")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.likelihood != gaussian.Config():
            raise ValueError(
                "rvm has Gaussian noise, which it learns; leave likelihood as it is, or use svdgp with this likelihood"
            )
        if self.solver != "stochastic" and self.stochastic != StochasticConfig():
            raise ValueError("stochastic.… is for solver=stochastic; set that, or leave out stochastic.…")
        return self
