"""What a forecaster hands out beside the mean: questions as rows with their calibration, and the newest rows seen."""

from __future__ import annotations

import polars as pl
import torch

from streamgp.base import FLOAT, Decomposes, Due, Simulates
from streamgp.errors import UsageError
from streamgp.forecasting.calibration import Calibration
from streamgp.windows.windows import Asks, History, Windows
from streamgp_pipelines.learning.doubt import blurred
from streamgp_pipelines.learning.frames import Naming
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.predictions import frame

HISTORY_STEPS = 500
"""Newest rows of each series that come with a forecast, for its picture; fewer where fewer are kept."""


def as_pairs(learner: Learner, asks: Asks, calibration: Calibration) -> Due:
    """N questions as N · T rows, window by window and column by column, with any quantiles of the distribution."""
    rows, shape, wanted = len(asks.origin), learner.windows.shape, calibration.probabilities
    parameters = learner.predict(asks)  # (P, N, T)
    own = learner.model.family.from_parameters(parameters)
    asks = blurred(learner.windows, asks, own, lambda few: learner.model.family.from_parameters(learner.predict(few)))
    raw = learner.widened(asks, own).parameters()
    issued = learner.model.family.from_parameters(raw.reshape(len(raw), -1, 1))
    quantiles = torch.zeros(0, rows * shape.columns, dtype=FLOAT)
    if wanted:
        asked = learner.questions(asks, own)
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


def drawn(learner: Learner, asks: Asks, naming: Naming, samples: int, seed: int) -> pl.DataFrame:
    """The model's own distribution of N questions, in target units, with draws of it.

    Without lags, and where the model draws functions, a draw is one function and its noise at all questions.

    Returns:
        unique_id, ds, cutoff, [target,] mean, std_latent, std_noise, sample_1, ..., sample_S; N · T rows.
    """
    due, spec, model = as_pairs(learner, asks, naming.calibration), learner.windows.spec, learner.model
    latent = due.predictive.latent_variance[:, 0]
    noise = (due.predictive.variance[:, 0] - latent).clamp(min=0.0)
    found = frame(due, learner.windows.names, naming, learner.windows.shape)
    keys = [name for name in ("unique_id", "ds", "cutoff", "target") if name in found.columns]
    generator = torch.Generator().manual_seed(seed)
    draws = due.y.new_zeros(0, len(due.y))  # (S, N · T)
    if samples and not spec.lags and isinstance(model, Simulates) and not spec.transforms:
        windows = asks.x.rows(torch.arange(len(asks.origin)).repeat(samples)).to(learner.device)
        with torch.no_grad():
            draws = model.functions(samples, generator)(windows).cpu().reshape(samples, -1)
    elif samples:
        draws = due.predictive.sample(samples, generator)[..., 0]
    columns = {"mean": due.predictive.mean[:, 0], "std_latent": latent.sqrt(), "std_noise": noise.sqrt()}
    columns |= {f"sample_{at}": draw for at, draw in enumerate(draws, 1)}
    return found.select(keys).with_columns(pl.Series(name, values.numpy()) for name, values in columns.items())


def contributions(learner: Learner, asks: Asks, naming: Naming) -> pl.DataFrame:
    """The terms of the model's mean of N questions, in target units.

    Returns:
        unique_id, ds, cutoff, [target,] mean, and a column a term; N · T rows.

    Raises:
        UsageError: the mean of this model is no sum of terms, or the model learns a transform of the target.
    """
    spec, model = learner.windows.spec, learner.model
    if not isinstance(model, Decomposes):
        raise UsageError(
            f"the mean of {learner.recipe.model} is no sum over what it looks at",
            hint="use the default, or linear, with a season",
        )
    if spec.transforms:
        raise UsageError("a model of a transform has no terms in units of the target", hint="leave transform out")
    found = frame(as_pairs(learner, asks, naming.calibration), learner.windows.names, naming, learner.windows.shape)
    keys = [name for name in ("unique_id", "ds", "cutoff", "target") if name in found.columns]
    x, units = learner.in_own_units(asks)
    x = x.to(learner.device)
    with torch.no_grad():
        mean, parts = model.predict(x).mean, model.parts(x)
    if units is not None:
        mean, parts = units.values(mean), {name: units.scale * value for name, value in parts.items()}
        parts["level of the series"] = units.location
    columns = {"mean": mean} | parts
    return found.select(keys).with_columns(
        pl.Series(name, values.cpu().flatten().numpy()) for name, values in columns.items()
    )


def history(windows: Windows, naming: Naming) -> pl.DataFrame:
    """The newest rows of every series, long format: unique_id, ds, [target,] y."""
    return _listed(windows.history(HISTORY_STEPS), windows, naming)


def spikes(windows: Windows, naming: Naming) -> pl.DataFrame:
    """The last spike of each target of every series, which is missing in `history`, in its columns."""
    return _listed(windows.spikes(), windows, naming).filter(pl.col("y").is_not_nan())


def _listed(past: History, windows: Windows, naming: Naming) -> pl.DataFrame:
    """Rows in long format."""
    targets = windows.spec.targets
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
