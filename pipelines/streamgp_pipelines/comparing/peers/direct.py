"""Direct forecasters: their warm-up, when they are fitted again, and conformal bands of their own last errors.

Quantiles are the forecast plus quantiles of the last errors of its series and its step (split conformal prediction, Lei
et al. 2018); before there are any, of those of the last third of the warm-up, held out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from streamgp.base import Inputs, Predictive, Shape, Step
from streamgp.windows.calendar import Floats
from streamgp.windows.windows import Asks
from streamgp_pipelines.comparing.peers.columns import PeerColumns
from streamgp_pipelines.comparing.peers.peer import Peer, PeerForecasts

LEAST = 30
"""Windows below which none is held out, and between two fits."""


class Direct(Peer):
    """A forecaster of each step ahead.

    Args:
        shape: of the windows.
        probabilities: (Q,) of the quantiles that are issued.
        refit: windows between two fits, at most; while the stream is young, a quarter of the windows so far.
        errors: newest errors of a series and a step that the quantiles are of.
    """

    calendar = True

    def __init__(self, shape: Shape, probabilities: tuple[float, ...], refit: int, errors: int) -> None:
        super().__init__()
        self.shape, self.probabilities, self.refit = shape, np.array(probabilities), refit
        self.columns = PeerColumns(shape)
        self._since = self._seen = 0  # windows since the last fit, and all
        self._errors: dict[int, Floats] = {}  # series -> (T, errors), NaN where there is none, oldest first
        self._first = np.full((shape.columns, errors), np.nan)

    @abstractmethod
    def forget(self) -> None:
        """Begin again, before any window."""

    @abstractmethod
    def keep(self, x: Inputs, y: Tensor) -> None:
        """See windows and their truths, (N, T)."""

    @abstractmethod
    def estimate(self) -> None:
        """Fit to what was seen."""

    @abstractmethod
    def mean(self, x: Inputs) -> Floats:
        """(N, T) forecasts of at least one window."""

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """The warm-up: hold its last third out for the first errors, then learn all."""
        count = len(y)
        if count >= LEAST:
            self.keep(x.rows(slice(0, 2 * count // 3)), y[: 2 * count // 3])
            self.estimate()
            late = x.rows(slice(2 * count // 3, count))
            error = (y[2 * count // 3 :].numpy() - self.mean(late)).T[:, -self._first.shape[1] :]
            self._first[:, -error.shape[1] :] = error
            self.forget()
        self.keep(x, y)
        self.estimate()
        self._seen = count
        yield Step(float("nan"), 0, True, "fit")

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        self.keep(x, y)
        self._seen += len(y)
        self._since += len(y)
        if self._since < min(self.refit, max(self._seen // 5, LEAST)):
            return Step(float("nan"), 0, True, "")
        self.estimate()
        self._since = 0
        return Step(float("nan"), 0, True, "fit")

    def issue(self, asks: Asks) -> PeerForecasts:
        mean = self.mean(asks.x) if len(asks.origin) else np.zeros((0, self.shape.columns))
        quantiles = np.empty((len(self.probabilities), *mean.shape))
        deviation = np.empty_like(mean)
        series = asks.series.numpy()
        for code in np.unique(series):
            errors = self._errors.get(int(code), self._first)
            held = np.where(np.isnan(errors).all(1, keepdims=True), 0.0, errors)
            mine = series == code
            quantiles[:, mine] = mean[mine] + np.nanquantile(held, self.probabilities, axis=1)[:, None]
            deviation[mine] = np.sqrt(np.nanmean(held**2, 1)).clip(1e-12)
        return PeerForecasts(asks, *(torch.from_numpy(part) for part in (mean, deviation, quantiles)))

    def wrong_by(self, series: Tensor, column: Tensor, error: Tensor) -> None:
        for code in series.unique().tolist():
            held = self._errors.setdefault(code, self._first.copy())
            for at in column[series == code].unique().tolist():
                new = error[(series == code) & (column == at)].numpy()[-held.shape[1] :]
                held[at] = np.concatenate([held[at, len(new) :], new])
