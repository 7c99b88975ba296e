"""Apache Parquet, read row group by row group; its types are kept as far as a Delta table has them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from streamgp_data.reading.bytes import Position
from streamgp_data.reading.columnar import ROWS, Columnar, whole_file

SUFFIXES = (".parquet", ".pq")
SIGNS = {b"PAR1": "a Parquet file"}


class Config(BaseModel):
    """Nothing to set: a Parquet file says everything itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def build(config: Config, uri: str) -> Parquet:
    """The file at `uri`, or standard input for "-".

    Raises:
        DataError: there is no such file, or it is damaged.
        SchemaError: a column has a type that a table cannot hold.
    """
    return Parquet(uri)


class Parquet(Columnar):
    """A Source over one Parquet file."""

    def begin(self, uri: str) -> tuple[pa.Schema, Position]:
        file, end = whole_file(uri)
        self._reader = pq.ParquetFile(file)
        return self._reader.schema_arrow, end

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        first = 0
        groups: list[int] = []
        for group in range(self._reader.num_row_groups):
            rows = self._reader.metadata.row_group(group).num_rows
            if not groups and first + rows <= start:
                first += rows
            else:
                groups.append(group)
        for batch in self._reader.iter_batches(ROWS, row_groups=groups):  # of damaged pages it leaves rows out
            skipped = max(0, min(start - first, batch.num_rows))
            first += batch.num_rows
            if skipped < batch.num_rows:
                yield batch.slice(skipped)
        if first != self._reader.metadata.num_rows:
            raise pa.ArrowInvalid(f"{first:,} of {self._reader.metadata.num_rows:,} rows could be read")
