"""What can be set of an SVDGP."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamgp.base import Shape
from streamgp.choice import OneOf
from streamgp.encoders import identity
from streamgp.likelihoods import gaussian
from streamgp.models.svdgp.gradient_config import GradientConfig


class Config(BaseModel):
    """Sparse variational GP with decoupled bases (Cheng & Boots 2017), online.

    The options down to `evidence_rows` belong to the closed-form inference, those under `gradient` to the other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    target: Literal["auto", "level", "change", "season"] = Field(
        "auto",
        description="what is learned of a target: its level, its change from the present value, or its departure from "
        "the season; auto: its departure from a mixture of these that each rebuild learns, column by column",
    )
    decay: float = Field(
        0.9, ge=0, le=1, description="season: part of the present departure that is expected to be left after 4 rows"
    )
    inference: Literal["auto", "conjugate", "gradient"] = Field(
        "auto", description="closed form, or stochastic gradients; auto: closed form wherever there is one"
    )
    likelihood: Annotated[BaseModel, OneOf("likelihoods")] = Field(
        gaussian.Config(), description="of a target around the function; logistic: outcomes of 0 and 1"
    )
    encoder: Annotated[BaseModel, OneOf("encoders", unnamed="mlp")] = Field(
        identity.Config(), description="in front of the kernel; mlp once an option of it is set without a name"
    )
    linear: bool = Field(
        True, description="add a linear part to the kernel; left out where a window has more columns than `basis`"
    )
    basis: int = Field(1024, ge=1, description="basis functions, of mean and covariance")
    mean_basis: int = Field(
        3072, ge=1, description="basis functions of the mean, when windows are fitted in more than one epoch"
    )
    growth: float = Field(0.0625, gt=0, le=1, description="new basis functions a row learned, until the basis is full")
    memory: Annotated[int, Field(gt=0)] | Literal["auto", "all"] = Field(
        "auto", description="rows after which a row counts 1/e; auto: 4000 with lags, all rows alike without"
    )
    temper: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        description="factor on the noise in updates, as windows that overlap are not independent; auto: √horizon",
    )
    reservoir: int = Field(8192, ge=2, description="rows kept for rebuilds")
    rebuild: int = Field(
        4000,
        ge=0,
        description="rows from one rebuild (scaling, hyper-parameters, basis) to the next; 0: never",
    )
    learn: Literal["rebuild", "once"] = Field(
        "rebuild",
        description="hyper-parameters: estimated anew at every rebuild, from those before, or once; those of --init "
        "stay with once",
    )
    limit: float | None = Field(
        5.0,
        gt=0,
        description="standard deviations of its own forecast that a row of a stream counts for at most; none: any",
    )
    evidence_rows: int = Field(400, ge=2, description="rows at most, thinned in time, that estimate hyper-parameters")
    seed: int = Field(0, ge=0, description="of basis, reservoir and replay")
    gradient: GradientConfig = Field(GradientConfig(), description="inference by stochastic gradients")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        plain = isinstance(self.likelihood, gaussian.Config)
        if self.inference == "conjugate" and (not plain or self.encoder != identity.Config()):
            raise ValueError("inference=conjugate needs likelihood=gaussian and no encoder; use inference=gradient")
        if plain and self.likelihood != gaussian.Config() and not self.by_gradient:
            raise ValueError("the closed form finds the noise itself; likelihood.noise needs inference=gradient")
        return self

    @property
    def by_gradient(self) -> bool:
        """Whether inference goes by gradients."""
        if self.inference != "auto":
            return self.inference == "gradient"
        return not isinstance(self.likelihood, gaussian.Config) or not isinstance(self.encoder, identity.Config)

    def forgetting(self, shape: Shape) -> float | None:
        """τ in rows, or None where nothing is forgotten."""
        if self.memory == "auto":
            return 4000.0 if shape.lags else None
        return None if self.memory == "all" else float(self.memory)

    def tempering(self, shape: Shape) -> float:
        """The factor on the noise in updates."""
        return float(shape.horizon) ** 0.5 if self.temper == "auto" else float(self.temper)
