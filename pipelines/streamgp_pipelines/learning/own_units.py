"""Series of unlike scale in one model: each in units of its own.

    z = (v − m_s)/d_s    m_s, d_s the mean and standard deviation of channel v in the windows of series s so far

A panel whose series differ in scale would be learned in units of the largest: one location, scale and noise of a model
belong to all of its series. Whether they differ is decided once, when the model is fitted, by the windows of the
warm-up: a channel is in own units where it varies more than UNLIKE times as much in one series as in another. Series of
less than KNOWN rows, and of many the largest and smallest EXTREME, do not count, and neither do those that stand still
but for rounding, whose d is at most STILL·|m|: idle machines, and an input that is constant in each series, such as its
size. Levels that differ decide nothing: those of random walks do by chance. In use d is at least STILL·|m|; of a series
that was always 0, the median d of the others.

The context of windows with seasons is in the units of its channels.

m and d follow the rows, in order, and forget them with a time constant of MEMORY rows of the series. A series with
fewer than FEW rows counts the past of its window as well. What is asked at a row sees rows up to it, those of its own
micro-batch in its window alone.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgp.base import Inputs, Predictive, Shape
from streamgp.context import Context
from streamgp.forecasting.streams import extended
from streamgp.online.scaling import STILL
from streamgp.state import Arrays, Declared, Value

Floats: TypeAlias = NDArray[np.float64]
Scale: TypeAlias = Literal["auto", "series", "all"]

UNLIKE = 10.0
"""Standard deviation of one series, in units of that of another, from which on they are unlike."""
EXTREME, KNOWN = 0.1, 24
"""Share of the series at either end that may be there by chance, and rows that say how much a series varies."""
MEMORY = 4000.0
"""Rows of a series after which a row counts 1/e, about."""
FEW = 100
"""Rows of a series below which its moments are those of its window too."""


class SeriesUnits(NamedTuple):
    """Location and scale (N, T) of the output columns of N windows."""

    location: Tensor
    scale: Tensor

    def put(self, issued: Predictive) -> Predictive:
        """Forecasts in the units of the table."""
        return issued.affine(self.scale, self.location)

    def take(self, issued: Predictive) -> Predictive:
        """The inverse of `put`."""
        return issued.affine(1.0 / self.scale, -self.location / self.scale)

    def learned(self, y: Tensor) -> Tensor:
        """(N, T) truths in own units."""
        return (y - self.location) / self.scale

    def values(self, z: Tensor) -> Tensor:
        """The inverse of `learned`."""
        return self.location + self.scale * z


class OwnUnits(Declared):
    """Moments of each channel of each series, and whether they are used; Stateful.

    Args:
        shape: of the windows.
        scale: auto: where series are unlike; series: always, but for inputs that are alike. Models whose windows have
            units of their own, linear and ensemble with seasons and no known input, have none of these
            (`Recipe.own_units`); with known inputs they always have (`Recipe.units`).

    Attributes:
        settled: whether it was decided.

    Example:
        >>> shape = Shape(targets=("y",), horizon=1, lags=4, past=("y",), future=())
        >>> own, row = OwnUnits(shape, "auto"), torch.arange(60) % 8
        >>> past = row.double().unfold(0, 4, 1)[:, :, None] * torch.tensor([1.0, 1000.0]).repeat(29)[:57, None, None]
        >>> x = Inputs(past, past.new_zeros(57, 1, 0))
        >>> own.see(x, torch.arange(57) % 2)
        >>> own.used, own.settle(), own.used
        (False, ['y'], True)
        >>> z, units = own.of(x, torch.arange(57) % 2)
        >>> bool(z.past.abs().max() < 4), (units.scale[1] / units.scale[0]).round().item() > 500
        (True, True)
    """

    STATE = (
        Arrays("count", "mean", "square"),
        Arrays("own", grows=False),
        Value("settled", bool),
    )

    def __init__(self, shape: Shape, scale: Scale) -> None:
        self.shape, self.scale = shape, scale
        seasonal = shape.outputs if shape.seasonal else 0
        self.names = shape.past[: len(shape.past) - seasonal]
        channels = len(self.names)
        self._past = np.append(np.arange(channels), np.arange(seasonal))
        """(D,) the channel that each past channel has the units of."""
        self._future = np.array(
            [self.names.index(name) if name in self.names else -1 for name in shape.future], np.int64
        )
        self._future[:seasonal] = np.arange(seasonal)
        self._context = _channels(shape.context)
        self._count = np.zeros((0, channels))  # (S, C) values, after forgetting
        self._mean = np.zeros((0, channels))
        self._square = np.zeros((0, channels))  # variance
        self._own = np.zeros(channels, bool)  # (C,) which channels are in own units
        self.settled = False

    @property
    def used(self) -> bool:
        """Whether any channel is in own units."""
        return bool(self._own.any())

    def see(self, x: Inputs, series: Tensor) -> None:
        """Learn the moments of the newest rows of windows; of the first window of a series, of all of its rows."""
        codes, channels = series.numpy(), len(self.names)
        if not len(codes) or (self.settled and not self.used):
            return
        self._reserve(int(codes.max()) + 1)
        past = x.past[..., :channels].numpy()
        seen, first, at = np.unique(codes, return_index=True, return_inverse=True)
        fresh = np.flatnonzero(~self._count[seen].any(1))
        values = np.concatenate([past[first[fresh], :-1].reshape(-1, channels), past[:, -1]])
        of = np.concatenate([np.repeat(fresh, past.shape[1] - 1), at])
        known = np.isfinite(values)
        values = np.where(known, values, 0.0)

        def sums(parts: Floats) -> Floats:
            """(R, C) -> (S', C) of the series that were seen."""
            found = np.zeros((len(seen), channels))
            np.add.at(found, of, parts)
            return found

        count = sums(known.astype(np.float64))
        mean = sums(values) / np.maximum(count, 1.0)
        square = sums(np.where(known, values - mean[of], 0.0) ** 2) / np.maximum(count, 1.0)
        total, self._mean[seen], self._square[seen] = _joined(
            (self._count[seen], self._mean[seen], self._square[seen]), (count, mean, square)
        )
        self._count[seen] = np.minimum(total, MEMORY)

    def settle(self) -> list[str]:
        """Decide by what was seen; the channels that are in own units."""
        self.settled = True
        spread = np.sqrt(self._square)
        varies = (self._count >= KNOWN) & (spread > STILL * np.abs(self._mean))
        for channel, known in enumerate(varies.T):
            self._own[channel] = unlike(spread[known, channel])
        if self.scale == "series":
            self._own[: self.shape.outputs] = True
        return [name for name, own in zip(self.names, self._own, strict=True) if own]

    def of(self, x: Inputs, series: Tensor) -> tuple[Inputs, SeriesUnits]:
        """N windows of these series in own units, and the units of their output columns."""
        location, scale = self._in_use(self._moments(x, series))

        def inside(values: Tensor, channels: NDArray[np.int64]) -> Tensor:
            """(N, ..., C') in units of these channels; −1: as they are."""
            at, none = torch.from_numpy(channels.clip(0)), torch.from_numpy(channels < 0)
            m = torch.where(none, 0.0, location[:, None, at])
            return (values - m) / torch.where(none, 1.0, scale[:, None, at])

        future = inside(x.future, self._future) if len(self._future) else x.future
        context = None if x.context is None else inside(x.context[:, None], self._context)[:, 0]
        return Inputs(inside(x.past, self._past), future, context), self._columns(location, scale)

    def of_series(self, series: Tensor) -> SeriesUnits:
        """SeriesUnits of the output columns of these series (N,), by what was seen of them."""
        return self._columns(*self._in_use(self._held(series)))

    def _columns(self, location: Tensor, scale: Tensor) -> SeriesUnits:
        """Of those of channels (N, C)."""
        outputs, horizon = self.shape.outputs, self.shape.horizon
        return SeriesUnits(*(part[:, :outputs].repeat_interleave(horizon, 1) for part in (location, scale)))

    def _held(self, series: Tensor) -> tuple[Floats, Floats, Floats]:
        """(N, C) count, mean and variance of channels so far."""
        codes = series.numpy()
        self._reserve(int(codes.max(initial=-1)) + 1)
        return self._count[codes], self._mean[codes], self._square[codes]

    def _moments(self, x: Inputs, series: Tensor) -> tuple[Floats, Floats, Floats]:
        """`_held`, with the windows themselves where a series has had few rows."""
        held = self._held(series)
        few = held[0] < FEW
        if few.any():
            past = x.past[..., : len(self.names)].numpy()
            known = np.isfinite(past)
            count = known.sum(1).astype(np.float64)
            mean = np.where(known, past, 0.0).sum(1) / np.maximum(count, 1.0)
            square = (np.where(known, past - mean[:, None], 0.0) ** 2).sum(1) / np.maximum(count, 1.0)
            both = _joined(held, (count, mean, square))
            count, mean, square = (np.where(few, own, alone) for own, alone in zip(both, held, strict=True))
            return count, mean, square
        return held

    def _in_use(self, held: tuple[Floats, Floats, Floats]) -> tuple[Tensor, Tensor]:
        """(N, C) locations and scales; 0 and 1 of channels that are as they are."""
        own, location = self._own, held[1]
        spread = np.maximum(np.sqrt(held[2]), STILL * np.abs(location))
        if (spread[:, own] == 0).any():
            spread = np.where(spread > 0, spread, self._usual())
        return torch.from_numpy(np.where(own, location, 0.0)), torch.from_numpy(np.where(own, spread, 1.0))

    def _usual(self) -> Floats:
        """(C,) the median standard deviation of the series that vary; 1 where none does."""
        each = [square[square > 0] for square in self._square.T]
        return np.array([np.sqrt(np.median(some)) if len(some) else 1.0 for some in each])

    def _reserve(self, series: int) -> None:
        """Room for these series."""
        grown = series - len(self._count)
        if grown > 0:
            more = np.zeros((grown, len(self.names)))
            self._count, self._mean, self._square = (
                extended(part, more) for part in (self._count, self._mean, self._square)
            )


def _channels(context: Context | None) -> NDArray[np.int64]:
    """(C,) the channel that each number of a context has the units of; -1: none, a phase."""
    if context is None:
        return np.zeros(0, np.int64)
    steps = [entry.channel for entry in context.steps] + [-1] * context.PHASES
    return np.array([entry.channel for entry in context.window] + steps * context.horizon, np.int64)


def unlike(spread: Floats) -> bool:
    """Whether series of these standard deviations (S,) differ in scale.

    Example:
        >>> unlike(np.array([1.0, 11.0])), unlike(np.append(np.ones(19), 11.0)), unlike(np.ones(0))
        (True, False, False)
    """
    ranked = np.sort(spread)
    place = int(EXTREME * max(len(ranked) - 1, 0))
    return len(ranked) > 1 and bool(ranked[-1 - place] > UNLIKE * ranked[place])


def _joined(a: tuple[Floats, ...], b: tuple[Floats, ...]) -> tuple[Floats, Floats, Floats]:
    """Count, mean and variance of the values of both (Chan, Golub & LeVeque 1983)."""
    (n, mean, square), (m, other, more) = a, b
    total = n + m
    share = m / np.maximum(total, 1.0)
    away = other - mean
    return total, mean + share * away, (1.0 - share) * square + share * more + share * (1.0 - share) * away**2
