"""What the mix leaves, learned from known inputs as they meet the forecast, the hour and the weekend.

    ŷ = m + s f(z),     f(z) = wᵀφ(z),     φ(z) = (sin Ωz, cos Ωz, z, 1),     w = (G + λS)⁻¹ b

m is the mix's forecast of row j = i + h. z holds m, in its usual departures from its level; the hour of j, and whether
j lies in the last two sevenths of the long season (a weekend); h/H; and known inputs at j. Random Fourier features
(Rahimi & Recht 2007) stand for a Gaussian process: each frequency looks at about half of z and at one known input at
most, so that f is a sum of functions of few parts of z together. A product with m is what wind does to the level that
is there, a product with the hour what heating does at night; a threshold needs no knots. Products of two known inputs
are columns of `linear`.

One regression of y − m serves all steps ahead, on `STEPS` of them: w is that of the sums over all rows
(`regression.memories`), which forget. s is learned for each step from what was issued (`mixing.Mixer`), 0 until f has
been better. Only continuous known inputs count that explain something at first (`SeasonColumns.ranked`); where there is
none, f is 0. A batch that is fitted says only which these are: what the mix leaves of rows that it has learned says
nothing of what it will leave.

Cost: O(H d) a row for a forecast and O(d²) to learn it, O(d³) to solve after a short season, for
d = `FREQUENCIES` · 2 + 8 columns.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Inputs, Json, Shape
from streamgp.errors import NotPositiveDefinite
from streamgp.features.fourier import standard_normals
from streamgp.mixing.mixer import Mixer, forgetting
from streamgp.models.ensemble.config import FREQUENCIES
from streamgp.models.linear.columns import FULL, PhaseTerms, SeasonColumns, describe
from streamgp.regression.memories import Sums
from streamgp.state import Declared, Nested, Tensors

LENGTHS = (3.0, 1.5)
"""Lengthscales of the two halves of the frequencies, in the units of z."""
STEPS = 6
"""Steps ahead that are learned, at most: evenly over the horizon."""
RIDGE = 40.0
"""λ, rows."""
MEMORY = 40.0
"""Long seasons that are remembered: the half-life is 0.7 of it."""
USUAL = 1.5
"""Mean absolute deviations of the target from its level that count as one, in z."""
HOUR, WEEKEND = 2.0, 1.5
"""What the harmonics of the hour, and a weekend, count as in z."""
FARTHEST = 4.0
"""Greatest absolute value of a part of z."""
TRUTH, MOST = 5.0, 3.0
"""Mean absolute errors of the mix that what it left counts for at most, and that f is at most."""
TOGETHER = 2**22
"""Numbers of φ that are made at a time."""


def applies(shape: Shape) -> bool:
    """Whether there may be anything to learn: inputs are known ahead, and there is a season."""
    return shape.context is not None and bool(shape.context.known)


class Interactions(Declared, nn.Module):
    """See the module; Stateful.

    Args:
        shape: of the windows, to which it `applies`.
        memory: of the mixer of m and m + f.

    Attributes:
        share: of m and m + f; its weights (T, 2) hold s.
        chosen: (K,) which known inputs are looked at, of the context; −1 where there are no more.
    """

    STATE = (Nested("share", "sums"), Tensors("begun", "level", "width", "chosen", "centre", "scale"))

    def __init__(self, shape: Shape, memory: float | None = None) -> None:
        super().__init__()
        assert shape.context is not None
        self.shape, self.columns, self.context = shape, SeasonColumns(shape), shape.context
        self.longest = self.context.long or 7 * self.context.short
        self.share = Mixer(2, shape, memory or forgetting(shape), torch.tensor([1.0, 0.0]))
        self.names = self.context.known
        slots = min(FULL, len(self.names))
        for name, size in {"level": shape.outputs, "width": shape.outputs, "centre": slots, "scale": slots}.items():
            self.register_buffer(name, torch.zeros(size, dtype=FLOAT))
        self.register_buffer("chosen", torch.full((slots,), -1))
        self.register_buffer("begun", torch.zeros((), dtype=torch.bool))
        self.begun: Tensor  # () whether the inputs were chosen
        self.level: Tensor  # (O,) median of the first targets
        self.width: Tensor  # (O,) mean absolute deviation from it
        self.chosen: Tensor
        self.centre: Tensor  # (K,) of the chosen inputs
        self.scale: Tensor  # (K,)
        size = 5 + slots
        drawn = standard_normals(0, 0, 2 * FREQUENCIES, size)
        lengths = torch.tensor(LENGTHS, dtype=FLOAT).repeat_interleave(FREQUENCIES // len(LENGTHS))
        looks = drawn[FREQUENCIES:] > 0
        looks[:, 5:] &= torch.arange(FREQUENCIES)[:, None] % slots == torch.arange(slots)
        frequencies = drawn[:FREQUENCIES] * looks * 2.0**0.5 / lengths[:, None]
        self.register_buffer("frequencies", frequencies.T.contiguous(), persistent=False)
        self.frequencies: Tensor  # (Q, F) Ω
        self.steps = torch.linspace(0, shape.horizon - 1, min(STEPS, shape.horizon)).round().long()
        self.sums = self._sums(2 * FREQUENCIES + size)

    def _sums(self, width: int) -> Sums:
        penalties = torch.ones(width, dtype=FLOAT)
        sizes = [len(self.steps)] * self.shape.outputs
        return Sums(sizes, penalties, [0.7 * MEMORY * self.longest], [RIDGE])

    @property
    def idle(self) -> bool:
        """Whether f is 0: nothing was seen, or no known input is looked at."""
        return not bool((self.chosen >= 0).any())

    @property
    def weight(self) -> Tensor:
        """(T,) s, which m + f has in the mix of m and m + f."""
        return self.share.weights[:, 1]

    def begin(self, x: Inputs, y: Tensor) -> None:
        """Start over, with what the first windows and their truths (N, T) say."""
        for name, buffer in self.sums.named_buffers():
            if name not in ("penalties", "near"):
                buffer.zero_()
        self.share.restore(Mixer(2, self.shape, self.share.memory, self.share.first).to(y.device).state()[0], {})
        self.begun.fill_(True)
        own = y.unflatten(1, (self.shape.outputs, -1)).transpose(0, 1).flatten(1)  # (O, N · H)
        self.level.copy_(own.nanmedian(1).values.nan_to_num(0.0))
        self.width.copy_((own - self.level[:, None]).abs().nanmean(1).nan_to_num(0.0))
        parts = self.columns.split(x)
        known = [describe(parts.step(f"at({name})").flatten()) for name in self.names]
        away = y - self.columns.bases(x, self.level)[0]
        known = self.columns.ranked(x, away[:, : self.shape.horizon], known)
        best = sorted((what.rank, at) for at, what in enumerate(known) if not what.flag and what.rank < FULL)
        self.chosen.fill_(-1)
        for slot, (_, at) in enumerate(best[: len(self.chosen)]):
            self.chosen[slot], self.centre[slot], self.scale[slot] = at, known[at].centre, known[at].scale

    def both(self, x: Inputs, mix: Tensor, error: Tensor) -> Tensor:
        """(2, N, T) m and m + f.

        Args:
            x: N windows.
            mix: (N, T) m.
            error: (T,) mean absolute error of the mix; f is 0 where it is not known.
        """
        if self.idle or not bool(self.sums.count.any()):
            return mix.expand(2, -1, -1)
        weights, size = self.sums.weights[0, :, None, :, None], self.sums.width * self.shape.columns
        found = list[Tensor]()
        for rows in torch.arange(len(mix), device=mix.device).split(max(TOGETHER // size, 1)):
            seen = self.seen(self.inputs(x.rows(rows), mix[rows]))
            found.append((seen @ weights)[..., 0].flatten(0, 1).T)  # (n, T)
        limit = MOST * error
        return torch.stack([mix, mix + torch.cat(found).clamp(-limit, limit)])

    def weigh(self, both: Tensor, y: Tensor) -> None:
        """Learn s from m and m + f (2, N, T) as they were issued, and the truths (N, T), NaN = not observed."""
        if not self.idle:
            self.share.learn(both, y)

    def learn(self, x: Inputs, mix: Tensor, y: Tensor, error: Tensor) -> None:
        """Learn N windows.

        Args:
            x, error: of `both`.
            mix: (N, T) m as it was issued.
            y: (N, T) the truths, NaN = not observed.
        """
        if self.idle:
            return
        left = y - mix
        left = left.clamp(-TRUTH * error, TRUTH * error).unflatten(1, (self.shape.outputs, -1))[..., self.steps]
        passed, target = len(y), left.permute(1, 2, 0).flatten(0, 1)  # (O · S, N)
        if self.shape.panel:  # several series share a step
            passed = len(self.columns.split(x).by_step[-self.context.PHASES, 0].unique())
        seen = self.seen(self.inputs(x, mix)[:, self.steps]).flatten(0, 1)
        known = target.isfinite().to(FLOAT)
        try:
            due = float(self.sums.passed) + passed >= self.context.short
            self.sums.add(seen, target.nan_to_num(0.0), known, passed, due)
        except NotPositiveDefinite:
            return  # nothing was changed

    def seen(self, z: Tensor) -> Tensor:
        """(..., Q) -> (..., d) φ."""
        angles = z @ self.frequencies
        return torch.cat([angles.sin(), angles.cos(), z, torch.ones_like(z[..., :1])], -1)

    def inputs(self, x: Inputs, mix: Tensor) -> Tensor:
        """(O, H, N, Q) z; what is missing is 0."""
        parts, horizon = self.columns.split(x), self.shape.horizon
        clock = PhaseTerms(parts, self.context)
        own = mix.unflatten(1, (self.shape.outputs, horizon)).permute(1, 2, 0)  # (O, H, N)
        width = torch.where(self.width > 0, self.width, 1.0)[:, None, None]
        ahead = torch.arange(1, horizon + 1, dtype=FLOAT, device=mix.device)[:, None]
        weekend = torch.zeros_like(own[0])
        if clock.days is not None:
            weekend = clock.days[..., -(-5 * clock.days.shape[-1] // 7) :].sum(-1)
        hour = (HOUR * clock.few[..., :2]).unbind(-1)
        found = [*hour, WEEKEND * weekend, (ahead / horizon).expand_as(weekend)]
        for at, centre, scale in zip(self.chosen.tolist(), self.centre, self.scale, strict=True):
            value = torch.zeros_like(own[0])
            if at >= 0:
                value = ((parts.step(f"at({self.names[at]})") - centre) / scale).nan_to_num(0.0, 0.0, 0.0)
            found.append(value)
        rest = torch.stack(found, -1).expand(len(own), -1, -1, -1)
        level = (own - self.level[:, None, None]) / (USUAL * width)
        return torch.cat([level[..., None], rest], -1).nan_to_num(0.0).clamp(-FARTHEST, FARTHEST)

    def check_state(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        if bool(((tensors["chosen"] >= len(self.names)) | (tensors["chosen"] < -1)).any()):
            raise ValueError("chosen names an input that is not there")
