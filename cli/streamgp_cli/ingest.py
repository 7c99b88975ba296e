"""`streamgp ingest`: files into a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgp_cli._options import AsJson, ConfigFile, Debug, flags, option

if TYPE_CHECKING:
    from streamgp_pipelines.ingestion.ingest import IngestProgress

TABLE, TEXT, HOW = "Table", "Text files", "Processing"


def ingest(
    context: typer.Context,
    source: Annotated[
        list[str] | None,
        typer.Argument(help="Files, directories, globs, or - for standard input.", show_default=False),
    ] = None,
    table: Annotated[str | None, option(TABLE, "Directory of the table; made when missing.", metavar="DIR")] = None,
    time: Annotated[
        str | None,
        option(
            TABLE,
            "Time column, or row for rows without an order; default: ds, or the only time column.",
            metavar="COL|row",
        ),
    ] = None,
    series: Annotated[
        str | None,
        option(TABLE, "Column that names the series; default: unique_id, else a single series.", metavar="COL"),
    ] = None,
    time_format: Annotated[
        str | None,
        option(
            TABLE,
            "iso, epoch-s, -ms, -us, -ns, elapsed-s ..., step, or such as '%d.%m.%Y %H:%M'; default: detected.",
            metavar="FORMAT",
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        option(
            TABLE,
            "Time zone of times without an offset: an IANA name or +10:00; default: none. A repeated hour is first the "
            "earlier instant, then the later one; a skipped hour goes to the quarantine.",
            metavar="ZONE",
        ),
    ] = None,
    every: Annotated[
        str | None,
        option(TABLE, "Interval between rows, such as 30m; never resamples; default: none.", metavar="INTERVAL"),
    ] = None,
    tolerance: Annotated[
        str | None,
        option(
            TABLE,
            "For a clock that jitters: a row this near to a whole number of intervals after the row before it is on "
            "the grid; default: intervals are counted from the first row.",
            metavar="INTERVAL",
        ),
    ] = None,
    format: Annotated[
        str | None, option(TEXT, "csv, jsonl, parquet or arrow; default: by the suffix.", metavar="FORMAT")
    ] = None,
    separator: Annotated[str | None, option(TEXT, "Field separator; default: detected.", metavar="SIGN")] = None,
    decimal: Annotated[str | None, option(TEXT, "Decimal sign; default: detected.", metavar=".|,")] = None,
    thousands: Annotated[
        str | None,
        option(
            TEXT,
            "Thousands separator; default: detected where a cell is like 1,234.5.",
            metavar="SIGN",
        ),
    ] = None,
    encoding: Annotated[
        str | None, option(TEXT, "Text encoding, such as utf-8 or latin-1; default: detected.", metavar="NAME")
    ] = None,
    null: Annotated[
        list[str] | None,
        option(TEXT, "Text of a missing value, repeatable; default: empty, NA, N/A, NaN, null, None.", metavar="TEXT"),
    ] = None,
    max_line: Annotated[
        str | None,
        option(
            TEXT,
            "Longest line to read, such as 64MB; a longer one goes to the quarantine, truncated; default: 16MB.",
            metavar="SIZE",
        ),
    ] = None,
    as_name: Annotated[
        str | None,
        option(
            HOW,
            "Identify the source by this name instead of its path.",
            metavar="NAME",
            names="--as",
        ),
    ] = None,
    final: Annotated[
        bool | None,
        option(
            HOW,
            "The files are complete: read a last line without a newline, which may be half a line; default: no.",
            names="--final/--no-final",
        ),
    ] = None,
    repair: Annotated[
        bool | None,
        option(
            HOW,
            "If half a line was ingested: replace its row by the whole line; default: no.",
            names="--repair/--no-repair",
        ),
    ] = None,
    sort: Annotated[
        bool | None,
        option(HOW, "Sort the new rows of a source by time, in memory; default: no.", names="--sort/--no-sort"),
    ] = None,
    follow: Annotated[
        bool | None, option(HOW, "Wait for new rows until interrupted; default: no.", names="--follow/--no-follow")
    ] = None,
    poll: Annotated[
        float | None, option(HOW, "Seconds between two checks with --follow; default: 1.", metavar="SECONDS")
    ] = None,
    dry_run: Annotated[
        bool | None,
        option(HOW, "Print what would be done, write nothing; default: no.", names="--dry-run/--no-dry-run"),
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Append the rows of files to a table, each row once.

    The same file again adds nothing; a file that has grown adds its new rows.
    Rows that cannot be read go to the table's quarantine with the reason.

    \b
    Examples:
      streamgp ingest demand.csv --table demand
      streamgp ingest 'logs/*.csv.gz' --table drive --time t \\
          --time-format epoch-ms --every 10ms
      streamgp ingest kin40k.parquet --table kin40k --time row
      tail -f feed.jsonl | streamgp ingest - --table feed --as feed --follow
    """
    from streamgp_cli._lean import leave_pandas_out

    leave_pandas_out()
    from streamgp.base import Progress
    from streamgp_cli._output import only_our_output, print_json
    from streamgp_cli._progress import Reporter
    from streamgp_pipelines.ingestion.ingest import IngestConfig
    from streamgp_pipelines.ingestion.ingest import ingest as run

    settings = IngestConfig.read(flags(context), config)
    with only_our_output(), Reporter(quiet=json) as reporter:

        def progress(now: IngestProgress) -> None:
            aside = f", {now.quarantined:,} quarantined" if now.quarantined else ""
            reporter(Progress("ingest", now.rows, None, f"{now.source}{aside}"))

        found = run(settings, progress)
    if json:
        print_json(found)
    else:
        _print(found)
    hints: Any = found["hints"]
    for hint in hints:
        typer.echo(f"note: {hint}", err=True)


def _print(found: dict[str, Any]) -> None:
    """Print the state of every source, and of the table."""
    from streamgp_cli._output import print_pairs, print_table

    columns = ["source", "state", "added", "quarantined", "late", "waiting"]
    print_table(columns, [[source[name] for name in columns] for source in found["sources"]])
    names = ("table", "rows", "table_version", "quarantined", "seconds", "rows_per_second", "peak_mb")
    print_pairs({name: found[name] for name in names})
