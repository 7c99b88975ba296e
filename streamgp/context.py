"""What a forecast may look at beside its window: the references of each step ahead, and what came before in blocks.

With a short season of D rows (a day) and a long one of W rows (a week), the *context* of a window at row i holds, for
the step ahead h and j = i + h,

    targets         one, two, three short and one, two long seasons before j, their neighbours, both together,
                    and means over several seasons
    known inputs    the same, at j itself, and the mean of the last short season up to j
    the past of i   the last values, means of blocks of the last short season, means of the last short and long season
    phases          where j lies in each season and in the year, 0 to 1

A reference of a target is never later than i: a season is counted as often as that takes. What is not there is NaN.
Blocks and means take at most `POINTS` rows, evenly spaced, so that a season of any length costs the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

POINTS = 24
"""Rows that the mean over a season is made of, at most."""
BLOCKS = 12
"""Blocks of the last short season."""
LONGS, SHORTS = 4, 7
"""Long and short seasons that the mean of a phase is taken over."""
COARSE = 8
"""Blocks of the last short season that are compared with those one long season before."""


class Entry(NamedTuple):
    """One number of the context: the mean of a channel at some rows.

    Attributes:
        name: what it is, such as "short1(y)".
        channel: index of the column among targets, inputs, known inputs.
        offsets: rows relative to the window's row i, of the window (one tuple) or of each of the H steps.
    """

    name: str
    channel: int
    offsets: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Context:
    """The layout of `Inputs.context`: `len(window)` numbers of the window, then H times `len(steps) + PHASES`.

    Attributes:
        seasons: rows in each season, shortest first; the first and the last are looked at.
        horizon: H.
        targets, inputs, known: columns, in the order of the channels.

    Example:
        >>> context = Context((24, 168), horizon=2, targets=("y",), inputs=(), known=("k",))
        >>> context.short, context.long, context.width == len(context.window) + 2 * context.per_step
        (24, 168, True)
        >>> [entry.offsets for entry in context.steps if entry.name == "long1(y)"]
        [((-167,), (-166,))]
    """

    seasons: tuple[int, ...]
    horizon: int
    targets: tuple[str, ...]
    inputs: tuple[str, ...]
    known: tuple[str, ...]

    PHASES = 3

    @property
    def short(self) -> int:
        """D, rows in the shortest season."""
        return self.seasons[0]

    @property
    def long(self) -> int:
        """W, rows in the longest season; 0 where there is only one."""
        return self.seasons[-1] if len(self.seasons) > 1 else 0

    @cached_property
    def per_step(self) -> int:
        """Numbers of a step ahead, phases among them."""
        return len(replace(self, horizon=1).steps) + self.PHASES

    @property
    def width(self) -> int:
        """C, numbers of a window."""
        return len(self.window) + self.horizon * self.per_step

    @cached_property
    def back(self) -> int:
        """Rows that are looked back on, beside the window's own."""
        nearest = replace(self, horizon=1).steps  # no step ahead looks back farther
        return -min(off for entry in (*self.window, *nearest) for part in entry.offsets for off in part)

    @cached_property
    def window(self) -> tuple[Entry, ...]:
        """What does not depend on the step ahead."""
        short, long, found = self.short, self.long, list[Entry]()
        for channel, name in enumerate((*self.targets, *self.inputs, *self.known)):
            if name in self.known:
                found += [Entry(f"now({name})", channel, ((0,),)), Entry(f"now-short({name})", channel, ((-short,),))]
                if long:
                    found.append(Entry(f"now-long({name})", channel, ((-long,),)))
                continue
            found += [Entry(f"now-{back}({name})", channel, ((-back,),)) for back in range(3)]
            found.append(Entry(f"day({name})", channel, (_mean(0, short),)))
            if name in self.inputs:
                continue
            found.append(Entry(f"now-short({name})", channel, ((-short,),)))
            found += [
                Entry(f"block{at}({name})", channel, (part,)) for at, part in enumerate(_blocks(0, short, BLOCKS))
            ]
            if long:
                found += [
                    Entry(f"now-long({name})", channel, ((-long,),)),
                    Entry(f"day-long({name})", channel, (_mean(-long, short),)),
                    Entry(f"now-longs({name})", channel, (tuple(-long * back for back in range(1, LONGS + 1)),)),
                    Entry(
                        f"day-longs({name})",
                        channel,
                        (tuple(at for back in range(1, LONGS + 1) for at in _mean(-long * back, short)),),
                    ),
                    Entry(f"week({name})", channel, (_mean(0, long, 7 * POINTS),)),
                ]
                for label, back in (("coarse", 0), ("coarse-long", long)):
                    parts = enumerate(_blocks(-back, short, COARSE))
                    found += [Entry(f"{label}{at}({name})", channel, (part,)) for at, part in parts]
        return tuple(found)

    @cached_property
    def steps(self) -> tuple[Entry, ...]:
        """What there is of each step ahead, phases aside."""
        short, long, found = self.short, self.long, list[Entry]()
        ahead = range(1, self.horizon + 1)

        def before(season: int, step: int) -> int:
            return step - -(-step // season) * season  # the fewest whole seasons before, at row i or earlier

        def add(name: str, channel: int, offsets: Sequence[tuple[int, ...]]) -> None:
            found.append(Entry(name, channel, tuple(offsets)))

        for channel, name in enumerate(self.targets):
            for times in range(3):
                add(f"short{times + 1}({name})", channel, [(before(short, h) - times * short,) for h in ahead])
            for label, shift in (("-", -1), ("+", 1)):
                add(f"short1{label}({name})", channel, [(min(before(short, h) + shift, 0),) for h in ahead])
            for label, season, count in (("shorts", short, SHORTS), ("longs", long, LONGS))[: 1 + bool(long)]:
                means = [tuple(before(season, h) - times * season for times in range(count)) for h in ahead]
                add(f"{label}({name})", channel, means)
            if not long:
                continue
            for times in range(2):
                add(f"long{times + 1}({name})", channel, [(before(long, h) - times * long,) for h in ahead])
            add(f"both({name})", channel, [(before(short, h) - long,) for h in ahead])
            for label, shift in (("-", -1), ("+", 1)):
                add(f"long1{label}({name})", channel, [(min(before(long, h) + shift, 0),) for h in ahead])
        first = len(self.targets) + len(self.inputs)
        for channel, name in enumerate(self.known, first):
            backs = {"at": 0, "at-1": 1, "at-short": short, "at-2short": 2 * short}
            backs |= {"at-long": long, "at-2long": 2 * long} if long else {}
            for label, back in backs.items():
                add(f"{label}({name})", channel, [(h - back,) for h in ahead])
            for label, back in {"day": 0, "day-short": short, **({"day-long": long} if long else {})}.items():
                add(f"{label}({name})", channel, [_mean(h - back, short) for h in ahead])
        return tuple(found)


def _mean(last: int, rows: int, points: int = POINTS) -> tuple[int, ...]:
    """Rows up to `last` that stand for the `rows` last ones."""
    count = min(rows, points)
    return tuple(last - at * rows // count for at in range(count))


def _blocks(last: int, rows: int, blocks: int) -> list[tuple[int, ...]]:
    """Blocks of the `rows` rows up to `last`, newest first, each by a few of its rows."""
    count = min(rows, blocks)
    edges = [at * rows // count for at in range(count + 1)]
    return [_mean(last - low, high - low, 4) for low, high in pairwise(edges)]
