"""Options that are left to the data: seasons, and with them the micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from streamgp_data.checkpoint import Saved
from streamgp_pipelines.config import DataConfig, RunConfig, TrainConfig, micro_batch
from streamgp_pipelines.learning.restored import recipe_of
from streamgp_pipelines.seasons import confirmed, in_rows, of_clock, proposed

if TYPE_CHECKING:
    from streamgp_pipelines.learning.survey import Survey

Config = TypeVar("Config", bound=DataConfig)


PANEL_BATCH = 2048
"""Rows of a micro-batch of a panel at most, by default."""


def with_seasons(config: Config, survey: Survey, saved: Saved | None = None) -> Config:
    """The options with the seasons that lengths of time, `--season clock` or `auto` stand for, by the first rows of the
    table.

    A run that goes on keeps those of its checkpoint.

    Raises:
        UsageError: a length of time is no whole number of rows.
    """
    if not isinstance(config.season, str):
        return config
    if config.season not in ("clock", "auto"):
        survey.look()
        return config.model_copy(update={"season": in_rows(config.season, survey.opening, survey.table.meta)})
    if saved is not None:
        return config.model_copy(update={"season": recipe_of(saved).spec.seasons})
    if config.lags == 0 or ("season" not in config.model_fields_set and _looks_at_none(config)):
        return config.model_copy(update={"season": ()})
    survey.look()
    look = proposed if config.season == "auto" else of_clock
    return config.model_copy(update={"season": look(survey.opening, survey.table.meta, survey.spec.targets[0])})


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
    """What to know of a run that looks at no season by default, and whose target has one."""
    target = survey.spec.targets[0]
    named = ",".join(map(str, confirmed(survey.opening, survey.table.meta, target)))
    if not named:
        return []
    return [f"{target} shows a season, and none is named: --season {named} lets the model look one season back"]
