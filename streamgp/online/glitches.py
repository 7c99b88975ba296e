"""Glitches: values far from the others of their channel, in one series or in K, and what replaces them."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs
from streamgp.online.stacked import Packed

WILD = 1000.0
"""Interquartile ranges from the median beyond which a value of a bounded sample is a glitch."""
FEWEST = 20
"""Least rows for which quartiles are meaningful."""
SAMPLE = 1_000_000
"""Values of a channel at most that quartiles are estimated from."""
FIRST_QUARTILE, THIRD_QUARTILE = 0.25, 0.75
LEVELS = (0.05, FIRST_QUARTILE, 0.5, THIRD_QUARTILE, 0.95)
"""Levels of the quantiles that glitches are found by."""
EVERY = 16
"""One value of this many is in a sample of them."""


def plausible(x: Inputs, y: Tensor) -> tuple[Inputs, Tensor, str]:
    """The windows of a bounded sample that hold no glitch, before a scaling is fitted to them.

    One value of 1e9 among thousands around 10 would make the standard deviation its own size, and everything else 0. A
    truth that is a glitch counts as not observed. A window without a truth is left out, and is no glitch.

    Args:
        x: N windows.
        y: (N, T), NaN = not observed.

    Returns:
        as `usable`.

    Example:
        >>> u = torch.arange(100.0).double().view(100, 1, 1)
        >>> u[7] = 1e9
        >>> x, y, left_out = plausible(Inputs(torch.zeros(100, 0, 1).double(), u), torch.ones(100, 1).double())
        >>> len(y), left_out
        (99, 'undone: 1 windows hold a value beyond 1000 interquartile ranges')
    """
    y, within, (left_out,) = plausible_rows(x, y, Packed.alone(x))
    return x.rows(within), y[within], left_out


def plausible_rows(x: Inputs, y: Tensor, packed: Packed) -> tuple[Tensor, Tensor, list[str]]:
    """Truths (R, T) without glitches, (R,) which windows hold none, and what is left out of each series, in the order
    of the codes."""
    observed = torch.isfinite(y).any(1)
    y, within = Usual.of(x, y, packed, only=True).admits(x, y, packed)
    left = packed.counted(observed & ~within)
    return (
        y,
        within,
        [f"undone: {n} windows hold a value beyond {WILD:.0f} interquartile ranges" * (n > 0) for n in left],
    )


class Spread(NamedTuple):
    """Median and spread (K, C) of the channels of K series; the spread is 0 where nothing is a glitch."""

    median: Tensor
    width: Tensor

    @classmethod
    def of(cls, values: Tensor, enough: Tensor, only: bool = False) -> Self:
        """From quartiles or, where these are equal, from the 5 % and the 95 % quantile.

        Args:
            values: (K, N, ..., C), NaN where there is none.
            enough: (K,) which series have rows enough.
            only: whether it is asked of these values alone; then the spread is 0 where it is plain that none of them is
                a glitch.
        """
        median, width = values.new_zeros(2, len(values), values.shape[-1])
        if not values.numel():
            return cls(median, width)
        most = max(SAMPLE * values.shape[1] * values.shape[-1] * len(values) // values.numel(), FEWEST)
        if values.shape[1] > most:
            values = values[:, torch.linspace(0, values.shape[1] - 1, most, device=values.device).round().long()]
            only = False  # the others may hold a glitch
        for channel, part in enumerate(values.unbind(-1)):
            own = part.flatten(1)
            some = ((enough & ~_without_glitch(own)) if only else enough).nonzero()[:, 0]
            if len(some):
                low, first, middle, third, high = _quantiles(own[some])
                median[some, channel] = middle
                width[some, channel] = torch.where(third > first, third - first, high - low)
        return cls(median, width)

    def wild(self, values: Tensor) -> Tensor:
        """Which values (K, N, ..., C) lie beyond `WILD` of it from the median."""
        if not values.numel() or not bool((self.width > 0).any()):
            return torch.zeros_like(values, dtype=torch.bool)
        shape = len(values), *[1] * (values.dim() - 2), -1
        median, width = self.median.view(shape), self.width.view(shape)
        beyond: Tensor = (values - median).abs() > WILD * width
        return beyond & (width > 0)


class Usual(NamedTuple):
    """What values of the windows of K series are usually, by a sample of them.

    Attributes:
        parts: of the truths, of what is past and of what is known ahead.
        enough: (K,) whether the sample of a series is not too small to say.
    """

    parts: tuple[Spread, ...]
    enough: Tensor

    @classmethod
    def of(cls, x: Inputs, y: Tensor, packed: Packed | None = None, only: bool = False) -> Self:
        """Of R windows and their truths (R, T). packed: whose they are, by default all of one series; only: as of
        `Spread.of`."""
        packed = Packed.alone(x) if packed is None else packed
        enough = packed.counts >= FEWEST
        return cls(tuple(Spread.of(packed.truths(part), enough, only) for part in (y, x.past, x.future)), enough)

    def admits(self, x: Inputs, y: Tensor, packed: Packed | None = None) -> tuple[Tensor, Tensor]:
        """The truths (R, T) without glitches, and which windows (R,) have one and no glitch; all those of a series
        whose sample was too small. packed: as of `of`."""
        packed = Packed.alone(x) if packed is None else packed
        truths, *inputs = (
            packed.back(spread.wild(packed.laid(part)))
            for spread, part in zip(self.parts, (y, x.past, x.future), strict=True)
        )
        y = torch.where(truths, torch.nan, y)
        within = torch.isfinite(y).any(1)
        for wild in inputs:
            within &= ~wild.flatten(1).any(1)
        return y, within | packed.back(~self.enough[:, None].expand_as(packed.there))


def bridged(values: Tensor, location: Tensor, scale: Tensor, deviations: Tensor | float) -> Tensor:
    """Values of windows, of which each that is a glitch is replaced: by the value before it, by the one after it where
    there is none before, or by the mean of its channel.

    Args:
        values: (..., N, S, C), S steps in time.
        location: (..., 1, 1, C) of the channels.
        scale: likewise.
        deviations: how many scales from there a glitch begins; (..., 1, 1, 1) or a number.

    Example:
        >>> values = torch.tensor([1e9, 1.0, 2.0, 1e9]).double()[None, :, None]
        >>> bridged(values, torch.zeros(1).double(), torch.ones(1).double(), 1e4).flatten().tolist()
        [1.0, 1.0, 2.0, 2.0]
    """
    wild = (values - location).abs() > deviations * scale
    if not bool(wild.any()):
        return values
    steps = values.shape[-2]
    place = torch.arange(steps, device=values.device)[:, None].expand_as(values)
    known = ~wild & torch.isfinite(values)
    before = torch.where(known, place, -1).cummax(-2).values
    after = torch.where(known, place, steps).flip(-2).cummin(-2).values.flip(-2)
    taken = torch.where(before >= 0, before, after)
    found = torch.where(taken < steps, values.gather(-2, taken.clamp(max=steps - 1)), location)
    return torch.where(wild, found, values)


def _without_glitch(values: Tensor) -> Tensor:
    """(K,) where it is plain that none of the values (K, M) is a glitch: their range is small beside what a sample says
    of their quartiles, and counts confirm. Sorting all of them would take ten times as long."""
    count = values.shape[1]
    sample = values[:, ::EVERY].sort(1).values
    low, high = sample[:, int(0.35 * sample.shape[1])], sample[:, int(0.65 * sample.shape[1])]
    within = values.amax(1) - values.amin(1) <= 0.5 * WILD * (high - low)  # false where one is NaN
    first, third = math.ceil(FIRST_QUARTILE * (count - 1)), math.floor(THIRD_QUARTILE * (count - 1))
    beside = ((values <= low[:, None]).sum(1) > first) & ((values < high[:, None]).sum(1) <= third)
    return within & beside & (high > low)


def _quantiles(values: Tensor) -> Tensor:
    """(5, K) the quantiles at `LEVELS` of the values (K, M) that are not NaN; as
    `torch.nanquantile`, which sorts slower."""
    ordered = torch.from_numpy(np.sort(values.cpu().numpy(), 1)).to(values.device)  # NaN last
    most = ((~values.isnan()).sum(1) - 1).clamp(min=0)
    place = torch.tensor(LEVELS, dtype=FLOAT, device=values.device)[:, None] * most
    low, high = (ordered.gather(1, at.long().mT).mT for at in (place.floor(), place.ceil()))
    return low.lerp(high, place - place.floor())
