"""The road of a row, from a source to a forecast: configuration, ingest, training, forecasting.

The Python API is two functions: `fit_stream(config)` trains on a table as `streamgp train` does, and
`load(checkpoint)` gives back a forecaster. Both are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgp_pipelines.api import fit_stream
    from streamgp_pipelines.forecasting.forecast import Forecaster, load

__all__ = ["Forecaster", "fit_stream", "load"]


def __getattr__(name: str) -> Any:
    if name == "fit_stream":
        from streamgp_pipelines.api import fit_stream

        return fit_stream
    if name in ("Forecaster", "load"):
        from streamgp_pipelines.forecasting import forecast

        return getattr(forecast, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
