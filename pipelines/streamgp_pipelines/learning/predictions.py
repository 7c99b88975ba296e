"""Every scored forecast beside its truth, so that anyone can recompute the scores.

Parts are written inside the checkpoint directory, one a checkpoint, named by the rows they cover and the digest of
their bytes; a run that was killed drops the parts written after the checkpoint it resumes from. At the end they are
verified and assembled into one Parquet file, atomically.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import file_digest, sha256
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, cast

import polars as pl
import torch
from torch import Tensor

from streamgp.base import Due, Shape
from streamgp.errors import CheckpointError
from streamgp.forecasting.alarms import KINDS
from streamgp.forecasting.silence import Silent
from streamgp_pipelines.files import replaced
from streamgp_pipelines.learning.frames import Naming, assembled, raw_parts
from streamgp_pipelines.learning.pairs import select

FOLDER = "predictions"

DIGITS = 32
"""Hexadecimal digits of the SHA-256 in a part's name."""


class Predictions:
    """Collects scored pairs between checkpoints.

    Args:
        directory: of the checkpoint; parts live in its `predictions` folder.
        naming: how the frame's columns are called and its times are read.
        alarms: whether only rows that raised an alarm are kept, in a folder of their own.
        durable: whether a part is on the disk when it is written.
    """

    def __init__(
        self, directory: Path, naming: Naming, shape: Shape, alarms: bool = False, durable: bool = False
    ) -> None:
        self.folder = directory / ("alarms" if alarms else FOLDER)
        self.alarms, self.durable = alarms, durable
        self.naming = naming
        self.shape = shape
        self.since = 0
        self._collected: list[Pairs | Silent] = []  # in the order in which they came
        self._names: Sequence[str] = ()
        self._written: set[Path] = set()  # by this process

    def resume(self, rows: int) -> None:
        """Drop what was written after `rows`: those rows come again."""
        self.since = rows
        self._collected = []
        for part in self._parts():
            if int(part.stem.split("-")[1]) > rows:
                part.unlink()
        for unfinished in self.folder.glob(".*.tmp"):
            unfinished.unlink()

    def add(self, due: Due, names: Sequence[str]) -> None:
        """Keep the pairs of one micro-batch."""
        if self.alarms:
            due = alarming(due)
        if len(due.y):
            self._collected.append(pairs(due, self.naming))
            self._names = names  # they only grow

    def add_silent(self, found: Sequence[Silent], names: Sequence[str]) -> None:
        """Keep targets that fell silent, of alarms."""
        if self.alarms and found:
            self._collected += found
            self._names = names

    def write_part(self, rows: int) -> None:
        """Write what was collected up to `rows`; call it before the checkpoint of these rows is written."""
        if self._collected:
            whole = BytesIO()
            self._frame().write_parquet(whole, compression="lz4", statistics=False)  # is read once, to be assembled
            digest = sha256(whole.getbuffer()).hexdigest()[:DIGITS]
            part = self.folder / f"{self.since:012d}-{rows:012d}-{digest}.parquet"
            with replaced(part, self.durable) as temporary:
                temporary.write_bytes(whole.getbuffer())
            self._written.add(part)
        self._collected = []
        self.since = rows

    def assemble(self, path: Path, last: Sequence[pl.DataFrame]) -> int:
        """All parts and the last pairs, which no checkpoint covers, as one file; returns its rows.

        Raises:
            CheckpointError: a part is damaged; the message names it.
            ServiceError: the file cannot be written.
        """
        for part in self._parts():
            if part not in self._written:
                _verify(part)
        scans = [frame_of_nothing(self.naming, self.shape).lazy()]
        scans += [pl.scan_parquet(part) for part in self._parts()]
        scans += [part.lazy() for part in last]
        with replaced(path) as temporary:
            pl.concat(scans, how="vertical_relaxed").sink_parquet(temporary, compression_level=1)
        return int(pl.scan_parquet(path).select(pl.len()).collect().item())

    def _frame(self) -> pl.DataFrame:
        """What was collected."""
        parts = list[pl.DataFrame]()
        for silent, some in groupby(self._collected, lambda one: isinstance(one, Silent)):
            if silent:
                parts += [silent_rows(cast(Silent, one), self._names, self.naming, self.shape) for one in some]
            else:
                parts.append(framed(joined(cast("list[Pairs]", list(some))), self._names, self.naming, self.shape))
        return parts[0] if len(parts) == 1 else pl.concat(parts, how="vertical_relaxed")

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("*-*.parquet")) if self.folder.is_dir() else []


def kept(directory: Path, rows: int) -> list[Path]:
    """The parts in a checkpoint directory that its checkpoint of `rows` rows covers; none without --predictions."""
    parts = sorted((directory / FOLDER).glob("*-*.parquet"))
    return [part for part in parts if int(part.stem.split("-")[1]) <= rows]


