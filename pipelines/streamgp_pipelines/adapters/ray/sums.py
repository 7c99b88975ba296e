"""The rows of a batch in Ray actors, block by block, and sums over them.

An actor keeps its blocks from one epoch to the next: the learner travels there, and the sums of each block back. They
are added in the order of the blocks, so that they do not depend on the number of actors. An actor that is lost is
replaced, and gets its blocks again.

The rows of mini-batches are in the object store for an epoch, where every actor of a machine reads them: the parameters
travel there at each step, and the gradient of each block back.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parameters_to_vector

from streamgp.errors import ServiceError
from streamgp.online.summing import BLOCKS, Absorb, Totals, block_sums, blocks
from streamgp.training import shared_gradients
from streamgp.training.shared_gradients import Gradients, Loss, added, block_gradients, seeded, seeds
from streamgp_pipelines.adapters.ray.cluster import RayActors
from streamgp_pipelines.config import TrainConfig

ATTEMPTS = 10
"""Times in a row that an actor may be lost."""


class Holder:
    """Blocks of rows in a process of its own, on one thread."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._held: dict[tuple[int, int], Tensor] = {}
        self._rows: list[Tensor] = []
        self._trained: tuple[nn.Module, Loss] | None = None

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

    def take_rows(self, rows: Sequence[np.ndarray]) -> None:
        """The rows that mini-batches are drawn from."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the object store is read only, and so are we
            self._rows = [torch.from_numpy(part) for part in rows]

    def take(self, trained: tuple[nn.Module, Loss]) -> None:
        """The net and the loss of mini-batches."""
        self._trained = trained

    def gradients(self, weights: np.ndarray, batch: np.ndarray, count: int, seed: int) -> np.ndarray:
        """The loss and its gradient of a block, one after the other, at some weights."""
        assert self._trained is not None
        net, loss = self._trained
        own = list(net.parameters())
        with torch.no_grad():
            for p, part in zip(own, torch.tensor(weights).split([p.numel() for p in own]), strict=True):
                p.copy_(part.view_as(p))  # views of one vector lie otherwise in memory, and products have other bits
        some = [part[torch.tensor(batch)] for part in self._rows]
        return flat(block_gradients(net, loss, some, count, seeded(seed)))


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
        self._shared: dict[str, tuple[list[ref[Any]], Any]] = {}

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
        total: Totals | None = None
        for found in self._answers(
            len(parts),
            lambda block: self._actor_of(block).sums.remote(whole, numbers, block, chunk),
            lambda worker: self._send_again(worker, rows, numbers, parts),
        ):
            total = added(total, found)
        assert total is not None
        learner.put(tuple(part.clone() for part in total))

    def gradients(
        self, net: nn.Module, loss: Loss, rows: Sequence[Tensor], batch: Tensor, count: int, generator: Generator
    ) -> Gradients:
        """The gradient of a mini-batch; see `streamgp.training.shared_gradients.Sharing`.

        Raises:
            StreamgpError: what an actor raised.
            ServiceError: there is no cluster, or an actor was lost too often.
        """
        parts = shared_gradients.blocks(batch)
        if len(parts) == 1:
            return shared_gradients.here(net, loss, rows, batch, count, generator)
        self.start()
        self._share("take_rows", rows, lambda: [part.numpy() for part in rows])
        self._share("take", (net, loss), lambda: (net, loss))
        own = seeds(parts, generator)
        weights = self.cluster.ray.put(parameters_to_vector(net.parameters()).detach().numpy())
        total: np.ndarray | None = None
        for found in self._answers(
            len(parts),
            lambda block: self._actor_of(block).gradients.remote(weights, parts[block].numpy(), count, own[block]),
            self._take,
        ):
            total = found if total is None else total + found
        return unflat(torch.from_numpy(total), [p for p in net.parameters() if p.requires_grad])

    def _actor(self) -> Any:
        return self.cluster.ray.remote(Holder).options(num_cpus=1, max_restarts=0).remote()

    def _actor_of(self, block: int) -> Any:
        return self.actors[block % len(self.actors)]

    def _answers(self, count: int, ask: Callable[[int], Any], give: Callable[[int], None]) -> Iterator[Any]:
        """What the actors answer for each block, in their order.

        Args:
            count: blocks.
            ask: (block) the future of an answer.
            give: (worker) give an actor, which is new, what it needs to answer.

        Raises:
            StreamgpError: what an actor raised.
            ServiceError: an actor was lost too often.
        """
        asked = [ask(block) for block in range(count)]
        for block in range(count):
            for attempt in range(ATTEMPTS + 1):
                try:
                    found = self.cluster.get(asked[block])
                    break
                except self.cluster.gone as error:
                    if attempt == ATTEMPTS:
                        raise ServiceError(
                            f"a worker was lost {ATTEMPTS} times in a row: {error}".splitlines()[0],
                            hint="does its machine have enough memory? Run the same command again to go on",
                        ) from None
                worker = block % len(self.actors)
                with suppress(*self.cluster.gone):
                    self._replace(worker)
                    give(worker)
                for again in range(block, count):
                    if again % len(self.actors) == worker:
                        asked[again] = ask(again)
            asked[block] = None  # its answer leaves the object store
            yield found

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

    def _replace(self, worker: int) -> None:
        """A new actor, which has nothing, in place of one that was lost."""
        self.lost += 1
        with suppress(*self.cluster.gone):
            self.cluster.ray.kill(self.actors[worker])  # it may only have been out of reach
        self.actors[worker] = self._actor()

    def _send_again(self, worker: int, rows: Sequence[Tensor], numbers: Sequence[int], parts: Sequence[slice]) -> None:
        """The blocks of a worker, to a new actor."""
        for block in range(worker, len(parts), len(self.actors)):
            for number, tensor in zip(numbers, rows, strict=True):
                self._send(block, number, tensor[parts[block]])
        for number in self._known.keys() - set(numbers):
            del self._known[number]  # sent again to all when it is needed
        self._shared.clear()

    def _share(self, call: str, what: Sequence[Any], made: Callable[[], Any]) -> None:
        """Have what mini-batches have in common in all actors.

        Args:
            call: of an actor, that takes it.
            what: things that it is made of; while these are the same ones, actors have it.
            made: it.
        """
        if call in self._shared:
            known = [one() for one in self._shared[call][0]]
            if len(known) == len(what) and all(a is b for a, b in zip(known, what, strict=True)):
                return
        self._shared[call] = [ref(one) for one in what], self.cluster.ray.put(made())
        for worker in range(len(self.actors)):
            self._give(worker, call)

    def _give(self, worker: int, call: str) -> None:
        with suppress(*self.cluster.gone):  # found when it is asked
            getattr(self.actors[worker], call).remote(self._shared[call][1])

    def _take(self, worker: int) -> None:
        """Of mini-batches, to a new actor."""
        for call in self._shared:
            self._give(worker, call)
        self._known.clear()  # it has none of the blocks


def flat(parts: Gradients) -> np.ndarray:
    """As one vector."""
    return torch.cat([part.flatten() for part in parts]).numpy()


def unflat(vector: Tensor, parameters: Sequence[Tensor]) -> Gradients:
    """The loss and its gradients by some parameters, from one vector."""
    loss, *parts = vector.split([1, *(p.numel() for p in parameters)])
    return loss[0], *(part.view_as(p) for part, p in zip(parts, parameters, strict=True))


def ray_sums(config: TrainConfig) -> RaySums:
    """The workers of `train --engine ray` in batch."""
    return RaySums(config.workers, config.address)
