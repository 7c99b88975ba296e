"""From windows to kernel inputs: standardised and flattened, with one lengthscale a channel."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Inputs, Shape, Step
from streamgp.encoders import Layout
from streamgp.errors import UsageError
from streamgp.online.glitches import bridged
from streamgp.online.scaling import InputScaling, standardised
from streamgp.online.stacked import Packed
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
    y, taken, (left_out,) = usable_rows(x, y)
    return x.rows(taken), y[taken], left_out


def usable_rows(x: Inputs, y: Tensor, packed: Packed | None = None) -> tuple[Tensor, Tensor, list[str]]:
    """Which windows `usable` takes. packed: whose they are; by default all of one series.

    Returns:
        the truths of all (N, T), NaN = not observed, which of them are taken (N,), and what is left out of each series.
    """
    y = torch.where(y.abs() <= LARGEST, y, torch.nan)  # NaN stays
    observed = torch.isfinite(y).any(1)
    within = torch.ones_like(observed)
    for part in x.parts:
        low, high = part.aminmax() if part.numel() else (y.new_zeros(()), y.new_zeros(()))
        if not (low >= -LARGEST and high <= LARGEST):  # one is NaN, or beyond it
            within &= ~(part.abs() > LARGEST).flatten(1).any(1)  # NaN is not beyond it
    lost = observed & ~within
    if not bool(lost.any()):
        return y, observed, [""] * (1 if packed is None else len(packed.codes))
    counts = (Packed.alone(x) if packed is None else packed).counted(lost)
    return y, observed & within, [f"undone: {n} windows hold values beyond {LARGEST:.0e}" * (n > 0) for n in counts]


JUMP = 0.05
"""Standard deviations of a column within which half of a jump at its 0 happens."""


def reporting(step: Step, left_out: str) -> Step:
    """The step of the windows that were learned, with what `usable` left out: then it is not healthy.

    Example:
        >>> reporting(Step(0.5, 1, True, "update"), "undone: 1 windows hold values beyond 1e+150")
        Step(loss=0.5, basis=1, healthy=False, done='update; undone: 1 windows hold values beyond 1e+150')
    """
    return step._replace(healthy=False, done=f"{step.done}; {left_out}") if left_out else step


def learned(loss: float, size: int, why: str, done: str = "update") -> Step:
    """The step after an update. A `why` that is not empty says why the update was undone, and the step reports it."""
    return reporting(Step(loss, size, True, done), why and f"undone: {why}")


def epoch(steps: Sequence[tuple[int, Step]], size: int) -> Step:
    """One step for all chunks of a fit.

    Args:
        steps: the rows of each chunk, and its step.
        size: basis functions.

    Example:
        >>> epoch([(3, learned(1.0, 2, "")), (1, learned(5.0, 2, "it overflows"))], 2)
        Step(loss=2.0, basis=2, healthy=False, done='update; undone: it overflows')
    """
    rows, known = sum(count for count, _ in steps), [one for one in steps if not math.isnan(one[1].loss)]
    bad = [step for _, step in steps if not step.healthy]
    loss = sum(count * step.loss for count, step in known) / max(rows, 1)
    return Step(loss, size, not bad, bad[-1].done if bad else "epoch")


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
        self.every: Tensor
        self.register_buffer("every", groups, persistent=False)
        extra = self.count + torch.searchsorted(self.turning, groups[places])
        self.register_buffer("groups", torch.cat((groups if columns is None else groups[columns], extra)))
        self.count += len(turning)
        self.channels = channels

    def _of_channels(self, past: Tensor, future: Tensor) -> Tensor:
        """(..., G') of the groups that are channels."""
        return torch.cat((past[..., : self.channels], future), -1)

    @property
    def scale(self) -> Tensor:
        """(..., G) what one standardised unit of each group is, in the units of the columns."""
        return self.of_groups(self._of_channels(self.scaling.past.scale, self.scaling.future.scale))

    def of_groups(self, scale: Tensor) -> Tensor:
        """(..., G') of the groups that are channels -> (..., G)."""
        return torch.cat((scale, scale.new_ones(*scale.shape[:-1], len(self.turning))), -1)

    def inverse(self, log_lengthscale: Tensor) -> Tensor:
        """(G,) log ℓ -> (W,) 1/(ℓ_g √s_g)."""
        sizes = torch.bincount(self.groups, minlength=self.count).to(FLOAT)
        return (torch.exp(-log_lengthscale.to(sizes.device)) / sizes.sqrt())[self.groups]

    def forward(self, x: Inputs) -> Tensor:
        """(..., N, W)"""
        past, future = self.scaling.past, self.scaling.future
        units = (self._of_channels(*pair) for pair in ((past.location, future.location), (past.scale, future.scale)))
        return self.standardised(x.flat(), *units)

    def standardised(self, flat: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """(..., N, L·D + H·F) flattened windows in units (..., G') of the channels -> (..., N, W)."""
        location, scale = location.to(flat).unsqueeze(-2), scale.to(flat).unsqueeze(-2)
        whole = standardised(flat, location[..., self.every], scale[..., self.every])
        seen = whole if self.columns is None else whole[..., self.columns]
        if not len(self.turning):
            return seen
        away = whole[..., self.places] + (location / scale)[..., self.turned]  # from 0, standardised
        return torch.cat((seen, (2 / math.pi) * torch.atan(away / JUMP)), -1)

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
        whole, past = self._of_columns()[0].repeat(len(flat), 1), self.scaling.past.location
        whole[:, slice(None) if self.columns is None else self.columns] = flat.to(whole)
        sizes, at = (self.layout.lags, len(past)), self.layout.lags * len(past)
        ahead = self.layout.horizon, len(self.scaling.future.location)
        found: Tensor = self(Inputs(whole[:, :at].unflatten(1, sizes), whole[:, at:].unflatten(1, ahead)))
        return found

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

    def bridged(self, x: Inputs, deviations: Tensor) -> Inputs:
        """Windows with values beyond this many standard deviations of their channel, () or (K,), replaced; see
        `glitches.bridged`."""
        scaling, limit = self.scaling, deviations[..., None, None, None]
        past, future = (
            bridged(
                values, one.location.to(values)[..., None, None, :], one.scale.to(values)[..., None, None, :], limit
            )
            for values, one in ((x.past, scaling.past), (x.future, scaling.future))
        )
        return x._replace(past=past, future=future)
