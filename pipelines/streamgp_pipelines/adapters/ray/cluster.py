"""Ray itself: started on this machine, out of reach of the network, or joined where a cluster runs."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from abc import ABC, abstractmethod
from typing import Any
from urllib.parse import urlsplit

from streamgp.errors import ServiceError, StreamgpError, UsageError

PATIENCE = 5.0
"""Seconds in which the address of a cluster must take a connection; Ray itself would try for minutes."""
STORE = 256 * 2**20
"""Bytes of the object store on this machine; what is more goes to the disk."""


class RayCluster:
    """Ray as a run uses it.

    Args:
        count: workers; None is one a CPU.
        address: of a cluster; None starts Ray on this machine, where there is none in this process yet.

    Raises:
        UsageError: Ray is not installed.
    """

    def __init__(self, count: int | None, address: str | None) -> None:
        self.count, self.address = count, address
        self.ray = imported(local=address is None)
        self._ours = False

    def start(self, most: int) -> int:
        """Start or join Ray; how many workers there are to be, where no more than `most` have anything to do.

        Raises:
            UsageError: the cluster has fewer CPUs than were asked for.
            ServiceError: there is no cluster.
        """
        if not self.ray.is_initialized():
            ours = signal.getsignal(signal.SIGTERM)
            self._begin(most)
            self._ours = True
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, ours)  # Ray has put its own there, which ends with another code
        cpus = int(self.ray.cluster_resources().get("CPU", 0))
        count = self.count or min(cpus, most)
        if count > cpus:
            raise UsageError(f"--workers {count}: the cluster has {cpus} CPUs", hint=f"--workers {cpus} at most")
        return min(count, most)

    def stop(self) -> bool:
        """End Ray where it was started or joined here; whether it was."""
        ours, self._ours = self._ours, False
        if ours:
            self.ray.shutdown()
        return ours

    def get(self, asked: Any) -> Any:
        """An answer, with errors as the worker raised them."""
        try:
            return self.ray.get(asked)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, StreamgpError):
                raise error.cause from None
            raise

    @property
    def gone(self) -> tuple[type[Exception], ...]:
        """What is raised where a worker was lost."""
        found = self.ray.exceptions
        return (
            found.RayActorError,
            found.ObjectLostError,
            found.WorkerCrashedError,
            found.NodeDiedError,
            found.OutOfMemoryError,
        )

    def _begin(self, most: int) -> None:
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address is not None:
            reach(self.address)
        try:
            if self.address is not None:
                self.ray.init(address=self.address, **quiet)
                return
            cpus = self.count or min(len(os.sched_getaffinity(0)), most)
            self.ray.init(num_cpus=cpus, include_dashboard=False, object_store_memory=STORE, **quiet)
        except (ConnectionError, RuntimeError, ValueError, self.ray.exceptions.RayError) as error:
            where = "on this machine" if self.address is None else f"at {self.address}"
            hint = "is there memory left?" if self.address is None else "is it up, its token in RAY_AUTH_TOKEN_PATH?"
            raise ServiceError(f"there is no Ray {where}: {error}", hint=hint) from error


class RayActors(ABC):
    """Actors with a CPU each. Ray starts with the first call of `start`.

    Args:
        most: actors that have anything to do.
        count: actors; None is one a CPU.
        address: of a cluster; None starts Ray on this machine, where there is none in this process yet.

    Raises:
        UsageError: Ray is not installed.

    Attributes:
        actors: those that run; none before the start.
        lost: how many were lost and replaced.
    """

    def __init__(self, most: int, count: int | None, address: str | None) -> None:
        self.cluster = RayCluster(count, address)
        self.most, self.lost = most, 0
        self.actors: list[Any] = []

    @abstractmethod
    def _actor(self) -> Any:
        """A new one; it is not restarted by Ray, which does not know its state."""

    def start(self) -> None:
        """Have Ray and the actors."""
        if not self.actors:
            self.actors = [self._actor() for _ in range(self.cluster.start(self.most))]

    def pid(self, worker: int) -> int:
        """Of an actor's process."""
        self.start()
        return int(self.cluster.ray.get(self.actors[worker].pid.remote()))

    def close(self) -> None:
        """End the actors, and Ray where it was started here."""
        if not self.cluster.stop():
            for actor in self.actors:
                self.cluster.ray.kill(actor)
        self.actors = []


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
