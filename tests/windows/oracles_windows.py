"""Windows as a loop over rows with dictionaries: slow, and plainly right."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median_low
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from streamgp.windows.windows import WindowSpec

NAN = float("nan")
FADES = 0.25
MICRO = 1000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def by_channel(rows: list[list[float]]) -> list[list[float]]:
    """Rows of channels with each missing value as the last one before it, or else as the first one after it."""
    out = []
    for channel in map(list, zip(*rows, strict=True)):
        known = [value for value in channel if not math.isnan(value)]
        last = known[0] if known else NAN
        out.append([last := last if math.isnan(value) else value for value in channel])
    return [list(row) for row in zip(*out, strict=True)] if out else rows


def departure(known: dict[int, float], at: int, half: float) -> float:
    """The mean of an Ornstein-Uhlenbeck process at a place, given its values at others: a Gaussian's."""
    before, after = max((k for k in known if k < at), default=None), min((k for k in known if k > at), default=None)
    near = [k for k in (before, after) if k is not None]
    if not near:
        return 0.0
    if math.isinf(half):
        if len(near) == 1:
            return known[near[0]]
        low, high = near
        return known[low] + (known[high] - known[low]) * (at - low) / (high - low)
    own = np.array([[0.5 ** (abs(a - b) / half) for b in near] for a in near])
    cross = np.array([0.5 ** (abs(at - b) / half) for b in near])
    return float(cross @ np.linalg.solve(own, np.array([known[k] for k in near])))


@dataclass
class Row:
    """One row of the stream."""

    series: str
    ds: int | None
    values: dict[str, float]
    position: int = 0
    step: int = 0


