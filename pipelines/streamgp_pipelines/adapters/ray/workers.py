"""Workers of a fleet as Ray actors: few of them, with many series each.

An actor that is lost is started again. It gets its buckets as the newest checkpoint has them, and the rows since from
the table: what it had learned is learned again, and nothing twice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch

from streamgp.errors import ServiceError
from streamgp_pipelines.adapters.ray.cluster import RayActors
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.recipe import Recipe
from streamgp_pipelines.learning.shard import Shard, Since

ATTEMPTS = 10
"""Times in a row that a worker may be lost."""


class Worker(Shard):
    """A shard in a process of its own, on one thread."""

    def __init__(self, recipe: Recipe) -> None:
        torch.set_num_threads(1)
        super().__init__(recipe)

    def pid(self) -> int:
        """Of its process."""
        return os.getpid()


class RayWorkers(RayActors):
    """Buckets in actors; the actor of a bucket is its remainder by their number. Ray starts with the first call.

    Args:
        recipe: of the buckets.
        since: what brings buckets back.
        count: actors; None is one a CPU.
        address: of a cluster; None starts Ray on this machine, where there is none in this process yet.

    Raises:
        UsageError: Ray is not installed.
    """

    def __init__(self, recipe: Recipe, since: Since, count: int | None = None, address: str | None = None) -> None:
        super().__init__(recipe.buckets, count, address)
        self.recipe, self.since = recipe, since

    def run(self, name: str, arguments: Mapping[int, Any]) -> dict[int, Any]:
        """See `Shard.run`.

        Raises:
            StreamgpError: what a worker raised.
            ServiceError: there is no cluster, or a worker was lost too often.
        """
        self.start()
        parts: dict[int, dict[int, Any]] = {}
        for bucket, argument in arguments.items():
            parts.setdefault(bucket % self.count, {})[bucket] = argument
        asked = {worker: self.actors[worker].run.remote(name, part) for worker, part in parts.items()}
        found: dict[int, Any] = {}
        for worker, part in parts.items():
            found |= self._answer(worker, asked[worker], name, part)
        return dict(sorted(found.items()))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.actors)

    def _actor(self) -> Any:
        """A worker without buckets."""
        return self.cluster.ray.remote(Worker).options(num_cpus=1, max_restarts=0).remote(self.recipe)

    def _answer(self, worker: int, asked: Any, name: str, part: dict[int, Any]) -> dict[int, Any]:
        """What an actor says; where it is lost, what the one in its place says."""
        for _ in range(ATTEMPTS):
            try:
                found: dict[int, Any] = self.cluster.get(asked)
                return found
            except self.cluster.gone as error:
                last = error
            with suppress(*self.cluster.gone):
                self._replace(worker)
                asked = self.actors[worker].run.remote(name, part)
        raise ServiceError(
            f"worker {worker} was lost {ATTEMPTS} times in a row: {last}".splitlines()[0],
            hint="does its machine have enough memory? Run the same command again to go on",
        )

    def _replace(self, worker: int) -> None:
        """A new actor with the buckets of one that was lost."""
        self.lost += 1
        with suppress(*self.cluster.gone):
            self.cluster.ray.kill(self.actors[worker])  # it may only have been out of reach
        self.actors[worker] = actor = self._actor()
        own = range(worker, self.recipe.buckets, self.count)
        for name, part in self.since(own):
            if part:
                self.cluster.get(actor.run.remote(name, part))


def ray_workers(config: TrainConfig, recipe: Recipe, since: Since) -> RayWorkers:
    """The workers of `train --engine ray`."""
    return RayWorkers(recipe, since, config.workers, config.address)
