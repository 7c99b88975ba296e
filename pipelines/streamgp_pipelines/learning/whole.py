"""Why no window of a table is complete, and how to get one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from streamgp.errors import DataError
from streamgp.windows.windows import Windows, WindowSpec

if TYPE_CHECKING:
    from streamgp_pipelines.learning.survey import Survey


ENOUGH = 20
"""Values of a target that say something about it when they are all the same."""


class NoNewestWindow(DataError):
    """No forecast is possible at the newest rows."""


def span(spec: WindowSpec) -> int:
    """Rows of a series up to the end of its first whole window."""
    window = spec.lags + spec.horizon if spec.lags else 1
    return window + (spec.season if spec.season > 1 else 0)


def check_span(survey: Survey, spec: WindowSpec) -> None:
    """Check that a series of the table is as long as a window; a table without rows may still get some.

    Raises:
        DataError: none is.
    """
    if survey.table.rows and max(survey.series.values(), default=0) < span(spec):
        raise DataError("no window of the table can be whole: there is nothing to learn", hint=advice(survey, spec))


def first_windows(survey: Survey, spec: WindowSpec, rows: int) -> int:
    """Windows of the first rows of a table that teach something; 0 where that depends on its gaps (gaps="reset")."""
    if survey.opening is None or (spec.lags and spec.gaps == "reset"):
        return 0
    part = survey.opening.slice(0, rows)
    known = reduce(pc.or_, [part.column(name).is_valid() for name in spec.targets])
    series = 1 if spec.series is None else pc.count_distinct(part.column(spec.series), mode="all").as_py()
    found = int(known.to_numpy(zero_copy_only=False).sum())
    return max(found - series * (span(spec) - 1), 0)


def without_values(columns: Sequence[str]) -> str:
    """The hint for columns that have no value in any row; "" where there are none."""
    return f"no row has a value of {' or '.join(map(repr, columns))}: use another column" if columns else ""


def without_changes(survey: Survey) -> list[str]:
    """The hint for targets that have a single value, in the rows read so far, if these are enough to say."""
    found, several = [], len(survey.spec.targets) > 1
    for name, (value, count) in survey.same.items():
        if count >= ENOUGH:
            which = "all" if survey.whole else "the first"
            what = ", and the scores of all targets count it too: leave it out" if several else ": use another column"
            found.append(
                f"{which} {count:,} values of the target {name!r} are {value:g}: there is nothing to forecast{what}"
            )
    return found


def check_columns(survey: Survey) -> None:
    """Check that every column has a value in some row of the table.

    Raises:
        DataError: one has none.
    """
    if nothing := without_values(survey.empty):
        raise DataError("a column has no values", hint=nothing)


def no_newest_window(windows: Windows) -> NoNewestWindow:
    """The error that no forecast is possible at the newest rows, with a hint when it will be."""
    why = (
        "a gap or a missing value is too near: wait for more rows, or train with --gaps fill"
        if windows.spec.gaps == "reset"
        else "the series are too short, or their targets have no value in a window or a season: wait for more rows"
    )
    if windows.late:
        why += (
            f"; {windows.late} rows were left out, for they came after a newer one: if its time is wrong, ingest the "
            "source into a new table with --max-ahead 1d, or without that row"
        )
    return NoNewestWindow("no series has a whole window at its newest row", hint=why)


def advice(survey: Survey, spec: WindowSpec, wanted: int = 1) -> str:
    """The hint where fewer than `wanted` windows of the table are complete."""
    rows = survey.series
    most, long = max(rows.values(), default=0), span(spec)
    if not most:
        return "it has no rows yet: ingest some"
    if nothing := without_values(survey.empty):
        return nothing
    if sum(max(count - long + 1, 0) for count in rows.values()) < wanted:
        whose = "the table" if spec.series is None else "the longest series"
        return (
            f"a window takes {long} rows (lags, season and horizon), and {whose} has {most}: "
            "use fewer --lags, a shorter --season or a shorter --horizon"
        )
    return "look for gaps and missing values with streamgp describe; use fewer --lags, or --gaps fill"
