"""What a source file of the product imports and defines, parsed once for all tests that ask."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Names(NamedTuple):
    """Modules that a file imports, also inside of functions, and classes that it defines; both in their order."""

    imported: tuple[str, ...]
    classes: tuple[str, ...]


@cache
def names_in(path: Path) -> Names:
    """Of one file."""
    imported, classes = list[str](), list[str]()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imported.append(node.module)
        elif isinstance(node, ast.ClassDef):
            classes.append(node.name)
    return Names(tuple(imported), tuple(classes))
