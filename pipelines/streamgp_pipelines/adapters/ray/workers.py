"""Workers of a fleet as Ray actors: few of them, with many series each.

An actor that is lost is started again. It gets its buckets as the newest checkpoint has them, and the rows since from
the table: what it had learned is learned again, and nothing twice.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import torch

from streamgp.errors import ServiceError, StreamgpError, UsageError
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.shard import Recipe, Shard, Since

ATTEMPTS = 10
"""Times in a row that a worker may be lost."""
PATIENCE = 5.0
"""Seconds in which the address of a cluster must take a connection; Ray itself would try for minutes."""
STORE = 256 * 2**20
"""Bytes of the object store on this machine; what is more goes to the disk."""


class Worker(Shard):
    """A shard in a process of its own, on one thread."""

    def __init__(self, recipe: Recipe) -> None:
        torch.set_num_threads(1)
        super().__init__(recipe)

    def pid(self) -> int:
        """Of its process."""
        return os.getpid()


class RayWorkers:
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
        self.recipe, self.since, self.count, self.address = recipe, since, count or 0, address
        self.lost = 0
        self.actors: list[Any] = []
        self._ray = imported(local=address is None)
        self._ours = False

    def run(self, name: str, arguments: Mapping[int, Any]) -> dict[int, Any]:
        """See `Shard.run`.

        Raises:
            StreamgpError: what a worker raised.
            ServiceError: there is no cluster, or a worker was lost too often.
        """
        self._start()
        parts: dict[int, dict[int, Any]] = {}
        for bucket, argument in arguments.items():
            parts.setdefault(bucket % self.count, {})[bucket] = argument
        asked = {worker: self.actors[worker].run.remote(name, part) for worker, part in parts.items()}
        found: dict[int, Any] = {}
        for worker, part in parts.items():
            found |= self._answer(worker, asked[worker], name, part)
        return dict(sorted(found.items()))

    def pid(self, worker: int) -> int:
        """Of an actor's process."""
        self._start()
        return int(self._ray.get(self.actors[worker].pid.remote()))

    def close(self) -> None:
        """End the actors, and Ray where it was started here."""
        if self._ours:
            self._ray.shutdown()
        else:
            for actor in self.actors:
                self._ray.kill(actor)
        self.actors, self._ours = [], False

    def _start(self) -> None:
        if self.actors:
            return
        if not self._ray.is_initialized():
            self._ours, ours = True, signal.getsignal(signal.SIGTERM)
            self._begin()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, ours)  # Ray has put its own there, which ends with another code
        cpus = int(self._ray.cluster_resources().get("CPU", 0))
        self.count = self.count or min(cpus, self.recipe.buckets)
        if self.count > cpus:
            raise UsageError(f"--workers {self.count}: the cluster has {cpus} CPUs", hint=f"--workers {cpus} at most")
        self.count = min(self.count, self.recipe.buckets)
        self.actors = [self._actor() for _ in range(self.count)]

    def _begin(self) -> None:
        """Start Ray here, out of reach of the network, or join a cluster."""
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address is not None:
            reach(self.address)
        try:
            if self.address is not None:
                self._ray.init(address=self.address, **quiet)
                return
            self.count = self.count or min(len(os.sched_getaffinity(0)), self.recipe.buckets)
            self._ray.init(num_cpus=self.count, include_dashboard=False, object_store_memory=STORE, **quiet)
        except (ConnectionError, RuntimeError, ValueError, self._ray.exceptions.RayError) as error:
            where = "on this machine" if self.address is None else f"at {self.address}"
            hint = "is there memory left?" if self.address is None else "is it up, its token in RAY_AUTH_TOKEN_PATH?"
            raise ServiceError(f"there is no Ray {where}: {error}", hint=hint) from error

    def _actor(self) -> Any:
        """A worker without buckets; it is not restarted by Ray, which does not know their state."""
        return self._ray.remote(Worker).options(num_cpus=1, max_restarts=0).remote(self.recipe)

    def _answer(self, worker: int, asked: Any, name: str, part: dict[int, Any]) -> dict[int, Any]:
        """What an actor says; where it is lost, what the one in its place says."""
        for _ in range(ATTEMPTS):
            try:
                found: dict[int, Any] = self._get(asked)
                return found
            except self._gone as error:
                last = error
            with suppress(*self._gone):
                self._replace(worker)
                asked = self.actors[worker].run.remote(name, part)
        raise ServiceError(
            f"worker {worker} was lost {ATTEMPTS} times in a row: {last}".splitlines()[0],
            hint="does its machine have enough memory? Run the same command again to go on",
        )

    def _replace(self, worker: int) -> None:
        """A new actor with the buckets of one that was lost."""
        self.lost += 1
        with suppress(*self._gone):
            self._ray.kill(self.actors[worker])  # it may only have been out of reach
        self.actors[worker] = actor = self._actor()
        own = range(worker, self.recipe.buckets, self.count)
        for name, part in self.since(own):
            if part:
                self._get(actor.run.remote(name, part))

    @property
    def _gone(self) -> tuple[type[Exception], ...]:
        found = self._ray.exceptions
        return found.RayActorError, found.ObjectLostError

    def _get(self, asked: Any) -> Any:
        """An answer, with errors as the worker raised them."""
        try:
            return self._ray.get(asked)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, StreamgpError):
                raise error.cause from None
            raise


def ray_workers(config: TrainConfig, recipe: Recipe, since: Since) -> RayWorkers:
    """The workers of `train --engine ray`."""
    return RayWorkers(recipe, since, config.workers, config.address)


def reach(address: str) -> None:
    """See that a cluster takes connections; for auto, where RAY_ADDRESS names one.

    Args:
        address: host:port, ray://host[:port] or auto.

    Raises:
        ServiceError: it does not.
    """
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "")
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port or (10_001 if parts.scheme == "ray" else None)
    except ValueError:
        return  # Ray says what is wrong with it
    if host is None or port is None:
        return
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except OSError as error:
        raise ServiceError(
            f"the cluster at {address} cannot be reached: {error}",
            hint="is it up, and may this machine connect to it? Leave out --address for workers on this machine",
        ) from None


def imported(local: bool = True) -> Any:
    """The package ray.

    Args:
        local: keep it on the loopback interface, where it is not imported yet.

    Raises:
        UsageError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")  # signals end a command as they do without Ray
    if local and "ray" not in sys.modules:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # as there: no address but 127.0.0.1
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UsageError(f"--engine ray needs the package {error.name}", hint="pip install 'streamgp[ray]'") from None
    return ray
