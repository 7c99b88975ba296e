"""From rows to questions and answers: what may be asked at each row, and what each row answers.

A row has a step in its series: round((time − first time) / every), or, without a known interval, its count. With a
tolerance it is the nearest tick of a clock that follows the rows (`steps`), so that a clock that jitters or drifts
neither lets two rows share a step nor leaves a gap. A gap is a jump of the step; a missing value is NaN. With
`gaps="fill"` something stands in for what is missing in a window (`asking`), so that a question is asked at every
row from which a seasonal naive forecast could be made, however long ago the last target was. An input that is missing
is filled in when its row is read (`lost_inputs`); where a past row has no target, its known inputs are of the rows that
stand in for it. No window begins before its series; truths are never filled in.
Without a known interval, the times ahead of a row lie apart by the median of the last intervals of its series: one gap
moves nothing; rows on one day of each month keep to it (`monthly`). A row becomes *current* when it is read or, with
known inputs, when the known values of its H next steps have been read: only then do its targets count, so that a
forecast from an earlier row cannot have seen them. Memory is series · (lags + 2 · season + horizon) rows.

Sentinels and the values of a dead sensor are missing (`faults`), and so is a spike, but as a truth (`truths`). What a
sensor repeated before it was found dead is forgotten, once the row that showed it is current.

A row that comes after a newer one of its series is late. With `late="use"` it takes the place of its time, where that
is still kept and empty, after the first row of its series: rows that are read after it see it there. It is a truth at
once, and nothing is asked at it; where known inputs are waited for, and rows of its time still wait, it waits among
them and is asked at as they are. So pieces of a micro-batch between late rows are read one after another (`_by_turns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import Inputs, Json
from streamgp.errors import UsageError
from streamgp.windows import steps
from streamgp.windows._future import GIVE, GIVE_FRAME, Newest, known_ahead, regressors
from streamgp.windows._spec import Answers, Asks, History, WindowSpec
from streamgp.windows.asking import Asking, Current, fading, first_whole, long
from streamgp.windows.calendar import Bools, Floats, Ints
from streamgp.windows.faults import Faults, Level, Stuck
from streamgp.windows.last_known import LastKnown, Recent
from streamgp.windows.lost_inputs import LostInputs
from streamgp.windows.rows import BatchRows, Names, increasing, numbers, times
from streamgp.windows.timeline import BEFORE, NEVER, PACE, Ring, Timeline
from streamgp.windows.truths import TruthsApart

__all__ = ["Answers", "Asks", "History", "WindowSpec", "Windows"]

_LAST_KNOWN = ("at_phase", "latest")
"""Parts of the state."""
LAST = np.iinfo(np.int64).max
"""No time is later."""


class Windows:
    """Rows in, questions and answers out; Stateful.

    Args:
        spec: what windows are made of.

    Attributes:
        names: of the series, by code; one without a series column has the target's name.
        rows: rows read so far, dropped ones included.
        late: rows dropped because they were not after the last row of their series.
        late_used: late rows that took their place.
        snapped: rows that were off the grid by no more than the tolerance, and were taken as on it.

    Example:
        >>> windows = Windows(WindowSpec(targets=("y",), lags=2, horizon=1))
        >>> asks, answers = windows.push(pa.record_batch({"y": [1.0, 2.0, 4.0]}))
        >>> asks.x.past[:, :, 0].tolist(), asks.origin.tolist(), answers.y[:, 0].tolist()
        ([[1.0, 2.0], [2.0, 4.0]], [1, 2], [1.0, 2.0, 4.0])
    """

    def __init__(self, spec: WindowSpec) -> None:
        self.spec, self.shape = spec, spec.shape
        self.rows = self.late = self.snapped = self.late_used = 0
        self._names = Names()
        if spec.series is None:
            self._names.restore(["+".join(spec.targets)])
        outputs, channels = len(spec.targets), len(spec.columns)
        self._targets = slice(0, outputs)
        self._waits = spec.horizon if spec.known and spec.lags else 0
        self._any_order = spec.late == "use" and not spec.lags  # one row says nothing of another
        self._back = max(spec.season, first_whole(spec), 0 if self.shape.context is None else self.shape.context.back)
        if spec.lags and spec.time is not None and spec.every_ns is None:
            self._back = max(self._back, PACE)
        if spec.late == "use":  # no truth of an open question may come twice
            self._back = max(self._back, spec.horizon)
        self._ring = Ring(self._back + self._waits + 1, channels)
        self._last = np.zeros((3, 0), np.int64)  # (3, S) last step, last time, first time (or tick) of each series
        self._valued = np.zeros((0, outputs), np.int64)  # (S, O) time of the last value, at first of the first row
        self._queue = np.zeros((4, 0), np.int64)  # (4, W) code, step, time, position of rows not yet current
        short = (spec.seasons or (spec.season,))[0] if spec.lags else 1
        fills = bool(spec.lags) and spec.gaps == "fill"
        self._faults = Faults(spec.columns, short, spec.sentinels, spec.faults, spikes=fills)
        self._apart = TruthsApart(outputs)
        inputs = channels - outputs
        self._lost = None
        if inputs and spec.lags and spec.gaps == "fill":
            seasons = spec.seasons or ((spec.season,) if spec.season > 1 else ())
            self._lost = LostInputs(inputs, seasons, self._back, self._waits, fading(spec))
        self._asking = Asking(spec, self._back, self._lost)
        self._dead: list[tuple[Stuck, int]] = []  # and the step that must be current before its values are forgotten

    @property
    def names(self) -> list[str]:
        return self._names.all

    @property
    def reach(self) -> int:
        """Steps of a series that are kept, its newest among them."""
        return self._ring.capacity

    def name(self, names: list[str]) -> None:
        """Take up the names of series, by code, before any row."""
        self._names.restore(names)

    def codes(self, rows: pa.RecordBatch) -> Ints:
        """(N,) codes of the series of rows that are pushed later; new series get one.

        Raises:
            SchemaError, DataError: there is no series column, or a row has no series.
        """
        return self._names.read(rows, self.spec.series) if self.spec.series else np.zeros(rows.num_rows, np.int64)

    def push(self, rows: pa.RecordBatch, code: Ints | None = None) -> tuple[Asks, Answers]:
        """Read rows in the order of the stream; `code` (N,) of their series, where `codes` was asked before.

        Returns:
            the questions and the truths of the rows that became current, in the order in which they did.

        Raises:
            SchemaError, DataError: a column is missing or does not hold what it must.
        """
        read = self._read(rows, code)
        self._reserve()
        found = self._faults.take(read.code, read.values, self.names if self.spec.series else ())
        read = read._replace(values=found.values, truths=found.truths)
        if found.stuck or found.levels or self._dead:
            return self._in_pieces(read, found.stuck, found.levels)
        return self._push(read)

    def told(self) -> list[str]:
        """What was found of sentinels and dead sensors since this was asked last, a sentence each."""
        said, self._faults.said = self._faults.said, []
        return said

    @property
    def waiting(self) -> int:
        """Rows that are not current yet, as they wait for known values."""
        return self._queue.shape[1]

    def flush(self) -> tuple[Asks, Answers]:
        """Make the rows current that still wait for known values: they answer, but nothing is asked at them."""
        code, step, ds, position = self._queue[:, np.lexsort((self._queue[1], self._queue[0]))]
        self._queue = self._queue[:, :0]
        nowhere = np.full(len(code), -1, np.int64)
        timeline = self._past()
        current = Current(code, step, ds, position, nowhere, position)
        nothing = self._asking.ask(Current(*(part[:0] for part in current)), timeline)
        return nothing, self._with_truths(current, self._answer(current, timeline))

    def ask_last(self, future: pa.Table | None = None, needed: int | None = None) -> Asks:
        """A question at the newest row of every series, for a forecast.

        A series whose newest row leaves a gap in its window is left out. Without lags, a question for every row of
        `future`.

        Args:
            future: known inputs at the H steps after the newest row (series, time and known columns); series that
                it does not name are left out.
            needed: steps that `future` must have; H when left out. Values beyond that it lacks are those before.

        Raises:
            UsageError: known inputs are wanted and `future` is None.
            DataError: `future` lacks a step, or a value of it, or names an unknown series.
        """
        self._reserve()
        spec, (step, ds, _) = self.spec, self._last[:, : len(self.names)]
        if (spec.known or not spec.lags) and future is None:
            names = ", ".join(spec.known or spec.columns[len(spec.targets) :])
            raise UsageError(f"the future of {names} is needed", hint=GIVE, python=GIVE_FRAME)
        if not spec.lags:
            assert future is not None
            code, when, inputs = regressors(spec, future, self._names)
            place, count = np.full(len(code), -1), self.rows + np.arange(len(code))
            rows = Current(code, step[code] + 1, when, count, place, count)
            return self._asking.ask(rows, self._past(), inputs[:, None])
        known = None
        code = np.arange(len(step))
        if spec.known:
            assert future is not None
            known, named = known_ahead(spec, future, self._names, self.newest(), needed)
            code, known = code[named], known[named]
        place = np.full(len(code), -1, np.int64)
        rows = Current(code, step[code], ds[code], place + self.rows, place, place)
        return self._asking.ask(rows, self._past(), known, self._waiting())

    def shifted(self, asks: Asks, column: int, sign: float) -> Inputs:
        """See `Asking.shifted`."""
        return self._asking.shifted(asks, column, sign)

    def ask_known(self) -> Asks:
        """The newest question of every series whose known inputs have come: at the row H steps before its newest."""
        self._reserve()
        step = self._last[0, : len(self.names)] - self._waits
        code = np.flatnonzero((step >= 0) & (self._ring.find(np.arange(len(step)), step) >= 0))
        ds = self._ring.ds.reshape(-1)[self._ring.find(code, step[code])]
        place = np.full(len(code), -1, np.int64)
        rows = Current(code, step[code], ds, place + self.rows - self._waits, place, place)
        return self._asking.ask(rows, self._past())

    def gather(self, parts: Iterable[Windows]) -> None:
        """Hold the rows of the windows of parts of the series, to ask at the newest; nothing is pushed after."""
        for part in parts:
            code = self._names.codes(pa.array(part.names, pa.string()))
            part._reserve()
            self._reserve()
            for name in ("step", "ds", "values"):
                getattr(self._ring, name)[code] = getattr(part._ring, name)[: len(code)]
            self._last[:, code] = part._last[:, : len(code)]
            self._valued[code] = part._valued[: len(code)]
            self._asking.at_phase.put(code, part._asking.at_phase)
            self._asking.latest.put(code, part._asking.latest)
            if self._lost is not None and part._lost is not None:
                self._lost.put(code, part._lost)

    def newest(self) -> Newest:
        """The newest row of every series, and the interval that its next rows are expected at."""
        self._reserve()
        spec, (step, ds, first) = self.spec, self._last[:, : len(self.names)]
        if spec.time is None or spec.every_ns is not None:
            return Newest(step, ds, first, np.full(len(step), spec.every_ns or 1))
        nowhere = np.full(len(step), -1, np.int64)
        every, months = self._past().interval(np.arange(len(step)), step, nowhere, spec.zone)
        return Newest(step, ds, first, every, months)

    def lost(self) -> Ints:
        """(S, C − O) rows since the last value of each input at the newest row of every series; 0 where it has one, and
        where none was ever known."""
        self._reserve()
        code, step = np.arange(len(self.names)), self._last[0, : len(self.names)]
        place, here = np.full(len(code), -1), np.zeros(1, np.int64)
        found = None if self._lost is None else self._lost.doubt(code, step, place, here, slice(None))
        if found is None:
            return np.zeros((len(code), self._ring.channels - len(self.spec.targets)), np.int64)
        return np.asarray(found.age[:, 0], np.int64)

    def last_values(self, latest: int = LAST) -> Ints:
        """(S, O) times of the last value of each target up to the time `latest`; `BEFORE` where there is no row.

        That of the first row, where there was no value. Where the last value is after `latest`, or of a dead sensor,
        and no kept row has another, the time follows from its step, or else is that of the oldest kept row.
        """
        self._reserve()
        count, ring, every = len(self.names), self._ring, self.spec.every_ns
        kept = (ring.step[:count] >= 0) & (ring.ds[:count] <= latest)
        ds = ring.ds[:count, :, None]
        known = kept[..., None] & ~np.isnan(ring.values[:count, :, self._targets])
        found = np.where(known, ds, BEFORE).max(1, initial=BEFORE)
        oldest = np.where(kept, ring.ds[:count], LAST).min(1, initial=LAST)
        instead = np.where(kept.any(1), oldest, BEFORE)[:, None].repeat(self.shape.outputs, 1)
        valued = self._valued[:count]
        instead = np.where((valued > BEFORE) & (valued <= latest), valued, instead)
        if every is not None:
            self._asking.latest.reserve(count)
            step, (newest, time, _) = self._asking.latest.step[:count, 0], self._last[:, :count, None]
            by_step = time - (newest - np.maximum(step, 0)) * every
            instead = np.where((step >= 0) & (by_step <= latest), by_step, instead)
        return np.where(known.any(1), found, instead)

    def jumps(self) -> Ints:
        """(S,) steps from the row before the newest one of every series to the newest; 0 where none is kept."""
        self._reserve()
        count = len(self.names)
        steps = np.sort(self._ring.step[:count], 1)[:, -2:] if count else np.zeros((0, 2), np.int64)
        return np.where(steps[:, :1] >= 0, np.diff(steps, axis=1), 0)[:, 0]

    def history(self, rows: int) -> History:
        """The last rows of every series that are still kept, at most `rows` steps back; waiting rows among them."""
        ring, count = self._ring, len(self.names)
        self._reserve()
        steps = self._last[0, :count, None] + np.arange(1 - min(rows, ring.capacity), 1)
        slots = ring.find(np.arange(count)[:, None], steps)
        flat = slots[slots >= 0]
        y = ring.values.reshape(-1, ring.channels)[flat, self._targets]
        return History(long(flat // ring.capacity), long(ring.ds.reshape(-1)[flat]), torch.from_numpy(y))

    def spikes(self) -> History:
        """The last spike of each target of every series, where its row is still kept; y is NaN for other targets."""
        self._reserve()
        ring, targets, codes, times, y = self._ring, len(self.spec.targets), list[int](), list[int](), list[Floats]()
        for (code, column), (step, value) in self._apart.all():
            slot = int(ring.find(np.array([code]), np.array([step]))[0])
            if slot >= 0 and column < targets and np.isnan(ring.values.reshape(-1, ring.channels)[slot, column]):
                codes.append(code)
                times.append(int(ring.ds.reshape(-1)[slot]))
                y.append(np.where(np.arange(targets) == column, value, np.nan))
        values = torch.from_numpy(np.array(y).reshape(-1, targets))
        return History(torch.tensor(codes, dtype=torch.int64), torch.tensor(times, dtype=torch.int64), values)

    def _push(self, read: BatchRows) -> tuple[Asks, Answers]:
        position = self.rows + np.arange(len(read.ds))
        self.rows += len(read.ds)
        if self.spec.late == "use" and self.spec.lags and (behind := self._behind(read)) is not None:
            return self._by_turns(read, position, behind)
        return self._read_next(read, position)[:2]

    def _in_pieces(self, read: BatchRows, dead: Sequence[Stuck], levels: Sequence[Level]) -> tuple[Asks, Answers]:
        """Read rows some of which show that a sensor is dead, or that a level came: a piece ends with each of them, and
        with every row while one is not current, so that what is forgotten does not depend on how the stream is cut."""
        asks, answers, start, count = list[Asks](), list[Answers](), 0, len(read.ds)
        ends = [one.row + 1 for one in dead] + [one.row + 1 for one in levels]
        while start < count or not asks:
            stop = start + 1 if self._dead else min((end for end in ends if end > start), default=count)
            rows = slice(start, stop)
            found = self._push(read.rows(rows))
            asks.append(found[0])
            answers.append(found[1])
            self._dead += [(one, int(self._last[0, one.code])) for one in dead if start <= one.row < stop]
            for level in levels:
                if start <= level.row < stop:
                    self._restore_level(level.code, level.column)
            for one, step in self._dead:
                if not ((self._queue[0] == one.code) & (self._queue[1] <= step)).any():
                    self._forget(one, step)
            waiting = self._queue[:2]
            self._dead = [
                (one, step) for one, step in self._dead if ((waiting[0] == one.code) & (waiting[1] <= step)).any()
            ]
            start = stop
        return Asks.cat(asks), Answers(*map(torch.cat, zip(*answers, strict=True)))

    def _forget(self, stuck: Stuck, step: int) -> None:
        """The values that a dead sensor repeated up to a step were none."""
        code, column, ring = stuck.code, stuck.column, self._ring
        kept = np.flatnonzero((ring.step[code] <= step) & (ring.step[code] >= 0))
        ring.values[code, kept[ring.values[code, kept, column] == stuck.value], column] = np.nan
        if column < len(self.spec.targets) and len(kept):
            there = kept[~np.isnan(ring.values[code, kept, column])]
            when = ring.ds[code, there].max() if len(there) else ring.ds[code, kept].min()
            self._valued[code, column] = min(self._valued[code, column], when)
        if column >= len(self.spec.targets) or not self.spec.lags or self.spec.gaps == "reset":
            return
        kept = kept[ring.step[code, kept].argsort()]
        known = Recent(np.full(len(kept), code), ring.step[code, kept], ring.values[code, kept, self._targets])
        for last in (self._asking.at_phase, self._asking.latest):
            last.forget(code, column, stuck.value)
            last.take(known)

    def _restore_level(self, code: int, column: int) -> None:
        """What counted as the last spike of a column was the first value of a new level."""
        ring, last = self._ring, self._apart.last(code, column)
        if last is None:
            return
        step, value = last
        one = np.array([code]), np.array([step])
        slot = int(ring.find(*one)[0])
        if slot < 0:
            return
        row = ring.values.reshape(-1, ring.channels)[slot]
        row[column] = value
        if column >= len(self.spec.targets):
            if self._lost is not None:
                self._lost.was_read(code, step, column - len(self.spec.targets))
            return
        self._valued[code, column] = max(self._valued[code, column], ring.ds.reshape(-1)[slot])
        if not ((self._queue[0] == code) & (self._queue[1] == step)).any():
            self._take(Recent(*one, row[None, self._targets]))

    def _read_next(self, read: BatchRows, position: Ints) -> tuple[Asks, Answers, Current]:
        """Read the next rows; also returns the rows that became current."""
        keep, step = self._steps(read)
        self.late += len(read.ds) - len(keep)
        code, ds, values, truths = read.rows(keep)
        if truths is not None:
            self._apart.take(code, step, values, truths)
        if self._lost is not None:
            values = self._lost.in_rows(self._ring, code, step, values, self._last[0])
        timeline = Timeline(self._ring, code, step, ds, values, self._back, self._waits)
        current = self._newly_current(timeline, np.stack([code, step, ds, position[keep]]))
        answers = self._answer(current, timeline)
        known = Recent(current.code, current.step, answers.y.numpy())
        answers = self._with_truths(current, answers)
        asks = self._asking.ask(current, timeline, recent=known)
        self._take(known)
        self._ring.write(code, step, ds, values)
        self._note_times(code, ds, values)
        if self._lost is not None:
            self._lost.taken()
        self._last[0, code], self._last[1, code] = step, np.maximum(ds, self._last[1, code]) if self._any_order else ds
        return asks, answers, current

    def _by_turns(self, read: BatchRows, position: Ints, behind: Bools) -> tuple[Asks, Answers]:
        """Read rows some of which are older than others before them, `behind` (B,): in each turn the next piece of
        every series, which is one late row or those up to the next late row."""
        order = np.argsort(read.code, kind="stable")
        code, late = read.code[order], behind[order]
        first = np.append(True, code[1:] != code[:-1])
        begins = (late | np.append(False, late[:-1])) & ~first
        count = np.cumsum(begins)
        turn = np.empty_like(count)
        turn[order] = count - count[np.searchsorted(code, code)]
        asks, answers, by = [], [], []
        for now in range(int(turn.max()) + 1):
            for piece, read_piece in (
                ((turn == now) & ~behind, self._read_next),
                ((turn == now) & behind, self._insert_late),
            ):
                if piece.any():
                    found = read_piece(read.rows(piece), position[piece])
                    asks.append(found[0])
                    answers.append(found[1])
                    by.append(found[2].by)
        whole = Answers(*map(torch.cat, zip(*answers, strict=True)))
        current = np.lexsort((whole.step.numpy(), np.concatenate(by)))  # as they would have been one by one
        whole = whole.rows(torch.from_numpy(current))
        place = whole.position.argsort()
        asked = torch.cat([part.position for part in asks])
        asked = place[torch.searchsorted(whole.position[place], asked)].argsort()
        return Asks.cat(asks).rows(asked), whole

    def _insert_late(self, read: BatchRows, position: Ints) -> tuple[Asks, Answers, Current]:
        """Put late rows, one a series, in their places; the answers, and the rows that became current."""
        by = np.argsort(read.code)
        step = self._place(read.code[by], read.ds[by])
        by, step = by[step >= 0], step[step >= 0]
        self.late += len(read.ds) - len(by)
        self.late_used += len(by)
        (code, ds, values, truths), position = read.rows(by), position[by]
        if truths is not None:
            self._apart.take(code, step, values, truths)
        timeline = Timeline(self._ring, code, step, ds, values, self._back, self._waits)
        self._ring.write(code, step, ds, values)
        self._note_times(code, ds, values)
        waits = step > self._last[0, code] - self._waits
        rows = np.stack([code, step, ds, position])
        self._queue = np.concatenate([self._queue, rows[:, waits]], 1)
        code, step, ds, position = rows[:, ~waits]
        current = Current(code, step, ds, position, timeline.place[~waits], position)
        nothing = self._asking.ask(Current(*(part[:0] for part in current)), timeline)
        answers = self._answer(current, timeline)
        self._take(Recent(code, step, answers.y.numpy()))
        answers = self._with_truths(current, answers)
        gone = step - self.spec.season <= self._last[0, code] - self._ring.capacity
        answers.seasonal[torch.from_numpy(gone)] = torch.nan
        answers.filed[:] = True
        return nothing, answers, current

    def _note_times(self, code: Ints, ds: Ints, values: Floats) -> None:
        """Keep the times (B,) of the last values of rows (B, C), sorted by series and time."""
        new = np.flatnonzero(self._valued[code, 0] == BEFORE)
        self._valued[code[new[::-1]]] = ds[new[::-1], None]
        row, target = np.nonzero(~np.isnan(values[:, self._targets]))
        np.maximum.at(self._valued, (code[row], target), ds[row])

    def _take(self, known: Recent) -> None:
        """From now on questions see the targets of these rows, however long ago they are."""
        if self.spec.lags and self.spec.gaps == "fill":
            self._asking.at_phase.take(known)
            self._asking.latest.take(known)

    def _waiting(self) -> Recent:
        """The rows that wait for known inputs: at the end of the stream they are known."""
        code, step = self._queue[:2, np.lexsort((self._queue[1], self._queue[0]))]
        values = self._ring.values.reshape(-1, self._ring.channels)[self._ring.find(code, step)]
        return Recent(code, step, values[:, self._targets])

    def _place(self, code: Ints, ds: Ints) -> Ints:
        """(N,) the steps of late rows; -1 where there is none, where it is no longer kept, or where a row is."""
        ring, every, (last, _, first) = self._ring, self.spec.every_ns, self._last[:, code]
        assert every is not None
        if self.spec.tolerance_ns is None:
            step = (ds - first + every // 2) // every
        else:  # between the rows beside it: the clock that they went by has moved on
            steps, when = ring.step[code], ring.ds[code]  # (N, capacity)
            kept, at = steps > last[:, None] - ring.capacity, np.arange(len(code))
            before = np.where(kept & (when < ds[:, None]), steps, NEVER).argmax(1)
            after = np.where(kept & (when >= ds[:, None]), steps, -NEVER).min(1)
            low = np.where(kept[at, before] & (when[at, before] < ds), steps[at, before], NEVER)
            step = np.minimum(low + np.maximum((ds - when[at, before] + every // 2) // every, 1), after - 1)
            step[(step <= low) | (low == NEVER)] = -1
        free = (step >= 0) & (step < last) & (step > last - ring.capacity) & (ring.find(code, step) < 0)
        return np.where(free, step, -1)

    def _behind(self, read: BatchRows) -> Bools | None:
        """(B,) whether a row is older than one before it of its series; None where none is.

        A row that has no step, as it is too near to the one before it, does not make others late: whether it is in
        their piece must not matter.
        """
        order = np.argsort(read.code, kind="stable")
        code, ds = read.code[order], read.ds[order]
        first = np.append(True, code[1:] != code[:-1])[: len(code)]
        if not (ds < np.where(first, self._last[1, code], np.append(0, ds)[: len(ds)])).any():
            return None
        passed = ds
        if self.spec.tolerance_ns is not None and not self._any_order:
            assert self.spec.every_ns is not None
            _, previous, clock = self._last
            kept = steps.follow(code, ds, previous, clock, self.spec.every_ns, self.spec.tolerance_ns).kept
            passed = np.where(kept, ds, BEFORE)
        values, rank = np.unique(np.concatenate([ds, self._last[1, code], passed]), return_inverse=True)
        now, last, passed = rank.reshape(3, -1)
        group = np.cumsum(first) * len(values)
        before = np.where(first, last, np.append(0, passed[:-1])) + group
        found = np.empty(len(ds), bool)
        found[order] = now + group < np.maximum.accumulate(before)
        return found if found.any() else None

    def _read(self, rows: pa.RecordBatch, code: Ints | None = None) -> BatchRows:
        spec = self.spec
        values, code = numbers(rows, spec.columns), self.codes(rows) if code is None else code
        if spec.time is None:
            return BatchRows(code, np.zeros(len(code), np.int64), values)
        return BatchRows(code, times(rows, spec.time), values)

    def _reserve(self) -> None:
        """Room for every series named so far."""
        count = len(self.names)
        self._ring.reserve(count)
        if count > self._last.shape[1]:
            more = np.zeros((3, max(count, 2 * self._last.shape[1]) - self._last.shape[1]), np.int64)
            more[0], more[1] = -1, BEFORE
            self._last = np.concatenate([self._last, more], 1)
        if (new := self._last.shape[1] - len(self._valued)) > 0:
            self._valued = np.concatenate([self._valued, np.full((new, self.shape.outputs), BEFORE)])

    def _steps(self, read: BatchRows) -> tuple[Ints, Ints]:
        """The rows that are not late, (K,) sorted by (series, step), and their steps."""
        order = np.argsort(read.code, kind="stable")
        code, ds, every = read.code[order], read.ds[order], self.spec.every_ns
        last, previous, first = self._last
        tolerance = self.spec.tolerance_ns
        if every is not None and tolerance is not None and not self._any_order:
            found = steps.follow(code, ds, previous, first, every, tolerance)
            first[code] = found.clock
            self.snapped += found.snapped
            return order[found.kept], last[code[found.kept]] + found.steps
        if every is not None and not self._any_order:
            series, start = np.unique(code, return_index=True)
            new = last[series] < 0
            first[series[new]] = ds[start[new]]
            step = (ds - first[code] + every // 2) // every
            kept = increasing(code, step, last[code])
            return order[kept], step[kept]
        any_order = self.spec.time is None or self._any_order
        kept = np.ones(len(code), bool) if any_order else increasing(code, ds, previous[code])
        code = code[kept]
        count = np.arange(len(code)) - np.searchsorted(code, code)  # how many rows of the series came before it here
        step = last[code] + 1 + count
        if self.spec.time is None:
            read.ds[order] = step
        return order[kept], step

    def _newly_current(self, timeline: Timeline, rows: Ints) -> Current:
        """The rows that become current with `rows` (4, K), in the order of the row that makes them so."""
        if not self._waits:
            order = np.argsort(rows[3])
            code, step, ds, position = rows[:, order]
            return Current(code, step, ds, position, timeline.place[order], position)
        place = np.concatenate([timeline.places(self._queue[0], self._queue[1]), timeline.place])
        rows = np.concatenate([self._queue, rows], 1)
        maker = timeline.behind(rows[0], place, self._waits)  # (W + K,) the new row H steps on or more, or -1
        done = maker >= 0
        order = np.flatnonzero(done)
        by = rows[3, len(self._queue[0]) + maker]
        order = order[np.lexsort((rows[1, order], by[order]))]
        self._queue = rows[:, ~done]
        code, step, ds, position = rows[:, order]
        return Current(code, step, ds, position, place[order], by[order])

    def _answer(self, rows: Current, timeline: Timeline) -> Answers:
        off = np.array([0, -self.spec.season])
        y = timeline.look(rows.code, rows.step, rows.place, off, self._targets)  # (N, 2, O)
        series, step, position, ds = (long(part) for part in (rows.code, rows.step, rows.position, rows.ds))
        now, before = (torch.from_numpy(y[:, at].copy()) for at in (0, 1))
        return Answers(series, step, position, ds, now, before, torch.zeros(len(series), dtype=torch.bool))

    def _with_truths(self, rows: Current, answers: Answers) -> Answers:
        """With spikes, which the values that windows look back on are without."""
        return answers._replace(y=self._apart.put(rows.code, rows.step, answers.y))

    def _past(self) -> Timeline:
        """The rows read before, and no new ones."""
        none = np.zeros(0, np.int64)
        return Timeline(self._ring, none, none, none, np.zeros((0, self._ring.channels)), self._back, self._waits)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        count, ring = len(self.names), self._ring
        arrays = {"step": ring.step[:count], "ds": ring.ds[:count], "values": ring.values[:count]}
        arrays |= {"last": self._last[:, :count], "valued": self._valued[:count], "queue": self._queue}
        tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        for name in _LAST_KNOWN:
            own: LastKnown = getattr(self._asking, name)
            tensors |= {f"{name}.{part}": tensor for part, tensor in own.state(count).items()}
        if self._lost is not None:
            tensors |= {f"lost.{part}": tensor for part, tensor in self._lost.state(count).items()}
        faults, about = self._faults.state(count)
        tensors |= {f"faults.{part}": tensor for part, tensor in faults.items()}
        rest: dict[str, Json] = {"rows": self.rows, "late": self.late, "snapped": self.snapped, "faults": about}
        rest["dead"] = [[*one, step] for one, step in self._dead]
        rest["apart"] = self._apart.state()
        if self.spec.late == "use":
            rest["late_used"] = self.late_used
        return tensors, rest | {"names": cast(Json, list(self.names))}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.rows, self.late, self.snapped = (cast(int, rest[name]) for name in ("rows", "late", "snapped"))
        self.late_used = cast(int, rest.get("late_used", 0))
        self._names.restore(cast("list[str]", rest["names"]))
        ring = self._ring = Ring(self._ring.capacity, self._ring.channels)
        ring.step, ring.ds, ring.values = (tensors[name].numpy().copy() for name in ("step", "ds", "values"))
        if ring.step.shape[1] != ring.capacity:
            raise ValueError(f"windows of {ring.step.shape[1]} rows a series, where {ring.capacity} are wanted")
        if not ring.step.shape == ring.ds.shape == ring.values.shape[:2]:
            raise ValueError(f"steps, times and values of {len(ring.step)}, {len(ring.ds)}, {len(ring.values)} series")
        if len(ring.step) > len(self.names):  # fewer: of the only series no row was read
            raise ValueError(f"windows of {len(ring.step)} series, and names of {len(self.names)}")
        ring.series = len(ring.step)
        self._last, self._queue = tensors["last"].numpy().copy(), tensors["queue"].numpy().copy()
        for name in _LAST_KNOWN:
            getattr(self._asking, name).restore({part: tensors[f"{name}.{part}"] for part in ("step", "value")})
        if self._lost is not None:
            lost = {name.removeprefix("lost."): part for name, part in tensors.items() if name.startswith("lost.")}
            self._lost.restore(lost, ring.capacity)
        self._faults.restore({"held": tensors["faults.held"]}, cast("dict[str, Json]", rest["faults"]))
        dead = cast("list[tuple[int, int, int, float, int]]", rest["dead"])
        self._dead = [(Stuck(row, code, column, value), step) for row, code, column, value, step in dead]
        self._apart.restore(rest["apart"])
        if "valued" in tensors:
            self._valued = tensors["valued"].numpy().copy()
            if self._valued.shape != (len(ring.step), self.shape.outputs):
                raise ValueError(f"valued is {self._valued.shape}, of {len(ring.step)} series")
        else:  # a state from before there were these
            self._valued = self._valued[:0]
            self._valued = self.last_values()
