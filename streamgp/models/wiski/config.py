"""WISKI options."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from streamgp.choice import OneOf
from streamgp.kernels import squared_exponential
from streamgp.model_config import Simulated
from streamgp.online.options import StreamOptions
from streamgp.solvers import kiss


class Config(StreamOptions):
    """WISKI: a GP on a grid in few dimensions, whose cost a row does not depend on the rows seen."""

    simulates: ClassVar[Simulated] = "calibrated"

    few: ClassVar[tuple[str, ...]] = (
        *("target", "memory", "temper", "rebuild", "learn", "limit"),
        *("projection", "dims", "kernel", "solver"),
    )
    """The options that matter first."""

    projection: Literal["regression", "pca", "none"] = Field(
        "regression",
        description="what of a window the GP sees: the direction of a linear regression, and those in which it and a "
        "smooth function of what it leaves vary most; pca: principal components; none: the window itself, of at most "
        "three columns",
    )
    dims: int = Field(2, ge=1, le=3, description="dimensions of the grid, where windows are projected")
    kernel: Annotated[BaseModel, OneOf("kernels")] = Field(
        squared_exponential.Config(lengthscale=0.5), description="covariance of the projected windows, in (-1, 1)"
    )
    solver: kiss.Config = Field(kiss.Config(), description="grid, rank and noise")
    evidence_rows: int = Field(
        4096,
        ge=2,
        description="most rows, thinned in time, to estimate hyper-parameters from; the cost does not depend on them",
    )
    evaluations: int = Field(30, ge=1, le=10_000, description="of the marginal likelihood, a start, at a rebuild")

    @property
    def untuned(self) -> str:
        return "has a kernel of projected windows, whose hyper-parameters are none of the windows' own"
