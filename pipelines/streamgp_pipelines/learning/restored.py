"""Checkpoints as commands read them: what one says of itself is checked before anything is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamgp.errors import CheckpointError
from streamgp.forecasting.calibration import Calibration
from streamgp.windows import calendar
from streamgp.windows.windows import WindowSpec
from streamgp_data import checkpoint
from streamgp_data.checkpoint import Saved, fitting
from streamgp_pipelines.moments import Moments

Whole = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Steps = Annotated[int, Field(ge=1, le=10**7)]
Name = Annotated[str, Field(min_length=1)]


class _Said(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class _Transform(_Said):
    kind: Literal["none", "log", "logit"] = "none"
    lower: float = 0.0
    width: Annotated[float, Field(gt=0)] = 1.0
    floor: Annotated[float, Field(gt=0)] = 1e-6


class _Spec(_Said):
    targets: Annotated[list[Name], Field(min_length=1)]
    inputs: list[Name] = []
    known: list[Name] = []
    calendar: bool = False
    lags: Annotated[int, Field(ge=0, le=10**7)] = 24
    horizon: Steps = 1
    season: Steps = 1
    gaps: Literal["reset", "fill"] = "fill"
    time: Name | None = None
    series: Name | None = None
    every_ns: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    zone: str | None = None
    tolerance_ns: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    seasons: list[Steps] = []
    transforms: list[_Transform] = []
    simulated: Annotated[int, Field(ge=0, le=10**9)] = 0
    fleet: bool = False
    contexts: bool = True
    late: Literal["skip", "use"] = "skip"


class _Calibration(_Said):
    levels: list[Annotated[float, Field(gt=0, lt=100)]]
    quantiles: list[Annotated[float, Field(gt=0, lt=1)]] = []
    point: Literal["mean", "median"] = "mean"
    lower: float | None = None
    upper: float | None = None
    none: bool = False
    transformed: bool = False


class _Moments(_Said):
    clock: bool = True
    zone: str | None = None
    form: str | None = None
    whole: bool = True
    local: bool | None = None


class _Table(_Said):
    path: Name
    id: Name
    version: Whole


class _Fingerprint(_Said):
    mode: Literal["online", "batch"]


class _Manifest(_Said):
    """What every checkpoint of a run says; `learning.checkpointing.manifest` writes it."""

    streamgp: str
    fingerprint: _Fingerprint
    model: Name
    set: dict[str, str]
    seed: Whole
    calibration: _Calibration
    spec: _Spec
    moments: _Moments | None = None
    unit: str
    units: dict[str, str] = {}
    rows: Whole
    batch: Count
    simulate: Count | None = None
    alarm_rate: Annotated[float, Field(gt=0, lt=1)] | None = None
    read: Count | None = None
    buckets: Annotated[int, Field(ge=0, le=10**6)] | None = None
    warmup: Whole
    begun: bool
    offset: dict[str, int | str | bool | float | None]
    table: _Table
    threads: Annotated[int, Field(ge=1, le=4096)]
    device: Name
    fitted: bool = False


CHECKED: dict[str, type[BaseModel]] = {"spec": _Spec, "calibration": _Calibration, "moments": _Moments}
"""What is said of windows, bands and times, each field with its kind and range."""


def read_checkpoint(directory: Path) -> Saved:
    """The newest checkpoint that is whole, as `streamgp_data.checkpoint.read`, of a run.

    Raises:
        CheckpointError: as there; or it does not say what a run says of itself.
    """
    found = checkpoint.read(directory)
    check_manifest(found)
    return found


def check_manifest(saved: Saved) -> None:
    """See that a checkpoint says what a run says of itself.

    Raises:
        CheckpointError: it does not; the message names the field.
    """
    try:
        _Manifest.model_validate(saved.manifest)
        with fitting(f"what {saved.path} says of its windows"):
            spec_of(saved), calibration_of(saved)
            calendar.check(moments_of(saved).zone)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CheckpointError(
            f"{saved.path} does not fit: {where}: {first['msg'][:200]}",
            hint="another version wrote it, or it was changed; start with --fresh",
        ) from None


def spec_of(saved: Saved) -> WindowSpec:
    """What its windows are made of."""
    return WindowSpec(**_tuples(saved.manifest["spec"]))


def calibration_of(saved: Saved) -> Calibration:
    """What is issued of its calibrated distribution."""
    return Calibration(**_tuples(saved.manifest["calibration"]))


def moments_of(saved: Saved) -> Moments:
    """How its times are written; of checkpoints before there were such, as their clock is."""
    about: Any = saved.manifest
    return Moments(**(about.get("moments") or {"clock": bool(about.get("clock", True)), "zone": about["spec"]["zone"]}))


def _tuples(given: Any) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
