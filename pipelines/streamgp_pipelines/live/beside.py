"""The messages of a broker into a table, in a thread beside what learns the table: one process in place of two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from streamgp_data.ingestion.report import IngestProgress
from streamgp_data.retry import Retry
from streamgp_data.table import Table
from streamgp_pipelines.config.ingest import IngestConfig
from streamgp_pipelines.health import Health
from streamgp_pipelines.live.follow import Say, follow

ENDING = 30.0
"""Seconds that the end may take: a broker that is away is not waited for."""


class Beside:
    """`streamgp ingest URL --follow` in a thread.

    Args:
        config: of the ingestion.
        say: called when the broker is away, and when it is back.
        committed: called after every commit, in the thread.
        failed: called, in the thread, when it ends with an error.
        health: as of `follow`.

    Attributes:
        error: what ended it.
    """

    def __init__(
        self,
        config: IngestConfig,
        say: Say = lambda _: None,
        committed: Callable[[], None] = lambda: None,
        failed: Callable[[], None] = lambda: None,
        health: Health | None = None,
    ) -> None:
        self.error: BaseException | None = None
        self._config, self._say, self._committed, self._failed = config, say, committed, failed
        self._health = health
        self._ending, self._news = Event(), Event()
        self._thread = Thread(target=self._work, name="intake", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Until rows were committed, at most so long.

        Raises:
            StreamgpError: of `follow`.
        """
        self._news.wait(seconds)
        self._news.clear()
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Commit and acknowledge what was collected, and end."""
        self._ending.set()
        self._thread.join(ENDING)

    def _work(self) -> None:
        try:
            follow(self._config, self._tell, self._say, ending=self._ending, health=self._health)
        except BaseException as error:  # it is raised where rows are waited for
            if not self._ending.is_set():
                self.error = error
                self._failed()
        self._news.set()

    def _tell(self, _: IngestProgress) -> None:
        self._news.set()
        self._committed()


@contextmanager
def taking(config: IngestConfig | None, say: Say, health: Health | None = None) -> Iterator[Beside | None]:
    """Fill a table while it is learned or, without `follow`, before that; there are rows in it then.

    Raises:
        UsageError: the source is no broker.
        StreamgpError: of `follow`.
    """
    if config is None:
        yield None
        return
    if not config.follow:
        follow(config, say=say, health=health)
        yield None
        return
    opening = Retry(config.table, say, Event(), (health or Health()).opening)

    def has_rows() -> bool:
        return Table.exists(config.table) and Table.open(config.table).rows > 0

    opening.wait_for(has_rows)  # before there are two that say that the store is away
    found = Beside(config, say, health=health)
    try:
        while not opening.wait_for(has_rows):
            found.wait(1.0)
        yield found
    finally:
        found.close()
