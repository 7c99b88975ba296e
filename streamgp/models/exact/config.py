"""Exact GP options."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from streamgp.base import Shape
from streamgp.choice import OneOf
from streamgp.evidence.marginal_likelihood import MarginalLikelihoodConfig
from streamgp.kernels import linear, squared_exponential
from streamgp.kernels import sum as sums
from streamgp.model_config import Simulated
from streamgp.online.options import KernelOptions


class Config(KernelOptions):
    """Exact GP (Rasmussen & Williams 2006, algorithm 2.1): Cholesky factors, hyper-parameters by marginal likelihood.

    The baseline of all others, for up to some thousand rows: time is cubic in them and memory their square.
    """

    simulates: ClassVar[Simulated] = "calibrated"

    few: ClassVar[tuple[str, ...]] = (
        *("target", "temper", "rebuild", "learn", "limit"),
        *("kernel", "linear", "ard", "rows", "evidence_rows"),
    )
    """The options that matter first."""

    kernel: Annotated[BaseModel, OneOf("kernels")] = Field(
        squared_exponential.Config(),
        description="covariance of standardised windows; a lengthscale that is set is where the search starts, "
        "otherwise the scales of the data",
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
        description="rows of the posterior at most: a fit refuses more, a stream keeps the newest, between four fifths "
        "of them and all",
    )
    training: MarginalLikelihoodConfig = Field(
        MarginalLikelihoodConfig(prior=2.0),
        description="search for hyper-parameters; a rebuild searches from the last ones and from the default, with a "
        "third of the evaluations each",
    )
    evidence_rows: int | None = Field(
        800,
        ge=0,
        description="most rows, thinned in time, to estimate hyper-parameters from; 0: they stay as set; none: all",
    )
    rescale: bool = Field(
        True,
        description="scale each column's variance by the mean squared error, in its own standard deviations, of its "
        "rows as forecast from those that were known by then",
    )

    def whole(self, shape: Shape) -> BaseModel:
        """The kernel with its linear part. Without lags all slopes together have the prior variance of a target: with 1
        each, 50 columns would have 50 times as much."""
        if not self.linear:
            return self.kernel
        variance = 1.0 if shape.lags else max(1.0 / shape.width, 1e-6)
        return sums.Config(parts=(self.kernel, linear.Config(variance=variance)))

    def search(self, shape: Shape) -> MarginalLikelihoodConfig:
        """The search, with noise=auto and the seed decided: several steps ahead share the noise.

        The truths of windows that overlap repeat each other; with a noise of its own, a far step's goes to nothing,
        because its neighbours explain it.
        """
        shared = self.training.noise == "auto" and shape.horizon > 1
        own = {"seed": self.training.seed + self.seed} | ({"noise": "shared"} if shared else {})
        return self.training.model_copy(update=own)

    @property
    def untuned(self) -> str:
        return ""

    def functions(self, shape: Shape) -> int:
        return self.rows

    def levers(self, shape: Shape) -> dict[str, int]:
        return {"rows": self.rows}
