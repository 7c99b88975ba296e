"""Types of the options of the Python API: the flags of the commands, with underscores. The flags say what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Literal, ParamSpec, TypeAlias, TypedDict, TypeVar

from streamgp.errors import UsageError

OptionValue: TypeAlias = "str | int | float | bool | Sequence[OptionValue] | Mapping[str, OptionValue] | None"
"""What an option of a model can be."""
Names: TypeAlias = str | Sequence[str]
Numbers: TypeAlias = str | float | Sequence[float]
Given = ParamSpec("Given")
Made = TypeVar("Made")


def unknown(name: str, known: Iterable[str]) -> str:
    """What to say of an option that there is not.

    Example:
        >>> unknown("horizn", ["horizon", "season"]), unknown("x", [])
        ("there is no option 'horizn'; did you mean 'horizon'?", "there is no option 'x'")
    """
    near = get_close_matches(name, list(known), n=1)
    return f"there is no option {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def checked(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """The function, of which an option that it has not is a UsageError that names the closest one."""
    known = [name for name in signature(function).parameters if name != "self"]

    @wraps(function)
    def call(*places: Given.args, **options: Given.kwargs) -> Made:
        if wrong := [unknown(name, known) for name in options if name not in known]:
            raise UsageError("; ".join(wrong), hint=f"it has: {', '.join(known)}")
        return function(*places, **options)

    return call


class RunOptions(TypedDict, total=False):
    """What `train` and `compare` share."""

    inputs: Names
    known: Names
    calendar: bool
    lags: int | None
    horizon: int
    season: str | int | Sequence[int]
    gaps: Literal["reset", "fill"]
    late: Literal["skip", "use"]
    test_column: str | None
    test_tail: float | None
    test_blocks: int | None
    experiment: str
    tracking_uri: str | None
    max_memory: str | int | None
    level: Numbers
    quantiles: Numbers
    point: Literal["mean", "median"]
    lower: float | None
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
    engine: Literal["local", "ray"]
    workers: int | None
    address: str | None


class TrainOptions(RunOptions, total=False):
    """Of `fit_stream`."""

    model: str
    set: Mapping[str, OptionValue]
    init: str | Path | None
    online: bool
    simulate: int | None
    fleet: bool
    follow: bool
    metrics: str | None
    source: str | None
    format: str | None
    columns: Names
    topic: str | None
    message_schema: str | Path | None
    message: str | None
    linger: float
    durable: bool
    epochs: int | None
    sample: int | None
    time_budget: str | float | None
    checkpoint: str | Path
    predictions: str | Path | None
    alarms: str | Path | None
    alarm_rate: float | None
    on_alarm: str | None


class CompareOptions(RunOptions, total=False):
    """Of `compare`; `set` has NAME.KEY."""

    set: Mapping[str, OptionValue] | Sequence[str]
    against: str | None
    directory: str | Path
