"""Options that are found from the data: seasons and the calendar, and with them the micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pyarrow.compute as pc

from streamgp.windows import seasons as calendar
from streamgp.windows.calendar import DAY
from streamgp.windows.windows import WindowSpec
from streamgp_data.checkpoint import Saved
from streamgp_data.table import TableMeta
from streamgp_pipelines.config import DataConfig, RunConfig, TrainConfig, micro_batch
from streamgp_pipelines.learning.restored import recipe_of
from streamgp_pipelines.learning.warmup import has_begun
from streamgp_pipelines.learning.whole import span
from streamgp_pipelines.seasons import ROWS, Spacing, confirmed, in_rows, of_clock, proposed, spacing

if TYPE_CHECKING:
    from streamgp_pipelines.learning.survey import Survey

Config = TypeVar("Config", bound=DataConfig)


PANEL_BATCH = 2048
"""Rows of a micro-batch of a panel at most, by default."""

FOUND = ("clock", "auto")
"""Seasons that are left to the data."""
CLOCK_ROWS = 12
"""Rows of a series that say how far apart its rows are, where that is not declared: no model forecasts before."""


def with_seasons(config: Config, survey: Survey, saved: Saved | None = None) -> Config:
    """The options with the seasons that lengths of time, `--season clock` or `auto` stand for, by the first rows of the
    table.

    Where the table is followed it has the day at least, as the run may begin before there are many rows. A run that
    continues keeps those of its checkpoint.

    Raises:
        UsageError: a length of time is no whole number of rows.
    """
    if not isinstance(config.season, str):
        return config
    if config.season not in FOUND:
        survey.look()
        return config.model_copy(update={"season": in_rows(config.season, survey.opening, survey.table.meta)})
    if saved is not None:
        return config.model_copy(update={"season": recipe_of(saved).spec.seasons})
    if not _are_found(config):
        return config.model_copy(update={"season": ()})
    survey.look()
    look = proposed if config.season == "auto" else of_clock
    found = look(survey.opening, survey.table.meta, survey.spec.targets[0], alone=_follows(config))
    return config.model_copy(update={"season": found})


def clock_of(config: DataConfig, survey: Survey, saved: Saved | None = None) -> tuple[int, ...]:
    """Rows in a day and a week of the table's clock, where one season is named, which may be that week; else (). A run
    that continues keeps those of its checkpoint."""
    if isinstance(config.season, str) or len(config.season) != 1:
        return ()
    if saved is not None:
        return recipe_of(saved).spec.seasons
    survey.look()
    return spacing(survey.opening, survey.table.meta, survey.spec.targets[0])[1].seasons()


def with_calendar(config: Config, survey: Survey, saved: Saved | None = None) -> Config:
    """The options with the calendar, where that is left to the data: of rows a day or more apart, which are too few to
    hold a year several times, and where nights or weekends have no rows, so that seasons of rows slip at each holiday.
    A run that continues keeps that of its checkpoint."""
    if config.calendar is not None:
        return config
    if saved is not None:
        return config.model_copy(update={"calendar": recipe_of(saved).spec.calendar})
    if config.lags == 0 or _looks_at_none(config) or not _has_clock(survey.table.meta):
        return config
    survey.look()
    _, apart = spacing(survey.opening, survey.table.meta, survey.spec.targets[0])
    slow = apart.months > 0 or (apart.every or 0) >= DAY
    return config.model_copy(update={"calendar": slow or any(apart.counted)})


def undecided(config: DataConfig, survey: Survey) -> bool:
    """Whether the first rows of a table that is followed are too few to say which seasons its clock has, whether the
    calendar says something, or of how many series it is."""
    meta, most = survey.table.meta, getattr(config, "max_rows", None) or ROWS
    declared = meta.every_ns is not None and meta.series is None
    week = not isinstance(config.season, str) and len(config.season) == 1  # it may be: see `clock_of`
    times = config.calendar is None and config.lags != 0 and not _looks_at_none(config)
    left = week or times or _are_found(config)
    if not left or not _follows(config) or not _has_clock(meta) or declared:
        return False
    survey.look()
    if (opening := survey.opening) is None:
        return True
    names = None if meta.series is None else opening.column(meta.series)
    rows = opening.num_rows if names is None else pc.max(pc.value_counts(names).field("counts")).as_py()
    return bool(rows < CLOCK_ROWS and opening.num_rows < min(most, ROWS))


def notes(config: DataConfig, spec: WindowSpec, survey: Survey, warmup: int, goes_on: bool, stays: bool) -> list[str]:
    """Notes on the seasons of an online run that leaves them to the data.

    Args:
        config: as it was given.
        spec: the windows, with the seasons that were taken.
        survey: of the table.
        warmup: rows of warm-up.
        goes_on: whether they are those of a checkpoint.
        stays: whether they are taken for good even where there is no row.
    """
    meta = survey.table.meta
    if not (isinstance(config, TrainConfig) and config.online and _are_found(config) and _has_clock(meta)):
        return []
    rows, apart = spacing(survey.opening, meta, spec.targets[0])
    clock, shown = apart.seasons(), apart.seasons(rows)
    named = ",".join(map(str, clock))
    if goes_on:
        if len(spec.seasons) >= len(shown):
            return []
        has = f"the season {spec.seasons[0]} alone" if spec.seasons else "no season"
        return [f"this run has {has}, as there were too few rows when it began: --fresh begins again with {named}"]
    if config.follow and clock and spec.seasons == clock[:1] and not shown:
        enough, first = calendar.PERIODS * clock[0], max(warmup, span(spec))
        week = f"; --season {named} looks at the week too, and begins after it" if len(clock) > 1 else ""
        return [
            f"the season, {clock[0]} rows, is that of the clock, with {rows:,} of the {enough:,} rows that show it: "
            f"the first {first:,} are warm-up; --season none forecasts sooner{week}"
        ]
    if spec.seasons or not (rows or stays):
        return []
    if clock:
        return [
            f"no season is looked at, with {rows:,} of the {calendar.PERIODS * clock[0]:,} rows that show one; "
            f"--season {named} looks at these all the same"
        ]
    if apart == Spacing(None) and (config.follow or rows < CLOCK_ROWS):
        few = "there are too few rows to say how far apart they are"
        why = few if rows < CLOCK_ROWS else "rows are not one interval apart"
        return [f"no season is looked at, as {why}; --season 24,168 names the day and the week of hours"]
    return []


def of_no_row(saved: Saved, meta: TableMeta) -> list[str]:
    """Notes on a service that begins with a checkpoint of an empty table, and keeps its seasons."""
    spec = recipe_of(saved).spec
    if has_begun(saved) or spec.seasons or not spec.lags or not _has_clock(meta):
        return []
    return [
        f"no season is looked at, as {saved.path.parent} was made before there was a row; train --follow, or --season "
        "24,168 for the day and the week of hours, makes one that does"
    ]


def _are_found(config: DataConfig) -> bool:
    """Whether seasons are left to the data."""
    named = "season" in config.model_fields_set
    return config.season in FOUND and config.lags != 0 and (named or not _looks_at_none(config))


def _has_clock(meta: TableMeta) -> bool:
    return meta.time is not None and meta.clock


def _follows(config: DataConfig) -> bool:
    return isinstance(config, TrainConfig) and config.follow


def _looks_at_none(config: DataConfig) -> bool:
    """Whether a run has no season unless one is named: a fleet, each of whose models would be far larger, and a
    simulation, which looks back on its own output."""
    return isinstance(config, TrainConfig) and (config.fleet or config.simulate is not None)


def with_batch(config: Config, survey: Survey, saved: Saved | None = None) -> Config:
    """The options with the micro-batch, where none was given: that of a panel depends on its series."""
    if not isinstance(config, RunConfig) or "batch" in config.model_fields_set:
        return config
    if saved is not None:
        return config.model_copy(update={"batch": recipe_of(saved).schedule.batch})
    batch, alone = micro_batch(config.season), isinstance(config, TrainConfig) and config.fleet
    if config.season and survey.table.meta.series is not None and not alone:  # as many steps of each series
        batch = min(max(batch * survey.count, 256), PANEL_BATCH)
    return config.model_copy(update={"batch": batch})


def overlooked(survey: Survey) -> list[str]:
    """Notes on a run that uses no season by default, and whose target shows one."""
    target = survey.spec.targets[0]
    named = ",".join(map(str, confirmed(survey.opening, survey.table.meta, target)))
    if not named:
        return []
    return [f"{target} shows a season, and none is named: --season {named} lets the model look one season back"]
