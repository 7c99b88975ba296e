"""What can be set of an SVGP."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from streamgp.base import Shape
from streamgp.choice import OneOf
from streamgp.encoders import identity
from streamgp.likelihoods import gaussian, logistic

POINTS = 512
"""Inducing inputs, if not said."""
NUMBERS = 2**21
"""Of the covariances of all columns together, where each has its own: 16 MB."""
STEPS, MOST_EPOCHS = 1000, 60
"""Mini-batches of a fit from scratch, and epochs at most."""


class TrainingConfig(BaseModel):
    """Mini-batches: Adam for kernel, inducing inputs, noise and encoder, natural gradients for q."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    batch: int = Field(1024, ge=1, description="rows in a mini-batch")
    rate: float = Field(
        0.05, gt=0, le=1, description="step size of Adam on the kernel's logarithms, the noise and the inducing inputs"
    )
    natural_rate: float = Field(
        0.1, gt=0, le=1, description="step size of the natural gradient; 1 forgets all but the mini-batch"
    )
    point_rate: float = Field(1.0, ge=0, le=10, description="factor on the step size of inducing inputs; 0: they stay")
    encoder_rate: float = Field(0.1, ge=0, le=10, description="factor on the step size of the encoder's weights")
    precision: Literal["float32", "float64"] = Field(
        "float32", description="of the large products in a step; factors and what predicts are float64"
    )


class Config(BaseModel):
    """Sparse variational GP on inducing inputs (Titsias 2009; Hensman et al. 2013, 2015), whitened, online."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    target: Literal["auto", "level", "change", "season"] = Field(
        "auto",
        description="what is learned of a target: its level, its change from the present value, or its departure from "
        "the season; auto: its departure from a mixture of these that each rebuild learns, column by column",
    )
    decay: float = Field(
        0.9, ge=0, le=1, description="season: part of the present departure that is expected to be left after 4 rows"
    )
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
        description="inducing inputs; auto: 512, and fewer where a likelihood other than gaussian has so many columns "
        "that their covariances would take more than 16 MB",
    )
    training: TrainingConfig = Field(TrainingConfig(), description="by mini-batches")
    epochs: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="epochs of a fit; auto: 1000 mini-batches, in at most 60 epochs, and a single one with lags under "
        "Gaussian noise, where the evidence of thinned windows is all that tells hyper-parameters",
    )
    refresh: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="mini-batches of training at a rebuild; auto: 40, and none with lags under Gaussian noise",
    )
    noise: Literal["residual", "bound"] = Field(
        "residual",
        description="of predictions under Gaussian noise: what the squared residuals of the rows learned leave beyond "
        "the latent variance, or the noise at which the bound is largest, which also counts what the inducing inputs "
        "cannot express; the posterior has the latter",
    )
    memory: Annotated[int, Field(gt=0)] | Literal["auto", "all"] = Field(
        "auto", description="rows after which a row counts 1/e; auto: 4000 with lags, all rows alike without"
    )
    temper: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        description="what a row counts for is divided by this, as windows that overlap are not independent; auto: "
        "√horizon",
    )
    reservoir: int = Field(8192, ge=2, description="rows kept for rebuilds")
    rebuild: int = Field(
        4000,
        ge=0,
        description="rows from one rebuild (scaling, hyper-parameters, inducing inputs) to the next; 0: never",
    )
    learn: Literal["rebuild", "once"] = Field(
        "rebuild",
        description="hyper-parameters of the kernel: learned anew at every rebuild, from those before, or once; those "
        "of --init stay as they are with once",
    )
    limit: float | None = Field(
        5.0,
        gt=0,
        description="standard deviations of its own forecast that a row of a stream counts for at most, with a "
        "Gaussian likelihood; none: any",
    )
    evidence_rows: Annotated[int, Field(ge=2)] | Literal["auto"] = Field(
        "auto",
        description="rows at most, thinned in time, that first estimate hyper-parameters; auto: 400 with lags, 1000 "
        "without",
    )
    seed: int = Field(0, ge=0, description="of mini-batches, reservoir and inducing inputs")

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
        if not self.gaussian and self.noise != "residual":
            raise ValueError("noise is for likelihood=gaussian; leave out noise")
        return self

    @property
    def gaussian(self) -> bool:
        """Whether the best q has a closed form."""
        return isinstance(self.likelihood, gaussian.Config)

    @property
    def outcomes(self) -> bool:
        """Whether targets are 0 and 1."""
        return isinstance(self.likelihood, logistic.Config)

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

    def forgetting(self, shape: Shape) -> float | None:
        """τ in rows, or None where nothing is forgotten."""
        if self.memory == "auto":
            return 4000.0 if shape.lags else None
        return None if self.memory == "all" else float(self.memory)

    def thinned(self, shape: Shape) -> int:
        """Rows at most that first estimate hyper-parameters."""
        return (400 if shape.lags else 1000) if self.evidence_rows == "auto" else self.evidence_rows

    def tempering(self, shape: Shape) -> float:
        """What a row's weight is divided by."""
        return float(shape.horizon) ** 0.5 if self.temper == "auto" else float(self.temper)
