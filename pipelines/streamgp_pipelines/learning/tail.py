"""Rows of a stream in a checkpoint."""

from __future__ import annotations

import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import Json


class Tail:
    """The rows after the last full micro-batch, so that a checkpoint forecasts from the newest row; Stateful."""

    def __init__(self, rows: pa.RecordBatch | None = None) -> None:
        self.rows = rows

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        if self.rows is None:
            return {}, {}
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.rows.schema) as stream:
            stream.write_batch(self.rows)
        return {"arrow": torch.frombuffer(bytearray(sink.getvalue().to_pybytes()), dtype=torch.uint8)}, {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.rows = None
        if "arrow" in tensors:
            with pa.ipc.open_stream(tensors["arrow"].numpy().tobytes()) as stream:
                self.rows = stream.read_next_batch()
