"""What a command prints on standard output: tables for people, one JSON document for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

from streamgp_cli._log import say
from streamgp_cli.signals import working
from streamgp_data.numbers import number


def print_json(document: Any) -> None:
    """One JSON document and a newline on standard output: non-finite numbers are null, paths and times are text."""
    from pydantic_core import to_json

    text = to_json(document, inf_nan_mode="null", timedelta_mode="float", fallback=str)
    sys.stdout.write(text.decode("utf-8") + "\n")


def warn(warnings: Iterable[str]) -> None:
    """What the user should know of an answer, on standard error."""
    for warning in warnings:
        say("warning", warning)


@contextmanager
def only_our_output() -> Iterator[None]:
    """Send what libraries print to standard error, so that standard output holds our answer and nothing else.

    It stands around the work of a command: an interruption that comes inside leaves everything in order.
    """
    working()
    with redirect_stdout(sys.stderr):
        yield


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
    """A table on standard output; the first column is text, numbers are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=200)  # a file has no width: wrap nothing
    table = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    rows = [[shown(cell) for cell in row] for row in rows]
    for index, name in enumerate(columns):
        numeric = index > 0 and all(_is_numeric(row[index]) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def print_pairs(pairs: dict[str, Any], title: str = "") -> None:
    """Names and values, one a line."""
    if title:
        print(title)
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        print(f"  {name:<{width}}  {shown(value)}")


def shown(value: Any) -> str:
    """A value as text.

    Example:
        >>> shown(0.123456), shown(17520), shown(32703.4), shown(None), shown(True), shown(float("nan"))
        ('0.1235', '17,520', '32,703', '-', 'yes', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list | tuple):
        return ", ".join(shown(item) for item in value) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items()) or "-"
    return str(value)


def _is_numeric(text: str) -> bool:
    return (
        text == "-" or text.replace(",", "").replace(".", "").lstrip("+-").replace("e", "").replace("-", "").isdigit()
    )
