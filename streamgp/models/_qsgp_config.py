"""What can be set of a QSGP on a stream."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamgp.base import Shape
from streamgp.choice import OneOf
from streamgp.features import fourier


class Config(BaseModel):
    """Quadruply stochastic Gaussian process (Evans & Nair 2020), online."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Literal["auto", "level", "change", "season"] = Field(
        "auto",
        description="what is learned of a target: its level, its change from the present value, or its departure from "
        "the season; auto: its departure from a mixture of these that each rebuild learns, column by column",
    )
    decay: float = Field(
        0.9, ge=0, le=1, description="season: part of the present departure that is expected to be left after 4 rows"
    )
    linear: bool = Field(
        True, description="add a linear part; left out where a window has more columns than features.width"
    )
    features: Annotated[BaseModel, OneOf("features", unnamed="fourier")] = Field(
        fourier.Config(size=4096, width=512), description="basis functions, and how many of them make a block"
    )
    visits: int = Field(2, ge=0, description="blocks visited at an update, beside the head")
    sweeps: int = Field(1, ge=1, description="visits to every block at a rebuild, or in an epoch")
    memory: Annotated[int, Field(gt=0)] | Literal["auto", "all"] = Field(
        "auto", description="rows after which a row counts 1/e; auto: 4000 with lags, all rows alike without"
    )
    temper: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        description="factor on the noise in updates, as windows that overlap are not independent; auto: √horizon",
    )
    reservoir: int = Field(8192, ge=2, description="R, rows kept")
    rebuild: int = Field(4000, ge=0, description="rows from one rebuild to the next; 0: never")
    evidence_rows: int = Field(400, ge=2, description="rows at most, thinned in time, that estimate hyper-parameters")
    seed: int = Field(0, ge=0, description="of frequencies and reservoir")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not isinstance(self.features, fourier.Config):
            raise ValueError("features=fourier is the only one that qsgp knows")
        return self

    def forgetting(self, shape: Shape) -> float | None:
        """τ in rows, or None where nothing is forgotten."""
        if self.memory == "auto":
            return 4000.0 if shape.lags else None
        return None if self.memory == "all" else float(self.memory)

    def tempering(self, shape: Shape) -> float:
        """The factor on the noise in updates."""
        return float(shape.horizon) ** 0.5 if self.temper == "auto" else float(self.temper)
