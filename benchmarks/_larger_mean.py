"""svdgp in closed form with fewer functions in the covariance than in the mean, on a stream: a part of the user's own.

The coordinates of the closed form are nested (`streamgp.models.svdgp.conjugate`), so that the covariance of the leading
points is read off the same factor.
"""

from __future__ import annotations

from pydantic import Field

from streamgp.base import Model, Shape
from streamgp.models import svdgp
from streamgp.models.svdgp.posterior import SvdgpPosterior
from streamgp.online.model import StreamModel


class Config(svdgp.Config):
    """svdgp, with a covariance of its own size; `basis` is the mean's."""

    covariance: int = Field(256, ge=1, description="basis functions of the covariance")


def build(config: Config, shape: Shape) -> Model:
    """The model, before any data."""
    model = svdgp.build(config, shape)
    assert isinstance(model, StreamModel) and isinstance(model.posterior, SvdgpPosterior)
    model.posterior.regression.covariance = config.covariance
    return model
