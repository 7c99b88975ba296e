"""A model from its name, its options and its shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, get_args

import torch
from pydantic import BaseModel, ValidationError

from streamgp import registry
from streamgp.base import Model, Shape
from streamgp.errors import UsageError


def build_model(name: str, options: Mapping[str, Any], shape: Shape, device: torch.device, seed: int = 0) -> Model:
    """The named model, seeded, on its device.

    Args:
        name: a file of streamgp/models.
        options: dotted option -> value; text is read as JSON where it is JSON, else taken as it is.
        shape: what it is built for.
        device: where its tensors live.
        seed: of every random choice it makes, unless an option says otherwise.

    Raises:
        UsageError: the name, an option or a value is unknown; the hint names the nearest.

    Example:
        >>> shape = Shape(targets=("y",), horizon=2, lags=3, past=("y",), future=())
        >>> model = build_model("persistence", {}, shape, torch.device("cpu"))
        >>> type(model).__name__
        'Persistence'
    """
    module = registry.load("models", name)
    settings = model_settings(name, options)
    if "seed" in type(settings).model_fields and "seed" not in settings.model_fields_set:
        settings = settings.model_copy(update={"seed": seed})
    torch.manual_seed(seed)
    model: Model = module.build(settings, shape)
    return model.to(device)


def model_settings(name: str, options: Mapping[str, Any]) -> BaseModel:
    """The model's Config with these options set.

    Raises:
        UsageError: as `build_model`.
    """
    config: type[BaseModel] = registry.load("models", name).Config
    nested: dict[str, Any] = {}
    for dotted, value in flatten(options).items():
        _place(nested, dotted.split("."), _parse(value), dotted)
    try:
        return config.model_validate(nested)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not str(part).endswith("Config"))  # of a choice of two
        raise UsageError(f"--set {where}: {first['msg']}", hint=_nearest(config, where, name)) from None


def flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables of a TOML file as dotted names.

    Example:
        >>> flatten({"encoder": {"name": "mlp"}, "basis": 64})
        {'encoder.name': 'mlp', 'basis': 64}
    """
    flat: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def option_names(config: type[BaseModel], prefix: str = "") -> list[str]:
    """Every dotted option of a Config, those of the configurations that can stand inside it included, each once."""
    names: dict[str, None] = {}
    for key, field in config.model_fields.items():
        inside = [part for part in (field.annotation, *get_args(field.annotation)) if _is_config(part)]
        for part in inside:
            names |= dict.fromkeys(option_names(part, f"{prefix}{key}."))
        if not inside:
            names[f"{prefix}{key}"] = None
    return list(names)


def _is_config(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, BaseModel)


def _parse(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _place(nested: dict[str, Any], path: list[str], value: Any, dotted: str) -> None:
    """Put `value` at the path, making tables on the way."""
    here = nested
    for part in path[:-1]:
        here = here.setdefault(part, {})
        if not isinstance(here, dict):
            raise UsageError(f"--set {dotted}: {part!r} is already set to a value", hint="set one or the other")
    here[path[-1]] = value


def _nearest(config: type[BaseModel], where: str, name: str) -> str:
    known = option_names(config)
    near = get_close_matches(where, known, n=1)
    if where in known or not near:
        return f"see: streamgp models {name}"
    return f"did you mean {near[0]!r}? see: streamgp models {name}"
