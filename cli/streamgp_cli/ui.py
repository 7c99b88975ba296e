"""`streamgp ui`: the runs in a browser."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from streamgp_cli.options import AsJson, Given
from streamgp_cli.signals import working

if TYPE_CHECKING:
    from streamgp_pipelines.config import UiConfig


def ui(given: Given[UiConfig], json: AsJson = False) -> None:
    """Serve the MLflow UI until Ctrl-C.

    The printed address shows the runs of the latest experiment, with their
    scores as columns (the saved view "Scores").

    \b
    Examples:
      streamgp ui
      streamgp ui --tracking-uri sqlite:////data/mlflow.db --port 5001
    """
    from streamgp.errors import ServiceError, UsageError
    from streamgp.redaction import redacted, without_user
    from streamgp_cli._output import print_json
    from streamgp_pipelines.adapters.mlflow.server import answers, front_page, mlflow_ui
    from streamgp_pipelines.adapters.mlflow.store import store_uri, tracked

    settings = given.read()
    if not tracked(settings.tracking_uri):
        raise UsageError(
            "--tracking-uri none: there is no store to show",
            hint="name the store that train was given, or leave it out",
        )
    uri = store_uri(settings.tracking_uri)

    def show(server: str, message: str) -> None:
        page = front_page(server)
        if json:
            print_json({"url": page, "server": server, "tracking_uri": redacted(uri)})
        else:
            print(message.format(page))
        sys.stdout.flush()  # before the command waits for the server

    if uri.startswith(("http://", "https://")):
        server = without_user(uri)  # the browser asks for them
        if not answers(server):
            raise ServiceError(f"the tracking server {server} does not answer", hint="check that it runs")
        return show(server, "the tracking server has its own UI: open {}")
    if not json:
        typer.echo(f"starting the MLflow UI on {redacted(uri)} ...", err=True)
    working()  # an interruption must end the server too
    with mlflow_ui(uri, settings.host, settings.port) as (url, process):
        show(url, "open {}   (Ctrl-C ends it)")
        code = process.wait()
    raise ServiceError(f"the MLflow server ended with exit code {code}", hint="start it again")
