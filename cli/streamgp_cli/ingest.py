"""`streamgp ingest`: files into a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgp_cli._options import AsJson, ConfigFile, Debug


def ingest(
    context: typer.Context,
    source: Annotated[list[str] | None, typer.Argument(help="Files.", show_default=False)] = None,
    config: ConfigFile = None,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Append the rows of files to a table."""
