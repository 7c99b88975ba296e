"""SVDGP: sparse variational GP regression with decoupled bases, online (Cheng & Boots 2017)."""

from __future__ import annotations

from streamgp.base import Model, Shape
from streamgp.models._svdgp_config import Config
from streamgp.models._svdgp_online import OnlineSvdgp

__all__ = ["Config", "build"]


def build(config: Config, shape: Shape) -> Model:
    """The model, untrained."""
    return OnlineSvdgp(config, shape)
