"""Options of a finite-dimensional GP."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamgp.base import Shape
from streamgp.choice import OneOf
from streamgp.encoders import identity, mlp
from streamgp.kernels import linear, squared_exponential
from streamgp.model_config import FUNCTIONS, Simulated
from streamgp.models.finite_rkhs.training import FiniteTrainingConfig
from streamgp.online.options import EvidenceOptions, StreamOptions
from streamgp.regression.recursive import Form
from streamgp.training.early_stopping import EarlyStoppingOptions

REFRESH_RATE, NET_REFRESH_RATE = 1e-2, 1e-3
"""Step sizes at a rebuild: of frequencies on the window itself, and of a net, which starts from what it was."""


SETTLED = 3500
"""Rows that frequencies on the window itself are learned from, where nobody says by which method."""


class FourierConfig(BaseModel):
    """Random Fourier features of the kernel; a linear kernel has none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    size: int = Field(768, ge=2, le=20_000, multiple_of=2, description="cosines and sines, counted singly")
    frequencies: Literal["drawn", "learned"] = Field(
        "learned", description="drawn from the kernel's spectral density, or learned from there on"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="of the frequencies")


class FiniteOnlineConfig(BaseModel):
    """Training of features at the rebuilds of a stream, and the factor on its variance."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epochs: int = Field(
        3,
        ge=0,
        le=1000,
        description="passes over the kept rows that a net is trained at a rebuild; of frequencies on the window "
        "itself, each over 2048 newly drawn rows",
    )
    first: int = Field(20, ge=0, le=1000, description="the same of a net at the first rebuilds, up to `rebuild` rows")
    settled: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="rows from which on frequencies on the window itself are learned, in batch or kept for rebuilds; "
        "fewer are overfitted; auto: 3500, or any where training.method is named",
    )
    variance: Annotated[float, Field(gt=0)] | None = Field(
        4000,
        description="rows after which a squared error counts 1/e in a factor on the variance, and at most as much as "
        "one of 5 standard deviations; none leaves it at what validation rows say",
    )


class Config(StreamOptions, EvidenceOptions, EarlyStoppingOptions):
    """Gaussian process with a kernel of finite dimension: learned features, exact regression on them."""

    usual: ClassVar[int] = 8000
    most: ClassVar[int] = 100
    most_lags: ClassVar[int] = 24
    """By default: more columns are more to learn features of."""

    simulates: ClassVar[Simulated] = "calibrated"

    few: ClassVar[tuple[str, ...]] = (
        *("encoder", "kernel", "fourier", "linear", "predictive"),
        *("target", "memory", "rebuild", "learn", "limit"),
    )
    """The options that matter first."""

    encoder: Annotated[BaseModel, OneOf("encoders", unnamed="mlp")] = Field(
        identity.Config(),
        description="in front of the kernel; mlp once an option of it is set without a name, with 2 layers of 128 "
        "rectified units whose outputs are the features, where nothing else is set",
    )
    kernel: Annotated[BaseModel | None, OneOf("kernels", optional=True)] = Field(
        None,
        description="on the encoder's output; one other than linear by its random Fourier features; "
        "none: linear on a net, squared_exponential on the window itself",
    )
    fourier: FourierConfig = Field(FourierConfig(), description="random Fourier features of the kernel")
    linear: Literal["auto"] | bool = Field(
        "auto",
        description="add a linear part in the window; auto: where it has no more columns than `fourier.size`, and the "
        "kernel is not that already",
    )
    training: FiniteTrainingConfig = Field(
        FiniteTrainingConfig(weights_rate=5e-4),
        description="training of features by marginal likelihood, in batch and in a warm-up",
    )
    noise: float = Field(
        0.1, ge=1e-6, le=1e3, description="noise that training starts from, in variances of the standardised target"
    )
    floor: float = Field(1e-4, ge=1e-8, le=1.0, description="least noise, in variances of the standardised target")
    patience: int = Field(20, ge=1, description="epochs without a better score after which training stops")
    online: FiniteOnlineConfig = Field(
        FiniteOnlineConfig(), description="training at the rebuilds of a stream, and the factor on its variance"
    )
    prior: Literal["auto", "one", "mixed"] = Field(
        "auto",
        description="of the weights, for forecasts: one precision, the noise over the kernel's variances; or 0.3, 3 "
        "and 30 times that, mixed column by column by how well each has forecast recently; auto: mixed with lags",
    )
    form: Form = Field(
        "gram",
        description="of the regression: gram (sums of products, factorised for a forecast), root (triangular root of "
        "the rows, for ill-conditioned features), factor (the posterior's own, for streams that are not forgotten)",
    )
    predictive: Literal["gaussian", "student_t"] = Field(
        "gaussian", description="student_t: the posterior predictive; gaussian: a Gaussian with its mean and variance"
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.form == "factor" and self.memory not in ("all", "auto"):
            raise ValueError("form=factor cannot forget; use memory=all, or form=gram or root")
        if self.form == "factor" and self.prior == "mixed":
            raise ValueError("form=factor has one prior; use prior=one, or form=gram or root")
        if self.noise <= self.floor:
            raise ValueError("noise must be above floor, below which it cannot fall")
        return self

    @property
    def plain(self) -> bool:
        """Whether the kernel looks at the window itself."""
        return isinstance(self.encoder, identity.Config)

    @property
    def on_latents(self) -> BaseModel:
        """The kernel's Config."""
        if self.kernel is not None:
            return self.kernel
        return squared_exponential.Config() if self.plain else linear.Config()

    @property
    def net(self) -> BaseModel:
        """The encoder's Config: what is not set is as the features of a finite-dimensional kernel want it."""
        given = self.encoder
        fields = given.model_fields_set
        if isinstance(given, mlp.Config):
            own = {"hidden": 128, "layers": 1, "activation": "relu", "outer": True, "precision": "float32"}
            given = given.model_copy(update={key: value for key, value in own.items() if key not in fields})
        if "width" in type(given).model_fields and "width" not in fields:
            given = given.model_copy(update={"width": given.model_dump()["hidden"]})
        return given

    @property
    def settled(self) -> int:
        """Rows from which on frequencies on the window itself are learned."""
        if self.online.settled != "auto":
            return self.online.settled
        return SETTLED if self.training.method == "auto" else 0

    def straight(self, width: int) -> bool:
        """Whether there is a linear part beside the kernel's features, of windows with `width` columns."""
        if self.linear != "auto":
            return self.linear
        return not (self.plain and isinstance(self.on_latents, linear.Config)) and width <= self.fourier.size

    def forgetting(self, shape: Shape) -> float | None:
        """As of any model on a stream; but form=factor forgets nothing with memory=auto."""
        return None if self.form == "factor" else super().forgetting(shape)

    def mixed(self, shape: Shape) -> bool:
        """Whether several prior precisions are mixed."""
        return self.prior == "mixed" or (self.prior == "auto" and bool(shape.lags) and self.form != "factor")

    @property
    def refreshing(self) -> FiniteTrainingConfig:
        """Training at a rebuild."""
        return self.training.model_copy(update={"rate": REFRESH_RATE if self.plain else NET_REFRESH_RATE})

    @property
    def untuned(self) -> str:
        return ""

    def functions(self, shape: Shape) -> int:
        """Features, and the linear part; on a net no fewer than stand for its layers."""
        width = shape.width + 1
        size = self._outputs(width) + (width if self.straight(width) else 0)
        return size if self.plain else max(size, FUNCTIONS)

    def levers(self, shape: Shape) -> dict[str, int]:
        if self.plain and not self._fourier:
            return {}
        return {"fourier.size" if self._fourier else "encoder.width": self._outputs(0)}

    @property
    def _fourier(self) -> bool:
        """Whether the kernel is that of random Fourier features."""
        return not isinstance(self.on_latents, linear.Config)

    def _outputs(self, width: int) -> int:
        """Features of the kernel. width: columns of a window, and a constant."""
        if self._fourier:
            return self.fourier.size
        return width if self.plain else int(getattr(self.net, "width", width))
