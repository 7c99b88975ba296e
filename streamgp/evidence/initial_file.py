"""Hyper-parameters as a JSON document: numbers in full precision, and beside them what a person wants to read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

import streamgp
from streamgp import choice
from streamgp.base import FLOAT, Json, Shape
from streamgp.errors import DataError, StreamgpError
from streamgp.evidence.initial import Initial, structure
from streamgp.kernels import Kernel

FORMAT = 1
"""Of the document; another one is refused."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Windows(_Strict):
    targets: tuple[str, ...] = Field(min_length=1)
    horizon: int = Field(ge=1)
    lags: int = Field(ge=0)
    past: tuple[str, ...]
    future: tuple[str, ...]
    season: int = Field(ge=1)


class _Document(_Strict):
    """The file's keys, in its order; `found` and `readable` are for people."""

    streamgp: str
    hyperparameters: Literal[1]
    windows: _Windows
    target: Literal["auto", "level", "change", "season"]
    decay: float = Field(ge=0, le=1)
    kernel: dict[str, Any]
    values: dict[str, Any]
    scale: list[float]
    target_scale: list[float]
    noise: list[float]
    found: dict[str, Any]
    readable: dict[str, Any] = {}


def document(initial: Initial, readable: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """The JSON document of hyper-parameters; `from_document` is its inverse, to the last bit.

    Example:
        >>> from streamgp.evidence.initial import example
        >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
        >>> content = document(example(shape))
        >>> content["values"], from_document(content, "tuned.json").shape == shape
        ({'log_lengthscale': [0.0], 'log_outputscale': 0.0}, True)
    """
    shape = initial.shape
    return _Document(
        streamgp=streamgp.__version__,
        hyperparameters=FORMAT,
        windows=_Windows(**{name: getattr(shape, name) for name in _Windows.model_fields}),
        target=initial.target,
        decay=initial.decay,
        kernel=dict(initial.kernel),
        values={name: value.tolist() for name, value in initial.values.items()},
        scale=initial.scale.tolist(),
        target_scale=initial.target_scale.tolist(),
        noise=initial.noise.tolist(),
        found=dict(initial.found),
        readable=dict(readable or {}),
    ).model_dump(mode="json")


def from_document(content: Any, where: str) -> Initial:
    """Hyper-parameters from their document.

    Args:
        content: what the JSON holds.
        where: the file, for messages.

    Raises:
        DataError: it is no such document, one of another version, or damaged; the message names the place.
    """
    again = "write it again with streamgp tune"
    if not isinstance(content, dict) or "hyperparameters" not in content:
        raise DataError(f"{where} holds no hyper-parameters", hint="give a file that streamgp tune has written")
    if content["hyperparameters"] != FORMAT:
        version = content["hyperparameters"]
        raise DataError(f"{where} is of format {version!r}, and this version reads format {FORMAT}", hint=again)
    try:
        found = _Document.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{where} is damaged: {place}: {first['msg']}", hint=again) from None
    shape = Shape(**found.windows.model_dump())
    groups = (len(shape.past) if shape.lags else 0) + len(shape.future)
    try:
        kernel: Kernel = choice.build("kernels", choice.read("kernels", found.kernel), max(groups, 1))
    except (StreamgpError, ValidationError) as error:
        raise DataError(f"{where} is damaged: kernel: {_first_line(error)}", hint=again) from None
    wanted = {name: tuple(value.shape) for name, value in kernel.named_parameters()}
    if wanted.keys() != found.values.keys():
        raise DataError(f"{where} is damaged: values: they are to be {', '.join(wanted)}", hint=again)
    values = {name: _tensor(found.values[name], size, f"values.{name}", where) for name, size in wanted.items()}
    initial = Initial(
        shape,
        found.target,
        found.decay,
        structure(choice.read("kernels", found.kernel)),
        values,
        _tensor(found.scale, (groups,), "scale", where, positive=True),
        _tensor(found.target_scale, (shape.columns,), "target_scale", where, positive=True),
        _tensor(found.noise, (shape.columns,), "noise", where, positive=True),
        found.found,
    )
    return initial


def _tensor(values: Any, size: tuple[int, ...], name: str, where: str, positive: bool = False) -> Tensor:
    """Numbers of a shape.

    Raises:
        DataError: they are of another one, not finite, absurdly large, or not positive.
    """
    try:
        found = torch.tensor(values, dtype=FLOAT)
    except (TypeError, ValueError):
        found = torch.full((1,), math.nan, dtype=FLOAT)
    logs = not positive
    sound = bool(torch.isfinite(found).all()) and (bool((found.abs() < 50).all()) if logs else bool((found > 0).all()))
    if tuple(found.shape) != size or not sound:
        kind = "finite logarithms" if logs else "positive numbers"
        raise DataError(
            f"{where} is damaged: {name} is to be {kind} of shape {list(size)}",
            hint="write it again with streamgp tune",
        )
    return found


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
