"""Every scored forecast beside its truth, so that anyone can recompute the scores.

Parts are written inside the checkpoint directory, one a checkpoint, named by the rows they cover and the digest of
their bytes; a run that was killed drops the parts behind the checkpoint it resumes from. At the end they are verified
and assembled into one Parquet file, atomically.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import file_digest, sha256
from io import BytesIO
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from streamgp.base import Due, Shape
from streamgp.errors import CheckpointError
from streamgp_pipelines.files import replaced
from streamgp_pipelines.learning.frames import Naming, forecast_columns

FOLDER = "predictions"

DIGITS = 32
"""Hexadecimal digits of the SHA-256 in a part's name."""


class Predictions:
    """Collects scored pairs between checkpoints.

    Args:
        directory: of the checkpoint; parts live in its `predictions` folder.
        naming: how the frame's columns are called and its times are read.
    """

    def __init__(self, directory: Path, naming: Naming, shape: Shape) -> None:
        self.folder = directory / FOLDER
        self.naming = naming
        self.shape = shape
        self.frames: list[pl.DataFrame] = []
        self.since = 0

    def resume(self, rows: int) -> None:
        """Drop what was written after `rows`: those rows come again."""
        self.since = rows
        self.frames = []
        for part in self._parts():
            if int(part.stem.split("-")[1]) > rows:
                part.unlink()
        for unfinished in self.folder.glob(".*.tmp"):
            unfinished.unlink()

    def add(self, due: Due, names: Sequence[str]) -> None:
        """Keep the pairs of one micro-batch."""
        if len(due.y):
            self.frames.append(frame(due, names, self.naming, self.shape))

    def write_part(self, rows: int) -> None:
        """Write what was collected up to `rows`; call it before the checkpoint of these rows is written."""
        if self.frames:
            whole = BytesIO()
            pl.concat(self.frames, how="vertical_relaxed").write_parquet(whole)
            digest = sha256(whole.getbuffer()).hexdigest()[:DIGITS]
            with replaced(self.folder / f"{self.since:012d}-{rows:012d}-{digest}.parquet") as temporary:
                temporary.write_bytes(whole.getbuffer())
        self.frames = []
        self.since = rows

    def assemble(self, path: Path, last: Sequence[pl.DataFrame]) -> int:
        """All parts and the last pairs, which no checkpoint covers, as one file; returns its rows.

        Raises:
            CheckpointError: a part is damaged; the message names it.
            ServiceError: the file cannot be written.
        """
        for part in self._parts():
            _verify(part)
        scans = [frame_of_nothing(self.naming, self.shape).lazy()]
        scans += [pl.scan_parquet(part) for part in self._parts()]
        scans += [part.lazy() for part in last]
        with replaced(path) as temporary:
            pl.concat(scans, how="vertical_relaxed").sink_parquet(temporary)
        return int(pl.scan_parquet(path).select(pl.len()).collect().item())

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("*-*.parquet")) if self.folder.is_dir() else []


def _verify(part: Path) -> None:
    """See that a part has the bytes that its name promises; parts of older versions promise none, but must be readable.

    Raises:
        CheckpointError: it is damaged.
    """
    digest = [*part.stem.split("-"), ""][2]
    try:
        with part.open("rb") as file:
            whole = not digest or file_digest(file, "sha256").hexdigest()[:DIGITS] == digest
        if not digest:
            pl.read_parquet(part)
    except (OSError, pl.exceptions.PolarsError):
        whole = False
    if not whole:
        raise CheckpointError(
            f"{part} is damaged: it does not hold the forecasts that were written",
            hint="bring this file back from a copy, or start with --fresh; without --predictions the run goes on",
        )


def frame(due: Due, names: Sequence[str], naming: Naming, shape: Shape) -> pl.DataFrame:
    """One row a pair: unique_id, ds, cutoff, y and the forecast columns."""
    columns: dict[str, object] = {
        "unique_id": pl.Series(names, dtype=pl.String).gather(due.series.numpy()),
        "ds": naming.times(due.ds),
        "cutoff": naming.times(due.cutoff),
    }
    if shape.outputs > 1:
        columns["target"] = pl.Series(shape.targets, dtype=pl.String).gather((due.column // shape.horizon).numpy())
    columns["y"] = due.y.numpy()
    return pl.DataFrame(columns | forecast_columns(due.predictive, due.quantiles, naming))


def frame_of_nothing(naming: Naming, shape: Shape) -> pl.DataFrame:
    """The frame's columns without a row."""
    empty: Tensor = torch.zeros(0, dtype=torch.int64)
    times = naming.times(empty)
    texts = ["unique_id", *(["target"] * (shape.outputs > 1))]
    columns = {name: pl.Series([], dtype=pl.String) for name in texts} | {"ds": times, "cutoff": times}
    numbers = {name: pl.Series([], dtype=pl.Float64) for name in ["y", *naming.columns()]}
    order = ["unique_id", "ds", "cutoff", *texts[1:], "y", *naming.columns()]
    return pl.DataFrame(columns | numbers).select(order)
