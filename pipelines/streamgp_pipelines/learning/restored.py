"""Checkpoints as commands read them: what one says of itself is checked before anything is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from streamgp.base import Stateful
from streamgp.errors import CheckpointError
from streamgp.windows import calendar
from streamgp_data import checkpoint
from streamgp_data.batches import SKIP
from streamgp_data.checkpoint import Saved, fitting
from streamgp_data.event_time import NEWEST, UNTIL
from streamgp_data.moments import Moments
from streamgp_data.parts import SEQ
from streamgp_data.table import KNOWN
from streamgp_pipelines.learning.recipe import Recipe

Whole = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Steps = Annotated[int, Field(ge=1, le=10**7)]
Name = Annotated[str, Field(min_length=1)]


class _Said(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _Transform(_Said):
    kind: Literal["none", "log", "logit"]
    lower: float
    width: Annotated[float, Field(gt=0)]
    floor: Annotated[float, Field(gt=0)]


class _Spec(_Said):
    targets: Annotated[list[Name], Field(min_length=1)]
    inputs: list[Name]
    known: list[Name]
    calendar: bool
    lags: Annotated[int, Field(ge=0, le=10**7)]
    horizon: Steps
    season: Steps
    gaps: Literal["reset", "fill"]
    time: Name | None
    series: Name | None
    every_ns: Annotated[int, Field(ge=1, lt=2**63)] | None
    zone: str | None
    tolerance_ns: Annotated[int, Field(ge=1, lt=2**63)] | None
    seasons: list[Steps]
    transforms: list[_Transform]
    simulated: Annotated[int, Field(ge=0, le=10**9)]
    fleet: bool
    contexts: bool
    late: Literal["skip", "use"]
    sentinels: list[float]
    faults: bool


class _Calibration(_Said):
    levels: list[Annotated[float, Field(gt=0, lt=100)]]
    quantiles: list[Annotated[float, Field(gt=0, lt=1)]]
    point: Literal["mean", "median"]
    lower: float | None
    upper: float | None
    none: bool
    transformed: bool
    finds: bool


class _Schedule(_Said):
    batch: Count
    warmup: Whole
    score_from: Whole | None
    score_time: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None
    grows: bool


class _Recipe(_Said):
    model: Name
    options: dict[str, str]
    seed: Whole
    spec: _Spec
    calibration: _Calibration
    schedule: _Schedule
    simulate: Count | None
    alarm_rate: Annotated[float, Field(gt=0, lt=1)] | None
    scale: Literal["auto", "series", "all"] = "all"  # of checkpoints from before there was a choice
    buckets: Annotated[int, Field(ge=0, le=10**6)]
    read: Annotated[int, Field(ge=0, le=10**9)]


class _Moments(_Said):
    clock: bool
    zone: str | None
    form: str | None
    whole: bool
    local: bool | None


class _Table(_Said):
    path: Name
    id: Name
    version: Whole


class _Fingerprint(_Said):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    mode: Literal["online", "batch"]


class _Manifest(_Said):
    """What every checkpoint of a run says; `learning.checkpointing.manifest` writes it."""

    streamgp: str
    fingerprint: _Fingerprint
    recipe: _Recipe
    moments: _Moments
    unit: str
    units: dict[str, str]
    rows: Whole
    begun: bool
    offset: dict[str, int | str | bool | float | None]
    table: _Table
    threads: Annotated[int, Field(ge=1, le=4096)]
    device: Name
    frames: Literal["polars", "pandas", "arrow"] = "polars"
    fitted: bool

    @field_validator("offset")
    @classmethod
    def _counts(cls, offset: dict[str, int | str | bool | float | None]) -> dict[str, int | str | bool | float | None]:
        for name in (SEQ, SKIP, KNOWN, NEWEST, UNTIL):
            if type(offset.get(name, 0)) is not int:
                raise ValueError(f"{name} is {offset[name]!r}, not a whole number")
        return offset


CHECKED: dict[str, type[BaseModel]] = {
    "spec": _Spec,
    "calibration": _Calibration,
    "schedule": _Schedule,
    "recipe": _Recipe,
    "moments": _Moments,
}
"""What is said of a recipe and of times, each field with its kind and range."""


def read_checkpoint(directory: Path) -> Saved:
    """The newest checkpoint that is whole, as `streamgp_data.checkpoint.read`, of a run.

    Raises:
        CheckpointError: as there; or it does not say what a run says of itself.
    """
    found = checkpoint.read(directory)
    check_manifest(found)
    return found


def check_manifest(saved: Saved) -> None:
    """Check that a checkpoint has every field of a run's manifest.

    Raises:
        CheckpointError: one is missing or of another kind; the message names it.
    """
    try:
        _Manifest.model_validate(saved.manifest)
        with fitting(f"what {saved.path} says of its windows"):
            recipe_of(saved)
            calendar.check(moments_of(saved).zone)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CheckpointError(
            f"{saved.path} does not fit: {where}: {first['msg'][:200]}",
            hint="another version wrote it, or it was changed; start with --fresh",
        ) from None


def parts_in(saved: Saved, parts: Mapping[str, Stateful]) -> dict[str, Stateful]:
    """The parts of a learner that a checkpoint holds: one of before there were alarms of silence has none of them, and
    they begin with the next row."""
    return {name: part for name, part in parts.items() if name != "silences" or name in saved.rest}


def recipe_of(saved: Saved) -> Recipe:
    """What its learner is made of."""
    return Recipe.from_json(cast("dict[str, Any]", saved.manifest["recipe"]))


def moments_of(saved: Saved) -> Moments:
    """How its times are written."""
    return Moments(**cast("dict[str, Any]", saved.manifest["moments"]))
