"""The options that every command has, and how flags become settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

COMMON = "Common"

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file with any of these options.", metavar="FILE", rich_help_panel=COMMON),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.", rich_help_panel=COMMON)
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=COMMON)]

_NOT_SETTINGS = ("config", "json", "debug")


def option(panel: str, help: str, *, metavar: str | None = None, names: str | None = None) -> Any:
    """An option in a panel of the help page.

    Args:
        panel: heading that it is listed under.
        help: what it does, and its default: defaults are filled in later, by the settings.
        metavar: what to call its value.
        names: its flag, where that differs from the parameter's name.
    """
    return typer.Option(*([names] if names else []), help=help, metavar=metavar, rich_help_panel=panel)


def flags(context: typer.Context, *without: str) -> dict[str, Any]:
    """The options that were given on this command line, by the names of their settings.

    An option that was left out is None or empty, and is left to the environment, the file and the default.

    Args:
        context: of the command.
        without: parameters that are no settings.

    Raises:
        UsageError: a word of `--set` has no '='.
    """
    given = {key: value for key, value in context.params.items() if key not in (*_NOT_SETTINGS, *without)}
    if "set_" in given:
        given["set"] = assignments(given.pop("set_"), "--set")
    return {key: value for key, value in given.items() if value not in (None, [], (), {})}


def assignments(pairs: list[str] | None, flag: str) -> dict[str, str]:
    """'key=value' words as a mapping; the last of a key counts.

    Raises:
        UsageError: a word has no '='.

    Example:
        >>> assignments(["basis=64", "encoder.hidden=32"], "--set")
        {'basis': '64', 'encoder.hidden': '32'}
    """
    from streamgp.errors import UsageError

    found: dict[str, str] = {}
    for pair in pairs or []:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"{flag} {pair!r} is not key=value", hint=f"write {flag} basis=512")
        found[key.strip()] = value.strip()
    return found
