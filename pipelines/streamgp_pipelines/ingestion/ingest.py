"""Ingest: sources -> table, every row exactly once, whatever is killed or run again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator, Field

from streamgp.base import Json
from streamgp.errors import UsageError
from streamgp.streaming.sources._files import expand
from streamgp.streaming.sources._records import LONGEST
from streamgp_pipelines.config import Settings
from streamgp_pipelines.ingestion.report import IngestProgress as IngestProgress
from streamgp_pipelines.ingestion.report import Progress
from streamgp_pipelines.ingestion.run import Run


class IngestConfig(Settings):
    """`streamgp ingest`.

    Attributes:
        source: files, directories, globs, or "-" for standard input.
        table: the directory (or s3:// address) of the table.
        time: the time column; "row" where there is no clock. Found by itself if it is `ds` or the only time.
        series: the column that says which series a row belongs to; `unique_id` is found by itself.
        time_format: iso, epoch-s, epoch-ms, epoch-us, epoch-ns, elapsed-s (and so on), step, or a format like
            "%d.%m.%Y %H:%M".
        timezone: whose clock naive times show (an IANA name or +10:00).
        every: the declared interval, like 30m; never resamples.
        tolerance: how far from whole intervals behind the row before a row may be and still count as on the grid.
        as_name: the name of a source in place of its path.
        format: csv, jsonl, parquet or arrow, where the suffix does not say.
        separator, decimal, thousands, encoding, null: how a text file is written; found where not given.
        max_line: bytes of the longest line that is taken, or such as "16MB".
        final: take a last line that has no newline.
        repair: where half a line was taken, set its row aside and take the whole line.
        follow, poll: look again every `poll` seconds until interrupted.
        sort: put the new rows of each source in the order of time first; holds them in memory.
        dry_run: say what would be done, write nothing.
    """

    source: tuple[str, ...]
    table: Annotated[str, BeforeValidator(str)]
    time: str | None = None
    series: str | None = None
    time_format: str | None = None
    timezone: str | None = None
    every: str | None = None
    tolerance: str | None = None
    as_name: str | None = None
    format: str | None = None
    separator: str | None = None
    decimal: str | None = Field(None, pattern=r"^[.,]$")
    thousands: str | None = None
    encoding: str | None = None
    null: tuple[str, ...] = ()
    max_line: Annotated[int, BeforeValidator(lambda value: _bytes(value))] = Field(LONGEST, ge=1024, le=1 << 30)
    final: bool = False
    repair: bool = False
    follow: bool = False
    poll: float = Field(1.0, gt=0)
    sort: bool = False
    dry_run: bool = False


def ingest(
    config: IngestConfig,
    progress: Progress = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Json]:
    """Take the new rows of every source into the table; with `follow`, until `stop()`.

    Raises:
        DataError, SchemaError: a source cannot be taken; what came before it is in the table.
        TableError: the table is damaged, or contradicts the flags.
        UsageError: the configuration asks for something impossible.
        ServiceError: the storage refused.
    """
    run = Run(config, progress)
    with run:
        while True:
            files = expand(config.source)
            if config.as_name is not None and len(files) > 1:
                raise UsageError(f"--as names one source, but there are {len(files)}", hint="ingest them one by one")
            for uri in files:
                run.take(uri)
            if not config.follow or stop():
                return run.summary()
            time.sleep(config.poll)


def _bytes(value: object) -> object:
    """'16MB' in bytes.

    Example:
        >>> _bytes("16MB"), _bytes("64 KiB"), _bytes(4096)
        (16000000, 65536, 4096)
    """
    found = (
        re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?)(i?)b?\s*", value, re.IGNORECASE)
        if isinstance(value, str)
        else None
    )
    if found is None:
        return value
    base = 1024 if found[3] else 1000
    return round(float(found[1]) * base ** " kmg".index(found[2].lower() or " "))
