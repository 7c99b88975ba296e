"""The learner of a recipe: the only place where one is made, but for those that a shard makes of its buckets."""

from __future__ import annotations

from collections.abc import Callable

import torch

from streamgp.base import Model
from streamgp_pipelines.learning.buckets import Buckets
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.recipe import Recipe
from streamgp_pipelines.learning.shard import Since, Workers, here


def learner_of(
    recipe: Recipe,
    device: torch.device | None = None,
    model: Model | None = None,
    workers: Callable[[Recipe, Since], Workers] = here,
) -> Learner:
    """The learner, before any data.

    Args:
        recipe: of it.
        device: where its models live.
        model: of the recipe, where it has been built already.
        workers: makes where the buckets of a fleet live; by default here.
    """
    device = device or torch.device("cpu")
    model = recipe.build(device) if model is None else model
    if recipe.buckets:
        return Buckets(recipe, model, workers)
    return Learner(recipe, model, device)
