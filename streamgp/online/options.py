"""Options that every model on a stream has, however it infers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from streamgp.base import Shape
from streamgp.model_config import ModelConfig

LARGEST = 2**62
MEMORY = 4000.0
"""Forgetting time constant of windows with lags, in rows."""


class OnlineOptions(ModelConfig):
    """How targets are transformed before they are learned, and when hyper-parameters are estimated again."""

    target: Literal["auto", "level", "change", "season"] = Field(
        "auto",
        description="model the target's level, its change from the present value, or its departure from the season; "
        "auto: its departure from a mixture of these that each rebuild learns, column by column",
    )
    decay: float = Field(
        0.9, ge=0, le=1, description="season: part of the present departure that is expected to be left after 4 rows"
    )
    rebuild: int = Field(
        4000, ge=0, description="rows from one rebuild (scaling, hyper-parameters, basis) to the next; 0: never"
    )
    limit: float | None = Field(
        5.0,
        gt=0,
        description="winsorise a target at this many predictive standard deviations before it is learned; none: never",
    )
    seed: int = Field(0, ge=0, description="random seed")

    def forgetting(self, shape: Shape) -> float | None:
        """The forgetting time constant in rows, or None where no weight decays."""
        return None


class KernelOptions(OnlineOptions):
    """Those of a model with a kernel of windows, whose hyper-parameters are estimated at rebuilds."""

    process: ClassVar[bool] = True

    temper: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        description="likelihood tempering: rows enter with weight 1/temper, as windows that overlap are not "
        "independent; auto: the square root of the horizon",
    )
    learn: Literal["rebuild", "once"] = Field(
        "rebuild",
        description="hyper-parameters: estimate them at every rebuild, or once; those of --init stay with once",
    )

    widen: bool = Field(
        True,
        description="a fit without lags of fewer than 200 rows, or than 20 for each lengthscale and up to 2000, is "
        "made four times more, without a quarter of the rows each time, whose errors widen the bands; not with "
        "--time-budget or --sample; no: bands are those of the posterior",
    )

    def tempering(self, shape: Shape) -> float:
        """The factor on the noise in updates.

        Example:
            >>> KernelOptions().tempering(Shape(targets=("y",), horizon=4, lags=1, past=("y",), future=()))
            2.0
        """
        return float(shape.horizon) ** 0.5 if self.temper == "auto" else float(self.temper)


class StreamOptions(KernelOptions):
    """Those of a model that forgets old rows by their weight, and keeps a weighted sample of the stream."""

    memory: Annotated[int, Field(gt=0)] | Literal["auto", "all"] = Field(
        "auto",
        description="forgetting time constant in rows: a row has weight exp(-age/memory); auto: 4000 with lags, none "
        "without; all: nothing is forgotten",
    )
    reservoir: int = Field(8192, ge=2, description="rows kept for rebuilds")
    evidence_rows: int = Field(400, ge=2, description="most rows, thinned in time, to estimate hyper-parameters from")

    def forgetting(self, shape: Shape) -> float | None:
        """The forgetting time constant in rows, or None where nothing is forgotten.

        Example:
            >>> shape = Shape(targets=("y",), horizon=4, lags=1, past=("y",), future=())
            >>> StreamOptions().forgetting(shape), StreamOptions(memory="all").forgetting(shape)
            (4000.0, None)
        """
        if self.memory == "auto":
            return MEMORY if shape.lags else None
        return None if self.memory == "all" else float(self.memory)


class EvidenceOptions(BaseModel):
    """Those of a model that estimates hyper-parameters of a radial kernel with finite features."""

    evidence: Literal["thinned", "scgd"] = Field(
        "thinned",
        description="how hyper-parameters are estimated: thinned: by the exact marginal likelihood of evidence_rows "
        "rows; scgd: by stochastic gradients on Fourier features of all kept rows, thinned to about three a horizon",
    )

    def thin(self, most: int) -> int:
        """Rows at most that estimate hyper-parameters, of the `most` that the marginal likelihood takes."""
        return LARGEST if self.evidence == "scgd" else most
