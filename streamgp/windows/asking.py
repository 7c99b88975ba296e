"""What is asked at a row: its window, the times ahead, and how far it may be off.

Where something is missing in a window, with `gaps="fill"` something stands in for it (`missing`): the last known value
at its phase of the season, or the newest one, or what the season and the rows beside it say. The known inputs of a past
row without a target are then of the same rows, so that differences of both belong together. A question knows how long
ago its targets were known (`Asks.age`), and how far off the known inputs ahead may be for that (`Asks.doubt`).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from streamgp.base import Inputs
from streamgp.transforms import each
from streamgp.windows import calendar, monthly
from streamgp.windows._spec import Asks, WindowSpec
from streamgp.windows.calendar import Bools, Floats, Ints
from streamgp.windows.context import Filler
from streamgp.windows.events import NEWEST, WEEKS, is_over, neighbours, offsets, width
from streamgp.windows.last_known import LastKnown, Recent
from streamgp.windows.lost_inputs import LostInputs
from streamgp.windows.missing import bridged, complete, filled, finite
from streamgp.windows.monthly import Months
from streamgp.windows.timeline import Timeline

NEAR, AGREE = 3, 0.1
"""Known targets that must agree on a new level, within this share of its distance from the season before."""
FADES = 0.25
"""Short seasons after which half of a departure from the season is left, where it is not known (`missing`)."""


class Current(NamedTuple):
    """Rows that are looked back from: (N,) each; place is where they stand on the timeline, by is the position of the
    row that made them current."""

    code: Ints
    step: Ints
    ds: Ints
    position: Ints
    place: Ints
    by: Ints


class Asking:
    """Makes questions of the rows that are kept.

    Args:
        spec: what windows are made of.
        back: steps behind a row that are kept.
        lost: of the inputs; None where they are not filled in.

    Attributes:
        at_phase: the last known targets of each series at each phase of the season.
        latest: the last known targets of each series.
    """

    def __init__(self, spec: WindowSpec, back: int, lost: LostInputs | None) -> None:
        self.spec, self.shape = spec, spec.shape
        outputs, self._channels = len(spec.targets), len(spec.columns)
        self.at_phase, self.latest = (LastKnown(season, outputs) for season in (spec.season, 1))
        self._back, self._lost = back, lost
        self._targets, self._known = slice(0, outputs), slice(self._channels - len(spec.known), self._channels)
        self._lags = np.arange(1 - spec.lags, 1)  # (L,) offsets, oldest first
        self._ahead = np.arange(1, spec.horizon + 1)  # (H,)
        self._season = _seasons_before(self._ahead, spec.season)  # (H,)
        self._first, self._fades = first_whole(spec), fading(spec)
        self._instead: Ints | None = None  # (H,) where a reference is looked for that is not there
        if spec.context is not None:
            short = spec.context.short
            self._instead = self._season - short if short == spec.season else _seasons_before(self._ahead, short)
        context = self.shape.context
        self._weeks = (0, 0)  # W and D of `events`; 0 where they are not looked for
        if context is not None and spec.gaps == "fill":
            self._weeks = context.long or context.short, context.short
            self._sample = offsets(min(context.long or 7 * context.short, back - 2 * self._weeks[0]))
        self._filler = None if context is None else Filler(context, spec.every_ns, spec.zone)

    def ask(
        self, rows: Current, timeline: Timeline, future: Floats | None = None, recent: Recent | None = None
    ) -> Asks:
        """The questions at `rows` whose windows are whole.

        Args:
            rows: that are asked at.
            timeline: finds rows.
            future: (N, H, ·) stands in for the rows ahead.
            recent: rows whose targets are known beside those that were current before.
        """
        spec, outputs = self.spec, len(self.spec.targets)
        when, whole = self._times(rows, timeline)
        columns = self._look(timeline, rows, self._lags)
        differ = self._differs(columns, rows, timeline, recent)
        age = np.zeros((len(rows.code), outputs), np.int64)
        past, ahead = [columns], []
        if self.shape.seasonal:
            before = self._look(timeline, rows, self._lags - spec.season, self._targets)
            before = self._without(differ, before, rows, self._lags - spec.season, timeline)
            before = self._at_phases(before, rows, self._lags - spec.season, recent)
            past.append(filled(before) if spec.gaps == "fill" else before)
            ahead.append(self._references(rows, timeline, recent, differ))
        if spec.lags and spec.gaps == "fill":
            columns = self._without(differ, columns, rows, self._lags, timeline, instead=False)
            age = self._age(columns, rows, recent)
            past[0] = columns = self._filled(columns, past[1] if self.shape.seasonal else None, rows, timeline, recent)
        inputs = self._inputs(rows, timeline, future)
        if inputs is not None:
            ahead.append(inputs)
        if spec.calendar:
            ahead.append(calendar.values(when, spec.zone, spec.every_ns))
        doubt, stale = self._doubt(rows, future is not None)
        x = _beside(past), _beside(ahead) if ahead else np.zeros((*when.shape, 0))
        whole &= finite(x[1])
        if spec.lags:
            whole &= self._whole(x[0], rows)
        kept = slice(None) if whole.all() else whole
        origin = rows.step - (0 if spec.lags else 1)
        parts = (part[kept] for part in (rows.code, origin, rows.position, rows.ds, when, age))
        series, origins, position, cutoff, ds, ages = (long(part) for part in parts)
        doubts, stales = (torch.from_numpy(part[kept]) for part in (doubt, stale))
        window = Inputs(torch.from_numpy(x[0][kept]), torch.from_numpy(x[1][kept]))
        if self._filler is not None:
            own, near = Current(*(part[kept] for part in rows)), columns[kept]
            look = partial(self._around, own, timeline, recent, near, None if differ is None else differ[kept])
            known = None if inputs is None else inputs[kept]
            window = window._replace(context=torch.from_numpy(self._filler.fill(look, own.step, when[kept], known)))
        blur = torch.zeros(len(series), self.shape.columns, dtype=torch.float64)
        return Asks(series, origins, position, cutoff, ds, ages, doubts, blur, stales, window)

    def shifted(self, asks: Asks, column: int, sign: float) -> Inputs:
        """The windows as they would be if what stands in for a known input that was lost were wrong: by its standard
        deviation at every step ahead, up (sign 1) or down (-1).

        Args:
            asks: N questions.
            column: of the known inputs.
            sign: 1 or -1.
        """
        past, future, context = asks.x
        size = sign * asks.doubt[:, :, column]  # (N, H)
        channel = column + (len(self.spec.targets) if self.shape.seasonal else 0)
        future = future.clone()
        future[:, :, channel] += size
        if context is None or self._filler is None:
            return Inputs(past, future, context)
        count, known = len(size), np.zeros((*size.shape, len(self.spec.known)))
        known[:, :, column] = size.numpy()

        def nothing(off: Ints) -> Floats:
            return np.zeros((count, len(off), self._channels))

        moved = torch.from_numpy(self._filler.move(nothing, known))
        return Inputs(past, future, context + moved)

    def _inputs(self, rows: Current, timeline: Timeline, future: Floats | None) -> Floats | None:
        """(N, H, ·) the known inputs ahead, or without lags those of the row itself; None where there are none.

        Args:
            rows: N of them.
            timeline: finds rows.
            future: the values, where they are given.
        """
        spec = self.spec
        if spec.lags and not spec.known:
            return None
        if future is not None:
            return future
        if not spec.lags:
            return self._look(timeline, rows, np.zeros(1, np.int64), slice(len(spec.targets), None))
        found = self._look(timeline, rows, np.append(0, self._ahead), self._known)  # for what may be missing after it
        return (filled(found) if spec.gaps == "fill" else found)[:, 1:]

    def _whole(self, past: Floats, rows: Current) -> Bools:
        """(N,) whether windows (N, L, C) are there: whole, or with gaps="fill" at their newest row."""
        if self.spec.gaps == "reset":
            return finite(past)
        outputs = len(self.spec.targets)
        found = (rows.step >= self._first) & np.isfinite(past[:, -1, :outputs]).all(1)
        return found & np.isfinite(past[:, -1, -outputs:]).all(1) if self.shape.seasonal else found

    def _around(
        self, rows: Current, timeline: Timeline, recent: Recent | None, lags: Floats, differ: Floats | None, off: Ints
    ) -> Floats:
        """(N, J, C) values at offsets, with what stands in for missing targets.

        Args:
            rows: N of them.
            timeline: finds rows.
            recent: of `ask`.
            lags: (N, L, C) as they are in the windows.
            differ: (N, O) of `_differs`; None where nothing is.
            off: (J,) the offsets.
        """
        found, lag, outputs = self._look(timeline, rows, off), off - self._lags[0], len(self.spec.targets)
        inside = np.flatnonzero((off <= 0) & (lag >= 0))
        found[:, inside] = lags[:, lag[inside]]
        back = np.flatnonzero(off <= 0)
        if differ is not None:
            far = np.flatnonzero((off <= 0) & (lag < 0))
            found[:, far] = self._without(differ, found[:, far], rows, off[far], timeline)
        own = found[:, back, :outputs]
        if self.spec.known and self.spec.gaps == "fill" and not complete(own):
            moved = self._instead_of(rows, timeline, recent, off[back])
            moved[:, lag[back] >= 0] = 0  # as the windows have them
            row, at = np.nonzero(moved)
            instead = (off[back][at] + moved[row, at])[:, None]
            found[row, back[at], self._known] = self._one_by_one(rows, timeline, row, instead, self._known)[:, 0]
        found[:, back, :outputs] = self._at_phases(own, rows, off[back], recent)
        return found

    def _doubt(self, rows: Current, given: bool) -> tuple[Floats, Bools]:
        """(N, H, K) standard deviations of the known inputs ahead, 0 where they are known, and (N, H) whether one was
        lost so long ago that its last value says little."""
        spec = self.spec
        horizon, known = spec.horizon, len(spec.known) if spec.lags else 0
        found = None
        if self._lost is not None and known and not given:
            inputs = slice(self._lost.columns - known, None)
            found = self._lost.doubt(rows.code, rows.step, rows.place, self._ahead, inputs)
        if found is None:
            return np.zeros((len(rows.code), horizon, known)), np.zeros((len(rows.code), horizon), bool)
        old = found.age > (self._fades if np.isfinite(self._fades) else horizon)
        return found.deviation, np.asarray(((found.deviation > 0) & old).any(2))

    def _age(self, columns: Floats, rows: Current, recent: Recent | None) -> Ints:
        """(N, O) steps since the last known value of each target; columns: (N, L, C) of the lags, as they are known."""
        there = ~np.isnan(columns[..., self._targets])
        age = np.where(there.any(1), there[:, ::-1].argmax(1), -1)
        long_ago = np.flatnonzero((age < 0).any(1))
        if len(long_ago):
            code, step = rows.code[long_ago], rows.step[long_ago]
            _, last = self.latest.find(code, step, step, recent)
            since = step[:, None] - np.maximum(last, -1)
            age[long_ago] = np.where(age[long_ago] < 0, since, age[long_ago])
        return np.asarray(age)

    def _filled(
        self, columns: Floats, before: Floats | None, rows: Current, timeline: Timeline, recent: Recent | None
    ) -> Floats:
        """(N, L, C) the lags, with what stands in for what is missing; before: (N, L, O) the targets a season before
        each, with what stands in for those."""
        if complete(columns):
            return columns
        outputs = len(self.spec.targets)
        found = np.concatenate([columns[..., :outputs], filled(columns[..., outputs:])], 2)
        some = np.flatnonzero(np.isnan(found[..., :outputs]).any((1, 2)))
        if not len(some):
            return found
        own, few = found[some, :, :outputs], Current(*(part[some] for part in rows))
        instead: Floats = bridged(own)
        nothing = np.isnan(own).all(1, keepdims=True)
        value, last = self.latest.find(few.code, few.step, few.step, recent)
        instead = np.where(nothing, self._learned(value)[:, None], instead)
        elsewhere = np.ones((len(some), 1, outputs), bool)
        if before is not None:
            usual = before[some]
            seasonal = usual + bridged(own - usual, self._fades)
            elsewhere = np.isnan(usual).any(1, keepdims=True) | self._moved(few, timeline, recent)
            instead = np.where(elsewhere, instead, seasonal)
        found[some, :, :outputs] = np.where(np.isnan(own), instead, own)
        silent = np.isnan(own).all(2, keepdims=True)  # (n, L, 1)
        if self.spec.known and silent.any():
            read = np.where(silent, np.nan, columns[some][..., self._known])
            nowhere = np.asarray(elsewhere.all(2, keepdims=True))
            made = self._beside(few, timeline, recent, read, nowhere, last.max(1))
            found[some, :, self._known] = np.where(silent & ~np.isnan(made), made, found[some, :, self._known])
        return found

    def _beside(
        self, rows: Current, timeline: Timeline, recent: Recent | None, read: Floats, elsewhere: Bools, last: Ints
    ) -> Floats:
        """(N, L, K) known inputs of lags without a target: made of the rows that the targets are made of, and in the
        same way (`_filled`), so that they belong together; NaN where such a row is not kept.

        Args:
            rows: N of them.
            timeline: finds rows.
            recent: of `ask`.
            read: (N, L, K) beside the targets that are known.
            elsewhere: (N, 1, 1) whether the season says nothing of the targets.
            last: (N,) steps of the last known target.
        """
        row = np.arange(len(read))
        one = self._one_by_one(rows, timeline, row, (last - rows.step)[:, None], self._known)
        made = np.where(np.isnan(read).all(1, keepdims=True), one, bridged(read))
        if not self.shape.seasonal or elsewhere.all():
            return np.asarray(made)
        off = self._lags - self.spec.season
        usual = self._one_by_one(rows, timeline, row, off + self._instead_of(rows, timeline, recent, off), self._known)
        usual = filled(usual)
        return np.where(elsewhere, made, usual + bridged(read - usual, self._fades))

    def _instead_of(self, rows: Current, timeline: Timeline, recent: Recent | None, off: Ints) -> Ints:
        """(N, J) how far from each offset the row is that stands in for it, where it has no target: the last one at its
        phase of the season that has one. 0 where it has one, or none is known."""
        silent = np.isnan(timeline.look(rows.code, rows.step, rows.place, off, self._targets)).all(2)
        found, step = np.zeros(silent.shape, np.int64), rows.step[:, None] + off
        row, at = np.nonzero(silent & (step >= 0))
        _, last = self.at_phase.find(rows.code[row], step[row, at], rows.step[row], recent)
        found[row, at] = np.where(last.max(1) >= 0, last.max(1) - step[row, at], 0)
        return found

    def _moved(self, rows: Current, timeline: Timeline, recent: Recent | None) -> Bools:
        """(N, 1, O) whether the last three known targets agree on a level far from the season before them: farther than
        the values of as many rows as a window has are wide. Then no season says what comes, but the last value.

        Fewer lags than a short season do not show how wide that is.
        """
        spec, targets = self.spec, len(self.spec.targets)
        found = np.zeros((len(rows.code), 1, targets), bool)
        if spec.season < NEAR or spec.lags < (spec.seasons or (spec.season,))[0]:
            return found
        _, last = self.latest.find(rows.code, rows.step, rows.step, recent)  # (N, O)
        for output in range(targets):
            since = rows.step - last[:, output]
            near = np.flatnonzero(since + spec.season + spec.lags <= self._back)  # the season before is still kept
            code, step, seen = rows.code[near], last[near, output], rows.step[near]
            place = np.where(rows.place[near] >= 0, rows.place[near] - since[near], -1)
            before = timeline.look(code, step, place, self._lags - spec.season, self._targets)[..., output]  # (n, L)
            newest = np.full((NEAR, len(near)), np.nan)
            for back in range(NEAR):
                value, where = self.at_phase.find(code, np.maximum(step - back, 0), seen, recent)
                newest[back] = np.where(where[:, output] == step - back, value[:, output], np.nan)
            known = np.flatnonzero(np.isfinite(before).any(1) & np.isfinite(newest).all(0))
            low, high = np.nanmin(before[known], 1), np.nanmax(before[known], 1)
            now = np.median(newest[:, known], 0)
            away = np.maximum(low - now, now - high)
            agree = np.abs(newest[:, known] - now).max(0) <= AGREE * away
            found[near[known], 0, output] = (away > high - low) & agree
        return found

    def _at_phases(self, found: Floats, rows: Current, off: Ints, recent: Recent | None) -> Floats:
        """(N, J, O) targets at these offsets; with gaps="fill", one that is missing as the last known at its phase of
        the season. Before the first row of its series it stays missing."""
        if self.spec.gaps == "reset" or complete(found):
            return found
        step = rows.step[:, None] + off
        row, at = np.nonzero(np.isnan(found).any(2) & (step >= 0))
        last, _ = self.at_phase.find(rows.code[row], step[row, at], rows.step[row], recent)
        found = found.copy()
        found[row, at] = np.where(np.isnan(found[row, at]), self._learned(last), found[row, at])
        return found

    def _differs(self, columns: Floats, rows: Current, timeline: Timeline, recent: Recent | None) -> Floats | None:
        """(N, O) by how much values differ (`events`), infinite where the newest do; columns: (N, L, C) of the lags.
        None where no events are looked for."""
        week, day = self._weeks
        if not week or not len(rows.code):
            return None
        newest, count = -np.arange(min(NEWEST, columns.shape[1])), len(self._sample)
        off = np.concatenate([self._sample, newest])
        off = np.maximum(np.concatenate([off, off - week, off - 2 * week, off - day]), -self._back)
        now, before, earlier, yesterday = np.split(self._look(timeline, rows, off, self._targets), 4, 1)
        earlier = np.where(np.isnan(earlier), yesterday, earlier)
        differ = width(now[:, :count], before[:, :count], earlier[:, :count])
        away = np.fmin(*(np.abs(now[:, count:] - part[:, count:]) for part in (before, earlier)))
        with np.errstate(invalid="ignore"):
            known = ~np.isnan(now[:, count])
            differ = np.where(known & (away > differ[:, None]).any(1), np.inf, differ)
            row, output = np.nonzero(~known & np.isfinite(differ))
            if len(row):  # in an outage the last known value tells, unless it stands alone
                unlike = self._last_differ(rows, timeline, recent, row, output, differ[row, output])
                differ[row[unlike], output[unlike]] = np.inf
            if timeline.line is not None and (rows.place >= 0).all():  # most batches have nothing that differs
                line = self._learned(timeline.line[:, self._targets])
                if not (np.abs(line[week:] - line[:-week]) > differ.min(0)).any():
                    return None
        return differ

    def _last_differ(
        self, rows: Current, timeline: Timeline, recent: Recent | None, row: Ints, output: Ints, most: Floats
    ) -> Bools:
        """(P,) whether both the last known value and the one before it differ from those of the two weeks before.

        Args:
            rows: N of them.
            timeline: finds rows.
            recent: of `ask`.
            row, output: (P,) rows and targets that are looked at.
            most: (P,) by how much values differ.
        """
        week, _ = self._weeks
        last, step = self.latest.find(rows.code[row], rows.step[row], rows.step[row], recent)
        at = np.arange(len(row)), output
        since = np.maximum(step[at] - rows.step[row], -self._back)[:, None]
        beside = np.concatenate([since - back for back in (week, 2 * week, 1, week + 1, 2 * week + 1)], 1)
        around = self._of_targets(rows, timeline, row, beside, output)
        weeks_before, one_before, its_weeks_before = around[:, :2], around[:, 2:3], around[:, 3:]
        one = np.abs(weeks_before - self._learned(last)[at][:, None])
        two = np.abs(its_weeks_before - one_before)
        same = (one <= most[:, None]).any(1) | (two <= most[:, None]).any(1)
        return np.asarray(~same & ~np.isnan(one_before[:, 0]))

    def _without(
        self, differ: Floats | None, found: Floats, rows: Current, off: Ints, timeline: Timeline, instead: bool = True
    ) -> Floats:
        """Values at offsets; targets of events that are over are the median of the weeks beside them, or missing.

        Args:
            differ: (N, O) of `_differs`; None where nothing is.
            found: (N, J, C) the values, O targets first.
            rows: N of them.
            off: (J,) their offsets.
            timeline: where the weeks beside them are found.
            instead: whether the median takes their place.
        """
        if differ is None or not np.isfinite(differ).any():
            return found
        week, day = self._weeks
        outputs, near = len(self.spec.targets), np.flatnonzero((off <= 0) & (off >= week - self._back))
        before = self._look(timeline, rows, off[near] - week, self._targets)
        with np.errstate(invalid="ignore"):
            row, at, output = np.nonzero(np.abs(found[:, near, :outputs] - before) > differ[:, None])
        if not len(row):
            return found
        at = near[at]
        y, most = found[row, at, output], differ[row, output]
        around = self._of_targets(rows, timeline, row, neighbours(off[at], week, day), output)
        over = is_over(y, around, most)
        if not over.any():
            return found
        found = found.copy()
        values = np.nanmedian(around[over, :WEEKS], 1) if instead else np.nan
        found[row[over], at[over], output[over]] = values
        return found

    def _one_by_one(self, rows: Current, timeline: Timeline, row: Ints, off: Ints, channels: slice) -> Floats:
        """(P, J, c) of P rows, the values of channels at offsets (P, J); NaN after the row and where none is kept."""
        pair, which = np.nonzero((off <= 0) & (off >= -self._back))
        own, back, here = row[pair], off[pair, which], np.zeros(1, np.int64)
        place = np.where(rows.place[own] >= 0, rows.place[own] + back, -1)
        values = self._look_at(timeline, rows.code[own], rows.step[own] + back, place, here, channels)[:, 0]
        found = np.full((*off.shape, values.shape[1]), np.nan)
        found[pair, which] = values
        return found

    def _of_targets(self, rows: Current, timeline: Timeline, row: Ints, off: Ints, output: Ints) -> Floats:
        """(P, J) the same of one target each."""
        found = self._one_by_one(rows, timeline, row, off, self._targets)
        return np.take_along_axis(found, output[:, None, None], 2)[..., 0]

    def _references(self, rows: Current, timeline: Timeline, recent: Recent | None, differ: Floats | None) -> Floats:
        """(N, H, O) the targets one season before each step ahead; with gaps="fill", where one is missing, that of the
        short season, or the last known one at its phase, and else the reference of the step before."""
        if self.spec.gaps == "reset":
            return self._look(timeline, rows, self._season, self._targets)
        off = np.append(-self.spec.season, self._season)
        found = self._without(differ, self._look(timeline, rows, off, self._targets), rows, off, timeline)
        missing = np.isnan(found[:, 1:])
        if self._instead is not None and missing.any():
            some = np.flatnonzero(missing.any((1, 2)))
            own = Current(*(part[some] for part in rows))
            near = None if differ is None else differ[some]
            instead = self._nearer(own, timeline, near, missing[some])
            found[some, 1:] = np.where(missing[some], instead, found[some, 1:])
        return filled(self._at_phases(found, rows, off, recent))[:, 1:]

    def _nearer(self, rows: Current, timeline: Timeline, differ: Floats | None, missing: Bools) -> Floats:
        """(N, H, O) what stands in for targets a long season before that are missing: those of the short season, or
        those two long seasons before, where these would have been nearer two long seasons ago and are kept."""
        assert self._instead is not None
        if not self._weeks[0]:
            return self._look(timeline, rows, self._instead, self._targets)
        week, horizon = self.spec.season, self.spec.horizon
        off = np.concatenate([self._instead, self._season - week, self._instead - 2 * week, self._season - 2 * week])
        found = self._without(differ, self._look(timeline, rows, off, self._targets), rows, off, timeline)
        short, twice, short_then, twice_then = found.reshape(len(found), 4, horizon, -1).swapaxes(0, 1)
        away = [np.where(missing, np.abs(twice - then), np.nan) for then in (short_then, twice_then)]
        both = ~np.isnan(away[0] + away[1])
        errors = [np.where(both, own, 0.0).sum(1, keepdims=True) for own in away]
        return np.asarray(np.where((errors[1] < errors[0]) & ~np.isnan(twice), twice, short))

    def _learned(self, y: Floats) -> Floats:
        """(..., O) targets as models learn them."""
        return each(self.spec.transforms, "forward", y) if self.spec.transforms else y

    def _look(self, timeline: Timeline, rows: Current, off: Ints, channels: slice = slice(None)) -> Floats:
        """Columns at these offsets, (N, J, C), targets as models learn them; from the first column on, or no target."""
        return self._look_at(timeline, rows.code, rows.step, rows.place, off, channels)

    def _look_at(self, timeline: Timeline, code: Ints, step: Ints, place: Ints, off: Ints, channels: slice) -> Floats:
        """The same, of these series and steps, (N,) each."""
        found, outputs = timeline.look(code, step, place, off, channels), len(self.spec.targets)
        if self.spec.transforms and (channels.start or 0) < outputs:
            found[..., :outputs] = self._learned(found[..., :outputs])
        return found

    def _times(self, rows: Current, timeline: Timeline) -> tuple[Ints, Bools]:
        """The H times ahead of each row, (N, H), and whether they are known: without a declared interval a series
        must have had two rows."""
        spec, known = self.spec, np.ones(len(rows.ds), bool)
        if not spec.lags:
            return rows.ds[:, None], known
        if spec.time is None:
            return rows.ds[:, None] + self._ahead, known
        if spec.every_ns is not None:
            return calendar.ahead(rows.ds, self._ahead, spec.every_ns, spec.zone), known
        every, months = timeline.interval(rows.code, rows.step, rows.place, spec.zone)
        found = calendar.ahead(rows.ds, self._ahead, every, spec.zone)
        if (some := np.flatnonzero(months.step)).size:
            kept = Months(months.step[some], months.day[some])
            found[some] = monthly.ahead(rows.ds[some], self._ahead, kept, spec.zone)
        return found, every > 0


def first_whole(spec: WindowSpec) -> int:
    """Step of a series' first whole window."""
    return spec.lags - 1 + (spec.season if spec.season > 1 else 0)


def fading(spec: WindowSpec) -> float:
    """Rows after which half of a departure from the season is left, where it is not known."""
    return FADES * (spec.seasons or (spec.season,))[0] if spec.season > 1 else np.inf


def _seasons_before(ahead: Ints, season: int) -> Ints:
    """Offsets of the steps ahead, the fewest whole seasons before them that lead to the row or behind it."""
    return np.asarray(ahead - -(-ahead // season) * season)


def _beside(parts: list[Floats]) -> Floats:
    """(N, J, C) of several of them, their channels side by side."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, 2)


def long(array: Ints) -> Tensor:
    """As a tensor; an array that may not be written, such as a column of a frame, is copied."""
    return torch.from_numpy(np.require(array, np.int64, ["C", "W"]))
