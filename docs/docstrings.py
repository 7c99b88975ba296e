"""An extension of griffe for `make docs`: what our docstrings and options say in the words that griffe reads."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))
from site_pages import REFERENCE

_PAGES = tuple(f"{name}." for name in sum(REFERENCE.values(), ()))


class Reader(griffe.Extension):
    """Reads `Example:` as the heading of doctests, and the description of a pydantic field as its docstring. Bases of
    ours that no page of the reference has, such as mixins, are left out."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Leave out such bases."""
        paths = [getattr(base, "canonical_path", str(base)) for base in cls.bases]
        kept = [not path.startswith("streamgp") or path.startswith(_PAGES) for path in paths]
        cls.bases = [base for base, keep in zip(cls.bases, kept, strict=True) if keep]

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
