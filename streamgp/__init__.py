"""Gaussian processes on streams: online learning, calibrated forecasts, resumable state.

`Forecaster` learns from data frames as they come (`fit`, `update`, `predict`, `cross_validation`); `load` reads a saved
one. `fit_stream` trains on a table that `streamgp ingest` made, and `compare` scores models on one side by side. They
are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from streamgp import errors as errors
from streamgp.errors import StreamgpError, StreamgpWarning

if TYPE_CHECKING:
    from streamgp_pipelines.api import compare, fit_stream
    from streamgp_pipelines.forecaster import Forecaster

    load = Forecaster.load

__all__ = ["Forecaster", "StreamgpError", "StreamgpWarning", "compare", "fit_stream", "load"]
__version__ = version("streamgp")

_HOME = {
    **dict.fromkeys(("Forecaster", "load"), "streamgp_pipelines.forecaster"),
    **dict.fromkeys(("compare", "fit_stream"), "streamgp_pipelines.api"),
}
"""Where a name of the face lives: it is imported when it is first used, as the library itself needs no pipelines."""
_ELSEWHERE = {
    **dict.fromkeys(("train", "fit"), "Forecaster('y').fit(frame) learns a data frame, fit_stream(table, 'y') a table"),
    **dict.fromkeys(("forecast", "predict"), "it is a method: Forecaster('y', horizon=24).fit(frame).predict(h=24)"),
    **dict.fromkeys(
        ("StreamGP", "Streamgp", "Model", "StreamForecaster", "forecaster", "StatsForecast", "NeuralForecast"),
        "the class is Forecaster",
    ),
    **dict.fromkeys(
        ("cross_validation", "backtest", "evaluate"),
        "Forecaster('y', horizon=24).cross_validation(frame, n_windows=5) is a method; compare scores models",
    ),
    "ingest": "the command `streamgp ingest` makes tables; a Forecaster learns data frames without one",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        home = import_module(_HOME[name])
        return home.Forecaster.load if name == "load" else getattr(home, name)
    if name == "sklearn":
        return import_module("streamgp.sklearn")
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(f"{message}: {_ELSEWHERE[name]}" if name in _ELSEWHERE else message)


def __dir__() -> list[str]:
    """What is public, and what every module has."""
    return sorted({*__all__, "errors", "sklearn", *(name for name in globals() if name.startswith("__"))})
