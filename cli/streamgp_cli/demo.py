"""`streamgp demo`: the whole road on real data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgp_cli._options import AsJson, Debug


def demo(
    directory: Annotated[Path, typer.Option(help="Where everything is written.", metavar="DIR")] = Path(
        "streamgp-demo"
    ),
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Ingest, train and forecast on bundled real data.

    \b
    Examples:
      streamgp demo
      streamgp demo --directory /tmp/demo
    """
