"""A model from its name, its options and its shape, on its device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

import torch
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from streamgp import choice, registry
from streamgp.base import Fleet, Model, Shape
from streamgp.errors import ServiceError, UsageError
from streamgp.evidence.initial import Initial, one_start
from streamgp.model_config import ModelConfig

Options = TypeVar("Options", bound=BaseModel)

DEVICES = ("auto", "cpu", "cuda")


def build_model(name: str, options: Mapping[str, Any], shape: Shape, device: torch.device, seed: int = 0) -> Model:
    """The named model, seeded, on its device.

    Args:
        name: a file of streamgp/models.
        options: dotted option -> value; text is read as JSON where it is JSON, else taken as it is.
        shape: what it is built for.
        device: where its tensors live.
        seed: of every random choice that it and its parts make, unless an option says otherwise.

    Raises:
        UsageError: the name, an option or a value is unknown; the hint names the nearest.

    Example:
        >>> shape = Shape(targets=("y",), horizon=2, lags=3, past=("y",), future=())
        >>> model = build_model("persistence", {}, shape, torch.device("cpu"))
        >>> type(model).__name__
        'Persistence'
    """
    module = registry.load("models", name)
    settings = seeded(model_settings(name, options), seed)
    torch.manual_seed(seed)
    model: Model = module.build(settings, shape)
    return model.to(device)


def find_device(name: str) -> torch.device:
    """auto, cpu or cuda -> device.

    Raises:
        ServiceError: cuda was asked for and is not there.
        UsageError: there is no such device.
    """
    if name.partition(":")[0] not in DEVICES:
        raise UsageError(f"there is no device {name!r}", hint=f"there are: {', '.join(DEVICES)}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ServiceError("there is no CUDA device here", hint="use --device cpu, or install a CUDA build of torch")
    return torch.device(name)


def build_fleet(name: str, options: Mapping[str, Any], shape: Shape, device: torch.device) -> Fleet | None:
    """The models of many series in one, where the named model has that; else None. Arguments as of `build_model`."""
    build = getattr(registry.load("models", name), "build_fleet", None)
    found: Fleet | None = None if build is None else build(model_settings(name, options), shape, device)
    return found


def model_settings(name: str, options: Mapping[str, Any]) -> ModelConfig:
    """The model's Config with these options set.

    Where the default of a field is a part with options of its own, those that are not set again stay.

    Raises:
        UsageError: as `build_model`.

    Example:
        >>> model_settings("svdgp", {"encoder": "mlp", "encoder.hidden": "8"}).encoder.hidden
        8
    """
    config: type[ModelConfig] = registry.load("models", name).Config
    return read_settings(config, options, f"see: streamgp models {name}", name)


def with_kernel(name: str, options: Mapping[str, Any], initial: Initial) -> dict[str, Any]:
    """The options of a model, with the kernel that hyper-parameters are of where a kernel can be chosen and none is.

    Example:
        >>> from streamgp.evidence.initial import example
        >>> found = example(Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=()))
        >>> with_kernel("qsgp", {"rebuild": 500}, found)
        {'rebuild': 500, 'kernel': {'name': 'squared_exponential'}}
        >>> with_kernel("svdgp", {}, found)
        {}
    """
    field = registry.load("models", name).Config.model_fields.get("kernel")
    mark = None if field is None else choice.one_of(field)
    chosen = any(key.split(".")[0] == "kernel" for key in flatten(options))
    if mark is None or mark.kind != "kernels" or chosen:
        return dict(options)
    return {**options, "kernel": dict(initial.kernel)}


def check_one_start(name: str, options: Mapping[str, Any]) -> None:
    """See that the options of a model that starts from a file set no hyper-parameter of its kernel.

    Raises:
        UsageError: they do.
    """
    config = model_settings(name, options)
    kernel = getattr(config, "kernel", None)
    if not isinstance(kernel, BaseModel) or kernel == type(config).model_fields["kernel"].default:
        return
    if any(key.split(".")[0] == "kernel" for key in flatten(options)):
        one_start(kernel)


def read_settings(config: type[Options], options: Mapping[str, Any], see: str, model: str = "") -> Options:
    """A Config with these options set; see `model_settings`.

    Args:
        config: of which they are options.
        options: dotted option -> value.
        see: where all of them are listed, for hints.
        model: that the Config is of; "" where it is of none.

    Raises:
        UsageError: an option or a value is unknown.
    """
    given: dict[str, Any] = {}
    for dotted, value in flatten(options).items():
        path = dotted.split(".")
        found = _parse(value, choice.at(config, path), dotted)
        if not _is_own_name(config, path, found, dotted, model):
            _place(given, path, found, dotted, config)
    try:
        return config.model_validate(_onto_defaults(config, given))
    except ValidationError as error:
        raise _refused(error.errors()[0], config, see, given, model) from None


def seeded(config: Options, seed: int) -> Options:
    """A Config in which every `seed` that was not set, its own or that of a part inside, is this one."""
    changed: dict[str, Any] = {}
    for key in type(config).model_fields:
        value = getattr(config, key)
        if key == "seed" and key not in config.model_fields_set:
            changed[key] = seed
        elif isinstance(value, BaseModel):
            changed[key] = seeded(value, seed)
        elif isinstance(value, tuple):
            changed[key] = tuple(seeded(part, seed) if isinstance(part, BaseModel) else part for part in value)
    return config.model_copy(update=changed)


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


def as_text(value: Any) -> str:
    """An option as it could be given on the command line, where it is read as it was.

    Example:
        >>> as_text("mlp"), as_text(0.5), as_text(["linear", "matern"]), as_text(None)
        ('mlp', '0.5', '["linear", "matern"]', 'none')
    """
    return "none" if value is None else json.dumps(value) if isinstance(value, list | tuple) else str(value)


def _parse(value: Any, fields: list[FieldInfo], dotted: str) -> Any:
    """Text as JSON where it is JSON, and "none" as None where the fields that it may be of can be that.

    Raises:
        UsageError: it begins as JSON does and is none.
    """
    if not isinstance(value, str):
        return value
    if value == "none" and fields and all(type(None) in get_args(field.annotation) for field in fields):
        return None
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        if value.lstrip()[:1] not in ("{", "["):
            return value
        raise UsageError(
            f"--set {dotted}: {value} looks like JSON and is none: {error.msg} at character {error.pos + 1}",
            hint="""names stand in double quotes, and the shell wants single ones around it: '["linear", "matern"]'""",
        ) from None


def _place(given: dict[str, Any], path: list[str], value: Any, dotted: str, config: type[BaseModel]) -> None:
    """Put `value` at the path, making tables on the way; a part's name and its options make one table.

    Raises:
        UsageError: the place is taken.
    """
    here = given
    if path[0] in given and not choice.at(config, path[:1]):
        return  # there is no such option, and the error of that says more
    for depth, key in enumerate(path[:-1], 1):
        inner = here.setdefault(key, {})
        if isinstance(inner, str) and _is_choice(config, path[:depth]):
            inner = here[key] = {"name": inner}
        if not isinstance(inner, dict):
            raise UsageError(f"--set {dotted}: {key!r} is already set to a value", hint="set one or the other")
        here = inner
    key = path[-1]
    if isinstance(value, str) and isinstance(here.get(key), dict) and _is_choice(config, path):
        here, key = here[key], "name"
    if isinstance(value, dict) and isinstance(here.get(key), dict):
        value = value | here[key]
    elif here.get(key, value) != value:
        raise UsageError(f"--set {dotted}: {path[-1]!r} is already set to {here[key]!r}", hint="set one or the other")
    here[key] = value


def _is_own_name(config: type[BaseModel], path: list[str], value: Any, dotted: str, model: str) -> bool:
    """Whether this only repeats the name of a part that always stands there, such as the solver of wiski.

    Raises:
        UsageError: it is the name of another part of its kind.
    """
    path = path[:-1] if path[-1] == "name" and not choice.at(config, path) else path
    fields = choice.at(config, path)
    fixed = next((choice.default_of(field) for field in fields if not choice.one_of(field)), None)
    kind, own = ["", *type(fixed).__module__.split(".")][-2:]
    if not isinstance(value, str) or kind not in registry.ROOMS or own not in registry.names(kind):
        return False
    if value != own and value in registry.names(kind):
        message = f"--set {dotted}: the {path[-1]} of {model} is {own}, and no other"
        raise UsageError(message, hint=f"see: streamgp models {model}")
    return value == own


def _is_choice(config: type[BaseModel], path: list[str]) -> bool:
    return any(choice.one_of(field) for field in choice.at(config, path))


def _onto_defaults(config: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as given, with the options of a field's default beside them where they are of the same part."""
    merged = dict(given)
    for key, field in config.model_fields.items():
        if key not in given:
            continue
        default, mark, value = choice.default_of(field), choice.one_of(field), given[key]
        if mark and isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping) or not isinstance(default, BaseModel):
            continue
        usual = choice.part_name(default)
        name = value.get("name", mark.unnamed or usual) if mark else ""
        if name in ("", usual):
            value = default.model_dump(exclude_unset=True) | _onto_defaults(type(default), value)
        merged[key] = {**value, "name": name} if mark else value
    return merged