def _verify(part: Path) -> None:
    """Check that a part has the bytes that its name promises.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        with part.open("rb") as file:
            whole = part.stem.endswith(f"-{file_digest(file, 'sha256').hexdigest()[:DIGITS]}")
    except OSError:
        whole = False
    if not whole:
        raise CheckpointError(
            f"{part} is damaged: it does not hold the forecasts that were written",
            hint="bring this file back from a copy, or start with --fresh; without --predictions the run continues",
        )


class Pairs(NamedTuple):
    """What the columns of R pairs are made of: numbers of `Due`, and of its raw distributions mean, standard deviations
    (R,) and ends of the bands (2K, R)."""

    series: Tensor
    ds: Tensor
    cutoff: Tensor
    column: Tensor
    y: Tensor
    mean: Tensor
    std: Tensor
    std_latent: Tensor
    raw: Tensor
    quantiles: Tensor
    tail: Tensor | None
    alarm: Tensor | None


def pairs(due: Due, naming: Naming) -> Pairs:
    """The numbers of pairs, without the windows that they came with."""
    own = (due.series, due.ds, due.cutoff, due.column, due.y)
    return Pairs(*own, *raw_parts(due.predictive, naming), due.quantiles, due.tail, due.alarm)


def joined(parts: Sequence[Pairs]) -> Pairs:
    """All pairs, part by part: one frame of them costs a fraction of a frame a part."""
    columns: Any = zip(*parts, strict=True)
    whole: list[Any] = [None if column[0] is None else torch.cat(column, -1) for column in columns]
    return Pairs(*whole)


def frame(due: Due, names: Sequence[str], naming: Naming, shape: Shape) -> pl.DataFrame:
    """One row a pair: unique_id, ds, cutoff, step (ahead), [target,] y and the forecast columns."""
    return framed(pairs(due, naming), names, naming, shape)


def framed(found: Pairs, names: Sequence[str], naming: Naming, shape: Shape) -> pl.DataFrame:
    """One row a pair; names: of the series."""
    columns: dict[str, object] = {
        "unique_id": pl.Series(names, dtype=pl.String).gather(found.series.numpy()),
        "ds": naming.times(found.ds),
        "cutoff": naming.times(found.cutoff),
        "step": (found.column % shape.horizon + 1).numpy(),
    }
    if shape.outputs > 1:
        columns["target"] = pl.Series(shape.targets, dtype=pl.String).gather((found.column // shape.horizon).numpy())
    columns["y"] = found.y.numpy()
    deviations = [found.std.numpy(), found.std_latent.numpy()]
    columns |= assembled(found.mean, found.quantiles, found.raw, deviations, naming)
    if naming.alarms:
        p = pl.Series([] if found.tail is None else found.tail.numpy(), dtype=pl.Float64).fill_nan(None)
        words = pl.Series(WORDS, dtype=pl.String).gather([] if found.alarm is None else found.alarm.numpy())
        columns |= {f"{naming.model}-p": p, f"{naming.model}-alarm": words}
    return pl.DataFrame(columns)


def alarming(due: Due) -> Due:
    """The forecasts one step ahead whose truth raised an alarm."""
    return due if due.alarm is None else select(due, due.alarm > 0)


def alarms_of(due: Due, names: Sequence[str], naming: Naming, shape: Shape) -> pl.DataFrame:
    """The rows that raised an alarm: unique_id, ds, [target,] y, forecast, p, alarm; since and ticks, which only those
    of silent targets have."""
    found, model = frame(alarming(due), names, naming, shape), naming.model
    own = {model: "forecast", f"{model}-p": "p", f"{model}-alarm": "alarm"}
    keys = [name for name in ("unique_id", "ds", "target", "y") if name in found.columns]
    none = pl.lit(None, found.schema["ds"]).alias("since"), pl.lit(None, pl.Int64).alias("ticks")
    return found.select(*keys, *(pl.col(name).alias(short) for name, short in own.items()), *none)


def silent_alarms(found: Silent, names: Sequence[str], naming: Naming, shape: Shape) -> pl.DataFrame:
    """Targets that fell silent, as `alarms_of` has rows: at the time `ds` there has been no value for `ticks` intervals
    since that of `since`."""
    columns: dict[str, Any] = {
        "unique_id": pl.Series(names, dtype=pl.String).gather(found.series),
        "ds": naming.times(torch.from_numpy(found.ds)),
    }
    if shape.outputs > 1:
        columns["target"] = pl.Series(shape.targets, dtype=pl.String).gather(found.target)
    columns |= {name: pl.Series([None] * len(found.ds), dtype=pl.Float64) for name in ("y", "forecast", "p")}
    since = naming.times(torch.from_numpy(found.since))
    return pl.DataFrame(columns | {"alarm": [SILENT] * len(found.ds), "since": since, "ticks": found.ticks})


def silent_rows(found: Silent, names: Sequence[str], naming: Naming, shape: Shape) -> pl.DataFrame:
    """Targets that fell silent, with the columns of `frame`: since and ticks are `cutoff` and `step`."""
    model, nothing = naming.model, frame_of_nothing(naming, shape)
    rows = (
        silent_alarms(found, names, naming, shape)
        .drop("p")
        .rename({"forecast": model, "alarm": f"{model}-alarm", "since": "cutoff", "ticks": "step"})
    )
    return pl.concat([nothing, rows], how="diagonal_relaxed").select(nothing.columns)


SILENT = "silent"
"""The alarm of a target that has no value any more."""
WORDS = [None, *("+".join(kind for at, kind in enumerate(KINDS) if bits >> at & 1) for bits in range(1, 8))]
"""The alarms of a row, by its bits."""


def frame_of_nothing(naming: Naming, shape: Shape) -> pl.DataFrame:
    """The frame's columns without a row."""
    empty: Tensor = torch.zeros(0, dtype=torch.int64)
    times = naming.times(empty)
    texts = ["unique_id", *(["target"] * (shape.outputs > 1))]
    columns = {name: pl.Series([], dtype=pl.String) for name in texts} | {"ds": times, "cutoff": times}
    columns["step"] = pl.Series([], dtype=pl.Int64)
    names = ["y", *naming.columns(), *([f"{naming.model}-p"] * naming.alarms)]
    numbers = {name: pl.Series([], dtype=pl.Float64) for name in names}
    order = ["unique_id", "ds", "cutoff", "step", *texts[1:], *names]
    if naming.alarms:
        columns |= {f"{naming.model}-alarm": pl.Series([], dtype=pl.String)}
        order.append(f"{naming.model}-alarm")
    return pl.DataFrame(columns | numbers).select(order)
