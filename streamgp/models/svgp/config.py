"""SVGP options."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from streamgp.base import Shape
from streamgp.choice import OneOf
from streamgp.encoders import identity
from streamgp.likelihoods import gaussian
from streamgp.online.options import StreamOptions

POINTS = 512
"""Inducing inputs by default."""
NUMBERS = 2**21
"""Of the covariances of all columns together, where each has its own: 16 MB."""
STEPS, MOST_EPOCHS = 1000, 60
"""Mini-batches of a fit from scratch, and epochs at most."""


class SvgpTrainingConfig(BaseModel):
    """Mini-batches: Adam for kernel, inducing inputs, noise and encoder, natural gradients for q."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    batch: int = Field(1024, ge=1, description="rows in a mini-batch")
    rate: float = Field(
        0.05, gt=0, le=1, description="step size of Adam on the kernel's logarithms, the noise and the inducing inputs"
    )


class Config(StreamOptions):
    """Sparse variational GP on inducing inputs (Titsias 2009; Hensman et al. 2013, 2015), whitened, online."""

    few: ClassVar[tuple[str, ...]] = (
        *("target", "memory", "temper", "rebuild", "learn", "limit"),
        *("kernel", "points", "likelihood", "encoder"),
    )
    """The options that matter first."""

    kernel: Annotated[BaseModel | None, OneOf("kernels", optional=True)] = Field(
        None,
        description="covariance of windows, or of latents; none: squared exponential with lags or an encoder, and "
        "without them the one with the best evidence among it and the Matérn ones",
    )
    likelihood: Annotated[BaseModel, OneOf("likelihoods")] = Field(
        gaussian.Config(), description="of a target around the function; logistic: outcomes of 0 and 1"
    )
    encoder: Annotated[BaseModel, OneOf("encoders", unnamed="mlp")] = Field(
        identity.Config(), description="in front of the kernel; mlp once an option of it is set without a name"
    )
    points: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="inducing inputs; auto: 512, and fewer where a likelihood other than gaussian has columns enough "
        "that their covariances would take more than 16 MB",
    )
    training: SvgpTrainingConfig = Field(SvgpTrainingConfig(), description="by mini-batches")
    epochs: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="epochs of a fit; auto: 1000 mini-batches, in at most 60 epochs, and a single one with lags under "
        "Gaussian noise, where hyper-parameters are those of the evidence of thinned windows",
    )
    refresh: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="mini-batches of training at a rebuild; auto: 40, and none with lags under Gaussian noise",
    )
    evidence_rows: Annotated[int, Field(ge=2)] | Literal["auto"] = Field(  # type: ignore[assignment]
        "auto",
        description="most rows, thinned in time, to estimate hyper-parameters from; auto: 400 with lags, 1000 without",
    )

    @field_validator("kernel", mode="before")
    @classmethod
    def _named(cls, kernel: object) -> object:
        return None if kernel in ("auto", "none") else kernel

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.gaussian and self.likelihood != gaussian.Config():
            raise ValueError("svgp finds Gaussian noise itself; leave out likelihood.noise")
        if not self.gaussian and self.limit not in (5.0, None):
            raise ValueError("limit is for likelihood=gaussian; leave out limit")
        return self

    @property
    def gaussian(self) -> bool:
        """Whether the best q has a closed form."""
        return isinstance(self.likelihood, gaussian.Config)

    @property
    def encoded(self) -> bool:
        """Whether the kernel sees latents."""
        return not isinstance(self.encoder, identity.Config)

    def size(self, shape: Shape) -> int:
        """M."""
        if self.points != "auto":
            return self.points
        if self.gaussian:
            return POINTS
        return max(min(POINTS, math.isqrt(NUMBERS // shape.columns)), 1)

    @property
    def untuned(self) -> str:
        return ""

    def functions(self, shape: Shape) -> int:
        return self.size(shape)

    def levers(self, shape: Shape) -> dict[str, int]:
        return {"points": self.points} if self.points != "auto" else {}

    def by_evidence(self, shape: Shape) -> bool:
        """Whether hyper-parameters are those of thinned windows, and the bound of overlapping ones is not followed."""
        return bool(shape.lags) and self.gaussian and not self.encoded

    def epochs_for(self, shape: Shape, rows: int) -> int:
        """Epochs of a fit."""
        if self.epochs != "auto":
            return self.epochs
        if self.by_evidence(shape):
            return 1
        return min(max(STEPS * self.training.batch // max(rows, 1), 2), MOST_EPOCHS)

    def steps(self, shape: Shape) -> int:
        """Mini-batches at a rebuild."""
        if self.refresh != "auto":
            return self.refresh
        return 0 if self.by_evidence(shape) else 40

    def thinned(self, shape: Shape) -> int:
        """Rows at most that estimate hyper-parameters."""
        return (400 if shape.lags else 1000) if self.evidence_rows == "auto" else self.evidence_rows
