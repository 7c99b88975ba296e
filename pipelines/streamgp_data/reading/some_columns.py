"""A source of some of the columns of another one, under other names."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streamgp_data.reading.cells import FAULT, LINE, TEXT, with_bookkeeping
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.wrapped import Wrapped


class SomeColumns(Wrapped):
    """A FileSource over another one, of some of its columns. What is wrong with a cell of the others is no fault of
    its row.

    Args:
        inner: the source of all columns.
        names: its column -> what it is called here, in the order of `inner`; the others are left out.
    """

    def __init__(self, inner: FileSource, names: Mapping[str, str]) -> None:
        self.inner, self.uri, self._own = inner, inner.uri, {new: old for old, new in names.items()}
        self.names = list(self._own)
        self.sample = inner.sample.select(list(self._own.values())).rename_columns(self.names)
        self._typed({new: inner.schema.field(old).type for new, old in self._own.items()})
        self.units = {new: inner.units[old] for new, old in self._own.items() if old in inner.units}
        self.doubts = {new: inner.doubts[old] for new, old in self._own.items() if old in inner.doubts}

    def expect(self, schema: pa.Schema) -> None:
        """Read the columns as these types from now on; what is left out stays text, or as it is."""
        text, given = hasattr(self.inner, "dialect"), {old: schema.field(new) for new, old in self._own.items()}
        fields = []
        for name in self.inner.names:
            own = pa.string() if text else self.inner.schema.field(name).type
            fields.append(given[name].with_name(name) if name in given else pa.field(name, own))
        self.inner.expect(pa.schema(fields))
        self._typed({name: schema.field(name).type for name in self.names})

    def _typed(self, kinds: dict[str, pa.DataType]) -> None:
        self.schema = with_bookkeeping(kinds)

    def _batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [rows.column(name) for name in (*self._own.values(), LINE, FAULT, TEXT)]
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names)
