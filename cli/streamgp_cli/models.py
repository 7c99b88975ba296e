"""`streamgp models`: the models and their options."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgp_cli.options import AsJson, Debug

if TYPE_CHECKING:
    from pydantic import BaseModel

    from streamgp.model_config import ModelConfig

PARTS = ("kernels", "features", "likelihoods", "encoders", "solvers")
"""Kinds of parts with options of their own, which are listed once and not with every model."""


def models(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show the options of this model, or of these parts: kernels, ...", metavar="NAME", show_default=False
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show all options of the model.")] = False,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the models, the options of one, or those of its parts.

    Set options with: streamgp train --model NAME --set option=value

    \b
    Examples:
      streamgp models
      streamgp models svdgp
      streamgp models svdgp --all
      streamgp models kernels
    """
    from streamgp_cli._output import print_json, print_table

    if name is None:
        listed = [{"name": model, "description": description} for model, description in _descriptions()]
        if json:
            print_json({"models": listed})
        else:
            print_table(["model", "what it is"], [(entry["name"], entry["description"]) for entry in listed])
        return
    from streamgp import registry

    columns = ["option", "type", "default", "meaning"]
    if name in PARTS:
        options = [one | {"part": part} for part in registry.names(name) for one in options_of(_config(name, part))]
        if json:
            print_json({"name": name, "options": options})
        else:
            print_table(columns, [[option[column] for column in columns] for option in once(options)])
        return
    registry.trust(name)
    module = registry.load("models", name)
    description = _first_sentence(module.__doc__)
    if json:
        print_json({"name": name, "description": description, "options": options_of(module.Config)})
        return
    few, options = few_of(module.Config), once(options_of(module.Config, parts=False))
    shown = [one for one in options if every or one["option"] in few]
    print(f"{name}: {description}")
    print_table(columns, [[option[column] for column in columns] for option in shown])
    if len(shown) < len(options):
        print(f"{len(options) - len(shown)} more: streamgp models {name} --all")
    if kinds := [kind for kind in PARTS if any(one["type"] == _one_of(kind) for one in options)]:
        print(f"Options of parts: {', '.join(f'streamgp models {kind}' for kind in kinds)}")


def _config(kind: str, part: str) -> type[BaseModel]:
    from streamgp import registry

    config: type[BaseModel] = registry.load(kind, part).Config
    return config


def few_of(config: type[ModelConfig]) -> tuple[str, ...]:
    """The options that matter first: those that the Config names, else its first ten."""
    return config.few or tuple(list(config.model_fields)[:10])


def _descriptions() -> list[tuple[str, str]]:
    """Each model and the first sentence of its file, read without importing it."""
    from streamgp import registry

    return [(name, _first_sentence(registry.docstring("models", name))) for name in registry.names("models")]


def _first_sentence(docstring: str | None) -> str:
    """The first paragraph on one line, without its full stop."""
    return " ".join(inspect.cleandoc(docstring or "").split("\n\n")[0].split()).removesuffix(".")


def options_of(config: type[BaseModel], *, parts: bool = True) -> list[dict[str, Any]]:
    """The fields of a Config; those of the parts inside it follow under dotted names.

    Where one of several parts can stand inside, each option names the part that it is of.

    Args:
        config: of a model, or of a part.
        parts: whether to list options of experts, and options of parts whose default is the part's own.
    """
    from pydantic import BaseModel

    from streamgp import choice, registry

    found: list[dict[str, Any]] = []
    for name, field, default, part in choice.options(config):
        expert = "." in name and name.split(".")[0] in registry.names("models")
        if not parts and (expert or (part and default == choice.default_of(field))):
            continue
        mark = choice.one_of(field)
        said = _one_of(mark.kind) if mark else _type_name(field.annotation)
        kind = said + "".join(f" {limit}" for limit in _limits(field.metadata))
        each = default if isinstance(default, tuple) else (default,)
        names = [choice.part_name(one) if isinstance(one, BaseModel) else one for one in each]
        shown = names if isinstance(default, tuple) else names[0]
        found.append({"option": name, "part": part, "type": kind, "default": shown, "meaning": field.description or ""})
    return found


def once(options: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Options with those that several parts have alike as one, whose meaning begins with all of these parts.

    Example:
        >>> row = {"option": "encoder.layers", "type": "int", "default": 1, "meaning": "layers"}
        >>> [one["meaning"] for one in once([row | {"part": part} for part in ("gru", "lstm")])]
        ['gru, lstm: layers']
    """
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in options:
        parts = [one["part"]] if one["part"] else []
        key = (one["option"], one["type"], str(one["default"]), one["meaning"])
        found.setdefault(key, one | {"parts": []})["parts"] += parts
    for one in found.values():
        if parts := one.pop("parts"):
            one["meaning"] = f"{', '.join(parts)}: {one['meaning']}"
    return list(found.values())


def _one_of(kind: str) -> str:
    from streamgp import registry

    return f"one of {', '.join(registry.names(kind))}"


def _type_name(annotation: Any) -> str:
    """A type as one would say it: `int`, `float or none`, `one of full, diag`."""
    import types
    from typing import Literal, Union, get_args, get_origin

    from streamgp.choice import OneOf

    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        marks = [mark for mark in arguments[1:] if isinstance(mark, OneOf)]
        return marks[0].kind if marks else _type_name(arguments[0])
    if origin is Literal:
        return "one of " + ", ".join(str(value) for value in arguments)
    if origin is types.UnionType or origin is Union:
        return " or ".join(_type_name(argument) for argument in arguments)
    if origin is not None:
        inside = ", ".join("..." if argument is Ellipsis else _type_name(argument) for argument in arguments)
        return f"{_type_name(origin)} of {inside}" if inside else _type_name(origin)
    if annotation is type(None):
        return "none"
    return getattr(annotation, "__name__", str(annotation))


def _limits(metadata: list[Any]) -> list[str]:
    """The bounds of a number: '>= 1'."""
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    return [f"{sign} {getattr(rule, name)}" for rule in metadata for name, sign in signs.items() if hasattr(rule, name)]
