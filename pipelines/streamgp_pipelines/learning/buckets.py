"""A fleet whose series are dealt to buckets: each is a fleet of its own (`shard`), in this process or in others.

The bucket of a series is a hash of its name, and there are as many as when the run began. What a bucket learns depends
on its rows alone, and sums over the fleet are added bucket by bucket: no number depends on how many workers there are,
where they are, or how often one was lost. A checkpoint holds the state of each bucket in a file of its own, and can be
read, and gone on from, with any number of workers and without any.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar
from zlib import crc32

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import Due, Inputs, Json, Model, Source, Stateful, Step
from streamgp.forecasting.alarms import KINDS
from streamgp.forecasting.bands import Bands, Questions
from streamgp.forecasting.scores import Scores
from streamgp.windows.calendar import Ints
from streamgp.windows.windows import Asks, Windows
from streamgp_data.batches import micro_batches
from streamgp_pipelines.learning.columns import columns_read
from streamgp_pipelines.learning.counts import Counts
from streamgp_pipelines.learning.learner import Learner, in_all
from streamgp_pipelines.learning.pairs import joined
from streamgp_pipelines.learning.recipe import Recipe
from streamgp_pipelines.learning.restored import read_checkpoint
from streamgp_pipelines.learning.shard import PAIRS, Answer, Arrays, Since, Tally, Workers, here

FEWEST, BUCKETS, SERIES = 8, 64, 50
"""Buckets of a new fleet, at least and at most, and series in each where there are enough: a small batch costs nearly
what a large one does."""
READ = 2**16
"""Rows that are read at a time at most: each bucket has some hundreds of them."""
AT_ONCE = 16
"""Buckets whose state is fetched together for a checkpoint."""

T = TypeVar("T")


def buckets_for(series: int) -> int:
    """Buckets of a new fleet; there are no more workers than buckets. They say which series share a kernel, and must
    not depend on the workers.

    Example:
        >>> buckets_for(200), buckets_for(1000), buckets_for(10**6)
        (8, 20, 64)
    """
    return min(max(FEWEST, series // SERIES), BUCKETS)


def bucket_of(name: str, buckets: int = BUCKETS) -> int:
    """The bucket of a series: the same on every machine.

    Example:
        >>> bucket_of("north"), bucket_of("south")
        (2, 52)
    """
    return crc32(name.encode()) % buckets


class SeriesNames:
    """The names of the series, in the order in which they came; Stateful."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return {}, {"names": list(self._windows.names)}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        names: Any = rest["names"]
        self._windows.name(names)


