"""What a run, its model and its task are called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

_LONGEST = 80  # characters of the targets in a title


def title(model: str, targets: Sequence[str], horizon: int) -> str:
    """Model, target and horizon.

    Example:
        >>> title("svdgp", ("demand_gw",), 48)
        'svdgp demand_gw h48'
    """
    return f"{model} {_joined(targets)} h{horizon}"


def axis_label(column: str, unit: str) -> str:
    """What an axis of values is called.

    Example:
        >>> axis_label("load", "MW"), axis_label("load_mw", ""), axis_label("load [MW]", "MW"), axis_label("T (K)", "K")
        ('load, MW', 'load_mw', 'load [MW]', 'T (K)')
    """
    own = not unit or f"[{unit}]" in column or f"({unit})" in column
    return column if own else f"{column}, {unit}" if column else unit


def task_name(table: str, targets: Sequence[str], horizon: int) -> str:
    """Table, target and horizon, in signs that need no quotes in a URI or a shell.

    Example:
        >>> task_name("s3://bucket/grid", ("load [MWh]",), 96)
        'grid-load-MWh-h96'
    """
    parts = [_plain(PurePosixPath(table).name), _plain(_joined(targets)), f"h{horizon}"]
    return "-".join(part for part in parts if part)


def _joined(targets: Sequence[str]) -> str:
    """All targets, or the first and how many more where that is too long."""
    whole = "+".join(targets)
    if len(whole) <= _LONGEST:
        return whole
    return targets[0][:_LONGEST] + (f"+{len(targets) - 1}" if len(targets) > 1 else "")


def _plain(text: str) -> str:
    return re.sub(r"[^\w+]+", "-", text).strip("-")


def logged_name(title: str) -> str:
    """A title without the signs that MLflow forbids in the name of a logged model.

    Example:
        >>> logged_name("svdgp wind.speed h6")
        'svdgp wind-speed h6'
    """
    return re.sub(r"[/:.%\"']+", "-", title)
