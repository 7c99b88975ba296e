"""Block solver options."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

GRAM_ROWS = 4.5
"""Rows of a Gram matrix, in units of m̃."""


class BlockConfig(BaseModel):
    """Block solver options."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    dtype: Literal["float32", "float64"] = Field(
        "float32",
        description="of features, factors and their products; means, residuals and factorisations are float64",
    )
    gram_rows: int | None = Field(
        None, ge=0, description="rows that a block's Gram matrix is made of; none: 4.5 for each feature; 0: all"
    )
    history: int = Field(2, ge=0, description="sweeps that the next is made conjugate to; 0: none")
    refresh: int = Field(20, ge=0, description="sweeps after which the residual is computed from scratch; 0: never")
    memory: int = Field(4 * 2**30, ge=0, description="bytes of factors and features kept from one visit to the next")
