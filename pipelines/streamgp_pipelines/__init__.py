"""Pipelines from a table to a forecast: training, tuning, forecasting and serving.

The Python API has three functions. `fit_stream(table, target, **options)` trains as `streamgp train --online` does,
`compare(table, target, models, **options)` scores models side by side, and `load(checkpoint)` returns a `Forecaster`.
They are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgp_pipelines.api import compare, fit_stream
    from streamgp_pipelines.forecasting.forecast import Forecaster, load

__all__ = ["Forecaster", "compare", "fit_stream", "load"]


def __getattr__(name: str) -> Any:
    if name in ("compare", "fit_stream"):
        from streamgp_pipelines import api

        return getattr(api, name)
    if name in ("Forecaster", "load"):
        from streamgp_pipelines.forecasting import forecast

        return getattr(forecast, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
