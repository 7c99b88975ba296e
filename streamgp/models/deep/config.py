"""Options of models with an encoder: those that all share, those of each head, and the presets."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, create_model

from streamgp import registry
from streamgp.base import Shape
from streamgp.choice import OneOf
from streamgp.errors import UsageError
from streamgp.kernels import squared_exponential
from streamgp.model_config import Simulated
from streamgp.models.deep.alternating import AlternatingConfig
from streamgp.models.deep.squared_error import SquaredErrorConfig
from streamgp.models.deep.variants import DOCSTRINGS, ENCODERS, PRESETS
from streamgp.online.options import OnlineOptions
from streamgp.solvers import kiss
from streamgp.training.descent import DescentConfig, batches_of
from streamgp.training.early_stopping import EarlyStoppingOptions

MANY, FEW_EPOCHS = 1000, 5
"""Rows above which pre-training pays beside a regression, on fewer pre-trained nets grow over-confident; its epochs."""
LONG, MOST_EPOCHS, AFTER = 500, 100, 2e-3
"""With target=level: mini-batches of the first pre-training, its epochs at most, and the majoriser's
step size after it."""
GRID_WIDTH = 2
"""Columns of a kernel's latent space unless the encoder says otherwise: a grid in more than three is too large."""


class DeepOnlineConfig(BaseModel):
    """Learning from a stream, after the warm-up."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    window: int = Field(6000, ge=2, description="newest rows kept, that are trained on")
    stale: float = Field(
        2.0,
        gt=1,
        description="the model is stale, and trained again, when its recent squared error is this many times its "
        "variance",
    )


class OnlineGpConfig(DeepOnlineConfig):
    """The same, for a GP."""

    memory: Annotated[float, Field(gt=0)] | None = Field(
        8000, description="rows after which a row of the statistics counts 1/e between trainings; none never forgets"
    )


class DeepConfig(OnlineOptions, EarlyStoppingOptions):
    """Options that the nets and the GPs on an encoder share."""

    simulates: ClassVar[Simulated] = "trained"
    usual: ClassVar[int] = 1500
    most: ClassVar[int] = 60
    most_lags: ClassVar[int] = 24
    """By default: more columns are more weights to learn."""

    mode: Literal["autoregression", "regression"] = Field(
        "autoregression", description="regression: the targets' own past is hidden, the inputs alone explain them"
    )
    target: Literal["auto", "level", "change", "season"] = Field(
        "auto",
        description="what is learned of a target: its level, its change from the present value, its departure from the "
        "season; auto: what the forecast of `linear` leaves, which learns beside the net; without lags and with "
        "mode=regression its level",
    )
    rebuild: int = Field(
        0, ge=0, description="also train every this many rows; 0: only when rows have doubled, or the model is stale"
    )
    limit: float | None = Field(
        10.0,
        gt=0,
        description="winsorise a target at this many predictive standard deviations, which nets underestimate, before "
        "it is learned; none: never",
    )
    epochs: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="epochs of a fit, such as a warm-up, and at most of a training on a stream; auto: fewer the "
        "more rows there are",
    )
    online: DeepOnlineConfig = Field(DeepOnlineConfig(), description="learning from a stream")
    encoder: BaseModel
    training: DescentConfig
    seed: int = Field(0, ge=0, description="of mini-batches, dropout and initial weights")

    def unrolled(self, shape: Shape) -> bool:
        """Whether it is trained on simulation error: where simulations are planned, of one step and of all that is
        seen."""
        follows = shape.horizon == 1 and shape.lags > 1 and not shape.seasonal
        return bool(shape.simulated) and follows and self.on_regression(shape)

    def learned(self, shape: Shape) -> Self:
        """The same with what the net itself learns.

        Raises:
            UsageError: the past, which is hidden, is asked for.
        """
        if self.mode == "regression" and self.target not in ("auto", "level"):
            raise UsageError(f"mode=regression cannot learn a {self.target}", hint="use target=level")
        return self.model_copy(update={"target": "level"}) if self.target == "auto" else self

    def on_regression(self, shape: Shape) -> bool:
        """Whether the net learns what a regression leaves."""
        return self.target == "auto" and self.mode != "regression" and bool(shape.lags)


class DeepNetConfig(DeepConfig):
    """Options of the plain nets."""

    training: SquaredErrorConfig = Field(SquaredErrorConfig(batch=64), description="training on squared error")


class DeepGpConfig(DeepConfig):
    """Options of the GPs on an encoder."""

    online: OnlineGpConfig = Field(OnlineGpConfig(), description="learning from a stream")
    kernel: Annotated[BaseModel, OneOf("kernels")] = Field(
        squared_exponential.Config(lengthscale=0.5), description="covariance of the latents"
    )
    solver: Annotated[BaseModel, OneOf("solvers")] = Field(
        kiss.Config(), description="how the marginal likelihood is computed"
    )
    training: AlternatingConfig = Field(AlternatingConfig(batch=64), description="semi-stochastic training")
    pretrain: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="epochs of the encoder on squared error before; auto: 5 above 1000 rows, else 0; with target=level "
        "about 500 mini-batches. With target=level half as many come before each later training on a stream",
    )
    draws: int = Field(
        0, ge=0, description="networks drawn by dropout that a forecast averages over; 0: none (Monte Carlo dropout)"
    )

    @property
    def untuned(self) -> str:
        hides = "with mode=regression hides the targets' past, which the hyper-parameters are of"
        return hides if self.mode == "regression" else ""

    def forgetting(self, shape: Shape) -> float | None:
        """Between two trainings."""
        return self.online.memory

    @property
    def alone(self) -> bool:
        """Whether the net learns the target itself, as in the paper, and is pretrained before every training."""
        return self.target == "level" and self.pretrain != 0

    @property
    def alternating(self) -> AlternatingConfig:
        """Training by the marginal likelihood; the majoriser takes smaller steps after long pretraining."""
        chosen = self.training
        small = self.alone and chosen.scheme == "majoriser" and chosen.encoder_rate == "auto"
        return chosen.model_copy(update={"encoder_rate": AFTER}) if small else chosen

    @property
    def pretraining(self) -> SquaredErrorConfig:
        """Training on squared error."""
        schedule: Literal["cosine", "constant"] = "cosine" if self.alone else "constant"
        return SquaredErrorConfig(batch=self.training.batch, seed=self.seed, schedule=schedule)

    def pretrain_epochs(self, rows: int, again: bool) -> int:
        """Epochs on squared error before a training on `rows` rows; again: the net has been trained before.

        Example:
            >>> Config = preset("gp_lstm")
            >>> Config().pretrain_epochs(2000, again=False), Config().pretrain_epochs(2000, again=True)
            (5, 0)
            >>> alone = Config(target="level")  # mini-batches of 64
            >>> alone.pretrain_epochs(1000, again=False), alone.pretrain_epochs(1000, again=True)
            (31, 15)
        """
        if again and not self.alone:
            return 0
        if self.pretrain != "auto":
            return math.ceil(self.pretrain / 2) if again else self.pretrain
        if not self.alone:
            return FEW_EPOCHS if rows > MANY else 0
        wanted = LONG // 2 if again else LONG
        return min(max(wanted // batches_of(rows, self.training.batch), 1), MOST_EPOCHS)


@cache
def preset(name: str) -> type[DeepConfig]:
    """The options of a model: those of its head, and its encoder by default."""
    own = PRESETS[name]
    encoder = registry.load("encoders", own.encoder).Config
    gp = own.head == "gp"
    usual = encoder(width=GRID_WIDTH if gp else encoder().hidden)
    where = "in front of the kernel" if gp else "in front of a linear head"
    field = Field(usual, description=f"{ENCODERS[own.encoder]}, {where}; another one once it is named")
    kind = Annotated[BaseModel, OneOf("encoders", unnamed=own.encoder, but=("identity",))]
    head = DeepGpConfig if gp else DeepNetConfig
    about: dict[str, Any] = {"__base__": head, "__module__": __name__, "__doc__": DOCSTRINGS[name]}
    return cast("type[DeepConfig]", create_model(_class_name(name), **about, encoder=(kind, field)))


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")) + "Config"


def __getattr__(name: str) -> type[DeepConfig]:
    """The class of a preset under its name, such as GpLstmConfig: as one that is pickled is looked for."""
    for one in PRESETS:
        if _class_name(one) == name:
            return preset(one)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
