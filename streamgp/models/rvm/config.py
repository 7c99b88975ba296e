"""Options of a relevance vector machine."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from streamgp.base import Shape
from streamgp.online.options import EvidenceOptions, StreamOptions


class Config(StreamOptions, EvidenceOptions):
    """Relevance vector machine (Tipping 2001; Evans & Nair 2020, appendix I.3), online."""

    few: ClassVar[tuple[str, ...]] = (
        *("solver", "dictionary", "basis", "linear", "augment"),
        *("target", "memory", "rebuild", "learn", "limit"),
    )
    """The options that matter first."""

    solver: Literal["auto", "sequential", "batched", "quadruple"] = Field(
        "auto",
        description="selection one change at a time, many at a time, or by the quadruply stochastic bound (QSRVM); "
        "auto: sequential for a dictionary of up to 600 functions, else batched",
    )
    dictionary: int = Field(2000, ge=1, description="functions at most that a rebuild or an epoch selects from")
    basis: int = Field(500, ge=1, description="functions at most that are kept, and one for three rows")
    linear: bool | Literal["auto"] = Field(
        "auto", description="columns of the window and a constant are functions to select from, too; auto: with lags"
    )
    augment: bool = Field(
        True, description="add the variance of a function at the test point, which grows away from the rows"
    )

    @property
    def untuned(self) -> str:
        return ""

    def functions(self, shape: Shape) -> int:
        """Those that are kept, and the columns of the window."""
        width = shape.width + 1
        return self.basis + (width if self.linear and width <= self.basis else 0)

    def levers(self, shape: Shape) -> dict[str, int]:
        return {"basis": self.basis}
