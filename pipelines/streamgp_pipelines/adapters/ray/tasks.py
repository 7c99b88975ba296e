"""Independent tasks as Ray tasks. A task whose worker is lost is run again; none depends on which worker runs it."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import torch

from streamgp.base import Progress
from streamgp.errors import ServiceError
from streamgp_pipelines.adapters.ray.cluster import RayCluster
from streamgp_pipelines.config import DataConfig
from streamgp_pipelines.tasks import Report, Task

A = TypeVar("A")
R = TypeVar("R")
ATTEMPTS = 10
"""Times that the worker of a task may be lost."""
POLL = 0.5
"""Seconds between two looks at how far the tasks are."""
CANCELLED = 10.0
"""Seconds that tasks have to put their things in order, where the command is interrupted or another task has failed."""


class RayTasks:
    """Tasks on workers, each on one thread. Ray starts with the first call.

    Args:
        count: tasks at a time; None is one a CPU.
        address: of a cluster; None starts Ray on this machine, where there is none in this process yet.

    Raises:
        UsageError: Ray is not installed.
    """

    def __init__(self, count: int | None = None, address: str | None = None) -> None:
        self.cluster = RayCluster(count, address)
        self.lost = 0
        self._asked: Any = None

    def run(self, task: Task[A, R], arguments: Mapping[str, A], report: Report) -> dict[str, R]:
        """See `streamgp_pipelines.tasks.Tasks`.

        Raises:
            StreamgpError: what a task raised; the others are cancelled.
            ServiceError: there is no cluster, or the workers of a task were lost too often.
        """
        count, ray = self.cluster.start(len(arguments)), self.cluster.ray
        board = ray.remote(Board).options(num_cpus=0).remote()
        remote, whole = ray.remote(num_cpus=1, max_retries=0)(_perform), ray.put(task)
        waiting, running = deque(arguments), dict[Any, str]()
        found, attempts = dict[str, R](), Counter[str]()
        try:
            while waiting or running:
                while waiting and len(running) < count:
                    name = waiting.popleft()
                    running[remote.remote(whole, name, arguments[name], board, os.getcwd())] = name
                ended, _ = ray.wait(list(running), num_returns=1, timeout=POLL)
                self._report(board, report)
                for asked in ended:
                    name = running.pop(asked)
                    try:
                        done = self.cluster.get(asked)
                    except self.cluster.gone as error:
                        self.lost += 1
                        attempts[name] += 1
                        if attempts[name] == ATTEMPTS:
                            why = f"the worker of {name} was lost {ATTEMPTS} times: {error}".splitlines()[0]
                            hint = "does its machine have enough memory? Use fewer --workers"
                            raise ServiceError(why, hint=hint) from None
                        waiting.appendleft(name)
                        continue
                    found[name] = done.result
                    for record in done.records:
                        logging.getLogger(record.name).handle(record)
            self._report(board, report)
        finally:
            self._asked = None
            for asked in running:
                ray.cancel(asked)
            if running:
                ray.wait(list(running), num_returns=len(running), timeout=CANCELLED)
            ray.kill(board)
        return {name: found[name] for name in arguments}

    def close(self) -> None:
        """End Ray where it was started here."""
        self.cluster.stop()

    def _report(self, board: Any, report: Report) -> None:
        """Pass on how far the tasks are; progress alone is not worth an error."""
        asked, self._asked = self._asked or board.take.remote(), None
        try:
            for news in self.cluster.ray.get(asked, timeout=10 * POLL):
                report(news)
        except self.cluster.ray.exceptions.GetTimeoutError:
            self._asked = asked  # what it takes comes later, and only once
        except self.cluster.gone:
            pass


class Board:
    """The newest progress of each stage, until it is taken."""

    def __init__(self) -> None:
        self._news: dict[str, Progress] = {}

    def put(self, news: Progress) -> None:
        """Keep it in place of an older one of its stage."""
        self._news[news.stage] = news

    def take(self) -> list[Progress]:
        """What has come since the last time."""
        taken, self._news = self._news, {}
        return list(taken.values())


class _Done(NamedTuple):
    """A task's result, and what it logged."""

    result: Any
    records: list[logging.LogRecord]


def _perform(task: Task[Any, Any], name: str, argument: Any, board: Any, home: str) -> _Done:
    """In a worker: one task, on one thread, in the directory in which the command was started."""
    torch.set_num_threads(1)
    with contextlib.suppress(OSError):  # another machine may not have it
        os.chdir(home)
    last = dict[str, float]()

    def report(now: Progress) -> None:
        ended = now.total is not None and now.done >= now.total
        if ended or time.monotonic() - last.get(now.stage, -POLL) >= POLL:
            last[now.stage] = time.monotonic()
            board.put.remote(now)

    with _logged() as records:
        return _Done(task(name, argument, report), records)


@contextlib.contextmanager
def _logged() -> Iterator[list[logging.LogRecord]]:
    """What this package logs meanwhile, so that the command can say it."""
    records, logger = list[logging.LogRecord](), logging.getLogger("streamgp")

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            record.msg, record.args, record.exc_info = record.getMessage(), None, None  # which can be pickled
            records.append(record)

    keeper = Keep(logging.WARNING)
    logger.addHandler(keeper)
    try:
        yield records
    finally:
        logger.removeHandler(keeper)


def ray_tasks(config: DataConfig) -> RayTasks:
    """The workers of `compare` and `tune` with `--engine ray`."""
    return RayTasks(config.workers, config.address)
