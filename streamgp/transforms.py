"""Transforms of targets: what a model learns in place of y, and the way back.

log     z = log d, d = y − a; a is the lower bound, 0 without one
logit   z = log(d/(w − d)), d = y − a, w = b − a; a and b are the bounds

d is limited to [c, ∞) or [c, w − c], so that a value at or beyond a bound has a finite z; on the way back the limits
are the bounds: z = log c is a itself. Where the warm-up has values at a bound, c is half the least positive distance to
one, at least a thousandth of the median distance; where it has none, c is a millionth of the median, out of the way.
Quantiles go through as they are, because a transform never decreases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamgp.errors import DataError

Floats: TypeAlias = NDArray[np.float64]
Kind: TypeAlias = Literal["none", "log", "logit"]
Way: TypeAlias = Literal["forward", "backward", "log_slope"]

LEAST, AWAY = 1e-3, 1e-6
"""Shares of the median distance to the bound: the least c where values are at the bound, and c where none is."""
LARGEST = 1e150
"""No value on the way back is further from the lower bound."""
EDGE = 1e-9
"""Relative distance to c below which a value is at the bound."""
BLOCKS, FEWEST = 24, 100
"""`choose` compares blocks of BLOCKS values, and looks at FEWEST values or more in all."""
SKEWED, AT_BOUND, GROWING = 1.0, 0.01, 0.5
"""`choose` takes log from this skewness on, where the spread of a block grows at least with this power of its mean, and
nothing where a larger share of the values is at a bound."""


@dataclass(frozen=True)
class Transform:
    """One target's transform.

    Attributes:
        kind: none, log or logit.
        lower, width: a, and w = b − a (log: not looked at).
        floor: c.

    Example:
        >>> log = Transform("log", floor=0.5)
        >>> log.backward(log.forward(np.array([2.0, 0.0, -3.0, np.nan]))).round(12).tolist()
        [2.0, 0.0, 0.0, nan]
    """

    kind: Kind = "none"
    lower: float = 0.0
    width: float = 1.0
    floor: float = 1e-6

    def forward(self, y: Floats) -> Floats:
        """z; finite wherever y is."""
        if self.kind == "none":
            return y
        d = self._limited(y)
        return np.log(d) if self.kind == "log" else np.log(d) - np.log(self.width - d)

    def backward(self, z: Floats) -> Floats:
        """y; the bound itself at and beyond the limit that c sets."""
        if self.kind == "none":
            return z
        if self.kind == "log":
            d = np.exp(np.minimum(z, np.log(LARGEST)))
        else:
            d = self.width / (1 + np.exp(-np.clip(z, -700, 700)))
            d = np.where(d >= self.width - self.floor * (1 + EDGE), self.width, d)
        return self.lower + np.where(d <= self.floor * (1 + EDGE), 0.0, d)

    def log_slope(self, y: Floats) -> Floats:
        """log dz/dy, at the limit where y is beyond it."""
        if self.kind == "none":
            return np.zeros_like(y)
        d = self._limited(y)
        return -np.log(d) if self.kind == "log" else np.log(self.width / (d * (self.width - d)))

    def _limited(self, y: Floats) -> Floats:
        most = np.inf if self.kind == "log" else self.width - self.floor
        return np.clip(y - self.lower, self.floor, most)


Transforms: TypeAlias = tuple[Transform, ...]
"""One a target; none at all where no target is transformed."""


def each(transforms: Transforms, way: Way, values: Floats) -> Floats:
    """(..., O · K) values through the transforms of O targets; K columns a target."""
    if not transforms:
        return values
    columns = values.shape[-1] // len(transforms)
    split = values.reshape(*values.shape[:-1], len(transforms), columns)
    parts = [getattr(one, way)(split[..., o, :]) for o, one in enumerate(transforms)]
    return np.stack(parts, -2).reshape(values.shape)


def by_row(transforms: Transforms, way: Way, values: Floats, output: NDArray[np.int64]) -> Floats:
    """(..., R) values through the transform of the target of each row. output: (R,)."""
    found = np.empty_like(values)
    for o, one in enumerate(transforms):
        at = output == o
        found[..., at] = getattr(one, way)(values[..., at])
    return found


def made(kind: Kind, y: Floats, lower: float | None, upper: float | None, name: str) -> Transform:
    """The transform of this kind, with c from the values of the warm-up.

    Raises:
        DataError: values are beyond the bounds, or all at one.
    """
    if kind == "none":
        return Transform()
    a = 0.0 if lower is None else lower
    width = 1.0 if upper is None or kind == "log" else upper - a
    d = y[np.isfinite(y)] - a
    beyond = (d < 0) | ((d > width) & (kind == "logit"))
    if beyond.any():
        value = float(d[beyond][0] + a)
        raise DataError(
            f"--transform {kind}: {name!r} is {value:g} in the warm-up, beyond the bounds",
            hint="give --lower a value below all, or leave --transform out"
            if kind == "log"
            else "widen --lower and --upper, or leave --transform out",
        )
    near = np.minimum(d, width - d) if kind == "logit" else d
    inside = near[near > 0]
    if len(d) and not len(inside):
        raise DataError(
            f"--transform {kind}: every value of {name!r} in the warm-up is at a bound", hint="leave --transform out"
        )
    if not len(d):
        return Transform(kind, a, width, AWAY * width)
    usual = float(np.median(inside))
    floor = AWAY * usual if len(inside) == len(near) else max(float(inside.min()) / 2, LEAST * usual)
    return Transform(kind, a, width, floor)


def choose(y: Floats, lower: float | None, upper: float | None) -> Kind:
    """logit for values inside of two bounds; log for skewed positive ones whose spread grows with their level; else
    none. Values at a bound are a mass of their own, that no transform spreads: more than 1 % of them choose none.

    Example:
        >>> level = np.repeat(np.exp(np.random.default_rng(0).normal(size=40)), 24)
        >>> y = level * np.exp(0.3 * np.random.default_rng(1).normal(size=960))
        >>> choose(y, None, None), choose(y - 5, None, None), choose(np.log(y), None, None)
        ('log', 'none', 'none')
        >>> choose(y / 100, 0.0, 1.0)
        'logit'
    """
    y = y[np.isfinite(y)]
    a = 0.0 if lower is None else lower
    if len(y) < FEWEST or y.min() < a or (upper is not None and y.max() > upper) or y.std() == 0:
        return "none"
    at = (y <= a) | (y >= (np.inf if upper is None else upper))
    if at.mean() > AT_BOUND:
        return "none"
    if lower is not None and upper is not None:
        return "logit"
    d = y - a
    skew = float(((d - d.mean()) ** 3).mean() / d.std() ** 3)
    blocks = d[: len(d) // BLOCKS * BLOCKS].reshape(-1, BLOCKS)
    level, spread = blocks.mean(1), blocks.std(1)
    known = (level > 0) & (spread > 0)
    if skew < SKEWED or known.sum() < 4:
        return "none"
    x, s = np.log(level[known]), np.log(spread[known])
    centred = x - x.mean()
    power = float(centred @ s / max(float(centred @ centred), 1e-12))
    return "log" if power >= GROWING else "none"


def means(x: Sequence[float]) -> tuple[Floats, Floats]:
    """Weights (J,) and (J, Q) such that E f(z) is weights @ f(matrix @ q), for a distribution of z known by its
    quantiles q (Q,) at Φ(x): z is linear in the normal score between them, and beyond as in the last piece.

    Example:
        >>> weights, matrix = means([-2.0, 0.0, 2.0])
        >>> round(float(weights @ np.exp(matrix @ np.array([-1.0, 0.0, 1.0]))), 6) == round(float(np.exp(0.125)), 6)
        True
    """
    known, nodes = np.asarray(x), np.linspace(-8.0, 8.0, 129)
    at = np.clip(np.searchsorted(known, nodes) - 1, 0, len(known) - 2)
    share = (nodes - known[at]) / (known[at + 1] - known[at])
    matrix = np.zeros((len(nodes), len(known)))
    rows = np.arange(len(nodes))
    matrix[rows, at], matrix[rows, at + 1] = 1 - share, share
    weights = np.exp(-0.5 * nodes**2)
    return weights / weights.sum(), matrix
