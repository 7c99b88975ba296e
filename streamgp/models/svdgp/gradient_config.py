"""Options of stochastic-gradient inference."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class GradientConfig(BaseModel):
    """Stochastic-gradient inference of an SVDGP."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    parametrisation: Literal["hybrid", "decoupled"] = Field("hybrid", description="of the approximate posterior")
    widths: Literal["shared", "own"] = Field(
        "shared", description="own: every basis point learns its lengthscales (generalised SE-ARD)"
    )
    mean_basis: int = Field(1024, ge=1, description="basis functions of the mean (beyond the covariance's, in hybrid)")
    covariance_basis: int = Field(256, ge=1, description="basis functions of the covariance")
    grow: int = Field(128, ge=1, description="rows of a batch that become basis functions, until the basis is full")
    batch: int = Field(512, ge=2, description="rows in a step of batch training; on a stream, replayed beside the new")
    steps: int = Field(8, ge=1, description="gradient steps for 512 new rows of a stream; an update takes at least one")
    rate: float = Field(0.1, gt=0, le=1, description="initial step size of Adam")
    hyper_rate: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] = Field(
        "auto",
        description="factor on the step size of hyper-parameters; auto: 0.02, and 0.2 for outcomes of 0 and 1, "
        "since no scaling has given their function its size",
    )
    point_rate: float = Field(0.2, ge=0, le=1, description="factor on the step size of basis points")
    encoder_rate: float = Field(0.05, gt=0, le=1, description="factor on the step size of the encoder's weights")
    average: float = Field(0.95, ge=0, lt=1, description="decay of the averaged iterates that predict; 0: the last one")
    kl_columns: int = Field(64, ge=1, description="columns of the Gram matrix sampled for the KL")
    start: float = Field(0.5, gt=0, le=1, description="where new diagonals of the covariance root start (decoupled)")
    lengthscale: float = Field(
        1.0, ge=1e-6, le=1e6, description="factor on the initial lengthscale, the median trick's"
    )
    reservoir: int = Field(8192, ge=1, description="rows kept for replay")
    memory: int | None = Field(None, ge=1, description="rows that the posterior accounts for; none: all rows seen")
