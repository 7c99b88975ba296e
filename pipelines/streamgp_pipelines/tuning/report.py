"""Hyper-parameters in table units, and what to do with them."""

from __future__ import annotations

import math
import shlex
from typing import Any

import pyarrow as pa
from pydantic import BaseModel
from torch import Tensor

from streamgp import choice
from streamgp.base import Json
from streamgp.evidence.initial import Initial
from streamgp.kernels import Kernel, Unit
from streamgp_pipelines.config import TuneConfig

_CHOSEN = {"squared_exponential": "svdgp", "matern": "qsgp"}
"""Kernels that a cheaper model than `exact` has without being told."""
_EXACT = 3000
"""Rows that `exact` takes in batch, by default."""


def readable(initial: Initial, schema: pa.Schema) -> dict[str, Json]:
    """What hyper-parameters of standardised windows are in the units of the table.

    Returns:
        channels: one a channel, with its name, when it is looked at, its unit and standard deviation, and its
            hyper-parameters; lengthscales and periods are in its unit. Windows that differ by the lengthscale in all
            rows of a channel, and nowhere else, are a lengthscale apart.
        targets: one a target and step ahead, with the standard deviations of the function and of the noise.
        others: hyper-parameters that belong to no channel and have no unit.
    """
    shape, config = initial.shape, initial.config
    past = [(name, "past", shape.lags) for name in shape.past] if shape.lags else []
    when = "ahead" if shape.lags else "row"
    places = past + [(name, when, shape.horizon) for name in shape.future]
    kernel: Kernel = choice.build("kernels", config, len(places))
    units, labels, shared = kernel.units, _labels(config, kernel), _of_no_channel(config)
    channels: list[dict[str, Any]] = []
    for g, (name, seen, columns) in enumerate(places):
        scale = float(initial.scale[g])
        one: dict[str, Any] = {"channel": name, "when": seen, "unit": _unit(schema, name), "sd": scale}
        for key, value in initial.values.items():
            if key not in shared:
                one[labels[key]] = _in_units(key, units[key], value[..., g].exp(), scale, columns)
        channels.append(one)
    variances = {key: value.exp().sum().sqrt() for key, value in initial.values.items() if key in shared}
    heights = {key: float(root) for key, root in variances.items() if (unit := units[key]) and unit.output}
    targets: list[dict[str, Any]] = []
    for column in range(shape.columns):
        target, size = shape.targets[column // shape.horizon], float(initial.target_scale[column])
        own = {f"{labels[key]} sd": root * size for key, root in heights.items()}
        base = {"target": target, "step": column % shape.horizon + 1, "unit": _unit(schema, target), "sd": size}
        targets.append({**base, **own, "noise sd": float(initial.noise[column])})
    others = {
        labels[key]: initial.values[key].exp().tolist() for key in initial.values if key in shared - heights.keys()
    }
    return {"channels": channels, "targets": targets, "others": others}  # type: ignore[dict-item]


def train_line(config: TuneConfig, initial: Initial, rows: int) -> str:
    """A command that trains from the file. rows: that training in batch would learn."""
    words = ["streamgp", "train"]
    held = config.test_column is not None or config.test_tail is not None
    online = bool(initial.shape.lags) and not held
    words += ["--online"] if online else []
    words += ["--table", config.table]
    for name in ("target", "inputs", "known"):
        if given := getattr(config, name):
            words += [f"--{name}", ",".join(given)]
    words += [] if config.calendar is None else ["--calendar" if config.calendar else "--no-calendar"]
    for name in ("lags", "horizon", "season", "gaps", "late", "test_column", "test_tail", "test_blocks"):
        if name in config.model_fields_set and (given := getattr(config, name)) is not None:
            text = ",".join(map(str, given)) if isinstance(given, tuple) else str(given)
            words += [f"--{name.replace('_', '-')}", text] if text else []
    whole = "svgp" if not online and rows > _EXACT else "exact"
    words += ["--model", whole if initial.kernel.get("separable") else _CHOSEN.get(str(initial.kernel["name"]), whole)]
    for name, usual in (("target", "auto"), ("decay", 0.9)):
        if getattr(initial, name) != usual:
            words += ["--set", f"{name}={getattr(initial, name)}"]
    words += ["--score-from", str(initial.found["last_row"])] if online and config.end is not None else []
    return shlex.join([*words, "--init", str(config.output)])


def _of_no_channel(config: BaseModel) -> set[str]:
    """The hyper-parameters that there are as many of whatever the number of channels."""
    two, three = (dict(choice.build("kernels", config, dims).named_parameters()) for dims in (2, 3))
    return {name for name, value in two.items() if value.shape == three[name].shape}


def _labels(config: BaseModel, kernel: Kernel) -> dict[str, str]:
    """Hyper-parameters by what a person calls them: `lengthscale`, or `matern lengthscale` in a sum."""
    found = {}
    for name, _ in kernel.named_parameters():
        *path, last = name.split(".")
        inner, words = config, list[str]()
        for place in path[1::2]:
            parts = inner.parts  # type: ignore[attr-defined]
            names = [choice.part_name(part) for part in parts]
            inner, own = parts[int(place)], names[int(place)]
            words.append(own if names.count(own) == 1 else f"{own} {place}")
        found[name] = " ".join([*words, last.removeprefix("log_").replace("_", " ")])
    return found


def _in_units(name: str, unit: Unit | None, value: Tensor, scale: float, columns: int) -> Json:
    """A channel's hyper-parameter in its unit.

    A kernel sees each of a channel's columns divided by √columns: so a lengthscale is that of all of them together,
    while a period (or a frequency) is met in each of them.
    """
    last = name.rpartition(".")[2]
    if unit is not None and not unit.output and last == "log_lengthscale":
        value = value * scale**unit.input
    elif unit is not None and not unit.output and last in ("log_period", "log_mean"):
        value = value * (scale * math.sqrt(columns)) ** unit.input
    found: Json = value.tolist()
    return found


def _unit(schema: pa.Schema, channel: str) -> str:
    """The unit of a column, or of the column that a season is of; "" where ingest found none."""
    name = channel.removeprefix("season(").removesuffix(")") if channel.startswith("season(") else channel
    if name not in schema.names:
        return ""
    about = schema.field(name).metadata or {}
    return about.get(b"unit", b"").decode()
