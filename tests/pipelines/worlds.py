"""Small synthetic tables, and runs on them: what every test of the pipelines starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import torch

from streamgp.base import Json, Tracker
from streamgp_data import checkpoint
from streamgp_data.table import Table, TableMeta
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.tail import Tail
from streamgp_pipelines.training.train import train

HOUR_NS = 3600 * 10**9
START_US = 1_700_006_400_000_000  # 2023-11-15T00:00Z
OPTIONS: dict[str, Any] = {
    "target": "y",
    "online": True,
    "model": "linear",
    "lags": 6,
    "horizon": 3,
    "season": 24,
    "warmup": 200,
    "batch": 64,
    "checkpoint_every": 200,
    "level": "80,95",
    "device": "cpu",
}
"""A run that is small enough to be repeated many times."""


def rows_of(count: int, seed: int = 0, name: str | None = None, shift: float = 0.0) -> dict[str, Any]:
    """`count` hourly rows of one series: y has a day, a week, an input x, a known input k and AR(1) noise.

    Returns:
        columns t (ns of row, in μs), y, x, k and, with a name, unique_id.
    """
    generator = np.random.default_rng(seed)
    hours = np.arange(count)
    x = np.convolve(generator.normal(size=count + 4), np.ones(5) / 2, "valid")
    k = (hours // 24 % 7 < 5).astype(np.float64)
    noise = np.zeros(count)
    for i, shock in enumerate(generator.normal(scale=0.2, size=count)):
        noise[i] = 0.7 * noise[i - 1] + shock if i else shock
    y = 10 + shift + 3 * np.sin(2 * np.pi * hours / 24) + k * np.sin(4 * np.pi * hours / 24) + 0.8 * x + k + noise
    columns: dict[str, Any] = {"t": START_US + hours * 3_600_000_000, "y": y, "x": x, "k": k}
    return columns if name is None else {"unique_id": [name] * count, **columns}


def frame_of(count: int = 1000, series: Sequence[str] = (), seed: int = 0, zone: str | None = "UTC") -> pl.DataFrame:
    """The rows of every series, those of one hour side by side."""
    if not series:
        whole = pl.DataFrame(rows_of(count, seed))
    else:
        parts = [pl.DataFrame(rows_of(count, seed + i, name, 5.0 * i)) for i, name in enumerate(series)]
        whole = pl.concat(parts).sort("t", maintain_order=True)
    time = pl.col("t").cast(pl.Datetime("us"))
    return whole.with_columns(time if zone is None else time.dt.replace_time_zone("UTC").dt.convert_time_zone(zone))


def make_table(
    path: Path, data: pl.DataFrame, cuts: Sequence[int] = (), every_ns: int | None = HOUR_NS, **meta: Any
) -> Table:
    """A table of these rows, committed in pieces that end at `cuts`; the time column is t where there is one."""
    if "t" in data.columns:
        kind = data.schema["t"]
        zone = kind.time_zone if isinstance(kind, pl.Datetime) else None
        meta = {"time": "t", "clock": isinstance(kind, pl.Datetime), "zone": zone, "every_ns": every_ns} | meta
    rows = _stored(data)
    if "unique_id" in data.columns:
        meta = {"series": "unique_id"} | meta
    table = Table.create(path, rows.schema, TableMeta(**meta))
    append(table, rows, cuts)
    return table


def _stored(data: pl.DataFrame) -> pa.Table:
    """As a table stores it: short strings, instants in UTC."""
    instants = [name for name, kind in data.schema.items() if isinstance(kind, pl.Datetime) and kind.time_zone]
    rows = data.with_columns(pl.col(name).dt.convert_time_zone("UTC") for name in instants).to_arrow()
    large = pa.types.is_large_string
    return rows.cast(pa.schema([(f.name, pa.string() if large(f.type) else f.type) for f in rows.schema]))


def append(table: Table, rows: pa.Table | pl.DataFrame, cuts: Sequence[int] = ()) -> None:
    """Add rows to a table in commits that end at `cuts` and at the end."""
    if isinstance(rows, pl.DataFrame):
        rows = _stored(rows)
    rows = rows.select(table.schema.names[1:]).cast(pa.schema(list(table.schema)[1:]))
    edges = [0, *cuts, rows.num_rows]
    for start, stop in pairwise(edges):
        if stop > start:
            table.append(rows.slice(start, stop - start), "test", table.mark("test", 0) + 1)


@dataclass
class Diary(NoTracker):
    """A tracker that remembers what it was told."""

    directory: Path
    title: str = ""
    told: dict[str, Any] = field(default_factory=dict)
    points: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    status: str = ""

    def __post_init__(self) -> None:
        super().__init__(self.directory, self.title)

    def params(self, values: Any) -> None:
        self.told |= values

    def metrics(self, values: Any, step: int) -> None:
        self.points.append((step, dict(values)))

    def finish(self, status: str) -> None:
        self.status = status


def config_of(table: Path | Table, home: Path, **options: Any) -> TrainConfig:
    """OPTIONS with others; None leaves one out, and the season away."""
    where = table.path if isinstance(table, Table) else table
    given = {"table": where, "checkpoint": home, **OPTIONS, **options}
    given["season"] = "none" if given["season"] is None else given["season"]
    config: TrainConfig = TrainConfig.read({key: value for key, value in given.items() if value is not None})
    return config


def run(table: Path | Table, home: Path, tracker: Tracker | None = None, **options: Any) -> dict[str, Any]:
    """Train, on one thread, and return the summary."""
    torch.set_num_threads(1)
    found: dict[str, Any] = train(
        config_of(table, home, **options), lambda directory, _: tracker or NoTracker(directory), lambda _: None
    )
    return found


TIMES = (
    "run_id",
    "new_rows",
    "seconds",
    "rows_per_second",
    "update_ms",
    "peak_mb",
    "checkpoint",
    "offset",
    "table_version",
)
"""Entries of a summary that are not about the numbers of the stream."""


def scores_of(summary: dict[str, Json]) -> dict[str, Json]:
    """Only what two runs over the same rows must have in common."""
    return {key: value for key, value in summary.items() if key not in TIMES}


BESIDE = ("clock", "arrivals")
"""Parts of a checkpoint that no number of the model depends on; `arrivals` is of a Forecaster alone."""


def tensors_of(home: Path) -> dict[str, torch.Tensor]:
    """All tensors of the newest checkpoint but the stop-watch's and those of rows that came, by "part/name"."""
    saved = checkpoint.read(home)
    parts = {part: named for part, named in saved.tensors.items() if part not in BESIDE}
    return {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}


def assert_same_state(one: Path, two: Path) -> None:
    """The newest checkpoints hold the same numbers, bit for bit."""
    left, right = tensors_of(one), tensors_of(two)
    assert left.keys() == right.keys()
    rows = [Tail() for _ in (left, right)]  # Arrow may lay the same rows out in two ways
    for tail, tensors in zip(rows, (left, right), strict=True):
        tail.restore({"arrow": tensors.pop("tail/arrow")} if "tail/arrow" in tensors else {}, {})
    assert rows[0].rows == rows[1].rows
    different = [name for name in left if not same_bits(left[name], right[name])]
    assert not different, f"not the same: {different}"
    rest = [
        {part: value for part, value in checkpoint.read(home).rest.items() if part not in BESIDE} for home in (one, two)
    ]
    assert rest[0] == rest[1]


def same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether the bytes are the same, so that NaN equals NaN."""
    bytes_of = [
        tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor for tensor in (one, two)
    ]
    return one.shape == two.shape and torch.equal(*bytes_of)
