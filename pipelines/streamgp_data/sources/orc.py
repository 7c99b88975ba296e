"""Apache ORC, read stripe by stripe; its types are kept as far as a Delta table has them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import orc
from pydantic import BaseModel, ConfigDict

from streamgp.errors import DataError
from streamgp_data.reading.bytes import Position
from streamgp_data.reading.columnar import ROWS, Columnar, whole_file

SUFFIXES = (".orc",)
# No SIGNS: it begins with the letters ORC, as a text may.


class Config(BaseModel):
    """Nothing to set: an ORC file says everything itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def build(config: Config, uri: str) -> ORC:
    """The file at `uri`, or standard input for "-".

    Raises:
        DataError: there is no such file, it is damaged, or it has times and this machine no time zones.
        SchemaError: a column has a type that a table cannot hold.
    """
    return ORC(uri)


class ORC(Columnar):
    """A Source over one ORC file."""

    def begin(self, uri: str) -> tuple[pa.Schema, Position]:
        file, end = whole_file(uri)
        self._reader = orc.ORCFile(file)
        return self._reader.schema, end

    def batches(self, start: int) -> Iterator[pa.RecordBatch]:
        first = 0
        for number in range(self._reader.nstripes):  # rows of a stripe are known once it is read
            stripe = self._stripe(number)
            for row in range(max(start - first, 0), stripe.num_rows, ROWS):
                yield stripe.slice(row, ROWS)
            first += stripe.num_rows
        if first != self._reader.nrows:
            raise pa.ArrowInvalid(f"{first:,} of {self._reader.nrows:,} rows could be read")

    def _stripe(self, number: int) -> pa.RecordBatch:
        try:
            return self._reader.read_stripe(number)
        except pa.ArrowException as error:
            if "Time zone file" not in str(error):
                raise
            raise DataError(
                f"{self.uri}: its times cannot be read, since this machine has no time zone database",
                hint="install it (on Debian: apt install tzdata), or name its folder in the environment variable TZDIR",
            ) from None
