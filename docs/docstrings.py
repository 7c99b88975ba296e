"""An extension of griffe for `make docs`: what our docstrings and options say in the words that griffe reads."""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe


class Reader(griffe.Extension):
    """Reads `Example:` as the heading of doctests, and the description of a pydantic field as its docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the heading; griffe would take `Example:` for a note in prose."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example\b.*:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Give a field its description and its default."""
        call = ast.parse(str(attr.value or None), mode="eval").body
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "Field":
            return
        said = {keyword.arg: keyword.value for keyword in call.keywords}
        default = call.args[0] if call.args else said.get("default")
        if "description" in said and attr.docstring is None:
            text = str(ast.literal_eval(said["description"]))
            shown = f" Default: `{ast.unparse(default)}`." if default is not None else ""
            attr.docstring = griffe.Docstring(f"{text[:1].upper()}{text[1:]}.{shown}", parent=attr)
            attr.value = None
