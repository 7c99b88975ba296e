"""Ingest: sources -> table, every row exactly once, whatever is killed or run again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from streamgp.base import Json
from streamgp.errors import UsageError
from streamgp_data.ingestion.report import IngestProgress as IngestProgress
from streamgp_data.ingestion.report import Progress
from streamgp_data.ingestion.run import IngestionRun
from streamgp_data.ingestion.taken import TakenRows
from streamgp_data.reading.files import expand

if TYPE_CHECKING:
    from streamgp_pipelines.config import IngestConfig
    from streamgp_pipelines.health import Health


def ingest(
    config: IngestConfig,
    progress: Progress = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
    health: Health | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Json]:
    """Take the new rows of every source into the table; with `follow`, until `stop()`.

    Args:
        config: sources and table.
        progress: called after each commit.
        stop: asked after each look at the sources.
        health: its `taken` is kept up to date.
        say: called when the store of a table that is followed does not answer, and when it does again.

    Raises:
        DataError, SchemaError: a source cannot be taken; what came before it is in the table.
        TableError: the table is damaged, or contradicts the flags.
        UsageError: the configuration asks for something impossible.
        ServiceError: the storage refused.
    """
    taken = TakenRows()
    if health is not None:
        health.taken = taken

    def report(now: IngestProgress) -> None:
        taken.accepted, taken.quarantined = now.rows, now.quarantined
        progress(now)

    run = IngestionRun(config, report, taken, say)
    with run:
        run.open()
        while True:
            files = expand(config.source)
            if config.as_name is not None and len(files) > 1:
                raise UsageError(f"--as names one source, but there are {len(files)}", hint="ingest them one by one")
            for uri in files:
                run.take(uri)
            if not config.follow or stop():
                return run.summary()
            time.sleep(config.poll)
