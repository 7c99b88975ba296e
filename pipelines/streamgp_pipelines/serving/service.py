"""Checkpoints and their tables, open for one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path, PurePath
from threading import Event
from typing import TypeVar

from streamgp.errors import StateError, UsageError
from streamgp_data import remote
from streamgp_data.instants import ELAPSED
from streamgp_data.retry import Retry
from streamgp_data.table import Table
from streamgp_pipelines.config.serve import ServeConfig
from streamgp_pipelines.health import Health
from streamgp_pipelines.learning.checkpointing import held
from streamgp_pipelines.live.beside import Beside
from streamgp_pipelines.serving.host import Host, resume
from streamgp_pipelines.serving.intake import Intake

T = TypeVar("T")


class Service:
    """Learners by name, and the intake of each one's table; several learners can share a table.

    Attributes:
        hosts: by the name of the checkpoint.
        intakes: by the identity of the table.
        notes: what else those who ask for its health should know.
        messages: takes those of the broker of --source into the table. health: what it has taken.
    """

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self.intakes: dict[str, Intake] = {}
        self.notes: tuple[str, ...] = ()
        self.messages: Beside | None = None
        self.health = Health()

    def intake(self, host: Host) -> Intake:
        """Where the rows of a learner go."""
        return self.intakes[host.session.table.id]

    @property
    def error(self) -> BaseException | None:
        """What ended a learner or the reader of a broker, if anything."""
        found = [host.error for host in self.hosts.values()]
        found += [] if self.messages is None else [self.messages.error]
        return next((error for error in found if error is not None), None)

    @property
    def failures(self) -> list[str]:
        """Which tables could not be written when rows were sent last, and why."""
        return [
            f"rows of {PurePath(intake.table.path).name} could not be written: {intake.failure.message}"
            for intake in self.intakes.values()
            if intake.failure is not None
        ]

    @property
    def leaps(self) -> list[str]:
        """What those who ask for its health should know of the clocks of rows."""
        found = [
            f"{intake.leaps:,} rows of {PurePath(intake.table.path).name} had a time far from all others; the last: "
            f"{intake.last_leap}"
            for intake in self.intakes.values()
            if intake.leaps
        ]
        messages = 0 if self.health.taken is None else self.health.taken.late  # of --source, which fills one table
        for intake in self.intakes.values():
            if late := intake.late + messages:
                name = PurePath(intake.table.path).name
                hint = "is the clock of the newest right? streamgp doctor"
                found.append(f"{late:,} rows of {name} were older than the newest: {hint}")
        return found

    @property
    def warnings(self) -> list[str]:
        """What should be known of the checkpoints."""
        return [f"{name}: {warning}" for name, host in self.hosts.items() for warning in host.session.warnings]

    @property
    def ready(self) -> bool:
        """Whether every learner shows a state."""
        return self.error is None and all(host.view is not None for host in self.hosts.values())


@contextmanager
def serving(
    config: ServeConfig, failed: Callable[[], None] = lambda: None, say: Callable[[str], None] = lambda _: None
) -> Iterator[Service]:
    """Open the checkpoints and their tables, learn until the end, then write what waits and checkpoints.

    Args:
        config: which checkpoints.
        failed: called, in a thread of the service, when that ends with an error.
        say: called when the broker of --source or the store of a table is away, and when it is back.

    Raises:
        UsageError: two checkpoints have one name, a table is that of none, its rows have no time, or there is more
            than one for --source.
        StateError: a checkpoint does not fit, another process holds it, or none raises alarms for --on-alarm.
    """
    service = Service()

    def reached(name: str | Path, work: Callable[[], T]) -> T:
        """Wait for the store of a table or checkpoint."""
        shown = remote.shown(name) if isinstance(name, Path) else name
        return Retry(shown, say, Event(), service.health.opening).wait_for(work)

    opened = [reached(name, partial(Table.open, name)) for name in config.table]
    tables = {table.id: table for table in opened}
    with ExitStack() as stack:
        for directory in config.checkpoint:
            name = Path(directory).resolve().name
            if name in service.hosts:
                raise UsageError(f"two checkpoints are called {name}", hint="rename one of the directories")
            reached(directory, partial(remote.refresh, Path(directory)))
            if Path(directory).is_dir():  # what is not there says so below, and is not made
                stack.enter_context(held(directory))
            every, bell = config.checkpoint_every, config.on_alarm
            session = reached(directory, partial(resume, directory, tables, config.device, every, bell))
            host = service.hosts[name] = Host(name, session, failed, say)
            if session.table.id not in service.intakes:
                where = session.table.path
                table = reached(where, partial(Table.open, where))
                named = "max_ahead" in config.model_fields_set
                limit = config.max_ahead if named or table.meta.time_format not in ELAPSED else math.inf
                intake = service.intakes[session.table.id] = Intake(table, limit)
                stack.callback(intake.close)
            intake = service.intake(host)
            host.received = partial(_received, intake, host)
            intake.committed.append(host.wake)
            intake.reach = max(intake.reach, host.reach)
        if config.on_alarm is not None and all(one.session.learner.alarms is None for one in service.hosts.values()):
            raise StateError(
                f"{', '.join(map(str, config.checkpoint))}: no alarms are raised for --on-alarm",
                hint="train with --alarm-rate 0.001",
            )
        strange = [table.path for id, table in tables.items() if id not in service.intakes]
        if strange:
            raise UsageError(f"--table {strange[0]} is the table of no checkpoint", hint="leave it out")
        if config.source is not None and len(service.intakes) > 1:
            raise UsageError("--source fills one table, and these are several", hint="serve the others alone")
        for host in service.hosts.values():
            host.start()
        try:
            _listen(service, config, failed, say)
            yield service
        finally:
            _end(service)


def _listen(service: Service, config: ServeConfig, failed: Callable[[], None], say: Callable[[str], None]) -> None:
    """Take the messages of the broker of --source, where there is one."""
    for intake in service.intakes.values():
        if messages := config.intake(intake.table.path, follow=True):
            if intake.table.meta.clock:
                messages = messages.model_copy(update={"max_ahead": intake.max_ahead + intake.reach})
            service.messages = Beside(messages, say, partial(_wake, service), failed, service.health)


def _end(service: Service) -> None:
    """Take no more rows, then learn and write what waits."""
    if service.messages is not None:
        service.messages.close()
    for intake in service.intakes.values():
        intake.close()
    for host in service.hosts.values():
        host.stop()
    for host in service.hosts.values():
        host.join()


def _received(intake: Intake, host: Host) -> int:
    return max(intake.table.rows, host.session.table.rows)  # those of a broker come another way


def _wake(service: Service) -> None:
    for host in service.hosts.values():
        host.wake()
