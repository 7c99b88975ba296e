"""The columns of the direct regression: what a step ahead is regressed on.

Every column is a difference of references, a known input or the calendar, so that with all coefficients at zero a
forecast is its base: a season before, or the last value. Symbols as in `streamgp.context`: row i, step h, j = i + h, D
the short season, W the long one.

A penalty stands beside each column: the ridge of its coefficient is λ · penalty², in standard deviations of the column.
What is nearly always there (references) is penalised least, what seldom pays (the time of year) most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.context import Context

KNOTS = 5
"""Hinges of a continuous known input."""
DISTINCT = 3
"""Values that a known input has at most to count as a type of day: a holiday flag."""
FULL = 2
"""Continuous known inputs that have hinges, those that explain most, and products of both; others enter linearly."""
MET = [0, 2, 4]
"""Hinges of an input that are multiplied by each other, those of the other, and the hour: the value, and two knots."""
EXPLAINS = 0.02
"""Share of the variance of the first departures, adjusted for chance, below which an input has no hinges."""
SURE = 480
"""Windows from which on that share holds; with fewer, as chance explains more, it is larger in proportion."""
JUDGED = 120
"""Windows from which on it is judged what inputs explain; with fewer, those that are named first count as best."""
DAYS = 14
"""Short seasons in the long one at most, for each to have its own column: the days of a week."""


REFERENCE, PAST, CALENDAR, CONSTANT = "reference", "own past", "calendar", "constant"
"""What a forecast departs from, and what columns are of, beside `known NAME`, `known NAME × NAME` for
products of two, `input NAME` and other targets."""


class Known(NamedTuple):
    """What is known of a known input, from the first rows.

    Attributes:
        flag: whether it has few values.
        centre, scale: of its values; (N,) where windows are of several models.
        knots: (KNOTS,) quantiles, in units of `scale` around `centre`; (N, KNOTS) where windows are of several models.
        rank: among the continuous ones, 0 for the one that explains most; from `FULL` on an input enters linearly.
    """

    flag: bool
    centre: float | Tensor
    scale: float | Tensor
    knots: Tensor
    rank: int = 0

    def hinges(self, value: Tensor) -> Tensor:
        """(..., KNOTS + 1) a value in units of `scale` around `centre`, and what of it is above each knot."""
        return torch.cat([value[..., None], (value[..., None] - self.knots).clamp(min=0.0)], -1)


class ColumnBlock:
    """Columns as they are made, with their penalties and what they are of.

    Attributes:
        label: of the columns that are added next.
    """

    def __init__(self) -> None:
        self.columns: list[Tensor] = []
        self.penalties: list[float] = []
        self.labels: list[str] = []
        self.label = PAST

    def add(self, penalty: float, *columns: Tensor) -> None:
        """(H, N) or (H, N, c) each; 1 in the place of H where every step has the same."""
        for column in columns:
            whole = column if column.dim() == 3 else column[..., None]
            self.columns.append(whole)
            self.penalties += [penalty] * whole.shape[2]
            self.labels += [self.label] * whole.shape[2]


class SeasonColumns:
    """Columns of windows with a context.

    Args:
        shape: of the windows; it has a context.
        seasons: those of the context that are looked at; None is all.

    Attributes:
        context: of these seasons: what it holds, the windows hold too.
    """

    def __init__(self, shape: Shape, seasons: tuple[int, ...] | None = None) -> None:
        assert shape.context is not None
        self.shape, self.layout = shape, shape.context
        self.context = self.layout if seasons is None else replace(self.layout, seasons=seasons)
        self.steps = {entry.name: at for at, entry in enumerate(self.layout.steps)}
        self.window = {entry.name: at for at, entry in enumerate(self.layout.window)}
        outputs, count = shape.outputs, len(self.layout.window)
        self.labels: list[str] = []
        """What each column is of, of those that were made last."""
        self.places, self.owners = list[Tensor](), list[int]()
        """Where the context holds values of each target, and which target it is."""
        for target in range(outputs):
            own = [at for at, entry in enumerate(self.layout.window) if entry.channel == target]
            ahead = [at for at, entry in enumerate(self.layout.steps) if entry.channel == target]
            own += [count + h * self.layout.per_step + at for h in range(shape.horizon) for at in ahead]
            self.places.append(torch.tensor(own))
            self.owners.append(target)

    def split(self, x: Inputs) -> Parts:
        """The numbers of the context by name."""
        assert x.context is not None
        count = len(self.window)
        steps = x.context[:, count:].unflatten(1, (self.shape.horizon, self.layout.per_step))
        return Parts(x.context[:, :count].T[..., None], steps.permute(2, 1, 0), self.window, self.steps)

    def bases(self, x: Inputs, levels: Tensor) -> Tensor:
        """(B, N, T) what may stand for zero: the long season before (or the short), the short one, the last value.

        Where one is missing the next of them takes its place, and at last the level, (O,).
        """
        parts, found = self.split(x), []
        for name, level in zip(self.shape.targets, levels, strict=True):
            last = parts.at(f"now-0({name})").expand(self.shape.horizon, -1)
            short = parts.step(f"short1({name})")
            long = parts.step(f"long1({name})") if self.context.long else short
            last = first_known(last, short, long, level)
            short = first_known(short, last)
            found.append(torch.stack([first_known(long, short), short, last]))  # (B, H, N)
        return torch.cat(found, 1).mT

    def __call__(self, x: Inputs, known: Sequence[Known], levels: Tensor) -> tuple[Tensor, Tensor]:
        """The columns (T, N, d), a constant 1 the last of them, and the penalties of the others; what is missing is 0.

        Args:
            x: N windows.
            known: of each known input.
            levels: (O,) of the targets, from the first rows; (O, N) where windows are of several models.
        """
        parts = self.split(x)
        clock = PhaseTerms(parts, self.context)
        columns, penalties = list[Tensor](), torch.zeros(0, dtype=FLOAT)
        for name, level in zip(self.shape.targets, levels, strict=True):
            block = ColumnBlock()
            self._fill(block, parts, clock, name, level, known)
            block.label = CONSTANT
            block.add(0.0, torch.ones_like(clock.year[..., 0]))
            self.labels = block.labels
            columns.append(torch.cat([part.expand(self.shape.horizon, -1, -1) for part in block.columns], 2))
            penalties = torch.tensor(block.penalties[:-1], dtype=FLOAT)
        whole = columns[0] if len(columns) == 1 else torch.cat(columns)
        return whole.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0), penalties

    def ranked(self, x: Inputs, z: Tensor, known: Sequence[Known]) -> list[Known]:
        """The known inputs with their ranks, by how much of z their hinges and the change of these explain.

        Args:
            x: the first windows.
            z: (N, H) departures of a target from a season before, NaN = not observed.
            known: of each known input.
        """
        back, parts, found = "long" if self.context.long else "short", self.split(x), list[float]()
        for at, (name, what) in enumerate(zip(self.context.known, known, strict=True)):
            if what.flag or len(z) < JUDGED:
                found.append(1.0 - at / len(known))
                continue
            values = (parts.step(f"{when}({name})") for when in ("at", f"at-{back}"))
            there, before = (what.hinges((value - what.centre) / what.scale) for value in values)
            found.append(_explained(torch.cat([there, there - before], 2), z.T))
        order = sorted((at for at, what in enumerate(known) if not what.flag), key=lambda at: -found[at])
        least = EXPLAINS * max(1.0, SURE / max(len(z), 1))
        ranks = {at: place if found[at] > least or len(z) < JUDGED else FULL for place, at in enumerate(order)}
        return [what._replace(rank=ranks.get(at, 0)) for at, what in enumerate(known)]

    def _fill(
        self, block: ColumnBlock, parts: Parts, clock: PhaseTerms, name: str, level: Tensor, known: Sequence[Known]
    ) -> None:
        """The columns of one target."""
        self._target(block, parts, clock, name, level)
        self._known(block, parts, clock, name, known)
        self._others(block, parts, name)
        self._calendar(block, clock)

    def _target(self, block: ColumnBlock, parts: Parts, clock: PhaseTerms, name: str, level: Tensor) -> None:
        """Departures of the target's own references from each other."""
        own = Own(parts, name)
        at, step, blocks = own.at, own.step, own.blocks
        now, day = at("now-0"), at("day")
        r1, r2, r3 = step("short1"), step("short2"), step("short3")
        block.add(1.5, at("now-1") - now, at("now-2") - now, at("now-short") - now)
        if not self.context.long:
            fresh = now - at("now-short")
            block.add(1.0, fresh, r2 - r1, r3 - r1, r1 - day, now - day, day - level)
            block.add(2.0, step("shorts") - r1)
            block.add(2.0, blocks("block") - day[..., None], step("short1-") - r1, step("short1+") - r1)
            late = (at("now-1") - now, at("now-2") - now, fresh)
            block.add(3.0, *(value[..., None] * clock.three for value in (*late, r1 - r2, now - day)))
            return
        r7, r14, week = step("long1"), step("long2"), at("week")
        fresh = now - at("now-long")
        block.add(1.0, fresh, day - at("day-long"), r1 - step("both"), r7 - r14, r1 - r7, r2 - r7, r3 - r7)
        block.add(1.0, r7 - week, now - week, day - week, week - level)
        block.add(2.0, step("longs") - r7, step("shorts") - r7, now - at("now-longs"), day - at("day-longs"))
        block.add(2.0, blocks("block") - week[..., None], blocks("coarse") - blocks("coarse-long"))
        block.add(2.0, step("long1+") - r7, step("long1-") - r7, step("short1+") - r1, step("short1-") - r1)
        late = (at("now-1") - now, at("now-2") - now, fresh)
        block.add(3.0, *(value[..., None] * clock.three for value in (*late, r1 - r7, now - week, r7 - week)))
        if clock.days is not None:
            block.add(3.0, clock.days * (r1 - r7)[..., None])

    def _others(self, block: ColumnBlock, parts: Parts, name: str) -> None:
        """How far other targets and the inputs have departed of late."""
        back = "long" if self.context.long else "short"
        for other in self.shape.targets:
            if other != name:
                block.label = "other targets"
                now, day = parts.at(f"now-0({other})"), parts.at(f"day({other})")
                block.add(2.0, now - parts.at(f"now-{back}({other})"), now - day)
        for other in self.context.inputs:
            block.label = f"input {other}"
            now, day = parts.at(f"now-0({other})"), parts.at(f"day({other})")
            block.add(2.0, now - day, now - parts.at(f"now-1({other})"), day)

    def _known(self, block: ColumnBlock, parts: Parts, clock: PhaseTerms, name: str, known: Sequence[Known]) -> None:
        """Known inputs at the step, at its references, and their change since."""
        long = bool(self.context.long)
        flags = [other for other, what in zip(self.context.known, known, strict=True) if what.flag]
        r1, r2 = parts.step(f"short1({name})"), parts.step(f"short2({name})")
        r7 = parts.step(f"long1({name})") if long else r1
        met = dict[int, tuple[str, Tensor, Tensor]]()  # by rank: name, `MET` at the step and a short season before
        for other, what in zip(self.context.known, known, strict=True):
            block.label = f"known {other}"

            def step(label: str, other: str = other, what: Known = what) -> Tensor:
                return (parts.step(f"{label}({other})") - what.centre) / what.scale

            def at(label: str, other: str = other, what: Known = what) -> Tensor:
                return (parts.at(f"{label}({other})") - what.centre) / what.scale

            there, day = step("at"), step("at-short")
            before = step("at-long") if long else day
            if what.flag:
                block.add(1.5, there[..., None] * clock.many)
                for change in (there - before, there - day)[: 1 + long]:
                    block.add(1.5, torch.nan_to_num(change)[..., None] * clock.many)
                block.add(1.0, (r2 - r7) * (there == step("at-2short")))
                if long:
                    block.add(1.0, (r1 - r7) * (there == day), (r1 - r7) * (there == before))
                    r14, fresh = (
                        parts.step(f"long2({name})"),
                        parts.at(f"now-0({name})") - parts.at(f"now-long({name})"),
                    )
                    block.add(1.0, (r14 - r7) * (there == step("at-2long")), fresh * (at("now") == at("now-long")))
                continue
            if what.rank >= FULL:
                block.add(1.5, there, there - day, there - before)
                continue

            hinges = what.hinges
            here, change = hinges(there), hinges(there) - hinges(day)
            block.add(1.5, here, change)
            met[what.rank] = other, here[..., MET], hinges(day)[..., MET]
            if what.rank:
                block.add(1.5, there - at("now"), here - hinges(before))
                continue
            mean = hinges(step("day"))
            block.add(1.5, here - hinges(before), mean, mean - hinges(step("day-long" if long else "day-short")))
            block.add(1.5, hinges(at("now"))[..., MET], hinges(step("day-short"))[..., MET])
            block.add(3.0, *(_products(part[..., MET], clock.few) for part in (here, change)))
            if not flags:
                block.add(1.0, there - at("now"), there - step("at-1"))
        if 0 in met:
            one, here, day = met[0]
            block.label = f"known {one}"
            block.add(3.0, _squares(here), _squares(here) - _squares(day))
            for two, here_too, day_too in [met[rank] for rank in range(1, FULL) if rank in met]:
                block.label = f"known {one} × {two}"
                product = _products(here, here_too)
                block.add(3.0, product, product - _products(day, day_too))

    def _calendar(self, block: ColumnBlock, clock: PhaseTerms) -> None:
        """The time of the step."""
        block.label = CALENDAR
        if clock.days is not None:
            block.add(6.0, clock.days, _products(clock.days, clock.few))
        else:
            block.add(6.0, clock.few)
        block.add(10.0, clock.year)


