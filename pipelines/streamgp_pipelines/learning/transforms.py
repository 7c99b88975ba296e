"""Which transform each target gets: as asked for, or as the first rows of the table suggest."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from streamgp.errors import UsageError
from streamgp.transforms import Kind, Transform, choose, made
from streamgp.windows.calendar import Floats
from streamgp.windows.rows import numbers
from streamgp.windows.windows import WindowSpec
from streamgp_data.checkpoint import Saved
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.heldout import held_out, hide
from streamgp_pipelines.learning.restored import recipe_of
from streamgp_pipelines.learning.survey import Survey

ROWS = 20_000
"""Rows that are looked at in batch training, at most; those held out are not."""


def with_transforms(
    config: TrainConfig, spec: WindowSpec, survey: Survey, warmup: int, saved: Saved | None = None
) -> WindowSpec:
    """The windows with the transform of each target, found in the rows of the warm-up; a run that continues keeps them.

    Raises:
        UsageError: a target is not named, or a column is that is not a target.
        DataError: the values of the warm-up do not fit the transform.
    """
    kinds = _kinds(config.transform, spec.targets)
    if all(kind == "none" for kind in kinds):
        return spec
    if saved is not None:
        return replace(spec, transforms=recipe_of(saved).spec.transforms)
    values = _first(config, spec, survey, max(warmup, config.batch) if config.online else ROWS)
    found: list[Transform] = []
    for name, kind, y in zip(spec.targets, kinds, values.T, strict=True):
        chosen = choose(y, config.floor, config.upper) if kind == "auto" else cast(Kind, kind)
        found.append(made(chosen, y, config.floor, config.upper, name))
    return replace(spec, transforms=tuple(found)) if any(one.kind != "none" for one in found) else spec


def _kinds(words: tuple[str, ...], targets: tuple[str, ...]) -> list[str]:
    """The kind for each target: one word for all, or NAME=KIND for some; the others are left as they are."""
    if len(words) == 1 and "=" not in words[0]:
        return [words[0]] * len(targets)
    given = {name: kind for name, _, kind in (word.rpartition("=") for word in words)}
    unknown = [name for name in given if name not in targets]
    if unknown or len(given) < len(words):
        raise UsageError(
            f"--transform {','.join(words)}: {(unknown or [''])[0]!r} is no target",
            hint=f"such as --transform {targets[0]}=log",
        )
    return [given.get(name, "none") for name in targets]


def _first(config: TrainConfig, spec: WindowSpec, survey: Survey, rows: int) -> Floats:
    """(R, O) the targets in the first rows of the table, NaN where they are held out."""
    table = survey.table
    rows = min(rows, table.rows, config.max_rows or table.rows)
    if survey.opening is None or not rows:
        return np.zeros((0, len(spec.targets)))
    first = survey.opening.slice(0, rows)
    if not config.online:
        hidden = held_out(config, survey, min(config.max_rows or table.rows, table.rows))
        first = hide(first, spec.targets, hidden[: first.num_rows])
    return numbers(first, spec.targets)
