"""No encoder: the kernel sees the window itself."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from streamgp.encoders._base import Encoder


class Config(BaseModel):
    """The window itself; nothing to learn."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Identity(Encoder):
    """x -> x."""

    def __init__(self, width_in: int) -> None:
        super().__init__()
        self.width = width_in

    def forward(self, x: Tensor) -> Tensor:
        """(N, width) -> the same tensor."""
        return x


def build(config: Config, width_in: int) -> Identity:
    """The identity on `width_in` columns."""
    return Identity(width_in)