@dataclass
class OracleWindows:
    """The same questions and answers as `Windows`, one row at a time."""

    spec: WindowSpec
    reach: int = 0
    rows: dict[str, dict[int, Row]] = field(default_factory=dict)
    waiting: dict[str, list[Row]] = field(default_factory=dict)
    position: int = 0
    late: int = 0
    late_used: int = 0
    snapped: int = 0
    ticks: dict[str, int] = field(default_factory=dict)
    asks: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def push(self, row: Row) -> None:
        spec = self.spec
        row.position = self.position
        self.position += 1
        seen = self.rows.setdefault(row.series, {})
        first, last = (seen[min(seen)], seen[max(seen)]) if seen else (row, None)
        if spec.late == "use" and not spec.lags:
            row.step = len(seen)
            row.ds = row.step if spec.time is None else row.ds
            seen[row.step] = row
            self.current(row)
            return
        if spec.late == "use" and last is not None and row.ds < last.ds:
            self.file(row, last)
            return
        if spec.time is None:
            row.step = row.ds = len(seen)
        elif spec.every_ns is None:
            row.step = len(seen)
        elif spec.tolerance_ns is None:
            row.step = math.floor((row.ds - first.ds) / spec.every_ns + 0.5)
        elif last is not None:
            self.jittered(row, last)
        before = last is not None and (row.step <= last.step or (spec.time is not None and row.ds <= last.ds))
        if before:
            self.late += 1
            return
        seen[row.step] = row
        if not (spec.known and spec.lags):
            self.current(row)
            return
        queue = self.waiting.setdefault(row.series, [])
        queue.append(row)
        while queue and queue[0].step + spec.horizon <= row.step:
            self.current(queue.pop(0))

    def file(self, row: Row, last: Row) -> None:
        """Put a late row in its place, if there is one."""
        spec, seen = self.spec, self.rows[row.series]
        kept = {step: one for step, one in seen.items() if step > last.step - self.reach}
        if spec.tolerance_ns is None:
            row.step = math.floor((row.ds - seen[0].ds) / spec.every_ns + 0.5)
        else:
            before = max((one for one in kept.values() if one.ds < row.ds), key=lambda one: one.step, default=None)
            after = min((one for one in kept.values() if one.ds >= row.ds), key=lambda one: one.step)
            if before is None:
                self.late += 1
                return
            apart = max(math.floor((row.ds - before.ds) / spec.every_ns + 0.5), 1)
            row.step = min(before.step + apart, after.step - 1)
            if row.step <= before.step:
                self.late += 1
                return
        if row.step < 0 or row.step in seen or not last.step - self.reach < row.step < last.step:
            self.late += 1
            return
        self.late_used += 1
        seen[row.step] = row
        if not spec.known or row.step + spec.horizon <= last.step:
            self.current(row, ask=False)
            self.answers[-1]["filed"] = True
            if row.step - spec.season <= last.step - self.reach:
                self.answers[-1]["seasonal"] = [NAN] * len(spec.targets)
        else:
            queue = self.waiting[row.series]
            queue.append(row)
            queue.sort(key=lambda one: one.step)

    def jittered(self, row: Row, last: Row) -> None:
        """The next step where the row is near the row before it or near its clock's tick, else a gap; or late."""
        every, tolerance = self.spec.every_ns, self.spec.tolerance_ns
        assert every is not None and tolerance is not None
        dt, off = row.ds - last.ds, row.ds - self.ticks.get(row.series, last.ds)
        by_row = abs(dt - every) <= max(every // 2, tolerance)
        by_clock = abs(off - every) <= max(2 * every // 3, tolerance)
        k = 0 if dt <= 0 else 1 if by_row or by_clock else math.floor((dt + off) / 2 / every + 0.5)
        row.step = last.step + k
        if k > 0:
            expected = row.ds - off + k * every
            self.ticks[row.series] = expected + math.floor((row.ds - expected) / 4)
            whole = max(math.floor(dt / every + 0.5), 1)
            self.snapped += 0 < abs(dt - whole * every) <= tolerance

    def flush(self) -> None:
        for queue in self.waiting.values():
            while queue:
                self.current(queue.pop(0), ask=False)

    def value(self, row: Row, name: str, step: int, newest: int) -> float:
        """A column at a step, as far as it may be seen from `newest` on."""
        there = self.rows[row.series].get(step)
        return there.values[name] if there is not None and step <= newest else NAN

    def current(self, row: Row, ask: bool = True) -> None:
        spec, t, wide = self.spec, row.step, 10**12
        before = t - spec.season
        code = list(self.rows).index(row.series)
        self.answers.append(
            {
                "series": code,
                "step": t,
                "position": row.position,
                "ds": row.ds,
                "filed": False,
                "y": [row.values[name] for name in spec.targets],
                "seasonal": [self.value(row, name, before, t) for name in spec.targets],
            }
        )
        if not ask:
            return
        fill = spec.gaps == "fill"
        columns = [*spec.targets, *(n for n in spec.inputs if n not in spec.known), *spec.known]
        past = []
        for step in range(t - spec.lags + 1, t + 1):
            lag = [self.value(row, name, step, t) for name in columns]
            if spec.season > 1:
                lag += [self.value(row, name, step - spec.season, t) for name in spec.targets]
            past.append(lag)
        age = [0] * len(spec.targets)
        if fill and spec.lags:
            age = [t - self.last_known(row, name, t, t, 1)[1] for name in spec.targets]
            past = self.filled(row, past, t)
        times = self.times(row)
        if times is None:
            return
        future = []
        references = self.references(row, t) if spec.season > 1 else []
        known = [[self.value(row, name, t + h, wide) for name in spec.known] for h in range(spec.horizon + 1)]
        if fill and spec.lags:
            known = by_channel(known)
        for h in range(1, spec.horizon + 1):
            channels = []
            if spec.season > 1:
                channels += references[h - 1]
            if not spec.lags:
                channels += [row.values[name] for name in columns[len(spec.targets) :]]
            else:
                channels += known[h]
            if spec.calendar:
                channels += self.calendar(times[h - 1])
            future.append(channels)
        needed = [x for step in future for x in step]
        if spec.lags and fill:
            outputs = len(spec.targets)
            needed += past[-1][:outputs] + (past[-1][-outputs:] if spec.season > 1 else [])
        elif spec.lags:
            needed += [x for lag in past for x in lag]
        if fill and t < spec.lags - 1 + (spec.season if spec.season > 1 else 0):
            return  # the window begins before the series
        if any(math.isnan(x) for x in needed):
            return
        origin = t if spec.lags else t - 1
        where = {"series": code, "origin": origin, "position": row.position, "cutoff": row.ds, "ds": times}
        self.asks.append(where | {"age": age, "past": past, "future": future})

    def last_known(self, row: Row, name: str, step: int, t: int, season: int) -> tuple[float, int]:
        """The last value up to t of a column at the phase of a step, and where it stands: NaN and −1 where none is."""
        seen = self.rows[row.series]
        known = [s for s in seen if s <= t and (s - step) % season == 0 and not math.isnan(seen[s].values[name])]
        return (seen[max(known)].values[name], max(known)) if known else (NAN, -1)

    def moved(self, row: Row, name: str, t: int) -> bool:
        """Whether the last three known values agree on a level far from the season before them."""
        spec = self.spec
        last = self.last_known(row, name, t, t, 1)[1]
        back = self.reach - 1 - (spec.horizon if spec.known else 0)
        if spec.season < 3 or spec.lags < (spec.seasons or (spec.season,))[0] or last < 2:
            return False
        if t - last + spec.season + spec.lags > back:
            return False
        newest = [self.value(row, name, last - at, t) for at in range(3)]
        before = [self.value(row, name, last - at - spec.season, t) for at in range(spec.lags)]
        before = [value for value in before if not math.isnan(value)]
        if any(map(math.isnan, newest)) or not before:
            return False
        now = sorted(newest)[1]
        away = max(min(before) - now, now - max(before))
        return away > max(before) - min(before) and max(abs(value - now) for value in newest) <= 0.1 * away

    def filled(self, row: Row, past: list[list[float]], t: int) -> list[list[float]]:
        """Lags without what is missing: see `streamgp.windows.missing`."""
        spec, outputs = self.spec, len(self.spec.targets)
        out = by_channel(past)
        half = FADES * (spec.seasons or (spec.season,))[0] if spec.season > 1 else math.inf
        steps, seasonal = range(t - spec.lags + 1, t + 1), list[bool]()
        for at, name in enumerate(spec.targets):
            own, usual = [lag[at] for lag in past], [0.0] * spec.lags
            if spec.season > 1:
                usual = [lag[-outputs + at] for lag in past]
                for j, step in enumerate(steps):
                    if math.isnan(usual[j]) and step >= spec.season:
                        usual[j] = self.last_known(row, name, step, t, spec.season)[0]
                usual = [value for (value,) in by_channel([[value] for value in usual])]
                for lag, value in zip(out, usual, strict=True):
                    lag[len(lag) - outputs + at] = value
            if any(map(math.isnan, usual)) or (spec.season > 1 and self.moved(row, name, t)):
                usual, half_now = [0.0] * spec.lags, math.inf
            else:
                half_now = half
            known = [j for j, value in enumerate(own) if not math.isnan(value)]
            if not known and math.isinf(half_now):
                usual = [self.last_known(row, name, t, t, 1)[0]] * spec.lags
            for j, value in enumerate(own):
                if math.isnan(value):
                    out[j][at] = usual[j] + departure({k: own[k] - usual[k] for k in known}, j, half_now)
                else:
                    out[j][at] = value
            seasonal.append(not math.isinf(half_now))
        self.beside(row, past, out, t, half if any(seasonal) else math.inf)
        return out

    def beside(self, row: Row, past: list[list[float]], out: list[list[float]], t: int, half: float) -> None:
        """Known inputs of lags without a target: of the rows that stand in for these, departing in the same way."""
        spec, count = self.spec, len(self.spec.targets)
        silent = [all(map(math.isnan, lag[:count])) for lag in past]
        if not any(silent):
            return
        first = len(past[0]) - len(spec.known) - (count if spec.season > 1 else 0)
        for at, name in enumerate(spec.known, first):
            usual = [0.0] * spec.lags
            if not math.isinf(half):
                steps = [t - spec.lags + 1 + j - spec.season for j in range(spec.lags)]
                usual = [self.kept(row, name, self.stand_in(row, step, t), t) for step in steps]
                usual = [value for (value,) in by_channel([[value] for value in usual])]
            known = {j: lag[at] - usual[j] for j, lag in enumerate(past) if not (silent[j] or math.isnan(lag[at]))}
            if not known and math.isinf(half):
                newest = max(self.last_known(row, target, t, t, 1)[1] for target in spec.targets)
                usual = [self.kept(row, name, newest, t)] * spec.lags
            known = {j: value for j, value in known.items() if not math.isnan(value)}
            for j in range(spec.lags):
                value = usual[j] + departure(known, j, half)
                if silent[j] and not math.isnan(value):
                    out[j][at] = value

    def stand_in(self, row: Row, step: int, t: int) -> int:
        """The row that stands in for one without a target: the last one at its phase that has one; else the row."""
        spec, seen = self.spec, self.rows[row.series]
        if step < 0 or (step in seen and not all(math.isnan(seen[step].values[name]) for name in spec.targets)):
            return step
        last = max(self.last_known(row, name, step, t, spec.season)[1] for name in spec.targets)
        return step if last < 0 else last

    def kept(self, row: Row, name: str, step: int, t: int) -> float:
        """A value of a row, where that is still kept."""
        back = self.reach - 1 - (self.spec.horizon if self.spec.known else 0)
        return self.value(row, name, step, t) if t - back <= step <= t else NAN

    def references(self, row: Row, t: int) -> list[list[float]]:
        """The targets one season before each step, as often as it takes not to look ahead."""
        spec = self.spec

        def back(h: int, season: int) -> int:
            return t + h - season * -(-h // season)

        steps = [t - spec.season, *(back(h, spec.season) for h in range(1, spec.horizon + 1))]
        found = [[self.value(row, name, step, t) for name in spec.targets] for step in steps]
        if spec.gaps == "reset":
            return found[1:]
        short = spec.seasons[0] if spec.seasons else 0
        for h in range(1, spec.horizon + 1):
            if not short:
                continue
            other = back(h, short) if short != spec.season else back(h, spec.season) - spec.season
            for channel, name in enumerate(spec.targets):
                if math.isnan(found[h][channel]):
                    found[h][channel] = self.value(row, name, other, t)
        for h, step in enumerate(steps):
            for channel, name in enumerate(spec.targets):
                if math.isnan(found[h][channel]) and step >= 0:
                    found[h][channel] = self.last_known(row, name, step, t, spec.season)[0]
        return by_channel(found)[1:]

    def times(self, row: Row) -> list[int] | None:
        spec = self.spec
        if not spec.lags:
            return [row.ds]
        ahead = range(1, spec.horizon + 1)
        if spec.time is None:
            return [row.ds + h for h in ahead]
        every = spec.every_ns
        if every is None:
            seen = [self.rows[row.series].get(row.step - back) for back in range(24, -1, -1)]
            gaps = [b.ds - a.ds for a, b in pairwise(seen) if a is not None and b is not None]
            if not gaps:
                return None
            every = median_low(gaps)
        day = 86_400 * 10**9
        if spec.zone is None or every % day:
            return [row.ds + h * every for h in ahead]
        zone = ZoneInfo(spec.zone)
        local = (EPOCH + timedelta(microseconds=row.ds // MICRO)).astimezone(zone)
        wall = [local.replace(tzinfo=None) + timedelta(days=h * every // day) for h in ahead]
        instants = [moment.replace(tzinfo=zone).astimezone(UTC) - EPOCH for moment in wall]
        return [round(instant / timedelta(microseconds=1)) * MICRO for instant in instants]

    def calendar(self, ds: int) -> list[float]:
        spec, day = self.spec, 86_400
        local = (EPOCH + timedelta(microseconds=ds // MICRO)).astimezone(ZoneInfo(spec.zone or "UTC"))
        seconds = local.hour * 3600 + local.minute * 60 + local.second + local.microsecond / 1e6
        since = (local.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds() / (365.2425 * day)
        phases = [seconds / day, (local.weekday() * day + seconds) / (7 * day), since]
        waves = [[math.sin(2 * math.pi * p), math.cos(2 * math.pi * p)] for p in phases]
        every = spec.every_ns
        out = []
        if every is None or every < day * 10**9:
            out += waves[0]
        if every is None or every < 7 * day * 10**9:
            out += [*waves[1], float(local.weekday() >= 5)]
        return out + waves[2]
