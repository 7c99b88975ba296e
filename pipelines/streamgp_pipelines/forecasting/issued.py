"""What a forecaster hands out beside the mean: questions as rows with their calibration, and the newest rows seen."""

from __future__ import annotations

import polars as pl
import torch

from streamgp.base import FLOAT, Due
from streamgp.forecasting.calibration import Calibration
from streamgp.streaming.windows import Asks, Windows
from streamgp_pipelines.learning.frames import Naming
from streamgp_pipelines.learning.learner import Learner

HISTORY_STEPS = 500
"""Newest rows of each series that come with a forecast, for its picture; fewer where fewer are kept."""


def as_pairs(learner: Learner, asks: Asks, calibration: Calibration) -> Due:
    """N questions as N · T rows, window by window and column by column, with any quantiles of the distribution."""
    rows, shape, wanted = len(asks.origin), learner.windows.shape, calibration.probabilities
    parameters = learner.model.predict(asks.x.to(learner.device)).parameters().cpu()  # (P, N, T)
    issued = learner.model.family.from_parameters(parameters.reshape(len(parameters), -1, 1))
    quantiles = torch.zeros(0, rows * shape.columns, dtype=FLOAT)
    if wanted:
        asked = learner.questions(asks, learner.model.family.from_parameters(parameters))
        quantiles = learner.bands.quantiles(asked, wanted).flatten(1)
    columns = torch.arange(shape.columns)
    due = Due(
        series=asks.series.repeat_interleave(shape.columns),
        position=asks.position.repeat_interleave(shape.columns),
        cutoff=asks.cutoff.repeat_interleave(shape.columns),
        ds=asks.ds.repeat(1, shape.outputs).flatten(),
        column=columns.repeat(rows),
        y=torch.full((rows * shape.columns,), float("nan"), dtype=torch.float64),
        predictive=issued,
        quantiles=quantiles,
        features=torch.zeros(0, rows * shape.columns, dtype=FLOAT),
        x=asks.x.rows(slice(0)),
        target=parameters.new_zeros(0, shape.columns),
        issued=parameters[:, :0],
    )
    return learner.in_units(due)


def history(windows: Windows, naming: Naming) -> pl.DataFrame:
    """The newest rows of every series, long format: unique_id, ds, [target,] y."""
    targets = windows.spec.targets
    past = windows.history(HISTORY_STEPS)
    base = {
        "unique_id": pl.Series(windows.names, dtype=pl.String).gather(past.series.numpy()),
        "ds": naming.times(past.ds),
    }
    if len(targets) == 1:
        return pl.DataFrame(base | {"y": past.y[:, 0].numpy()})
    parts = [
        pl.DataFrame(base | {"target": [name] * len(past.ds), "y": past.y[:, o].numpy()})
        for o, name in enumerate(targets)
    ]
    return pl.concat(parts)
