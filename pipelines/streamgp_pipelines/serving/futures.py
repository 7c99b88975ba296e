"""Known inputs that clients have posted, kept beside the checkpoint: a restart forecasts from them as before."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa

from streamgp_pipelines.files import replaced

FILE = "future.arrow"

_log = logging.getLogger("streamgp.serving")


def write_future(directory: Path, rows: pa.Table) -> None:
    """Keep the rows, whole or not at all, in place of those before.

    Raises:
        ServiceError: they cannot be written.
    """
    with (
        replaced(Path(directory) / FILE, durable=True) as temporary,
        pa.ipc.new_file(str(temporary), rows.schema) as file,
    ):
        file.write_table(rows)


def read_future(directory: Path) -> pa.Table | None:
    """The rows that were kept; None, and a warning, where they cannot be read."""
    path = Path(directory) / FILE
    if not path.is_file():
        return None
    try:
        with pa.ipc.open_file(pa.py_buffer(path.read_bytes())) as file:
            rows = file.read_all()
            rows.validate(full=True)
            return rows
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or ["?"])[0]
        _log.warning("%s cannot be read, known inputs must be posted again: %s", path, reason)
        return None
