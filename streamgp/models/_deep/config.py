"""Options of models behind an encoder."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.choice import OneOf
from streamgp.kernels import squared_exponential
from streamgp.optim.alternating import AlternatingConfig
from streamgp.optim.early_stopping import validation_rows
from streamgp.optim.squared_error import SquaredErrorConfig
from streamgp.solvers import kiss

STEPS = 1500
"""Mini-batches after which an encoder of the default size has learned most of what it learns."""
FEWEST_EPOCHS, MOST_EPOCHS = 8, 60
LONG = 5000
"""Rows above which the last tenth alone says enough."""


class OnlineConfig(BaseModel):
    """Learning from a stream, after the warm-up."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    window: int = Field(6000, ge=2, description="newest rows kept, that the encoder is refreshed on")
    refresh: int = Field(
        168, ge=0, description="rows from one refresh of encoder and kernel to the next; 0: only when stale"
    )
    steps: int = Field(
        16, ge=0, description="encoder steps of a refresh, one mini-batch each; half of its rows are new since the last"
    )
    rate: float = Field(5e-4, gt=0, le=1, description="learning rate of the encoder at a refresh")
    variance: Annotated[float, Field(gt=0)] | None = Field(
        2000,
        description="rows after which a squared error counts 1/e in the variance, or in a GP's factor on it, and at "
        "most as much as one of 5 standard deviations; none keeps that of the training",
    )
    stale: float = Field(
        2.0, gt=1, description="the model is stale when its standardised squared error is this many times the usual"
    )
    patience: int = Field(64, ge=1, description="rows at least between two refreshes of a stale model")
    stale_steps: int = Field(64, ge=0, description="encoder steps of a refresh when the model is stale")
    epochs: int = Field(
        10, ge=1, description="epochs of a fit while the stream is young, whenever its rows have doubled"
    )


class OnlineGpConfig(OnlineConfig):
    """The same, for a GP."""

    kernel_steps: int = Field(1, ge=0, description="steps on the kernel and the noise at a refresh")
    memory: Annotated[float, Field(gt=0)] | None = Field(
        8000, description="rows after which a row of the statistics counts 1/e between refreshes; none never forgets"
    )


class DeepConfig(BaseModel):
    """Options that the nets and the GPs behind an encoder share."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mode: Literal["autoregression", "regression"] = Field(
        "autoregression", description="regression: the targets' own past is hidden, the inputs alone explain them"
    )
    target: Literal["auto", "level", "change", "season"] = Field(
        "auto",
        description="what is learned of a target: its level, its change from the present value, or its departure from "
        "the season; auto: season where there is one, else change where there are lags, else level",
    )
    mean: Literal["auto", "zero", "persistence", "linear"] = Field(
        "auto",
        description="mean function: none, the present value (target=level), or a ridge regression; auto: linear in "
        "autoregression, zero in regression",
    )
    decay: float = Field(
        0.9, ge=0, le=1, description="season: part of the present departure that is expected to be left after 4 rows"
    )
    epochs: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="epochs of a fit from scratch, such as a warm-up; auto: 1500 mini-batches, in 8 to 60 epochs",
    )
    validation: Annotated[float, Field(ge=0, le=0.5)] | Literal["auto"] = Field(
        "auto",
        description="part of the training rows that selects the best epoch and scales the variance; auto: 0.15, above "
        "5000 rows 0.1",
    )
    blocks: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="blocks of neighbouring rows that the validation rows form; one: the last rows; auto: 5, above "
        "5000 rows one, since rows amid others are forecast better than rows to come",
    )
    patience: int = Field(10, ge=1, description="epochs without a better validation NLPD after which training stops")
    online: OnlineConfig = Field(OnlineConfig(), description="learning from a stream")
    seed: int = Field(0, ge=0, description="of mini-batches, dropout and initial weights")

    def held_out(self, rows: int) -> Tensor:
        """(rows,) bool: which rows of a fit are for validation."""
        long = rows > LONG
        fraction = self.validation if self.validation != "auto" else 0.1 if long else 0.15
        blocks = self.blocks if self.blocks != "auto" else 1 if long else 5
        return validation_rows(rows, fraction, blocks)

    def epochs_for(self, rows: int, batch: int) -> int:
        """Epochs of a fit from scratch on so many rows."""
        if self.epochs != "auto":
            return self.epochs
        return min(max(math.ceil(STEPS * batch / max(rows, 1)), FEWEST_EPOCHS), MOST_EPOCHS)


class DeepNetConfig(DeepConfig):
    """Options of the plain nets."""

    training: SquaredErrorConfig = Field(SquaredErrorConfig(batch=64), description="training on squared error")

    @property
    def refreshing(self) -> SquaredErrorConfig:
        """Training at a refresh."""
        return self.training.model_copy(update={"schedule": "constant", "rate": self.online.rate})


class DeepGpConfig(DeepConfig):
    """Options of the GPs behind an encoder."""

    online: OnlineGpConfig = Field(OnlineGpConfig(), description="learning from a stream")
    kernel: Annotated[BaseModel, OneOf("kernels")] = Field(
        squared_exponential.Config(lengthscale=0.5), description="covariance of the latents"
    )
    solver: Annotated[BaseModel, OneOf("solvers")] = Field(
        kiss.Config(), description="how the marginal likelihood is computed"
    )
    training: AlternatingConfig = Field(AlternatingConfig(batch=64), description="semi-stochastic training")
    pretrain: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="epochs of the encoder on squared error before; auto: 5 above 1000 rows, else 0"
    )
    pretrain_rate: float = Field(1e-2, gt=0, le=1, description="learning rate of pre-training")
    rescale: float = Field(
        1.0,
        ge=0,
        le=1,
        description="power of the validation rows' mean squared standardised error, where above 1, that widens the "
        "variance; 0: never",
    )
    draws: int = Field(
        0, ge=0, description="networks drawn by dropout that a forecast averages over; 0: none (Monte Carlo dropout)"
    )

    @property
    def refreshing(self) -> AlternatingConfig:
        """Training at a refresh."""
        online = self.online
        changed = {"schedule": "constant", "encoder_rate": online.rate, "kernel_steps": online.kernel_steps}
        return self.training.model_copy(update=changed)

    @property
    def pretraining(self) -> SquaredErrorConfig:
        """Training on squared error."""
        training = self.training
        return SquaredErrorConfig(batch=training.batch, clip=training.clip, rate=self.pretrain_rate, seed=self.seed)