def _refused(error: ErrorDetails, config: type[BaseModel], see: str, given: Any, model: str) -> UsageError:
    """What pydantic says of an option of a model, at the option's dotted name."""
    path: list[str] = []
    for part in error["loc"]:  # what does not lead into the options is pydantic's name for one type of several
        table = given if isinstance(given, Mapping) else dict(enumerate(given)) if isinstance(given, list) else {}
        if part in table:
            path.append(str(part))
            given = table[part]
    where = ".".join(path)
    message = error["msg"].removeprefix("Value error, ")
    unknown = error["type"] == "extra_forbidden"
    if unknown and model and where.partition(".")[0] == "kernel" and "kernel" not in config.model_fields:
        hint = f"use --model exact, svgp or qsgp, which have a choice; {see}"
        return UsageError(f"--set {where}: {model} has no choice of kernels", hint=hint)
    if unknown:
        message = "there is no such option"
    elif error["type"] == "model_type":
        message = f"{given!r} is no value: {where} has options of its own"
        inner = [option.name for option in choice.options(config) if option.name.startswith(f"{where}.")]
        return UsageError(f"--set {where}: {message}", hint=f"such as {inner[0]}; {see}")
    return UsageError(f"--set {where}: {message}" if where else message, hint=_hint(config, where, see, unknown))


def _hint(config: type[BaseModel], where: str, see: str, unknown: bool) -> str:
    options = list(choice.options(config))
    if parts := [option.part for option in options if unknown and option.name == where]:
        choose = f"set {where.rpartition('.')[0]} to {' or '.join(parts)}"
        return f"{where!r} is an option of {', '.join(parts)}: {choose}; {see}"
    known = [option.name for option in options]
    near = get_close_matches(where, known, n=1)
    return see if where in known or not near else f"did you mean {near[0]!r}? {see}"
