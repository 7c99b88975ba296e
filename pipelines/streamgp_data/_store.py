"""An object store as deltalake reaches it, as a file system that pyarrow can write to as well as read."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler


class Store(DeltaStorageHandler):
    """deltalake's own handler refuses what pyarrow writes: buffers, where it takes bytes."""

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
        """Open a new object for sequential writing; it can be seen when it is closed."""
        return pa.PythonFile(_Bytes(self._handler.open_output_stream(path, metadata)), mode="w")


class _Bytes(io.RawIOBase):
    """A stream that is handed any buffer, over one that takes bytes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return int(self._stream.write(bytes(data)))

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
