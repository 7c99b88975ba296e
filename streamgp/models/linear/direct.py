"""Direct regression: every step ahead regressed on differences of its references, with several memories.

    ŷ_{i+h} = base + wᵀx,     base a season before the step, or the last value, whichever was nearer at first
    w = (G + λS)⁻¹ b          `regression.memories`, for half-lives of 2.8, 8.4, 28 and 112 long seasons

x holds departures of references from each other, known inputs at the step and their change since the reference, and
the calendar (`columns`); with all coefficients at zero the forecast is the base. Steps far ahead share coefficients
with their neighbours (`groups`). A second regression has coefficients for each phase of the short season in place of
each step (`phases`). The forecast is the mix of all memories of both, weighed by what each forecast when it was asked
(`mixing.Mixer`).

Cost: O(T d²) a row to learn and O(G d³) to solve a memory, for T columns in G groups; O(M G d²) of state for M
memories. A memory is solved after each short season of rows, and at most `OFTEN` times in its half-life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT, Inputs, Json, Model, Predictive, Shape, Step
from streamgp.mixing.mixer import Mixer, forgetting
from streamgp.models.linear.columns import REFERENCE, Known, SeasonColumns, describe
from streamgp.models.linear.phases import Phased, PhaseRegression
from streamgp.online.glitches import plausible
from streamgp.online.inputs import epoch, learned, reporting, usable, usable_rows
from streamgp.online.panel import panel_of
from streamgp.online.stacked import Packed
from streamgp.online.variance import random_walk_variance
from streamgp.online.winsorise import Winsoriser
from streamgp.predictives.gaussian import Gaussian
from streamgp.predictives.mixed import Mixed
from streamgp.recalled import Recalled, Recalls
from streamgp.regression.memories import Held, Sums, under
from streamgp.state import Declared, Nested

MEMORIES = (4.0, 12.0, 40.0, 160.0)
"""Long seasons that each regression remembers: the half-life is 0.7 of it."""
RIDGES = (60.0, 30.0, 20.0, 10.0)
"""λ of each memory, rows: the shorter the memory, the more is shrunk."""
BEGUN = 2
"""Short seasons without which nothing is solved: the forecast is the base."""
FAR = 100.0
"""Mean absolute deviations from the target's level beyond which a reference is a glitch, and counts as missing."""
CHUNK = 256
"""Windows whose columns are made at a time."""
MOVED = 12.0
"""Mean absolute deviations that the last values lie from the season before for a new level."""
AGREE = 0.1
"""Share of the jump within which the last three values agree, for a new level."""
NEAR = 6.0
"""Mean absolute deviations: in a jump references farther from the last value than these and `AGREE` count as missing; a
value so near the level of the first rows is back on it."""
HOME = 0.25
"""Share of the jump within which the last two values are back at the level of the first rows."""
KEPT = 2
"""Batches of windows whose columns are kept beside the newest, for when they are learned."""
WIDTH_ROWS = 2000.0
"""Rows after which half of a target's width is forgotten."""


