"""Seasons that were left to the data: `--season auto`."""

from __future__ import annotations

from typing import Any, TypeVar

from streamgp.streaming.checkpoint import Saved
from streamgp.streaming.table import Table
from streamgp_pipelines.config import DataConfig, TrainConfig, micro_batch
from streamgp_pipelines.learning.columns import with_commas
from streamgp_pipelines.seasons import proposed

Config = TypeVar("Config", bound=DataConfig)


def with_seasons(config: Config, table: Table, saved: Saved | None = None) -> Config:
    """The options with seasons in the place of `auto`: those of the checkpoint, or those that are proposed."""
    if config.season != "auto":
        return config
    target = with_commas(config.target, table.schema, "--target")[:1]
    found = proposed(table, target[0] if target else "y")
    if saved is not None:
        spec: Any = saved.manifest["spec"]
        found = tuple(spec["seasons"])
    update: dict[str, Any] = {"season": found}
    if isinstance(config, TrainConfig) and "batch" not in config.model_fields_set:
        update["batch"] = micro_batch(found)
    return config.model_copy(update=update)
