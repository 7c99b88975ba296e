"""The alarms of a run in its report: newest values, their bands one step ahead, and the rows that raised one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import polars as pl

from streamgp.forecasting.alarms import KINDS
from streamgp_data.moments import Moments
from streamgp_pipelines.learning.frames import percent
from streamgp_pipelines.learning.predictions import SILENT
from streamgp_pipelines.reporting.fans import stamps, stretches, usual_step
from streamgp_pipelines.reporting.figures import COLOURS, rounded
from streamgp_pipelines.reporting.page import Figure, HtmlTable, Section

NEWEST = 20
"""Alarms that are listed."""
_FILLED = {"fill": "tonexty", "fillcolor": "rgba(0,114,178,0.2)"}
_VALUE = {"mode": "lines", "line": {"color": "#000000", "width": 1.3}}
SYMBOLS = {"anomaly": "x-thin-open", "change": "diamond-open", "stuck": "square-open"}


def alarm_section(
    judged: pl.DataFrame,
    raised: pl.DataFrame,
    counts: Mapping[str, Any],
    model: str,
    level: float,
    moments: Moments,
    y: str,
) -> Section:
    """A figure of each series and the list of the newest alarms.

    Args:
        judged, raised: its frame `judged`, and the alarms, of `NewestScored`.
        counts: how many alarms there were, of how many rows, and the nominal rate.
        model: prefix of the columns. level: the widest band, in percent.
        moments: how times are written.
        y: what the axis of values is called, where there is one target.
    """
    keys = [name for name in ("unique_id", "target") if name in judged.columns]
    parts: list[Figure | HtmlTable] = []
    for panel in judged.select(keys).unique(maintain_order=True).iter_rows(named=True):
        name = " · ".join(str(part) for part in panel.values())
        parts.append(_figure(judged.filter(**panel), name, model, level, moments, panel.get("target") or y))
    newest = raised.tail(NEWEST).reverse()
    if newest.height:
        keys = [name for name in keys if pl.concat([judged[name], raised[name]]).n_unique() > 1]
        rows = zip(
            stamps(newest["ds"], moments),
            *(newest[name].to_list() for name in keys),
            _words(newest, moments),
            *(newest[name].to_list() for name in ("y", "forecast", "p")),
            strict=True,
        )
        heads = [
            "time",
            *("series" if name == "unique_id" else name for name in keys),
            "alarm",
            "value",
            "forecast",
            "p",
        ]
        note = f"The newest {NEWEST}." if raised.height > NEWEST else ""
        parts.append(HtmlTable("Newest alarms", heads, [list(row) for row in rows], note))
    said = ", ".join(f"{kind} {counts[kind]:,}" for kind in (*KINDS, SILENT))
    note = f"{said}, of {counts['rows']:,} values; nominal rate {counts['rate']:g}. Bands are those of one step ahead."
    return Section("Alarms", parts, note[0].upper() + note[1:])


def _words(raised: pl.DataFrame, moments: Moments) -> list[str]:
    """The kind of each alarm, and since when a silent target has had no value."""
    since, kinds, ticks = raised["since"], raised["alarm"].to_list(), raised["ticks"].to_list()
    at = iter(stamps(since.drop_nulls(), moments))
    return [
        kind if many is None else f"{kind} since {next(at)} ({many:,} ticks)"
        for kind, many in zip(kinds, ticks, strict=True)
    ]


def _figure(own: pl.DataFrame, name: str, model: str, level: float, moments: Moments, y: str) -> Figure:
    """Values, their bands and a marker at each alarm, by kind."""
    at = stamps(own["ds"], moments)
    low, high, truth = ([rounded(v) for v in own[column]] for column in (*_ends(model, level), "y"))
    edge = {"mode": "lines", "line": {"color": COLOURS[0], "width": 0.8}, "hoverinfo": "skip"}
    cuts, data = stretches(own["ds"], usual_step(own["ds"])), list[dict[str, Any]]()
    for begin, end in pairwise([0, *cuts, own.height]):
        part, first = slice(begin, end), not begin
        kept = {"x": at[part], "showlegend": first}
        data.append(kept | {"y": low[part], "name": f"low {percent(level)} %", "showlegend": False} | edge)
        data.append(kept | {"y": high[part], "name": f"{percent(level)} %"} | _FILLED | edge)
        data.append(kept | {"y": truth[part], "name": "value"} | _VALUE)
    counts = []
    for place, kind in enumerate(KINDS):
        hit = [row for row, text in enumerate(own["alarm"]) if text is not None and kind in text.split("+")]
        marker = {"symbol": SYMBOLS[kind], "size": 12, "color": COLOURS[place + 1], "line": {"width": 2.5}}
        points = {"x": [at[row] for row in hit], "y": [truth[row] for row in hit]}
        data.append(points | {"name": kind, "mode": "markers", "marker": marker, "showlegend": bool(hit)})
        counts.append(f"{len(hit)} {kind}")
    alt = (
        f"The newest {own.height:,} values of {name} with their {percent(level)} % bands; alarms: {', '.join(counts)}."
    )
    layout = {"xaxis": {"title": {"text": moments.label}}, "yaxis": {"title": {"text": y}}}
    return Figure(f"Newest values and alarms of {name}", alt, data, layout, shape="wide")


def _ends(model: str, level: float) -> tuple[str, str]:
    return f"{model}-lo-{percent(level)}", f"{model}-hi-{percent(level)}"
