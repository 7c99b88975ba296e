"""Commands that pay for no pandas.

pyarrow imports pandas, which takes as long as a small ingest, when it first makes an array: to see whether what it is
given is a pandas object. Nothing can be one while nobody has imported pandas.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_process_is_ours = False


def own_this_process() -> None:
    """Say that the process runs one command and nothing else; the installed script does."""
    global _process_is_ours
    _process_is_ours = True


def leave_pandas_out() -> None:
    """Run the rest of the process as if pandas were not installed: for commands that convert nothing from or to it.

    Nothing is done in a process that is not the command's own, or where somebody has imported pandas already.
    """
    if not _process_is_ours or "pandas" in sys.modules:
        return
    import pyarrow as pa

    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([], pa.null())  # pyarrow's Python part looks once, and remembers that there is none
    finally:
        sys.meta_path.remove(absent)
    modules: dict[str, Any] = sys.modules
    modules["pandas"] = None  # its C++ part looks at every array: None answers at once


class _Absent:
    """Finds no pandas; leaves everything else to the other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("this command runs without pandas", name="pandas")
        return None
