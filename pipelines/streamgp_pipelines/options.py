"""Types of the options of the Python API: the flags of the commands, with underscores. The flags say what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from streamgp_data.intervals import nanoseconds

OptionValue: TypeAlias = "str | int | float | bool | Sequence[OptionValue] | Mapping[str, OptionValue] | None"
"""What an option of a model can be."""
Names: TypeAlias = str | Sequence[str]
Numbers: TypeAlias = str | float | Sequence[float]
SHORT = 60
"""Characters of a value that is said again."""
_ALIASES = {"T": "min", "L": "ms", "U": "us", "N": "ns", "M": "", "MS": ""}
"""Frequencies of pandas whose letter is another one here; months are no interval."""

_FOREIGN = {
    "horizon": "h fh n_ahead steps n_steps prediction_length forecast_horizon output_chunk_length n_periods",
    "every": "freq frequency interval sampling_rate",
    "season": "season_length seasonality seasons seasonal_periods period m sp periods",
    "lags": "input_chunk_length input_size n_lags window window_size context_length lookback",
    "target": "y target_col targets y_col endog value",
    "time": "time_col ds timestamp date index date_col time_column",
    "series": "id_col unique_id group group_ids item_id id key static_cols",
    "known": "futr_exog_list future_covariates exog X xreg known_covariates",
    "inputs": "hist_exog_list past_covariates features covariates",
    "future": "X_df X exog future_covariates futr_df xreg",
    "levels": "level confidence interval_width prediction_intervals coverage",
    "quantiles": "quantile q quantile_levels likelihood probs",
    "seed": "random_state random_seed rng",
    "timezone": "tz",
    "paths": "num_samples n_samples samples n_paths",
    "model": "models estimator learner",
    "options": "params hyperparameters kwargs model_kwargs config set",
    "device": "accelerator gpu use_gpu pl_trainer_kwargs",
    "warmup": "burn_in training_length train_length n_windows test_size initial_window",
    "batch": "batch_size",
    "gaps": "fillna fill_missing",
    "h": "horizon fh n n_ahead steps n_steps",
    "n_windows": "n_splits n_folds folds cv num_folds",
    "step_size": "stride step period_length",
    "df": "frame data X series ts dataset",
    "frame": "df data X series ts dataset",
}
"""Our names of what other libraries call otherwise: Nixtla, Darts, sktime, statsmodels, river, GluonTS."""


def ours(name: str, known: Iterable[str]) -> str | None:
    """What is called `name` in other libraries, among these options; None where nothing is."""
    there = list(known)
    return next((own for own, words in _FOREIGN.items() if own in there and name in words.split()), None)


def instead(name: str, value: Any, known: Iterable[str]) -> str | None:
    """An argument of another library as it is typed here; None where there is no such.

    Example:
        >>> instead("h", 24, ["horizon"]), instead("freq", "D", ["every"]), instead("zzz", 1, ["every"])
        ('horizon=24', "every='1d'", None)
    """
    own = ours(name, known)
    value = interval(value) if own == "every" and isinstance(value, str) else value
    if own is None or not isinstance(value, str | int | float | list | tuple) or len(repr(value)) > SHORT:
        return None
    return f"{own}={value!r}"


def interval(alias: str) -> str | None:
    """A frequency of pandas or polars as an interval; None where it is none, such as a month.

    Example:
        >>> interval("h"), interval("15T"), interval("W"), interval("MS")
        ('1h', '15min', '1w', None)
    """
    found = re.fullmatch(r"(\d*)([a-zA-Z]+)", alias)
    written = "" if found is None else f"{found[1] or 1}{_ALIASES.get(found[2], found[2].lower())}"
    return written if nanoseconds(written) else None


def unknown(name: str, known: Iterable[str]) -> str:
    """What to say of an option that there is not.

    Example:
        >>> unknown("horizn", ["horizon", "season"]), unknown("zzz", [])
        ("there is no option 'horizn'; did you mean 'horizon'?", "there is no option 'zzz'")
        >>> unknown("freq", ["horizon", "every"])
        "there is no option 'freq'; it is called 'every' here"
    """
    there = list(known)
    own = ours(name, there)
    if own is not None:
        return f"there is no option {name!r}; it is called {own!r} here"
    given = next((own for own in ("options", "set") if own in there), None)
    if given is not None and (models := _with_option(name)):
        return f"there is no option {name!r}; of the model {models} it is {given}={{{name!r}: ...}}"
    near = get_close_matches(name, there, n=1)
    return f"there is no option {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _with_option(name: str) -> str:
    """The models of this package that have an option of that name, a few of them; "" where none has."""
    from streamgp import registry

    having = [
        model
        for model in registry.names("models")
        if name in getattr(getattr(registry.load("models", model), "Config", None), "model_fields", ())
    ]
    return ", ".join(having[:3]) + (", ..." if len(having) > 3 else "")


# What follows is written by docs/make_options.py from the settings.


class RunOptions(TypedDict, total=False):
    """What `train` and `compare` share."""

    inputs: Names
    known: Names
    calendar: bool | None
    lags: int | None
    horizon: int
    season: str | int | Sequence[int | str]
    gaps: Literal["reset", "fill"]
    sentinel: str | float | Sequence[str | float]
    late: Literal["skip", "use"]
    test_column: str | None
    test_tail: float | None
    test_blocks: int | None
    experiment: str
    tracking_uri: str | None
    max_memory: str | int | None
    engine: Literal["local", "ray"]
    workers: int | None
    address: str | None
    level: Numbers
    quantiles: Numbers
    point: Literal["mean", "median"]
    lower: float | Literal["none"] | None
    upper: float | None
    transform: Names
    seed: int
    device: Literal["auto", "cpu", "cuda"]
    warmup: int | None
    batch: int
    score_from: str | int | None
    max_rows: int | None
    checkpoint_every: int
    fresh: bool


class TrainOptions(RunOptions, total=False):
    """Of `fit_stream`."""

    unit: Names
    columns: Names
    topic: str | None
    message_schema: str | Path | None
    message: str | None
    linger: float
    source: str | None
    format: str | None
    max_ahead: str | float | None
    model: str
    set: Mapping[str, OptionValue]
    init: str | Path | None
    online: bool
    simulate: int | None
    fleet: bool
    scale: Literal["auto", "series", "all"]
    follow: bool
    metrics: str | None
    epochs: int | None
    sample: int | None
    time_budget: str | float | None
    checkpoint: str | Path
    durable: bool
    predictions: str | Path | None
    alarm_rate: float | None
    alarms: str | Path | None
    on_alarm: str | None


class CompareOptions(RunOptions, total=False):
    """Of `compare`; `set` has NAME.KEY."""

    set: Mapping[str, OptionValue] | Sequence[str]
    against: str | None
    comparison: str | Path
