"""What a table says in a report: its rows over time, its gaps, missing values and quarantine, and its inputs."""

from __future__ import annotations

from pathlib import PurePosixPath

import numpy as np
import polars as pl
import pyarrow as pa

from streamgp.windows.rows import times as clock_times
from streamgp.windows.windows import WindowSpec
from streamgp_data.moments import Moments
from streamgp_data.numbers import spoken
from streamgp_data.quarantine import Quarantine
from streamgp_data.table import SEQ
from streamgp_data.table import Table as Stored
from streamgp_pipelines.reporting.fans import stamps
from streamgp_pipelines.reporting.figures import bars
from streamgp_pipelines.reporting.page import Figure, HtmlTable, Section

BARS = 60
LONGEST = 10
"""Gaps and newest rows of the quarantine that are listed."""
GAP = 1.5
"""Intervals from which on a row counts as missing."""
INPUT_ROWS = 1_000_000
"""Newest rows whose inputs are read."""


def read_times(table: Stored, spec: WindowSpec) -> pl.DataFrame:
    """unique_id and ns (or steps) of every row, in the order of the table. Memory: 12 bytes a row."""
    names = [name for name in (spec.time, spec.series) if name is not None]
    parts = [_keys(chunk.rows, spec) for chunk in table.read({}, names or spec.targets[:1])]
    return pl.concat(parts) if parts else pl.DataFrame(schema={"unique_id": pl.Categorical, "ns": pl.Int64})


def read_inputs(table: Stored, spec: WindowSpec, moments: Moments) -> pl.DataFrame:
    """unique_id, ds and the columns that windows look at; the newest INPUT_ROWS rows."""
    since = max(table.rows - INPUT_ROWS, 0)
    keys = [name for name in (spec.time, spec.series) if name is not None]
    parts, seen = [], since
    for chunk in table.read({SEQ: since}, [*keys, *spec.columns]):
        values = pl.DataFrame(pl.from_arrow(chunk.rows.select(list(spec.columns))))
        found = _keys(chunk.rows, spec, seen)
        parts.append(values.with_columns(found["unique_id"].cast(pl.String), moments.write(found["ns"]).alias("ds")))
        seen += chunk.rows.num_rows
    return pl.concat(parts)


def _keys(rows: pa.RecordBatch, spec: WindowSpec, before: int = 0) -> pl.DataFrame:
    if spec.time is None:
        ns = pl.int_range(before, before + rows.num_rows, eager=True)
    else:
        ns = pl.Series(clock_times(rows, spec.time))
    if spec.series is None:
        name = pl.repeat("+".join(spec.targets), rows.num_rows, eager=True)
    else:
        name = pl.Series(pl.from_arrow(rows.column(spec.series))).cast(pl.String)
    return pl.DataFrame({"unique_id": name.cast(pl.Categorical), "ns": ns})


def table_section(table: Stored, times: pl.DataFrame, spec: WindowSpec, moments: Moments) -> Section:
    """Rows over time, the longest gaps, missing values, and the quarantine."""
    parts: list[HtmlTable | Figure] = []
    said = [f"{table.rows:,} rows of the table {PurePosixPath(table.path).name}."]
    if spec.time is not None and times.height:
        parts.append(_rows_over_time(times, moments))
        gaps = find_gaps(times, spec)
        said.append(f"{gaps.height:,} gap{'s' * (gaps.height > 1)}." if gaps.height else "No gaps.")
        if gaps.height:
            longest = gaps.sort("length", descending=True).head(LONGEST).sort("from")
            begin, end = (stamps(moments.write(longest[name]), moments) for name in ("from", "to"))
            length = [_long(value, moments) for value in longest["length"]]
            rows = [list(row) for row in zip(longest["unique_id"].cast(pl.String), begin, end, length, strict=True)]
            note = f"The {LONGEST} longest of {gaps.height:,}." if gaps.height > LONGEST else ""
            parts.append(HtmlTable("Gaps", ["series", "last row before", "first row after", "length"], rows, note))
    missing = np.zeros(len(spec.columns), np.int64)
    for chunk in table.read({}, spec.columns):
        missing += np.array([chunk.rows.column(name).null_count for name in spec.columns])
    if missing.any():
        rows = [[name, int(count)] for name, count in zip(spec.columns, missing, strict=True) if count]
        parts.append(HtmlTable("Missing values", ["column", "rows"], rows))
    quarantine = Quarantine(table)
    reasons = sorted(quarantine.reasons().items())
    if reasons:
        parts.append(HtmlTable("Quarantine", ["reason", "rows"], [list(reason) for reason in reasons]))
        names = ["line", "reason", "column", "detail"]
        newest = [[str(row["line"]), *(row[name] for name in names[1:])] for row in quarantine.newest(LONGEST)]  # type: ignore[index,call-overload]
        parts.append(HtmlTable("Newest rows in the quarantine", names, newest))
    else:
        said.append("The quarantine is empty.")
    return Section("Rows, gaps and quarantine", parts, " ".join(said))


def find_gaps(times: pl.DataFrame, spec: WindowSpec) -> pl.DataFrame:
    """unique_id, from, to and length (ns or steps) of the intervals of more than GAP declared ones, or, where none is
    declared, medians of their series: those that `describe` counts."""
    steps = times.with_columns(pl.col("ns").shift(1).over("unique_id").alias("from"))
    steps = steps.with_columns(length=pl.col("ns") - pl.col("from")).filter(pl.col("length") >= 0)
    if spec.every_ns is not None:
        usual = pl.lit(float(spec.every_ns))
    else:
        usual = pl.col("length").quantile(0.5, "lower").over("unique_id").cast(pl.Float64)
    found = steps.filter(pl.col("length") > GAP * usual)
    return found.select("unique_id", "from", pl.col("ns").alias("to"), "length")


def _rows_over_time(times: pl.DataFrame, moments: Moments) -> Figure:
    low, high = int(times["ns"].min()), int(times["ns"].max())  # type: ignore[arg-type]
    edges = np.linspace(low, high + 1, BARS + 1)
    counts = np.histogram(times["ns"].to_numpy(), edges)[0]
    middles = stamps(moments.write(((edges[:-1] + edges[1:]) / 2).astype(np.int64)), moments)
    drawn = {"rows": (middles, counts.astype(float).tolist())}
    return bars("Rows of the table over time", drawn, moments.label, "rows", shape="wide")


def _long(value: int, moments: Moments) -> str:
    return spoken(value * 1e-9) if moments.clock else f"{value:,} steps"
