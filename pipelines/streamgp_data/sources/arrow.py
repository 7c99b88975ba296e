"""Arrow IPC, as a file (Feather version 2) or as a stream."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from streamgp_data.reading.bytes import Position
from streamgp_data.reading.columnar import Columnar, whole_file

SUFFIXES = (".arrow", ".feather", ".ipc", ".arrows")
SIGNS = {b"ARROW1": "an Arrow file", b"\xff\xff\xff\xff": "an Arrow stream"}
_FILE = b"ARROW1"


class Config(BaseModel):
    """Nothing to set: an Arrow file says everything itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def build(config: Config, uri: str) -> Arrow:
    """The file at `uri`, or standard input for "-".

    Raises:
        DataError: there is no such file, or it is damaged.
        SchemaError: a column has a type that a table cannot hold.
    """
    return Arrow(uri)


class Arrow(Columnar):
    """A Source over one Arrow IPC file or stream."""

    def begin(self, uri: str) -> tuple[pa.Schema, Position]:
        file, end = whole_file(uri)
        self._is_file = file.read(len(_FILE)) == _FILE
        file.seek(0)
        self._seekable = file
        open_it = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
        return open_it(self._seekable).schema, end

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        self._seekable.seek(0)
        first = 0
        for batch in self._all():
            skipped = max(0, min(start - first, batch.num_rows))
            first += batch.num_rows
            if skipped < batch.num_rows:
                yield batch.slice(skipped)

    def _all(self) -> Iterator[pa.RecordBatch]:
        if not self._is_file:
            yield from pa.ipc.open_stream(self._seekable)
            return
        reader = pa.ipc.open_file(self._seekable)
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)
