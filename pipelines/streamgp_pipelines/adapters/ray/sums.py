"""The rows of a batch in Ray actors, block by block, and sums over them.

An actor keeps its blocks from one epoch to the next: the learner travels there, and the sums of each block back. They
are added in the order of the blocks, so that they do not depend on the number of actors. An actor that is lost is
replaced, and gets its blocks again.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from streamgp.errors import ServiceError
from streamgp.online.summing import BLOCKS, Absorb, Totals, added, block_sums, blocks
from streamgp_pipelines.adapters.ray.cluster import RayActors
from streamgp_pipelines.config import TrainConfig

ATTEMPTS = 10
"""Times in a row that an actor may be lost."""


class Holder:
    """Blocks of rows in a process of its own, on one thread."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._held: dict[tuple[int, int], Tensor] = {}

    def pid(self) -> int:
        """Of its process."""
        return os.getpid()

    def hold(self, tensor: int, block: int, part: Tensor) -> None:
        """Keep a block of a tensor."""
        self._held[tensor, block] = part

    def drop(self, tensor: int) -> None:
        """Forget a tensor."""
        self._held = {key: part for key, part in self._held.items() if key[0] != tensor}

    def sums(self, whole: tuple[Any, Absorb], tensors: Sequence[int], block: int, chunk: int) -> Totals:
        """The sums of a block. whole: the learner, and how it absorbs rows."""
        return block_sums(*whole, [self._held[one, block] for one in tensors], chunk)


class RaySums(RayActors):
    """See the module, and `streamgp.online.summing.Summing`. Ray starts with the first call.

    Args:
        count: actors; None is one a CPU, at most one a block.
        address: of a cluster; None starts Ray on this machine, where there is none in this process yet.

    Raises:
        UsageError: Ray is not installed.
    """

    def __init__(self, count: int | None = None, address: str | None = None) -> None:
        super().__init__(BLOCKS, count, address)
        self._known: dict[int, ref[Tensor]] = {}
        self._numbers = itertools.count()

    def __call__(self, learner: Any, absorb: Absorb, rows: Sequence[Tensor], chunk: int) -> None:
        """Let a learner learn these rows.

        Raises:
            StreamgpError: what an actor raised.
            ServiceError: there is no cluster, or an actor was lost too often.
        """
        self.start()
        parts = blocks(len(rows[0]), chunk)
        learner.zero()
        whole = self.cluster.ray.put((learner, absorb))
        numbers = [self._placed(tensor, parts) for tensor in rows]
        asked = [self._ask(block, whole, numbers, chunk) for block in range(len(parts))]
        total: Totals | None = None
        for block in range(len(parts)):
            for attempt in range(ATTEMPTS + 1):
                try:
                    total = added(total, self.cluster.get(asked[block]))
                    break
                except self.cluster.gone as error:
                    if attempt == ATTEMPTS:
                        raise ServiceError(
                            f"a worker was lost {ATTEMPTS} times in a row: {error}".splitlines()[0],
                            hint="does its machine have enough memory? Run the same command again to go on",
                        ) from None
                with suppress(*self.cluster.gone):
                    self._replace(block % len(self.actors), rows, numbers, parts)
                for again in range(block, len(parts)):
                    if again % len(self.actors) == block % len(self.actors):
                        asked[again] = self._ask(again, whole, numbers, chunk)
            asked[block] = None  # its sums leave the object store
        assert total is not None
        learner.put(tuple(part.clone() for part in total))

    def _actor(self) -> Any:
        return self.cluster.ray.remote(Holder).options(num_cpus=1, max_restarts=0).remote()

    def _ask(self, block: int, whole: Any, numbers: Sequence[int], chunk: int) -> Any:
        return self.actors[block % len(self.actors)].sums.remote(whole, numbers, block, chunk)

    def _placed(self, tensor: Tensor, parts: Sequence[slice]) -> int:
        """The number under which the actors have a tensor, which they get where they have not; what is gone here goes
        there too."""
        for number, known in list(self._known.items()):
            if known() is tensor:
                return number
            if known() is None:
                del self._known[number]
                for actor in self.actors:
                    actor.drop.remote(number)
        number = next(self._numbers)
        self._known[number] = ref(tensor)
        for block, part in enumerate(parts):
            self._send(block, number, tensor[part])
        return number

    def _send(self, block: int, number: int, part: Tensor) -> None:
        own = part.clone()  # a view is pickled with all that it is of
        with suppress(*self.cluster.gone):  # found when it is asked
            self.actors[block % len(self.actors)].hold.remote(number, block, own)

    def _replace(self, worker: int, rows: Sequence[Tensor], numbers: Sequence[int], parts: Sequence[slice]) -> None:
        """A new actor with the blocks of one that was lost."""
        self.lost += 1
        with suppress(*self.cluster.gone):
            self.cluster.ray.kill(self.actors[worker])  # it may only have been out of reach
        self.actors[worker] = self._actor()
        for block in range(worker, len(parts), len(self.actors)):
            for number, tensor in zip(numbers, rows, strict=True):
                self._send(block, number, tensor[parts[block]])
        for number in self._known.keys() - set(numbers):
            del self._known[number]  # sent again to all when it is needed


def ray_sums(config: TrainConfig) -> RaySums:
    """The workers of `train --engine ray` in batch."""
    return RaySums(config.workers, config.address)
