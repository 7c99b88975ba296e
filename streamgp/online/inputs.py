"""From windows to kernel inputs: standardised and flattened, with one lengthscale a channel."""

from __future__ import annotations

import math
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Inputs, Shape, Step
from streamgp.encoders import Layout
from streamgp.errors import UsageError
from streamgp.online.scaling import InputScaling
from streamgp.state import Declared, Whole

LARGEST = 1e150
"""Absolute values beyond it are not learned: sums of their squares may overflow float64."""


def usable(x: Inputs, y: Tensor) -> tuple[Inputs, Tensor, str]:
    """The windows that can be learned: with at least one truth, and without values beyond `LARGEST`.

    A truth beyond it counts as not observed. A lag may be NaN, where nothing is known of it.

    Returns:
        the windows, their truths (M, T), and what was left out: "" or a part of a `Step`'s `done`.

    Example:
        >>> x = Inputs(torch.zeros(3, 0, 1).double(), torch.tensor([1.0, 1e200, 2.0]).double().view(3, 1, 1))
        >>> x, y, left_out = usable(x, torch.ones(3, 1).double())
        >>> len(y), left_out
        (2, 'undone: 1 windows hold values beyond 1e+150')
    """
    y, taken, left_out = usable_rows(x, y)
    return x.rows(taken), y[taken], left_out


def usable_rows(x: Inputs, y: Tensor) -> tuple[Tensor, Tensor, str]:
    """Which windows `usable` takes.

    Returns:
        the truths of all (N, T), NaN = not observed, which of them are taken (N,), and what is left out.
    """
    y = torch.where(y.abs() <= LARGEST, y, torch.nan)  # NaN stays
    observed = torch.isfinite(y).any(1)
    within = torch.ones_like(observed)
    for part in x.parts:
        low, high = part.aminmax() if part.numel() else (y.new_zeros(()), y.new_zeros(()))
        if not (low >= -LARGEST and high <= LARGEST):  # one is NaN, or beyond it
            within &= ~(part.abs() > LARGEST).flatten(1).any(1)  # NaN is not beyond it
    count = int((observed & ~within).sum())
    left_out = f"undone: {count} windows hold values beyond {LARGEST:.0e}" if count else ""
    return y, observed & within, left_out


JUMP = 0.05
"""Standard deviations of a column within which half of a jump at its 0 happens."""
WILD = 1000.0
"""Interquartile ranges from the median beyond which a value of a bounded sample is a glitch."""
FEWEST = 20
"""Rows that quartiles mean something of."""
SAMPLE = 1_000_000
"""Values of a channel at most that quartiles are estimated from."""


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
    observed = torch.isfinite(y).any(1)
    y, within = Usual.of(x, y).admits(x, y)
    count = int((observed & ~within).sum())
    left_out = f"undone: {count} windows hold a value beyond {WILD:.0f} interquartile ranges" if count else ""
    return x.rows(within), y[within], left_out


class Spread(NamedTuple):
    """Median and spread (C,) of channels; the spread is 0 where nothing is a glitch."""

    median: Tensor
    width: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Self:
        """Of values (N, ..., C): from quartiles or, where these are equal, from the 5 % and the 95 % quantile."""
        channels = values.shape[-1]
        if not values.numel():
            return cls(values.new_zeros(channels), values.new_zeros(channels))
        most = max(SAMPLE * len(values) * channels // values.numel(), FEWEST)
        some = torch.linspace(0, len(values) - 1, min(len(values), most), device=values.device).round().long()
        flat = values[some].reshape(-1, channels)
        levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=FLOAT, device=values.device)
        found = torch.stack([torch.nanquantile(column, levels) for column in flat.unbind(1)], 1)  # (5, C)
        low, first, median, third, high = found
        return cls(median, torch.where(third > first, third - first, high - low))

    def wild(self, values: Tensor) -> Tensor:
        """Which values (N, ..., C) lie beyond `WILD` of it from the median."""
        if not values.numel():
            return torch.zeros_like(values, dtype=torch.bool)
        beyond: Tensor = (values - self.median).abs() > WILD * self.width
        return beyond & (self.width > 0)


class Usual(NamedTuple):
    """What values of windows are usually, by a sample of them; empty where the sample is too small to say."""

    parts: tuple[Spread, ...]

    @classmethod
    def of(cls, x: Inputs, y: Tensor) -> Self:
        """Of N windows and their truths (N, T)."""
        return cls(tuple(map(Spread.of, (y, x.past, x.future))) if len(y) >= FEWEST else ())

    def admits(self, x: Inputs, y: Tensor) -> tuple[Tensor, Tensor]:
        """The truths (N, T) without glitches, and which windows (N,) have one and no glitch."""
        if not self.parts:
            return y, torch.ones(len(y), dtype=torch.bool, device=y.device)
        truths, *inputs = self.parts
        y = torch.where(truths.wild(y), torch.nan, y)
        within = torch.isfinite(y).any(1)
        for part, spread in zip((x.past, x.future), inputs, strict=True):
            within &= ~spread.wild(part).flatten(1).any(1)
        return y, within


