"""`streamgp describe`: what is in a table, or in a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgp_cli._options import AsJson, Debug


def describe(
    table: Annotated[Path | None, typer.Option(help="Table that ingest made.", metavar="DIR")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Checkpoint of a training run.", metavar="DIR")] = None,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show what is in a table or in a checkpoint.

    \b
    Examples:
      streamgp describe --table demand
      streamgp describe --checkpoint checkpoint --json
    """