def _products(one: Tensor, two: Tensor) -> Tensor:
    """(H, N, a), (H, N, b) -> (H, N, ab) each column of one with each of the other."""
    return (one[..., :, None] * two[..., None, :]).flatten(2)


def _squares(columns: Tensor) -> Tensor:
    """(H, N, a) -> (H, N, a(a + 1)/2) each column times itself and those after it."""
    one, two = torch.triu_indices(columns.shape[-1], columns.shape[-1], device=columns.device)
    return columns[..., one] * columns[..., two]


def first_known(*values: Tensor) -> Tensor:
    """The first of them that is not missing."""
    found = values[-1]
    for value in reversed(values[:-1]):
        found = torch.where(torch.isfinite(value), value, found)
    return found


class Parts(NamedTuple):
    """The context, by name: numbers (M, N, 1) of the windows, by_step (·, H, N) of the steps."""

    numbers: Tensor
    by_step: Tensor
    window: dict[str, int]
    steps: dict[str, int]

    def at(self, name: str) -> Tensor:
        """(1, N), the same for every step."""
        return self.numbers[self.window[name]].T

    def step(self, name: str) -> Tensor:
        """(H, N)"""
        return self.by_step[self.steps[name]]


class Own(NamedTuple):
    """The context of one column of the table, by label."""

    parts: Parts
    name: str

    def at(self, label: str) -> Tensor:
        """(1, N), the same for every step."""
        return self.parts.at(f"{label}({self.name})")

    def step(self, label: str) -> Tensor:
        """(H, N)"""
        return self.parts.step(f"{label}({self.name})")

    def blocks(self, label: str) -> Tensor:
        """(1, N, b) the numbers of label0, label1, ..."""
        found = (f"{label}{k}({self.name})" for k in count())
        return torch.stack([self.parts.at(key) for key in takewhile(self.parts.window.__contains__, found)], 2)


