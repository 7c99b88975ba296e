"""`streamgp ingest`: files into a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamgp_cli._log import say
from streamgp_cli.options import AsJson, Given

if TYPE_CHECKING:
    from streamgp_data.ingestion.ingest import IngestProgress
    from streamgp_pipelines.config import IngestConfig


def ingest(given: Given[IngestConfig], json: AsJson = False) -> None:
    """Append the rows of files or messages to a table, each row once.

    The same file again adds nothing; a file that has grown adds its new rows.
    Rows that cannot be read go to the table's quarantine with the reason.

    \b
    Examples:
      streamgp ingest demand.csv --table demand
      streamgp ingest 'logs/*.csv.gz' --table drive --time t \\
          --time-format epoch-ms --every 10ms
      streamgp ingest kin40k.parquet --table kin40k --time row
      tail -f feed.jsonl | streamgp ingest - --table feed --as feed --follow
      streamgp ingest 'mqtt://localhost/meters/#' --table meters --follow
    """
    from streamgp_cli._lean import leave_pandas_out

    leave_pandas_out()
    from streamgp.base import Progress
    from streamgp_cli._health import watched
    from streamgp_cli._output import only_our_output, print_json, warn
    from streamgp_cli._progress import Reporter
    from streamgp_data.ingestion.ingest import ingest as run
    from streamgp_data.ingestion.report import check_share
    from streamgp_data.messages import is_feed

    settings = given.read()
    with (
        only_our_output(),
        watched(settings.follow, settings.metrics, json) as health,
        Reporter(quiet=json) as reporter,
    ):

        def progress(now: IngestProgress) -> None:
            aside = f", {now.quarantined:,} quarantined" if now.quarantined else ""
            reporter(Progress("ingest", now.rows, None, f"{now.source}{aside}"))

        live = is_feed(settings.source[0])
        if live:
            from streamgp_pipelines.live.follow import follow
            from streamgp_pipelines.live.garbage import collect_seldom

            collect_seldom()
            found = follow(settings, progress, lambda news: warn([news]), health=health)
        else:
            found = run(settings, progress, health=health, say=lambda news: warn([news]))
    if json:
        print_json(found)
    else:
        _print(found)
    hints: Any = found["hints"]
    for hint in hints:
        say("note", hint)
    if not live:
        check_share(settings, found)


def _print(found: dict[str, Any]) -> None:
    """Print the state of every source, and of the table."""
    from streamgp_cli._output import print_pairs, print_table

    dry = all("would_add" in source for source in found["sources"])
    added = "would_add" if dry else "added"
    columns = ["source", "state", added, "quarantined", "late", "waiting"]
    print_table(columns, [[source.get(name, 0) for name in columns] for source in found["sources"]])
    names = (
        "table",
        "rows",
        "table_version",
        "read",
        added,
        "quarantined",
        "versions",
        "seconds",
        "rows_per_second",
        "peak_mb",
    )
    pairs = found | {"would_add": sum(source.get("would_add", 0) for source in found["sources"])}
    print_pairs({name: pairs[name] for name in names if not (dry and name == "rows_per_second")})
