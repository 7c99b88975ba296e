"""Observation models: the density of a target around the function, one a file (see `Likelihood`)."""

from __future__ import annotations

from streamgp.likelihoods._base import Likelihood

__all__ = ["Likelihood"]