class PhaseTerms:
    """Harmonics and indicators of the steps' phases.

    Attributes:
        few, three: (H, N, 4) two harmonics of the short season; (H, N, 6) three.
        many: (H, N, 7) a constant and three.
        days: (H, N, W/D) which part of the long season a step is in; None where there are none or too many.
        year: (H, N, 2) the first harmonic of the year, less its value at the beginning; 0 without a clock.
    """

    def __init__(self, parts: Parts, context: Context) -> None:
        short, long, year = parts.by_step[-Context.PHASES :].unbind(0)
        angles = 2 * torch.pi * short[..., None] * torch.arange(1, 4, dtype=FLOAT)  # (H, N, 3)
        waves = torch.stack([angles.sin(), angles.cos()], 3).flatten(2)  # (H, N, 6)
        self.few, self.three = waves[..., :4], waves
        self.many = torch.cat([torch.ones_like(waves[..., :1]), waves], 2)
        days = context.long // context.short if context.long and context.long % context.short == 0 else 0
        self.days = None
        if 1 < days <= DAYS:
            index = (long * days + 1e-9).floor().long() % days
            self.days = torch.nn.functional.one_hot(index, days).to(FLOAT)
        turn = 2 * torch.pi * year
        self.year = torch.stack([turn.sin(), turn.cos() - 1.0], 2)


