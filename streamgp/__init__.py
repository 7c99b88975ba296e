"""Gaussian processes on streams: online learning, calibrated forecasts, resumable state.

`Forecaster` learns from data frames as they come; `load` reads a saved one. `fit_stream` trains on a table that
`streamgp ingest` made, and `compare` scores models on one side by side. They are imported when they are first used.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgp_pipelines.api import compare, fit_stream
    from streamgp_pipelines.forecaster import Forecaster

    load = Forecaster.load

__all__ = ["Forecaster", "compare", "fit_stream", "load"]
__version__ = version("streamgp")


def __getattr__(name: str) -> Any:
    if name in ("Forecaster", "load"):
        from streamgp_pipelines.forecaster import Forecaster

        return Forecaster if name == "Forecaster" else Forecaster.load
    if name in ("compare", "fit_stream"):
        from streamgp_pipelines import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
