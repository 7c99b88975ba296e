"""`streamgp models`: what can be learned, and every option of it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgp_cli._options import AsJson, Debug

if TYPE_CHECKING:
    from pydantic import BaseModel


def models(
    name: Annotated[str | None, typer.Argument(help="Show every option of this model.", show_default=False)] = None,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the models, or every option of one.

    Options are set with: streamgp train --model NAME --set option=value

    \b
    Examples:
      streamgp models
      streamgp models svdgp
      streamgp models svdgp --json
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

    module = registry.load("models", name)
    description = _first_sentence(module.__doc__)
    options = _options(module.Config)
    if json:
        print_json({"name": name, "description": description, "options": options})
        return
    print(f"{name}: {description}")
    columns = ["option", "type", "default", "meaning"]
    print_table(columns, [[option[column] for column in columns] for option in options])


def _descriptions() -> list[tuple[str, str]]:
    """Each model and the first sentence of its file, read without importing it."""
    import ast
    from importlib.resources import files

    from streamgp import registry

    room = files("streamgp") / "models"
    texts = ((name, (room / f"{name}.py").read_text(encoding="utf-8")) for name in registry.names("models"))
    return [(name, _first_sentence(ast.get_docstring(ast.parse(text)))) for name, text in texts]


def _first_sentence(docstring: str | None) -> str:
    """The first paragraph on one line, without its full stop."""
    return " ".join(inspect.cleandoc(docstring or "").split("\n\n")[0].split()).removesuffix(".")


def _options(config: type[BaseModel], prefix: str = "", of: str = "") -> list[dict[str, Any]]:
    """The fields of a Config; those of the configurations inside it follow under dotted names.

    Where one of several configurations can stand inside, the meaning of each option begins with the part it is of.
    """
    found: list[dict[str, Any]] = []
    for key, field in config.model_fields.items():
        inside = _configs(field.annotation)
        for part in inside:
            found += _options(part, f"{prefix}{key}.", of if len(inside) == 1 else part.__module__.rpartition(".")[2])
        if inside:
            continue
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        meaning = f"{of}: {field.description}" if of else field.description or ""
        kind = _type_name(field.annotation) + "".join(f" {limit}" for limit in _limits(field.metadata))
        found.append({"option": f"{prefix}{key}", "type": kind, "default": default, "meaning": meaning})
    return found


def _configs(annotation: Any) -> list[type[BaseModel]]:
    """The configurations that may stand in a field of this type: one, several of a union, or none."""
    from typing import get_args

    from pydantic import BaseModel

    parts = (annotation, *get_args(annotation))
    return [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]


def _type_name(annotation: Any) -> str:
    """A type as one would say it: `int`, `float or none`, `one of full, diag`."""
    import types
    from typing import Literal, Union, get_args, get_origin

    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_name(arguments[0])
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