def _explained(columns: Tensor, z: Tensor) -> float:
    """The share of the variance of z (H, N) that a regression on columns (H, N, p) explains, adjusted for chance.

    Steps ahead of one window are not independent, so the adjustment counts windows.
    """
    step = max(1, len(z) // 3)  # a few steps tell as much as all of them
    windows, columns, z = z.shape[1], columns[::step].flatten(0, 1), z[::step].flatten()
    seen = torch.isfinite(z) & torch.isfinite(columns).all(1)
    windows, width = int(windows * seen.to(FLOAT).mean()), columns.shape[1]
    columns, z = columns[seen], z[seen]
    if windows <= width + 1:
        return 0.0
    columns = columns - columns.mean(0)
    z = z - z.mean()
    fitted = columns @ torch.linalg.lstsq(columns, z[:, None], driver="gelsd").solution
    unexplained = float((z - fitted[:, 0]).square().sum() / z.square().sum().clamp(min=1e-300))
    return 1.0 - unexplained * (windows - 1) / (windows - width - 1)


def describe(values: Tensor) -> Known:
    """What the first values (N,) of a known input say of it."""
    values = values[torch.isfinite(values)]
    quantiles = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9], dtype=FLOAT)
    if not len(values):
        return Known(True, 0.0, 1.0, torch.zeros(KNOTS, dtype=FLOAT))
    if len(values.unique()) <= DISTINCT:
        return Known(True, 0.0, 1.0, torch.zeros(KNOTS, dtype=FLOAT))
    centre, scale = float(values.mean()), float(values.std()) or 1.0
    return Known(False, centre, scale, (torch.quantile(values, quantiles) - centre) / scale)
