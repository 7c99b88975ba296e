"""What a learner is built from: plain values, which a checkpoint holds as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch

from streamgp.base import Fleet, Json, Model
from streamgp.forecasting.calibration import Calibration
from streamgp.model_config import ModelConfig
from streamgp.windows.calendar import Ints
from streamgp.windows.windows import WindowSpec
from streamgp_pipelines.assembly import as_text, build_fleet, build_model, flatten, model_settings
from streamgp_pipelines.learning.own_units import Scale

SHARE = 16
"""A micro-batch that grows has one row for this many rows before it."""


@dataclass(frozen=True)
class Schedule:
    """When a stream is only learned from, and when it counts.

    Attributes:
        batch: B, rows in a micro-batch.
        warmup: rows of the stream that are fitted in batch before the first forecast that counts; more where no
            window was whole until then, and the first micro-batch where it is 0.
        score_from: forecasts issued at this row of the stream or later are scored; None means all that are issued.
        score_time: the same as a time, ns since the epoch.
        grows: whether micro-batches after the warm-up begin short, and have B rows once the stream has SHARE · B: of a
            few hundred rows B are a large part, and a model would have learned little when they end.
    """

    batch: int
    warmup: int
    score_from: int | None = None
    score_time: int | None = None
    grows: bool = False

    def room(self, row: int) -> int:
        """Rows of the micro-batch that begins at this row: B, or fewer at the first row of the stream and where they
        grow.

        So a micro-batch ends at the last row of the warm-up.

        Example:
            >>> schedule = Schedule(batch=256, warmup=1080)
            >>> schedule.room(0), schedule.room(56), schedule.room(1080)
            (56, 256, 256)
            >>> growing = Schedule(batch=24, warmup=40, grows=True)
            >>> growing.room(0), growing.room(40), growing.room(96), growing.room(1000)
            (16, 2, 6, 24)
        """
        return int(self.rooms(np.array([row]))[0])

    def rooms(self, rows: Ints) -> Ints:
        """`room` of each of (S,) rows."""
        even = (self.warmup - rows - 1) % self.batch + 1
        if not self.grows:
            return even
        return np.where(rows < self.warmup, even, np.clip(rows // SHARE, 1, self.batch))


@dataclass(frozen=True)
class Recipe:
    """All that makes a learner, but for what it learns.

    Attributes:
        model: name of the model.
        options: its options, as text of `--set`, by dotted name.
        seed: of every random choice that no option seeds.
        spec: the windows: targets, inputs, known inputs, lags, horizon, seasons, transforms, whether it is a fleet.
        calibration: what is issued of the calibrated distribution.
        schedule: micro-batches, warm-up and scoring.
        simulate: steps of the simulations of past rows that calibrate paths; None: there are none.
        scale: in which units a panel is learned: auto, series or all; see `own_units`.
        alarm_rate: nominal rate of false alarms; None: none are raised.
        buckets: parts that the series of a fleet are dealt to; 0: it is in one piece.
        read: rows that buckets read at a time.

    Example:
        >>> recipe = Recipe.of("linear", {"decay": 0.5}, WindowSpec(targets=("y",)), Schedule(256, 1024))
        >>> recipe.options, Recipe.from_json(recipe.to_json()) == recipe
        ({'decay': '0.5'}, True)
    """

    model: str
    options: Mapping[str, str]
    seed: int
    spec: WindowSpec
    calibration: Calibration
    schedule: Schedule
    simulate: int | None = None
    alarm_rate: float | None = None
    scale: Scale = "all"
    buckets: int = 0
    read: int = 0

    @classmethod
    def of(
        cls,
        model: str,
        options: Mapping[str, Any],
        spec: WindowSpec,
        schedule: Schedule,
        calibration: Calibration | None = None,
        seed: int = 0,
    ) -> Recipe:
        """That of a model with options of any kind, as `assembly.build_model` takes them."""
        told = {key: as_text(value) for key, value in flatten(options).items()}
        return cls(model, told, seed, spec, calibration or Calibration(), schedule)

    @property
    def own_units(self) -> bool:
        """Whether series may be learned in units of their own: those of a panel, where its model does not do that."""
        spec = self.spec
        if self.scale == "all" or spec.series is None or spec.fleet or not spec.lags or self.simulate is not None:
            return False
        return not self.settings().own_units(spec.shape)

    @property
    def units(self) -> Scale:
        """Which: those that the model takes, where it is left to the data."""
        return "series" if self.scale == "auto" and self.settings().steady_units(self.spec.shape) else self.scale

    def settings(self) -> ModelConfig:
        """The options of the model, those left at their defaults too."""
        return model_settings(self.model, self.options)

    def build(self, device: torch.device) -> Model:
        """The model, before any data."""
        return build_model(self.model, self.options, self.spec.shape, device, self.seed)

    def build_fleet(self, device: torch.device) -> Fleet | None:
        """The models of many series in one, where there is that."""
        return build_fleet(self.model, self.options, self.spec.shape, device)

    def to_json(self) -> dict[str, Json]:
        """As a checkpoint holds it."""
        parts = {name: _listed(asdict(getattr(self, name))) for name in ("spec", "calibration", "schedule")}
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in parts}
        return {**plain, "options": dict(self.options), **parts}

    @classmethod
    def from_json(cls, about: Mapping[str, Any]) -> Recipe:
        """The inverse of `to_json`.

        Raises:
            UsageError, TypeError: the parts do not fit each other.
        """
        parts = {
            "spec": WindowSpec(**_tuples(about["spec"])),
            "calibration": Calibration(**_tuples(about["calibration"])),
            "schedule": Schedule(**about["schedule"]),
        }
        return cls(**{**about, **parts})


def _listed(given: dict[str, Any]) -> dict[str, Json]:
    """Tuples as the lists that JSON has."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}


def _tuples(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
