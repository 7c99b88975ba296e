"""No encoder: the kernel sees the window itself."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from streamgp.encoders._base import Dropout, Encoder, Layout


class Config(BaseModel):
    """The window itself; nothing to learn."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Identity(Encoder):
    """z -> z."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.width = layout.width

    def forward(self, z: Tensor, dropout: Dropout | None = None) -> Tensor:
        """(N, layout.width) -> the same tensor; there is nothing to drop."""
        return z


def build(config: Config, layout: Layout) -> Identity:
    """The identity on all columns of a window.

    Example:
        >>> build(Config(), Layout(lags=3, past=2, horizon=2, future=1)).width
        8
    """
    return Identity(layout)
