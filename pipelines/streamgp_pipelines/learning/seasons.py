"""Options that are left to the data: seasons, and with them the micro-batch."""

from __future__ import annotations

from typing import Any, TypeVar

from streamgp_data.checkpoint import Saved
from streamgp_data.table import Table
from streamgp_pipelines.config import DataConfig, RunConfig, TrainConfig, micro_batch
from streamgp_pipelines.learning.columns import with_commas
from streamgp_pipelines.learning.restored import recipe_of
from streamgp_pipelines.learning.sizes import count_series
from streamgp_pipelines.seasons import confirmed, proposed

Config = TypeVar("Config", bound=DataConfig)


PANEL_BATCH = 2048
"""Rows of a micro-batch of a panel at most, by default."""


def with_seasons(config: Config, table: Table, saved: Saved | None = None) -> Config:
    """The options with what is left to the data filled in: `--season auto`, and the micro-batch of a panel.

    A run that goes on keeps what its checkpoint says.
    """
    update: dict[str, Any] = {}
    began = None if saved is None else recipe_of(saved)
    if config.season == "auto":
        target = with_commas(config.target, table.schema, "--target")[:1]
        update["season"] = began.spec.seasons if began else proposed(table, target[0] if target else "y")
    if isinstance(config, RunConfig) and "batch" not in config.model_fields_set:
        seasons = update.get("season", config.season)
        batch = micro_batch(seasons)
        alone = isinstance(config, TrainConfig) and config.fleet
        if seasons and table.meta.series is not None and not alone:  # as many steps of each series
            batch = min(max(batch * count_series(table), 256), PANEL_BATCH)
        update["batch"] = began.schedule.batch if began else batch
    return config.model_copy(update=update) if update else config


def overlooked(table: Table, target: str) -> list[str]:
    """What to know of a run without --season whose target has one."""
    named = ",".join(map(str, confirmed(table, target)))
    if not named:
        return []
    return [f"{target} shows a season, and none is named: --season {named} lets the model look one season back"]
