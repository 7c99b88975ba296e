"""Checkpoints and their tables, open for one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from streamgp.errors import UsageError
from streamgp.streaming import remote
from streamgp.streaming.table import Table
from streamgp_pipelines.learning.checkpointing import held
from streamgp_pipelines.serving.host import Host, resume
from streamgp_pipelines.serving.intake import Intake
from streamgp_pipelines.serving.settings import ServeConfig


class Service:
    """Learners by name, and the intake of each one's table; several learners can share a table.

    Attributes:
        hosts: by the name of the checkpoint.
        intakes: by the identity of the table.
        notes: what else those who ask for its health should know.
    """

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self.intakes: dict[str, Intake] = {}
        self.notes: tuple[str, ...] = ()

    def intake(self, host: Host) -> Intake:
        """Where the rows of a learner go."""
        return self.intakes[host.session.table.id]

    @property
    def error(self) -> BaseException | None:
        """What ended a learner, if anything."""
        return next((host.error for host in self.hosts.values() if host.error is not None), None)

    @property
    def warnings(self) -> list[str]:
        """What should be known of the checkpoints."""
        return [f"{name}: {warning}" for name, host in self.hosts.items() for warning in host.session.warnings]

    @property
    def ready(self) -> bool:
        """Whether every learner shows a state."""
        return self.error is None and all(host.view is not None for host in self.hosts.values())


@contextmanager
def serving(config: ServeConfig, failed: Callable[[], None] = lambda: None) -> Iterator[Service]:
    """Open the checkpoints and their tables, learn until the end, then write what waits and checkpoints.

    Args:
        config: which checkpoints.
        failed: called, in a learner's thread, when it ends with an error.

    Raises:
        UsageError: two checkpoints have one name, a table is that of none, or its rows have no time.
        StateError: a checkpoint does not fit, or another process holds it.
    """
    service = Service()
    tables = {table.id: table for table in map(Table.open, config.table)}
    with ExitStack() as stack:
        for directory in config.checkpoint:
            name = Path(directory).resolve().name
            if name in service.hosts:
                raise UsageError(f"two checkpoints are called {name}", hint="rename one of the directories")
            remote.refresh(Path(directory))
            if Path(directory).is_dir():  # what is not there says so below, and is not made
                stack.enter_context(held(directory))
            session = resume(directory, tables, config.device, config.checkpoint_every, config.on_alarm)
            host = service.hosts[name] = Host(name, session, failed)
            if session.table.id not in service.intakes:
                intake = service.intakes[session.table.id] = Intake(Table.open(session.table.path), config.max_ahead)
                stack.callback(intake.close)
            intake = service.intake(host)
            intake.committed.append(host.wake)
            intake.reach = max(intake.reach, host.reach)
        strange = [table.path for id, table in tables.items() if id not in service.intakes]
        if strange:
            raise UsageError(f"--table {strange[0]} is the table of no checkpoint", hint="leave it out")
        for host in service.hosts.values():
            host.start()
        try:
            yield service
        finally:
            for intake in service.intakes.values():
                intake.close()
            for host in service.hosts.values():
                host.stop()
            for host in service.hosts.values():
                host.join()
