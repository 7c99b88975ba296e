"""`streamgp serve`: forecasts over HTTP, learned while they are served."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from streamgp_cli.options import AsJson, Given

if TYPE_CHECKING:
    from streamgp_pipelines.config import ServeConfig


def serve(given: Given[ServeConfig], json: AsJson = False) -> None:
    """Answer over HTTP with forecasts, and learn the rows it is sent.

    Checkpoints of train --online continue to learn. Once a row is answered it is in
    the table, and it is learned once, also after a kill. The address shows a live
    page; /openapi.json describes the API.

    \b
    Examples:
      streamgp serve --checkpoint day-ahead
      streamgp serve --checkpoint day-ahead --checkpoint week-ahead --port 8080
      streamgp serve --model-uri models:/demand-demand_gw-h48@champion
      streamgp serve --checkpoint day-ahead --host 0.0.0.0 --token-file token
      streamgp serve --checkpoint meters --source 'mqtt://localhost/meters/#'
      curl -s http://127.0.0.1:8000/rows -H 'Content-Type: application/json' \\
          -d '{"rows": [{"ds": "2026-01-01T00:30", "y": 1.5}]}'
      curl -s 'http://127.0.0.1:8000/forecast?horizon=2&level=80'
    """
    from streamgp.errors import UsageError
    from streamgp_cli._output import print_json, warn
    from streamgp_cli._systemd import notify
    from streamgp_cli.signals import working
    from streamgp_pipelines.live.garbage import collect_seldom

    settings = given.read()
    try:
        from streamgp_pipelines.adapters.web.server import run
    except ModuleNotFoundError as error:
        hint = "pip install 'streamgp[serve]'"
        raise UsageError(f"streamgp serve needs the package {error.name}", hint=hint) from None

    def begun(about: dict[str, object]) -> None:
        warnings = about["warnings"]
        assert isinstance(warnings, list)
        if json:
            print_json(about)
        else:
            warn(warnings)
            token = f"; clients need the token in {about['token_file'] or 'STREAMGP_TOKEN'}" if about["token"] else ""
            print(f"open {about['url']}   (Ctrl-C ends it){token}")
        sys.stdout.flush()
        notify(READY="1", STATUS=f"{about['url']}")

    if settings.source is not None:
        collect_seldom()
    working()
    run(settings, begun, lambda news: warn([news]))
