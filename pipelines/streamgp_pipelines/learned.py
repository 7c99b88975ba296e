"""What a model has learned, to look at: `Forecaster.model_`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from streamgp.base import Model
from streamgp.online.column_kernel import ColumnKernel, shown
from streamgp.online.model import StreamModel

Array = NDArray[np.float64]

_INSTEAD = {
    "exact": "it keeps the rows themselves",
    "qsgp": "its basis are Fourier features of the kernel",
    "finite_rkhs": "its basis are features that are trained",
    "wiski": "its inducing points are a fixed grid",
}
"""Of kernels, and no inducing points of their own."""


class LearnedModel:
    """A look at a model as it is now; nothing of it changes anything.

    A model without a kernel, such as a linear regression, has no `kernel`, `inducing_points` or `evidence_trace`, and
    says so with an AttributeError. A mix has `models`, each looked at in the same way.

    Args:
        name: of the model.
        model: it.
        trace: rows seen and log evidence of each update, oldest first; None: they were not kept.
        posterior: what `posterior` calls; None: it belongs to no forecaster.

    Example:
        >>> import torch
        >>> from streamgp.base import Inputs, Shape
        >>> from streamgp.models import exact
        >>> model = exact.build(exact.Config(), Shape(("y",), 1, lags=0, past=("y", "u"), future=("u",)))
        >>> u = torch.linspace(-3, 3, 100, dtype=torch.float64)
        >>> _ = next(model.fit(Inputs(torch.zeros(100, 0, 2).double(), u.view(100, 1, 1)), u.sin()[:, None], 1))
        >>> found = LearnedModel("exact", model)
        >>> found.columns, sorted(found.hyperparameters)[:2], found.kernel([[0.0], [1.0]]).shape
        (('u',), ['lengthscale', 'linear.bias'], (2, 2))
        >>> found.inducing_points
        Traceback (most recent call last):
        ...
        AttributeError: exact has no inducing points: it keeps the rows themselves
    """

    def __init__(
        self,
        name: str,
        model: Model,
        trace: Sequence[tuple[int, float]] | None = None,
        posterior: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        """Of the model, as `streamgp models` lists it."""
        self._model, self._trace, self._posterior = model, trace, posterior

    @property
    def hyperparameters(self) -> dict[str, Array]:
        """By name, in the units of the columns: of a kernel lengthscale (one a channel), outputscale, noise (T,) as
        standard deviations; of a linear regression its ridge and noise; {} where the model estimates none."""
        return {name: value.detach().cpu().numpy() for name, value in self._model.hyperparameters().items()}

    @property
    def kernel(self) -> ColumnKernel:
        """The prior covariance of the function: it prints, and kernel(X, Z) are covariances of rows of `columns`.

        Raises:
            AttributeError: the model has no kernel.
        """
        found = self._model.kernel if isinstance(self._model, StreamModel) else None
        return self._none("kernel") if found is None else found

    @property
    def columns(self) -> tuple[str, ...]:
        """(F,) the columns of a window as `kernel` and `inducing_points` have them: y[t-1], y[t], u[t+1].

        Raises:
            AttributeError: as `kernel`.
        """
        return self._model.window_columns() if isinstance(self._model, StreamModel) else self._none("kernel")

    @property
    def inducing_points(self) -> Array:
        """(M, F) windows that the function is learned at, in the units of the columns; relevance vectors of `rvm`.
        Behind an encoder, (M, d) of what it makes of windows.

        Raises:
            AttributeError: the model has none.
        """
        points = self._model.inducing_points() if isinstance(self._model, StreamModel) else None
        return self._none("inducing points") if points is None else np.asarray(points.detach().cpu().numpy())

    @property
    def evidence_trace(self) -> Array:
        """(E, 2) rows seen, and the objective a row and target column after each update: the log evidence, or the bound
        on it, of standardised targets; of `svdgp` that of the process projected onto its basis, which is no bound; of
        nets the log predictive density. Of the updates since the forecaster was
        made; where there were many, neighbours are one point with their mean.

        Raises:
            AttributeError: as `kernel`; or it is one of the `models` of a mix, which keep none.
        """
        if self._trace is None or not isinstance(self._model, StreamModel):
            self._none("evidence trace")
        return np.array(self._trace, np.float64).reshape(-1, 2)

    @property
    def models(self) -> dict[str, LearnedModel]:
        """The models that this one is made of, by name; {} where it is one alone."""
        return {name: LearnedModel(name, one) for name, one in self._model.inner_models().items()}

    @property
    def weights(self) -> dict[str, Array]:
        """(H,) the weight by step ahead of each of `models` in a mix; {} where nothing is mixed."""
        return {name: share.detach().cpu().numpy() for name, share in self._model.shares().items()}

    def posterior(self, frame: Any = None, samples: int = 0, seed: int = 0) -> Any:
        """The distribution of function and observation at the next steps, or at rows: see `Forecaster.posterior`.

        Raises:
            AttributeError: it is one of the `models` of a mix.
        """
        if self._posterior is None:
            self._none("posterior")
        return self._posterior(frame, samples, seed)

    def __repr__(self) -> str:
        return f"{self.name}: {', '.join(f'{name} {text}' for name, text in self._shown().items())}".rstrip(": ")

    def _repr_html_(self) -> str:
        lines = {"model": self.name} | self._shown()
        cells = "".join(f"<tr><td>{name}</td><td>{escape(text)}</td></tr>" for name, text in lines.items())
        return f"<table>{cells}</table>"

    def _shown(self) -> dict[str, str]:
        if inner := self.models:
            weights = {name: f" {float(share.mean()):.0%}" for name, share in self.weights.items()}
            return {"of": ", ".join(f"{name}{weights.get(name, '')}" for name in inner)}
        if not isinstance(self._model, StreamModel) or self._model.kernel is None:
            return {name: shown(value) for name, value in self.hyperparameters.items()}
        points = self._model.inducing_points()
        found = {"kernel": repr(self.kernel), "noise": shown(self.kernel.noise)}
        return found | ({} if points is None else {"inducing points": str(len(points))})

    def _none(self, what: str) -> NoReturn:
        """There is no such thing.

        Raises:
            AttributeError: always.
        """
        if inner := self._model.inner_models():
            first = next((name for name, one in inner.items() if isinstance(one, StreamModel)), next(iter(inner)))
            why = f"it is made of {', '.join(inner)}: see models[{first!r}]"
        elif self._posterior is None and what in ("posterior", "evidence trace"):
            why = "ask the forecaster for it"
        elif not isinstance(self._model, StreamModel) or self._model.kernel is None:
            why = "it is no Gaussian process with a kernel"
        else:
            why = _INSTEAD.get(self.name, "its basis is another one")
        raise AttributeError(f"{self.name} has no {what}: {why}")
