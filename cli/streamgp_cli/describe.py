"""`streamgp describe`: what is in a file, in a table, or in a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamgp_cli.options import AsJson, Given

if TYPE_CHECKING:
    from streamgp_pipelines.config import DescribeConfig


def describe(given: Given[DescribeConfig], json: AsJson = False) -> None:
    """Show what is in a file, in a table or in a checkpoint.

    Of a file: columns, or the signals of a recording with rates, units, first and last times.
    Of a table: rows, series, columns, time span, interval, gaps, quarantined rows.
    Of a checkpoint: its options, its position in the table, its size.

    \b
    Examples:
      streamgp describe drive.mcap
      streamgp describe --table demand
      streamgp describe --checkpoint checkpoint --json
    """
    from streamgp_cli._lean import leave_pandas_out

    leave_pandas_out()
    from streamgp_cli._output import print_json, warn
    from streamgp_pipelines.state import describe as run

    found: dict[str, Any] = run(given.read())
    if json:
        print_json(found)
    else:
        warn(found.pop("warnings", []))
        _print(found)


_SHOWN = 20
"""Columns of a file that are listed where it has more than twice as many."""


def _print(found: dict[str, Any]) -> None:
    """Names and values; the columns of a table as a table of their own."""
    from streamgp_cli._output import print_pairs, print_table
    from streamgp_data.numbers import spoken

    columns, missing = found.pop("schema", []), found.pop("missing", {})
    aside = found.pop("newest_quarantined", [])
    lists = [found.pop(name, []) for name in ("columns", "signals")]
    still = {row["signal"]: row.pop("constant", None) for row in lists[1]}
    still = {name: value for name, value in still.items() if value is not None}
    lists[1] = [row for row in lists[1] if row["signal"] not in still]
    if still:
        first = ", ".join(f"{name} = {value:g}" for name, value in list(still.items())[:5])
        found["never change"] = f"{len(still):,} signals: {first}" + (", ... (all: --json)" if len(still) > 5 else "")
    nested = {name: found.pop(name) for name in [*found] if isinstance(found[name], dict)}
    series = nested.get("series", {})
    if len(series.get("names", ())) < series.get("count", 0):
        nested["series"] = series | {"names": [*series["names"], "..."]}
    if "interval" in nested:  # seconds are a float, steps are whole numbers
        pace = nested["interval"]
        nested["interval"] = {name: spoken(one) if isinstance(one, float) else one for name, one in pace.items()}
    if (dates := found.pop("span_dates", None)) is not None:  # numbers of an epoch have no separators
        found["span"] = [f"{number} ({date})" for number, date in zip(found["span"], dates, strict=True)]
    print_pairs(found)
    for name, values in nested.items():
        if values:
            print_pairs(values, name.replace("_", " ") + ":")
    if columns:
        rows = [[c["name"], c["type"], c["role"], c["unit"], missing.get(c["name"])] for c in columns]
        print_table(["column", "type", "role", "unit", "missing"], rows)
    for rows in lists:
        if rows:
            shown = [list(row.values()) for row in rows[: _SHOWN if len(rows) > 2 * _SHOWN else None]]
            more = [[f"... {len(rows) - len(shown):,} more (all: --json)", *[None] * (len(rows[0]) - 1)]]
            print_table(list(rows[0]), shown + more * (len(shown) < len(rows)))
    if aside:
        names = ["line", "reason", "column", "detail", "source"]
        print_table(["newest in quarantine: line", *names[1:]], [[row[name] for name in names] for row in aside])
