"""Independent tasks: one after the other in this process, or spread over workers, with the same results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, TypeVar

from streamgp.base import Progress
from streamgp.errors import UsageError
from streamgp_pipelines.config import DataConfig

A = TypeVar("A")
R = TypeVar("R")
Report: TypeAlias = Callable[[Progress], None]
Task: TypeAlias = Callable[[str, A, Report], R]
"""Its name, its argument, and what to call with how far it is -> its result. Workers get it pickled."""


class Tasks(Protocol):
    """Where tasks run.

    Attributes:
        lost: how often a worker was lost, and its task run again.
    """

    lost: int

    def run(self, task: Task[A, R], arguments: Mapping[str, A], report: Report) -> dict[str, R]:
        """The result for each argument, in their order; the first error ends all of them."""

    def close(self) -> None:
        """Let go of processes."""


Cluster: TypeAlias = Callable[[DataConfig], Tasks]
"""Makes the workers of `--engine ray`."""


class InTurn:
    """Tasks in this process, one after the other.

    Example:
        >>> InTurn().run(lambda name, number, report: 2 * number, {"a": 1, "b": 2}, print)
        {'a': 2, 'b': 4}
    """

    lost = 0

    def run(self, task: Task[A, R], arguments: Mapping[str, A], report: Report) -> dict[str, R]:
        return {name: task(name, argument, report) for name, argument in arguments.items()}

    def close(self) -> None:
        """Nothing is open."""


def tasks_of(config: DataConfig, cluster: Cluster | None) -> Tasks:
    """Where the tasks of a command run.

    Raises:
        UsageError: on Ray, and nothing was given that makes its workers.
    """
    if config.engine == "local":
        return InTurn()
    if cluster is None:
        hint = "give cluster=streamgp_pipelines.adapters.ray.tasks.ray_tasks"
        raise UsageError("--engine ray was not given its workers", hint=hint)
    return cluster(config)