def reporting(step: Step, left_out: str) -> Step:
    """The step of the windows that were learned, with what `usable` left out: then it is not healthy.

    Example:
        >>> reporting(Step(0.5, 1, True, "update"), "undone: 1 windows hold values beyond 1e+150")
        Step(loss=0.5, basis=1, healthy=False, done='update; undone: 1 windows hold values beyond 1e+150')
    """
    return step._replace(healthy=False, done=f"{step.done}; {left_out}") if left_out else step


class KernelInputs(Declared, nn.Module):
    """Windows -> (N, W) standardised, W = L·D + H·F.

    A channel's lags (or its steps ahead) are a group g of s_g columns: they share a location, a scale and a
    lengthscale. Differences are divided by ℓ_g √s_g, so that with ℓ_g = 1 two windows that are a standard deviation
    apart in all columns of one group, and equal otherwise, correlate by e^−½ however many columns these are.

    A channel v of `jumps` has another group beside its own, (2/π) atan(v/(JUMP·s)) with its standard deviation s: what
    turns at its 0, such as friction with a velocity, is smooth in this.

    Args:
        shape: of the windows.
        hidden: names of channels that are left out.
        jumps: names of channels, or patterns such as "qd*".

    Raises:
        UsageError: a pattern of `jumps` matches no channel of the windows.

    Attributes:
        layout: how the channels that are seen lie in a row.
        groups: (W,) the group of each column.
        count: G, the number of groups.

    Example:
        >>> shape = Shape(targets=("y",), horizon=2, lags=3, past=("y", "u"), future=("u",))
        >>> inputs = KernelInputs(shape)
        >>> inputs.groups.tolist(), inputs.count
        ([0, 1, 0, 1, 0, 1, 2, 2], 3)
        >>> [round(value, 2) for value in inputs.inverse(torch.zeros(3)).square().tolist()]
        [0.33, 0.33, 0.33, 0.33, 0.33, 0.33, 0.5, 0.5]
        >>> inputs = KernelInputs(shape, jumps=["u"])
        >>> x = Inputs(torch.zeros(1, 3, 2).double(), torch.tensor([[[0.05], [-9.0]]]).double())
        >>> inputs.groups[8:].tolist(), [round(value, 2) for value in inputs(x)[0, 8:].tolist()]
        ([3, 3, 3, 4, 4], [0.0, 0.0, 0.0, 0.5, -1.0])
    """

    STATE = (Whole("scaling"),)

    def __init__(self, shape: Shape, hidden: Collection[str] = (), jumps: Collection[str] = ()) -> None:
        super().__init__()
        channels = len(shape.past) if shape.lags else 0
        past = torch.arange(channels).repeat(shape.lags)
        ahead = channels + torch.arange(len(shape.future)).repeat(shape.horizon)
        groups = torch.cat((past, ahead))
        self.scaling = InputScaling(shape)
        self.count = channels + len(shape.future)
        seen = torch.tensor([name not in hidden for name in (*shape.past[:channels], *shape.future)], dtype=torch.bool)
        before, after = int(seen[:channels].sum()), int(seen[channels:].sum())
        self.layout = Layout(shape.lags, before, shape.horizon, after)
        self.without_past = shape.targets[0] in hidden
        self.groups: Tensor
        self.columns: Tensor | None
        columns = seen[groups].nonzero()[:, 0] if hidden else None
        self.register_buffer("columns", columns, persistent=False)
        names = (*shape.past[:channels], *shape.future)
        for pattern in jumps:
            if pattern not in names and not any(fnmatchcase(name, pattern) for name in names):
                hint = f"choose among: {', '.join(dict.fromkeys(names))}"
                raise UsageError(f"no input is called {pattern}, of jumps", hint=hint)
        fits = {name: name in jumps or any(fnmatchcase(name, pattern) for pattern in jumps) for name in names}
        turning = [g for g, name in enumerate(names) if fits[name]]
        self.turning = torch.tensor(turning, dtype=torch.int64)
        places = torch.isin(groups, self.turning).nonzero()[:, 0]
        self.places: Tensor
        self.register_buffer("places", places, persistent=False)
        self.turned: Tensor
        self.register_buffer("turned", groups[places], persistent=False)
        extra = self.count + torch.searchsorted(self.turning, groups[places])
        self.register_buffer("groups", torch.cat((groups if columns is None else groups[columns], extra)))
        self.count += len(turning)
        self.channels = channels

    def _of_channels(self, past: Tensor, future: Tensor) -> Tensor:
        """(G',) of the groups that are channels."""
        return torch.cat((past[: self.channels], future))

    @property
    def scale(self) -> Tensor:
        """(G,) what one standardised unit of each group is, in the units of the columns."""
        own = self._of_channels(self.scaling.past.scale, self.scaling.future.scale)
        return torch.cat((own, own.new_ones(len(self.turning))))

    def inverse(self, log_lengthscale: Tensor) -> Tensor:
        """(G,) log ℓ -> (W,) 1/(ℓ_g √s_g)."""
        sizes = torch.bincount(self.groups, minlength=self.count).to(FLOAT)
        return (torch.exp(-log_lengthscale.to(sizes.device)) / sizes.sqrt())[self.groups]

    def forward(self, x: Inputs) -> Tensor:
        """(N, W)"""
        flat: Tensor = self.scaling.flat(x)
        seen = flat if self.columns is None else flat[:, self.columns]
        if not len(self.turning):
            return seen
        past, future = self.scaling.past, self.scaling.future
        zero = -self._of_channels(past.location / past.scale, future.location / future.scale)  # (G',), standardised
        away = flat[:, self.places] - zero.to(flat)[self.turned]
        return torch.cat((seen, (2 / math.pi) * torch.atan(away / JUMP)), 1)

    @property
    def width(self) -> int:
        """Columns of a flattened window, before standardising."""
        return len(self.groups) - len(self.places)

    def names(self, shape: Shape) -> tuple[str, ...]:
        """Of these columns: y[t-1], y[t], u[t+1]; without lags the names of the inputs. shape: of the windows."""
        past = [f"{name}[t{-back or ''}]" for back in range(shape.lags - 1, -1, -1) for name in shape.past]
        ahead = range(1, shape.horizon + 1)
        future = [f"{name}[t+{step}]" for step in ahead for name in shape.future] if shape.lags else [*shape.future]
        whole = [*past, *future]
        return tuple(whole if self.columns is None else (whole[at] for at in self.columns.tolist()))

    def of_flat(self, flat: Tensor) -> Tensor:
        """(N, `width`) flattened windows in the units of the columns -> (N, W) standardised, as by `forward`."""
        location, scale = self._of_columns()
        whole = location.expand(len(flat), -1).clone()
        if self.columns is None:
            whole = flat.to(whole)
        else:
            whole[:, self.columns] = flat.to(whole)
        z = torch.nan_to_num((whole - location) / scale)
        seen = z if self.columns is None else z[:, self.columns]
        if not len(self.turning):
            return seen
        away = (whole / scale)[:, self.places]
        return torch.cat((seen, (2 / math.pi) * torch.atan(away / JUMP)), 1)

    def in_units(self, z: Tensor) -> Tensor:
        """The inverse of `of_flat`: (N, W) -> (N, `width`)."""
        location, scale = (part if self.columns is None else part[self.columns] for part in self._of_columns())
        return location + scale * z[:, : self.width]

    def _of_columns(self) -> tuple[Tensor, Tensor]:
        """Location and scale (L·D + H·F,) of every column of a flattened window."""
        past, future = self.scaling.past, self.scaling.future
        device = self.groups.device
        lags, steps = self.layout.lags, self.layout.horizon
        location = torch.cat((past.location.repeat(lags), future.location.repeat(steps)))
        return location.to(device), torch.cat((past.scale.repeat(lags), future.scale.repeat(steps))).to(device)

    def seen(self, x: Inputs) -> Inputs:
        """The windows without lags where the targets are hidden."""
        return Inputs(x.past[:, :0], x.future) if self.without_past else x

    def bridged(self, x: Inputs, deviations: float) -> Inputs:
        """Windows with each value beyond so many standard deviations of its channel replaced: by the value before it,
        by the one after it where there is none before, or by the channel's mean.

        Example:
            >>> inputs = KernelInputs(Shape(targets=("y",), horizon=1, lags=4, past=("y",), future=()))
            >>> past = torch.tensor([1e9, 1.0, 2.0, 1e9]).double()[None, :, None]
            >>> inputs.bridged(Inputs(past, past[:, :1, :0]), 1e4).past.flatten().tolist()
            [1.0, 1.0, 2.0, 2.0]
        """
        scaling = self.scaling
        past, future = (
            bridged(values, scaler.transform(values).abs() > deviations, scaler.location.to(values))
            for values, scaler in ((x.past, scaling.past), (x.future, scaling.future))
        )
        return x._replace(past=past, future=future)


def bridged(values: Tensor, wild: Tensor, mean: Tensor) -> Tensor:
    """values, wild: (N, S, C), S steps in time; mean: (C,) or (N, 1, C), where a window has no other value."""
    steps = values.shape[1]
    if not values.numel():
        return values
    place = torch.arange(steps, device=values.device)[:, None].expand_as(values)
    known = ~wild & torch.isfinite(values)
    before = torch.where(known, place, -1).cummax(1).values
    after = torch.where(known, place, steps).flip(1).cummin(1).values.flip(1)
    taken = torch.where(before >= 0, before, after)
    found = torch.where(taken < steps, values.gather(1, taken.clamp(max=steps - 1)), mean)
    return torch.where(wild, found, values)
