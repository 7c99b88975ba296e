"""The models as scikit-learn regressors, for pipelines, searches and cross-validation.

Example:
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.datasets import load_diabetes
    >>> from streamgp.sklearn import SVDGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> bool(cross_val_score(SVDGPRegressor(random_state=0), X, y, cv=3).mean() > 0.45)
    True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgp_pipelines.estimators import (
        ExactGPRegressor,
        FiniteRKHSRegressor,
        QSGPRegressor,
        RVMRegressor,
        SVDGPRegressor,
        SVGPRegressor,
    )

__all__ = [
    "ExactGPRegressor",
    "FiniteRKHSRegressor",
    "QSGPRegressor",
    "RVMRegressor",
    "SVDGPRegressor",
    "SVGPRegressor",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("streamgp_pipelines.estimators"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
