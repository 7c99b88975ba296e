"""Options of models behind an encoder."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from streamgp.base import Shape
from streamgp.choice import OneOf
from streamgp.encoders import gru, lstm, mlp, rnn
from streamgp.errors import UsageError
from streamgp.kernels import squared_exponential
from streamgp.online.options import OnlineOptions
from streamgp.optim.alternating import AlternatingConfig
from streamgp.optim.squared_error import SquaredErrorConfig
from streamgp.solvers import kiss
from streamgp.training.early_stopping import EarlyStoppingOptions

GRID_WIDTH = 2
"""Columns of the latent space unless the encoder's options say otherwise: a grid in more than three is too large."""


class OnlineConfig(BaseModel):
    """Learning from a stream, after the warm-up."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    window: int = Field(6000, ge=2, description="newest rows kept, that the encoder is refreshed on")
    steps: int = Field(
        16, ge=0, description="encoder steps of a refresh, one mini-batch each; half of its rows are new since the last"
    )
    rate: float = Field(5e-4, gt=0, le=1, description="learning rate of the encoder at a refresh")
    variance: Annotated[float, Field(gt=0)] | None = Field(
        2000,
        description="rows after which a squared error counts 1/e in the factor on the variance, and at most as much as "
        "one of 5 standard deviations; none keeps that of the training",
    )
    stale: float = Field(
        2.0, gt=1, description="the model is stale when its standardised squared error is this many times the usual"
    )
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


class DeepConfig(OnlineOptions, EarlyStoppingOptions):
    """Options that the nets and the GPs behind an encoder share."""

    usual: ClassVar[int] = 1500
    most: ClassVar[int] = 60
    most_lags: ClassVar[int] = 24
    """By default: more columns are more weights to learn."""

    mode: Literal["autoregression", "regression"] = Field(
        "autoregression", description="regression: the targets' own past is hidden, the inputs alone explain them"
    )
    target: Literal["auto", "level", "change", "season"] = Field(
        "auto",
        description="what is learned of a target: its level, its change from the present value, or its departure from "
        "the season; auto: season where there is one, else change where there are lags, else level",
    )
    mean: Literal["auto", "zero", "linear"] = Field(
        "auto",
        description="mean function: none, or a ridge regression on the window; auto: linear in autoregression, zero in "
        "regression",
    )
    rebuild: int = Field(
        168,
        ge=0,
        description="rows from one refresh of encoder and kernel to the next, or to the next fit while the stream is "
        "young; 0: only when stale",
    )
    limit: float | None = Field(
        10.0,
        gt=0,
        description="winsorise a target at this many predictive standard deviations, which nets underestimate, before "
        "it is learned; none: never",
    )
    online: OnlineConfig = Field(OnlineConfig(), description="learning from a stream")
    seed: int = Field(0, ge=0, description="of mini-batches, dropout and initial weights")

    def learned(self, shape: Shape) -> Self:
        """The same with what is learned of a target: its level where its past is hidden.

        Raises:
            UsageError: something else is asked for.
        """
        found = "season" if shape.seasonal else "change" if shape.lags else "level"
        if self.mode == "regression":
            if self.target not in ("auto", "level"):
                raise UsageError(f"mode=regression cannot learn a {self.target}", hint="use target=level")
            found = "level"
        return self.model_copy(update={"target": found}) if self.target == "auto" else self

    def linear(self, shape: Shape) -> bool:
        """Whether there is a linear mean function."""
        return self.mean == "linear" or (self.mean == "auto" and self.mode == "autoregression" and bool(shape.lags))


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
    draws: int = Field(
        0, ge=0, description="networks drawn by dropout that a forecast averages over; 0: none (Monte Carlo dropout)"
    )

    def forgetting(self, shape: Shape) -> float | None:
        """Between two refreshes."""
        return self.online.memory

    @property
    def refreshing(self) -> AlternatingConfig:
        """Training at a refresh."""
        online = self.online
        changed = {"schedule": "constant", "encoder_rate": online.rate, "kernel_steps": online.kernel_steps}
        return self.training.model_copy(update=changed)

    @property
    def pretraining(self) -> SquaredErrorConfig:
        """Training on squared error."""
        return SquaredErrorConfig(batch=self.training.batch, rate=self.pretrain_rate, seed=self.seed)


class GpGruConfig(DeepGpConfig):
    """A GP behind gated recurrent units."""

    encoder: gru.Config = Field(
        gru.Config(width=GRID_WIDTH), description="gated recurrent units over the lags, in front of the kernel"
    )


class GpLstmConfig(DeepGpConfig):
    """A GP behind long short-term memory."""

    encoder: lstm.Config = Field(
        lstm.Config(width=GRID_WIDTH), description="long short-term memory over the lags, in front of the kernel"
    )


class GpNarxConfig(DeepGpConfig):
    """A GP behind a perceptron."""

    encoder: mlp.Config = Field(
        mlp.Config(width=GRID_WIDTH), description="a perceptron over the flattened lags (NARX), in front of the kernel"
    )


class GpRnnConfig(DeepGpConfig):
    """A GP behind an Elman network."""

    encoder: rnn.Config = Field(
        rnn.Config(width=GRID_WIDTH), description="an Elman network over the lags, in front of the kernel"
    )


class GruConfig(DeepNetConfig):
    """A linear head behind gated recurrent units."""

    encoder: gru.Config = Field(gru.Config(width=32), description="gated recurrent units over the lags")


class LstmConfig(DeepNetConfig):
    """A linear head behind long short-term memory."""

    encoder: lstm.Config = Field(lstm.Config(width=32), description="long short-term memory over the lags")


class NarxConfig(DeepNetConfig):
    """A linear head behind a perceptron."""

    encoder: mlp.Config = Field(mlp.Config(width=64), description="a perceptron over the flattened lags (NARX)")


class RnnConfig(DeepNetConfig):
    """A linear head behind an Elman network."""

    encoder: rnn.Config = Field(rnn.Config(width=32), description="an Elman network over the lags")