class Buckets(Learner):
    """A fleet in buckets on its stream: as `Learner`. Windows, scores and counts are gathered from the buckets.

    Args:
        recipe: of the buckets.
        model: as each of the models begins.
        workers: makes where they live; by default here.
    """

    def __init__(self, recipe: Recipe, model: Model, workers: Callable[[Recipe, Since], Workers] = here) -> None:
        self._home: tuple[Path, Source] | None = None
        self.workers = workers(recipe, self.since)
        super().__init__(recipe, model)

    def begin(self) -> None:
        super().begin()
        self._bucket = np.zeros(0, np.int64)  # (S,) of each series
        self._tallies: dict[int, Tally] = {}
        self.bands = _Bands(self)
        self.silences = self._silences()

    def parts(self) -> dict[str, Stateful]:
        return {
            "roll": SeriesNames(self.windows),
            "scores": self.scores,
            "counts": self.counts,
            "warmup": self.warmup,
            "clock": self.clock,
            **({} if self.silences is None else {"silences": self.silences}),
        }

    @property
    def streams(self) -> int:
        return max(len(self.windows.names), 1)

    @property
    def size(self) -> int:
        return self.recipe.read

    @property
    def room(self) -> int:
        return self.size - self.rows % self.size

    @property
    def warmed(self) -> int:
        return sum(tally.warmed for tally in self._tallies.values())

    def to_come(self) -> int:
        return sum(tally.to_come for tally in self._tallies.values())

    def learn(self, rows: pa.RecordBatch, each: Callable[[Due], None]) -> Step | None:
        answers: dict[int, Answer] = self.workers.run("take", self._split(rows))
        self._count(rows)
        for one in answers.values():
            self.clock.took("predict", one.predict)
            for seconds in one.updates:
                self.clock.took("update", seconds)
        self._gather({bucket: one.tally for bucket, one in answers.items()})
        each(self._due(answers))
        return in_all([one.step for one in answers.values() if one.step is not None])

    def preview(self, rows: pa.RecordBatch | None) -> tuple[Self, list[Due]]:
        ahead = copy.copy(self)
        for name in ("windows", "scores", "counts", "clock", "warmup", "alarms", "silences"):
            setattr(ahead, name, copy.deepcopy(getattr(self, name)))
        answers: dict[int, Answer] = self.workers.run("preview", ahead._all(rows))
        ahead._tallies = dict(self._tallies)
        ahead._silent = []
        if rows is not None:
            ahead._count(rows)
        ahead._gather({bucket: one.tally for bucket, one in answers.items()})
        return ahead, [ahead._due(answers)]

    def branch(self, rows: pa.RecordBatch | None) -> list[Due]:
        _, counted = self.preview(rows)
        if rows is not None:
            self._listen(rows)
        self.workers.run("branch", self._all(rows))
        self._gather(self.workers.run("tally", self._all(None)))
        self.look()
        return counted

    def watch(self, rows: pa.RecordBatch) -> None:
        self.workers.run("watch", self._split(rows))
        self.look()

    def shards(self) -> Iterator[tuple[str, bytes]]:
        known = sorted(self._tallies)
        for start in range(0, len(known), AT_ONCE):
            found = self.workers.run("dump", dict.fromkeys(known[start : start + AT_ONCE]))
            yield from ((f"{bucket:03d}", data) for bucket, data in found.items())

    def load(self, shards: Mapping[str, bytes]) -> None:
        """Bring the buckets back to their state in a checkpoint, whose other parts are restored."""
        self._deal()
        tallies = self.workers.run("load", {int(name): data for name, data in shards.items()})
        self._tallies = {}
        self._gather(tallies)

    def remember(self, home: Path, source: Source) -> None:
        """From where a bucket that was lost is brought back: a directory of checkpoints, and the rows."""
        self._home = home, source

    def since(self, buckets: Collection[int]) -> Iterator[tuple[str, dict[int, Any]]]:
        """What brings these buckets back: the state in the newest checkpoint, and the rows since."""
        assert self._home is not None
        home, source = self._home
        saved = read_checkpoint(home)
        yield "load", {bucket: data for name, data in saved.shards.items() if (bucket := int(name)) in buckets}
        rows, offset = saved.rows, saved.manifest["offset"]
        if rows < self.rows:
            room = lambda: self.size - rows % self.size  # noqa: E731
            for batch, _ in micro_batches(source, offset, room):  # type: ignore[arg-type]
                yield "take", {bucket: part for bucket, part in self._split(batch).items() if bucket in buckets}
                rows += batch.num_rows
                if rows >= self.rows:
                    break

    @property
    def notes(self) -> list[str]:
        lost = self.workers.lost
        said = [f"workers were lost {lost} times, and brought back to where they were"] if lost else []
        return [*super().notes, *said]

    def close(self) -> None:
        self.workers.close()

    def fitted(self, series: Tensor) -> Tensor:
        return self._routed("fitted", series, lambda _, own: own, torch.zeros(len(series), dtype=torch.bool))

    def predict(self, asks: Asks, batch: int = 1) -> Tensor:
        return self._routed("predict", asks.series, lambda some, own: asks.rows(some)._replace(series=own))

    def _routed(
        self, name: str, series: Tensor, argument: Callable[[Tensor, Tensor], Any], none: Tensor | None = None
    ) -> Tensor:
        """(..., N, T) or (N,) what the buckets of these series (N,) answer; `argument` has the rows that a bucket is
        asked, and the codes of their series there."""
        code = series.numpy()
        bucket, own = self._bucket[code], self._own()[code]
        rows = {b: torch.from_numpy(np.flatnonzero(bucket == b)) for b in np.unique(bucket).tolist()}
        arguments = {b: argument(some, torch.from_numpy(own[some.numpy()])) for b, some in rows.items()}
        found: dict[int, Tensor] = self.workers.run(name, arguments)
        if not found:
            assert none is not None, "there are windows"
            return none
        whole, axis = torch.cat(list(found.values()), -2 if none is None else 0), -2 if none is None else 0
        order = torch.cat([rows[b] for b in found]).argsort()
        return whole.index_select(axis, order)

    def _own(self) -> Ints:
        """(S,) the code of each series in its bucket: there, too, they come in their order."""
        own = np.zeros(len(self._bucket), np.int64)
        for bucket in np.unique(self._bucket):
            members = self._bucket == bucket
            own[members] = np.arange(members.sum())
        return own

    def _deal(self) -> None:
        """New series get their buckets."""
        new = [bucket_of(name, self.recipe.buckets) for name in self.windows.names[len(self._bucket) :]]
        self._bucket = np.append(self._bucket, np.array(new, np.int64))

    def _split(self, rows: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
        """The rows of each bucket, in their order."""
        rows = rows.select(columns_read(self.windows.spec))
        code = self.windows.codes(rows)
        self._deal()
        bucket = self._bucket[code]
        order = np.argsort(bucket, kind="stable")
        known, starts = np.unique(bucket[order], return_index=True)
        parts = zip(known.tolist(), np.split(order, starts[1:]), strict=False)
        return {one: rows.take(some) for one, some in parts}

    def _all(self, rows: pa.RecordBatch | None) -> dict[int, pa.RecordBatch | None]:
        """The rows of every bucket; None where it has none."""
        split: dict[int, Any] = {} if rows is None else self._split(rows)
        return dict.fromkeys(self._tallies) | split

    def _gather(self, tallies: Mapping[int, Tally]) -> None:
        """Become the sum of the buckets, of which these have moved."""
        self._tallies = dict(sorted({**self._tallies, **tallies}.items()))
        parts, counts = [], []
        for bucket, tally in self._tallies.items():
            scores = Scores(self.windows.shape, self.calibration, self.model.family.binary, self.phases.period)
            tensors, rest = tally.scores
            scores.restore({name: torch.tensor(part) for name, part in tensors.items()}, rest)
            parts.append((scores, np.flatnonzero(self._bucket == bucket), tally.rows))
            counts.append(Counts())
            counts[-1].restore({}, tally.counts)
        self.scores.gather(parts)
        self.counts.gather(counts)
        if self.alarms is not None:
            told = [tally for tally in self._tallies.values() if tally.judged]
            self.alarms.rows = sum(tally.judged for tally in told)
            self.alarms.raised = (
                np.array([tally.raised for tally in told]).reshape(-1, len(KINDS)).sum(0).astype(np.int64)
            )
        for name in ("rows", "late", "late_used", "snapped"):
            setattr(self.windows, name, sum(getattr(tally, name) for tally in self._tallies.values()))
        if self.warmup.done_at is None and any(tally.fitted for tally in self._tallies.values()):
            self.warmup.finish(self.rows)

    def look(self) -> None:
        """Gather the newest rows."""
        found: dict[int, Windows] = self.workers.run("windows", dict.fromkeys(self._tallies))
        self.windows.gather(found.values())

    def _due(self, answers: Mapping[int, Answer]) -> Due:
        """The pairs of all buckets."""
        dues = [self._of(bucket, one.pairs) for bucket, one in answers.items() if one.pairs]
        return joined(dues) if dues else self._pairs(dict.fromkeys(PAIRS, torch.zeros(0, dtype=torch.int64)))

    def _of(self, bucket: int, pairs: Arrays) -> Due:
        """Pairs as their bucket gave them."""
        held = {name: torch.tensor(part) for name, part in pairs.items()}
        held["series"] = torch.from_numpy(np.flatnonzero(self._bucket == bucket))[held["series"]]
        return self._pairs(held)

    def _pairs(self, held: Mapping[str, Tensor]) -> Due:
        shape, none = self.windows.shape, torch.zeros(0, 0)
        quantiles, predictive = held.get("quantiles", none), self._nothing()
        if "parameters" in held:
            predictive = self.model.family.from_parameters(held["parameters"][..., None])
        x = Inputs(torch.zeros(0, shape.lags, len(shape.past)), torch.zeros(0, shape.horizon, len(shape.future)))
        return Due(
            **{name: held[name] for name in PAIRS},
            predictive=predictive,
            quantiles=quantiles,
            features=quantiles[:0],
            x=x,
            target=torch.zeros(0, shape.columns),
            issued=torch.zeros(0, 0, shape.columns),
            tail=held.get("tail"),
            alarm=held.get("alarm"),
        )


class _Bands(Bands):
    """The calibrations of the buckets."""

    def __init__(self, fleet: Buckets) -> None:
        self._fleet = fleet

    def quantiles(self, asked: Questions, probabilities: Sequence[float]) -> Tensor:
        wanted = tuple(probabilities)

        def own(some: Tensor, series: Tensor) -> tuple[Questions, tuple[float, ...]]:
            issued = type(asked.issued).from_parameters(asked.issued.parameters()[:, some])
            given = (asked.phase, asked.reference, asked.past, asked.age, asked.blur)
            phase, reference, past, age, blur = (None if part is None else part[some] for part in given)
            assert phase is not None and reference is not None
            return Questions(series, asked.at[some], phase, issued, reference, past, age, blur), wanted

        return self._fleet._routed("quantiles", asked.series, own)

    def wider(self, series: Tensor, age: Tensor) -> Tensor:
        return self._fleet._routed("wider", series, lambda some, own: (own, age[some]))