def groups(horizon: int) -> list[int]:
    """How many neighbouring steps share coefficients: the nearest none, those far ahead a twelfth of the horizon.

    Example:
        >>> groups(6), groups(24)
        ([1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    """
    size, found = max(1, horizon // 12), list[int]()
    while (left := horizon - sum(found)) > 0:
        ahead = sum(found)
        wanted = 1 if ahead < 4 else max(1, size // 2) if ahead < 2 * size else size
        found.append(min(wanted, left))
    return found


class Made(NamedTuple):
    """What is made of windows before anything that is learned.

    Attributes:
        context: (N, C) of the windows.
        levels: (O,) or (O, N) of the targets.
        known: of each known input.
        bases: (B, N, T) of `SeasonColumns.bases`.
        features: (T, N, d) the columns of the direct regression.
        phased: those of the regression by phase; None where there is none.
    """

    context: Tensor
    levels: Tensor
    known: list[Known]
    bases: Tensor
    features: Tensor
    phased: Phased | None


class DirectLook(NamedTuple):
    """What windows look like to the regressions of K models.

    Attributes:
        features: (K, T, N, d) the columns of the direct regression, within their bounds.
        base: (K, N, T) what it departs from.
        means: (M, K, N, T) the forecasts of all memories.
        season: (K, N, T) what the regression by phase departs from; None where there is none.
        phased: its columns.
    """

    features: Tensor
    base: Tensor
    means: Tensor
    season: Tensor | None = None
    phased: Phased | None = None


class MixedLook(NamedTuple):
    """Windows as K models see them: `look`, their mix (K, N, T), and the mixer of all of their columns."""

    look: DirectLook
    mix: Gaussian
    mixer: Mixer


class DirectRegression(nn.Module):
    """The regressions alone: forecasts of each memory, and learning. See the module.

    Args:
        shape: of the windows; it has a context.
        ridge: multiplies λ.
        memory: steps after which a row counts 1/e, in one regression alone; None for the four memories.
        seasons: of the context, those that are looked at; None is all.

    Attributes:
        begun: whether anything was learned.
        memories: M.
    """

    def __init__(
        self,
        shape: Shape,
        ridge: float = 1.0,
        memory: float | None = None,
        seasons: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.shape, self.columns = shape, SeasonColumns(shape, seasons)
        self.context = self.columns.context
        longest = self.context.long or 7 * self.context.short
        self.halves = [0.7 * count * longest for count in MEMORIES] if memory is None else [0.6931 * memory]
        self.ridges = [ridge * part for part in (RIDGES if memory is None else RIDGES[1:2])]
        self.memories = len(self.halves) + (PhaseRegression.memories if memory is None else 0)
        self.sizes = groups(shape.horizon) * shape.outputs
        self.register_buffer("group", torch.arange(len(self.sizes)).repeat_interleave(torch.tensor(self.sizes)))
        for name in ("levels", "width"):
            self.register_buffer(name, torch.zeros(shape.outputs, dtype=FLOAT))
        self.register_buffer("base", torch.zeros(shape.columns, dtype=torch.int64))
        self.group: Tensor  # (T,) of each column
        self.levels: Tensor  # (O,) median of the first targets
        self.width: Tensor  # (O,) mean absolute deviation from it, of late
        self.base: Tensor  # (T,) which of `SeasonColumns.bases`
        self.known: list[Known] = []
        self.sums: Sums | None = None
        self.phases = PhaseRegression(shape, ridge, seasons) if memory is None else None
        self._last: list[Made] = []

    @property
    def begun(self) -> bool:
        return self.sums is not None

    @property
    def size(self) -> int:
        """d, columns of a regression; 0 before any data."""
        return 0 if self.sums is None else self.sums.width

    def forget(self) -> None:
        """Start over."""
        self.sums, self.known = None, []

    def begin(self, x: Inputs, y: Tensor) -> None:
        """Start over, with what the first windows and their truths (N, T) say."""
        self.describe(x, y)
        self.assume(x, self.known)

    def describe(self, x: Inputs, y: Tensor) -> None:
        """Take levels, types of day and bases from the first windows, with their truths (N, T)."""
        parts = self.columns.split(x)
        self.known = [describe(parts.step(f"at({name})").flatten()) for name in self.context.known]
        for at, own in enumerate(y.split(self.shape.horizon, 1)):
            self.levels[at] = torch.nan_to_num(own.nanmedian())
            away = (own - self.levels[at]).abs()
            typical = torch.nan_to_num(away.nanmedian())
            self.width[at] = typical if typical > 0 else torch.nan_to_num(away.nanmean())
        bases = self.columns.bases(x, self.levels)
        self.known = self.columns.ranked(x, (y - bases[0])[:, : self.shape.horizon], self.known)
        error = (y - bases).abs().nanmedian(1).values.nan_to_num(0.0)  # (B, T)
        groups = error.new_zeros(len(bases), len(self.sizes)).index_add_(1, self.group, error)
        self.base.copy_(groups.argmin(0)[self.group])  # steps that share coefficients depart from the same

    def assume(self, x: Inputs, known: list[Known]) -> None:
        """Begin with columns for known inputs of these kinds; windows like x."""
        self.known = known
        _, penalties = self.columns(x.rows(slice(0, 1)), known, self.levels)
        self.sums = Sums(self.sizes, penalties, self.halves, self.ridges).to(self.levels.device)
        if self.phases is not None:
            self.phases.begin(x, known, self.levels)

    def held(self, looked: bool = False) -> Held:
        """The state, as that of one model of several: views of the buffers.

        Args:
            looked: only what forecasts depend on.
        """
        found = {name: getattr(self, name)[None] for name in ("width", "base")}
        phases = None if self.phases is None else self.phases.sums
        for at, own in (("sums.", self.sums), ("phases.", phases)):
            views: Held = {} if own is None else own.shown if looked else own.held
            found |= {at + name: part for name, part in views.items()}
        return found

    def look(self, x: Inputs, recalled: Recalled | None = None) -> DirectLook:
        """What the windows look like to the regressions of this one model, and their forecasts.

        Before anything was learned there are no columns, and all memories forecast the first base.

        Args:
            x: the windows.
            recalled: of their columns.
        """
        if self.sums is None:
            first = self.columns.bases(x, self.levels)[:1]
            none = first.new_zeros(1, self.shape.columns, first.shape[1], 0)
            return DirectLook(none, first, first.expand(self.memories, -1, -1, -1))
        made = self._made(*self.guarded(x, self.levels, self.width), recalled)
        return self.looked(self.held(looked=True), made.bases[:, None], made.features[None], made.phased)

    def looked(self, held: Held, bases: Tensor, features: Tensor, phased: Phased | None) -> DirectLook:
        """What windows look like to the regressions of K models that are begun, and their forecasts.

        Args:
            held: of each.
            bases: (B, K, N, T) of `SeasonColumns.bases`.
            features: (K, T, N, d) the columns of the direct regression.
            phased: of `PhaseRegression.grouped`; None where no regression is by phase.
        """
        assert self.sums is not None
        base = bases.gather(0, held["base"][None, :, None].expand(1, *bases.shape[1:]))[0]
        bound = self.sums.bounds(under("sums.", held))[:, self.group, None]
        features = torch.clamp(features, -bound, bound)
        weights = held["sums.weights"][:, :, self.group]  # (K, M, T, d)
        means = base + (features @ weights.permute(0, 2, 3, 1)).permute(3, 0, 2, 1)
        if self.phases is None or phased is None:
            return DirectLook(features, base, means)
        phased, more = self.phases.look(under("phases.", held), phased, bases[0])
        return DirectLook(features, base, torch.cat([means, more]), bases[0], phased)

    def parts(self, look: DirectLook, weights: Tensor, outvoted: Tensor) -> dict[str, Tensor]:
        """Terms of the mix of the memories: label -> (N, T), the reference first; with weights that add up to 1 their
        sum is the mix where no memory is outvoted.

        Args:
            look: of `look`.
            weights: (T, M) of the memories.
            outvoted: (M, N, T) where the forecast of a memory is none: of its terms the reference alone is there.
        """
        if not bool(outvoted.any()):
            return self._parts(look, weights)
        found = dict[str, Tensor]()
        for own, none in zip(torch.eye(len(outvoted), dtype=FLOAT, device=weights.device), outvoted, strict=True):
            for label, value in self._parts(look, weights * own).items():
                term = value if label == REFERENCE else torch.where(none, 0.0, value)
                found[label] = found[label] + term if label in found else term
        return found

    def _parts(self, look: DirectLook, weights: Tensor) -> dict[str, Tensor]:
        base, features = look.base[0], look.features[0]
        direct = weights[:, : len(self.halves)] if self.begun else weights
        found = {REFERENCE: base * direct.sum(1)}
        if self.sums is None:
            return found
        mixed = torch.einsum("mtd,tm->td", self.sums.weights[:, self.group], direct)
        for label in dict.fromkeys(self.columns.labels):
            own = [at for at, one in enumerate(self.columns.labels) if one == label]
            found[label] = torch.einsum("tnd,td->nt", features[..., own], mixed[:, own])
        if self.phases is not None and look.phased is not None and look.season is not None:
            rest = weights[:, len(self.halves) :]
            found[REFERENCE] = found[REFERENCE] + look.season[0] * rest.sum(1)
            for label, value in self.phases.parts(look.phased, len(base), rest).items():
                found[label] = found[label] + value if label in found else value
        return found

    def _made(self, x: Inputs, levels: Tensor, recalled: Recalled | None = None) -> Made:
        """What is made of the windows; those that are learned were forecast a batch before, and are kept until then."""
        assert x.context is not None
        bits = x.context.view(torch.int64)  # NaN is the same as NaN
        for last in self._last:
            same = last.known is self.known and torch.equal(last.context.view(torch.int64), bits)
            if same and torch.equal(last.levels.view(torch.int64), levels.view(torch.int64)):
                return last

        def some(rows: slice) -> list[Tensor]:
            return self.made(x.rows(rows), self.known, levels[:, rows] if levels.dim() > 1 else levels)

        count = 2 + (self.phases is not None)
        found = some(slice(None)) if recalled is None else recalled.of(x, some, [1] * count)
        bases, features, *phased = found
        grouped = None if self.phases is None else self.phases.grouped(x, phased[0])
        made = Made(x.context, levels, self.known, bases, features, grouped)
        if len(bits) <= CHUNK:
            self._last = [*self._last[-KEPT:], made]
        return made

    def made(self, x: Inputs, known: Sequence[Known], levels: Tensor) -> list[Tensor]:
        """(B, N, T) bases, (T, N, d) columns of the direct regression, and those by phase, where there are some, of
        `SeasonColumns`."""
        found = [self.columns.bases(x, levels), self.columns(x, known, levels)[0]]
        return found if self.phases is None else [*found, self.phases.columns(x, known, levels)[0]]

    def guarded(self, x: Inputs, levels: Tensor, width: Tensor) -> tuple[Inputs, Tensor]:
        """Windows without references that say nothing, which count as missing, and the levels, (O,) or (O, N).

        Those are glitches, far from the level; or, where a target has jumped (`_jump`), all that are not near where it
        is now, which is its level then. levels, width: (O,) or (O, N).
        """
        assert x.context is not None
        context, found = x.context, levels
        for at, of in zip(self.columns.places, self.columns.owners, strict=True):
            values, level, own = context[:, at], levels[of].view(-1, 1), width[of].view(-1, 1)
            now, jump = self._jump(x, of, level, own)
            moved = jump > 0
            near = torch.maximum(AGREE * jump, NEAR * own)
            farthest = torch.where(moved, near, FAR * own)
            wild = ((values - torch.where(moved, now, level)).abs() > farthest) & (own > 0)
            if bool(wild.any()):
                context = context.clone() if context is x.context else context
                context[:, at] = torch.where(wild, torch.nan, values)
            if bool(moved.any()):
                found = found.view(len(found), -1).expand(-1, len(values)).clone() if found is levels else found
                found[of] = torch.where(moved[:, 0], now[:, 0], found[of])
        return x._replace(context=context), found

    def _jump(self, x: Inputs, target: int, level: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 1) where a target is now, and how far that lies from the seasons before, where it jumped; 0 elsewhere.

        It jumped to another level where the last three values agree on one: it is at their median. Two that are back at
        the level of the first rows are enough, and one that is nearer to it than most values are: a glitch seldom ends
        up there. A level so far away that its values would count as glitches is kept, whatever the last value is, if a
        season before was on it. level, width: (1, 1) or (N, 1).
        """
        parts, name = self.columns.split(x), self.shape.targets[target]
        last = torch.cat([parts.at(f"now-{back}({name})").mT for back in range(3)], 1)  # (N, 3)
        if self.context.long:
            seasons = [parts.at(f"now-{label}({name})") for label in ("long", "longs")]
        else:
            seasons = [parts.at(f"now-short({name})"), *(parts.step(f"{n}({name})")[:1] for n in ("short3", "shorts"))]
        before = torch.cat([part.mT for part in seasons], 1)

        def away(now: Tensor) -> Tensor:
            found = (before - now).abs().nan_to_num(0.0).amax(1, keepdim=True)
            return torch.where(far(now), torch.maximum(found, (now - level).abs()), found)

        def far(now: Tensor) -> Tensor:
            return (now - level).abs() > FAR * width

        first, now = last[:, :1], last.nanmedian(1, keepdim=True).values
        jump, back = away(now), away(first)
        agree = ((last - now).abs() <= AGREE * jump).all(1, keepdim=True)
        stays = far(now) & ((before - now).abs() <= AGREE * jump).any(1, keepdim=True)
        off = (last[:, :2] - level).abs()
        home = (off <= HOME * back).all(1, keepdim=True) | (off[:, :1] <= NEAR * width)
        now, jump = torch.where(home, first, now), torch.where(home, back, jump)
        return now, torch.where((agree | stays | home) & (jump > MOVED * width), jump, 0.0)

    def passed(self, x: Inputs) -> int:
        """Steps in time that N windows span."""
        if not self.shape.panel:
            return len(x.future)
        short, long, _ = self.columns.split(x).by_step[-self.context.PHASES :]  # several series share a step
        return len((long if self.context.long else short)[0].unique())

    def learned(
        self,
        held: Held,
        look: DirectLook,
        y: Tensor,
        errors: Tensor,
        rows: Sequence[int],
        passed: Sequence[float],
        copied: bool = False,
    ) -> tuple[list[str], Callable[[], set[str]]]:
        """Learn windows of K models when the result is called.

        Args:
            held: of each.
            look: of `looked`.
            y: (K, N, T) the truths, NaN = not observed.
            errors: (K, T) usual absolute error of their mix; 0 where none is known.
            rows: (K,) windows of each.
            passed: (K,) steps in time that they span.
            copied: of `Sums.added`.

        Returns:
            as `Sums.added`.
        """
        assert self.sums is not None
        short, sums, z = self.context.short, under("sums.", held), y - look.base
        new = [own + more for own, more in zip(sums["passed"].tolist(), passed, strict=True)]
        ages, early = sums["age"].tolist(), self.sums.young(sums)
        due = [
            (soon or own >= short) and age + own >= BEGUN * short
            for soon, own, age in zip(early, new, ages, strict=True)
        ]
        target = z.mT
        known = torch.isfinite(target).to(FLOAT)
        whys, keep = self.sums.added(sums, look.features, torch.nan_to_num(target), known, passed, due, copied)
        keeps = {"sums.": keep}
        if self.phases is not None:
            assert look.season is not None and look.phased is not None
            away = (y - look.season).permute(2, 0, 1)
            more, keeps["phases."] = self.phases.added(
                under("phases.", held), look.phased, away, errors.mT, passed, due, copied
            )
            whys = [one or two for one, two in zip(whys, more, strict=True)]

        def learn() -> set[str]:
            same = {at + name for at, own in keeps.items() for name in own()}
            width, kept = held["width"], z.new_tensor([0.5 ** (count / WIDTH_ROWS) for count in rows])
            for k, part in enumerate(z.abs().split(self.shape.horizon, 2)):
                moved = kept * width[:, k] + (1.0 - kept) * part.flatten(1).nanmean(1).maximum(width[:, k])
                width[:, k] = torch.where(part.isfinite().flatten(1).any(1), moved, width[:, k])
            return same

        return whys, learn

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        if self.sums is None:
            return {}, {}
        tensors = {f"sums.{name}": part for name, part in self.sums.state_dict().items()}
        if self.phases is not None:
            tensors |= {f"phases.{name}": part for name, part in self.phases.state()[0].items()}
        tensors |= {"levels": self.levels, "width": self.width, "base": self.base}
        if self.known:
            tensors["knots"] = torch.stack([what.knots for what in self.known])
        return tensors, {
            "known": [[what.flag, float(what.centre), float(what.scale), what.rank] for what in self.known]
        }

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.forget()
        if not tensors:
            return
        for name in ("levels", "width", "base"):
            getattr(self, name).copy_(tensors[name])
        for at, (flag, centre, scale, rank) in enumerate(cast("list[list[float]]", rest["known"])):
            self.known.append(Known(bool(flag), float(centre), float(scale), tensors["knots"][at].clone(), int(rank)))
        self.sums = Sums(self.sizes, tensors["sums.penalties"], self.halves, self.ridges).to(self.levels.device)
        for name, buffer in self.sums.state_dict().items():
            buffer.copy_(tensors[f"sums.{name}"])
        if self.phases is not None:
            own = {name.removeprefix("phases."): part for name, part in tensors.items() if name.startswith("phases.")}
            self.phases.restore(own, {})


class DirectLinear(Declared, Recalls, Model):
    """The model `linear` of windows with a context: the mix of a `DirectRegression`'s memories.

    Args:
        shape: of the windows.
        ridge: of `DirectRegression`.
        memory: of `DirectRegression`.
        limit: standard deviations of its own forecast that a truth counts for at most; None: any.
        seasons: of `DirectRegression`.
    """

    STATE = (Nested("regression", "mixer", "limit", "rows"),)

    family = Mixed

    def __init__(
        self,
        shape: Shape,
        ridge: float = 1.0,
        memory: float | None = None,
        limit: float | None = 5.0,
        seasons: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.regression = DirectRegression(shape, ridge, memory, seasons)
        longest = self.regression.context.seasons[-1]
        self.mixer = Mixer(self.regression.memories, shape, forgetting(replace(shape, season=longest)))
        self.limit = Winsoriser(shape, limit)
        self.panel = panel_of(shape)
        self.register_buffer("rows", torch.zeros((), dtype=FLOAT))
        self.rows: Tensor  # () learned

    def predict(self, x: Inputs) -> Mixed:
        """The mix of the memories; before any data the base, with the variance of a random walk."""
        if self.panel is None:
            return self._mixed(x, self.regression.look(x).means[:, 0])
        sizes = self.panel.sizes(x)
        x = self.panel.divide(x, sizes)
        scale = self.panel.columns(sizes)
        return self._mixed(x, self.regression.look(x).means[:, 0]).affine(scale, torch.zeros_like(scale))

    def parts(self, x: Inputs) -> dict[str, Tensor]:
        """Reference, own past, known and other inputs, calendar, constant; `outvoted` where a memory is."""
        if self.panel is None:
            return self._parts(x)
        sizes = self.panel.sizes(x)
        scale = self.panel.columns(sizes)
        return {label: scale * value for label, value in self._parts(self.panel.divide(x, sizes)).items()}

    def _parts(self, x: Inputs) -> dict[str, Tensor]:
        look = self.regression.look(x)
        means = look.means[:, 0]
        found = self.regression.parts(look, self.mixer.weights, self.mixer.outvoted(means))
        return self.mixer.with_outvoted(found, means)

    def hyperparameters(self) -> dict[str, Tensor]:
        """ridges (R,) and half_lives, in rows, of its memories; both are chosen, not estimated."""
        own = self.regression
        return {
            name: torch.tensor(values, dtype=FLOAT)
            for name, values in (("ridges", own.ridges), ("half_lives", own.halves))
        }

    def _mixed(self, x: Inputs, means: Tensor) -> Mixed:
        return Mixed(*self.mixer.issue(means, self.prior(x, self.regression.width)), means)

    def prior(self, x: Inputs, width: Tensor) -> Tensor:
        """(N, T) the variance before any error is known. width: (O,) or (N, O) of the targets; 0 before any data."""
        prior = random_walk_variance(x, self.shape)
        if not self.regression.begun:
            return prior
        return prior.minimum(width.square().repeat_interleave(self.shape.horizon, -1))  # no wider by a glitch of a lag

    def functions(self, paths: int, generator: Generator) -> Callable[[Inputs], Tensor]:
        """One draw of all coefficients a path, around the mix of the memories (base.Simulates).

        w ~ N(mix, s² (G + λS)⁻¹) with the sums of the longest memory and s² the noise of the mix; fresh noise a step.
        """
        regression, sums = self.regression, self.regression.sums
        columns = self.shape.columns
        offset = None
        if sums is not None:
            root = sums.root()[regression.group]  # (T, d, d)
            z = torch.randn(paths, columns, sums.width, generator=generator, dtype=FLOAT, device=generator.device)
            offset = torch.linalg.solve_triangular(root.mT, z.to(root)[..., None], upper=True)[..., 0]  # (P, T, d)

        def draw(x: Inputs) -> Tensor:
            if self.panel is None:
                return drawn(x)
            sizes = self.panel.sizes(x)
            return drawn(self.panel.divide(x, sizes)) * self.panel.columns(sizes)

        def drawn(x: Inputs) -> Tensor:
            look = regression.look(x)
            mixed = self._mixed(x, look.means[:, 0])
            noise = torch.randn(mixed.mean.shape, generator=generator, dtype=FLOAT, device=generator.device)
            value = mixed.mean + mixed.noise.sqrt() * noise.to(mixed.mean)
            if offset is None:
                return value
            own = torch.einsum("tpsd,ptd->pst", look.features[0].unflatten(1, (paths, -1)), offset).flatten(0, 1)
            return value + mixed.noise.sqrt() * own

        return draw

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        """Learn N windows, and weigh the memories by what was issued; a numerical failure is undone and reported."""
        y, taken, (left_out,) = usable_rows(x, y)
        x, y = x.rows(taken), y[taken]
        given = None if issued is None else Mixed.from_parameters(issued.parameters()[:, taken])
        if self.panel is not None and len(y):
            sizes = self.panel.sizes(x)
            x, scale = self.panel.divide(x, sizes), self.panel.columns(sizes)
            y, given = y / scale, None if given is None else given.affine(1.0 / scale, torch.zeros_like(scale))
        if not len(y):
            return reporting(Step(float("nan"), self.regression.size, True, "nothing observed"), left_out)
        regression = self.regression
        if not regression.begun:
            regression.begin(x, y)
        look = regression.look(x, self.recall())
        mixed = self.mixer.issue(look.means[:, 0], self.prior(x, regression.width))
        now = MixedLook(look, Gaussian(*(part[None] for part in mixed)), self.mixer)
        held = {f"regression.{name}": part for name, part in regression.held().items()}
        held |= {"limit.excess": self.limit.excess[None], "rows": self.rows[None]}
        means = look.means if given is None else given.experts[:, None]
        loss, (why,) = self.learn(Packed.alone(x), held, now, y[None], means, [regression.passed(x)])
        return reporting(learned(loss.item(), regression.size, why), left_out)

    def learn(
        self, packed: Packed, held: Held, now: MixedLook, y: Tensor, means: Tensor, passed: Sequence[float]
    ) -> tuple[Tensor, list[str]]:
        """Learn windows of K models, if one of them can; (K,) the loss before it, and why a model cannot.

        Args:
            packed: the windows.
            held: the state of each, written in place; but for that of this one model a copy.
            now: a look at the windows.
            y: (K, N, T) their truths, NaN = not observed.
            means: (M, K, N, T) what each memory had issued.
            passed: (K,) steps in time that they span.
        """
        look, issued, mixer = now
        loss, excess, rows = -issued.log_prob(y).flatten(1).nanmean(1), held["limit.excess"], packed.counts
        y, beyond = self.limit.limited(packed.there, issued.mean, issued.variance, y, held["rows"][:, None], excess)
        own, copied = under("regression.", held), mixer is not self.mixer
        errors = mixer.scale.view(len(rows), -1)
        whys, keep = self.regression.learned(own, look, y, errors, rows.tolist(), passed, copied)
        if not all(whys):
            for name in keep():
                del held[f"regression.{name}"]  # as it was: nothing to put back
            mixer.learn(side_by_side(means), side_by_side(y))
            excess.copy_(beyond)
            held["rows"] += rows
        return loss, whys

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Start over from these windows, in their order; one pass is exact, so that there is never a second."""
        self.regression.forget()
        self.mixer = Mixer(self.regression.memories, self.shape, self.mixer.memory).to(y.device)
        self.limit = Winsoriser(self.shape, self.limit.deviations).to(y.device)
        self.rows.zero_()
        if epochs < 1:
            return
        x, y, left_out = usable(x, y)
        x, y, glitches = plausible(x, y)
        left_out = "; ".join(part for part in (left_out, glitches) if part)
        seen = torch.isfinite(y).any(1)
        if bool(seen.any()):
            first, truth = x.rows(seen), y[seen]
            if self.panel is not None:
                sizes = self.panel.sizes(first)
                first, truth = self.panel.divide(first, sizes), truth / self.panel.columns(sizes)
            self.regression.begin(first, truth)
        steps = list[tuple[int, Step]]()
        for start in range(0, len(y), CHUNK):
            rows = slice(start, start + CHUNK)
            steps.append((len(y[rows]), self.update(x.rows(rows), y[rows])))
        yield reporting(epoch(steps, self.regression.size), left_out)


def side_by_side(values: Tensor) -> Tensor:
    """(..., K, N, T) -> (..., N, K · T)"""
    return values.transpose(-3, -2).flatten(-2)
