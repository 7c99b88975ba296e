"""Regression by phase: the steps ahead that fall on the same part of the short season share coefficients.

    ŷ_{i+h} = base + w_pᵀx,     p the part of the short season (the hours of a day) in which the row i + h lies

The direct regression has coefficients of its own for each step ahead, and harmonics for the phase; this one has
coefficients of its own for each phase, and decays for the step ahead. What has departed of late, v, enters as v,
v e^(−24h/D) and v e^(−5h/D). Neither is better everywhere, and their errors differ: the mix is better than both.

A row counts 1/s², s the usual error of the mix at its step: near steps err little, and would hardly count beside those
far ahead. Neighbouring phases lend each other `SHARE` of their sums.

Cost: O(H d²) a row to learn for each target, O(P d³) to solve for P phases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Inputs, Json, Shape
from streamgp.models.linear.columns import (
    CALENDAR,
    FULL,
    PAST,
    ColumnBlock,
    Known,
    Own,
    Parts,
    PhaseTerms,
    SeasonColumns,
)
from streamgp.regression.memories import Held, Sums

PHASES = 24
"""Parts of the short season at most."""
SHARE = 0.7
"""Of its sums that a phase lends to each of its neighbours."""
MEMORIES = (12.0, 160.0)
"""Long seasons that each regression remembers: the half-life is 0.7 of it."""
LEAST = 0.1
"""Of the largest usual error of a step, what that of another counts as at least."""
RIDGES = (60.0, 30.0)
"""λ of each memory, times the horizon: the errors of steps ahead of the same row are not independent."""


class PhaseColumns(SeasonColumns):
    """Columns of which the phase is no part; see `SeasonColumns`."""

    def _fill(
        self, block: ColumnBlock, parts: Parts, clock: PhaseTerms, name: str, level: Tensor, known: Sequence[Known]
    ) -> None:
        step = torch.arange(1, self.shape.horizon + 1, dtype=FLOAT, device=clock.year.device)[:, None]
        near = -step / self.context.short
        decay = torch.stack([torch.ones_like(near), (24.0 * near).exp(), (5.0 * near).exp()], 2)  # (H, 1, 3)
        self._references(block, parts, clock, name, level, decay)
        self._known_inputs(block, parts, name, known, decay)
        self._others(block, parts, name)
        block.label = CALENDAR
        block.add(2.0, clock.few)
        block.add(3.0, clock.year)

    def _references(
        self, block: ColumnBlock, parts: Parts, clock: PhaseTerms, name: str, level: Tensor, decay: Tensor
    ) -> None:
        """Departures of the target's own references from each other, and of late."""
        own = Own(parts, name)
        at, step, blocks = own.at, own.step, own.blocks
        now, day, r1 = at("now-0"), at("day"), step("short1")
        block.add(1.0, step("short1-") - r1, step("short1+") - r1)
        if not self.context.long:
            block.add(1.0, step("short2") - r1, step("short3") - r1, step("shorts") - r1, r1 - day, day - level)
            apart = blocks("block") - day[..., None]
            late = [now - at("now-short"), now - day, at("now-1") - now]
        else:
            r7, week = step("long1"), at("week")
            block.add(1.0, *(step(label) - r7 for label in ("short1", "short2", "short3", "shorts", "long2", "longs")))
            block.add(1.0, r1 - step("both"), step("long1-") - r7, step("long1+") - r7)
            block.add(1.0, r7 - week, day - week, day - at("day-long"), week - level)
            apart = blocks("coarse") - blocks("coarse-long")
            late = [now - at("now-long"), now - at("now-short"), now - at("now-longs"), now - week, at("now-1") - now]
            if clock.days is not None:
                block.label = CALENDAR
                block.add(2.0, clock.days)
                block.label = PAST
                block.add(2.0, clock.days * (r1 - r7)[..., None])
        late += apart[..., :3].unbind(2)
        block.add(1.5, *(value[..., None] * decay for value in late))
        block.add(2.0, apart[..., 3:])

    def _known_inputs(self, block: ColumnBlock, parts: Parts, name: str, known: Sequence[Known], decay: Tensor) -> None:
        """Known inputs at the step, their change since its references, and what they changed of late."""
        long = bool(self.context.long)
        back = "long" if long else "short"
        r1, r2 = parts.step(f"short1({name})"), parts.step(f"short2({name})")
        base = parts.step(f"long1({name})") if long else r1
        fresh = parts.at(f"now-0({name})") - parts.at(f"now-{back}({name})")
        flags = [other for other, what in zip(self.context.known, known, strict=True) if what.flag]
        for other, what in zip(self.context.known, known, strict=True):
            block.label = f"known {other}"

            def step(label: str, other: str = other, what: Known = what) -> Tensor:
                return (parts.step(f"{label}({other})") - what.centre) / what.scale

            def at(label: str, other: str = other, what: Known = what) -> Tensor:
                return (parts.at(f"{label}({other})") - what.centre) / what.scale

            hinges = what.hinges
            there, day, before = step("at"), step("at-short"), step(f"at-{back}")
            if what.flag:
                block.add(1.0, there, there - before, there - day, step("at-2short"))
                block.add(1.0, (r1 - base) * (there == day), (r2 - base) * (there == step("at-2short")))
                same = (at("now") == at(f"now-{back}"), at("now") == there)
                block.add(1.5, *((fresh * equal)[..., None] * decay for equal in same))
                if long:
                    r14 = parts.step(f"long2({name})")
                    block.add(1.0, (r1 - base) * (there == before), (r14 - base) * (there == step("at-2long")))
                continue
            if what.rank >= FULL:
                block.add(1.5, there, there - day, there - before)
                continue
            here = hinges(there)
            block.add(1.5, here, here - hinges(before))
            if what.rank:
                block.add(1.5, there - day, there - at("now"))
                continue
            mean = hinges(step("day"))
            block.add(
                1.5, here - hinges(day), mean, mean - hinges(step(f"day-{back}")), mean - hinges(step("day-short"))
            )
            moved = hinges(at("now")) - hinges(at(f"now-{back}"))
            block.add(1.5, (moved[..., None] * decay[:, :, None]).flatten(2))
            block.add(3.0, *(here * parts.step(f"at({flag})")[..., None] for flag in flags))


class Phased(NamedTuple):
    """Columns of windows by the phase of their steps.

    Attributes:
        features: (G, R, d) of at most R steps of each of G groups; (K, G, R, d) of K models, whose groups the others
            have one model after the other.
        place: (G, R) of each among all steps, t · N + n.
        there: (G, R) whether a group has this member.
    """

    features: Tensor
    place: Tensor
    there: Tensor


class PhaseRegression(nn.Module):
    """The regressions of all phases, with a short and a long memory.

    Args:
        shape: of the windows; it has a context.
        ridge: multiplies λ.
        seasons: of `SeasonColumns`.

    Attributes:
        memories: M.
    """

    memories = len(MEMORIES)

    def __init__(self, shape: Shape, ridge: float = 1.0, seasons: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.shape, self.columns = shape, PhaseColumns(shape, seasons)
        self.context = self.columns.context
        longest = self.context.long or 7 * self.context.short
        self.phases = min(self.context.short, PHASES)
        self.halves = [0.7 * count * longest for count in MEMORIES]
        self.ridges = [ridge * part * shape.horizon for part in RIDGES]
        self.sums: Sums | None = None

    def begin(self, x: Inputs, known: Sequence[Known], levels: Tensor) -> None:
        """Start over, with what is known from the first windows."""
        self._make(self.columns(x.rows(slice(0, 1)), known, levels)[1].to(levels.device))

    def _make(self, penalties: Tensor) -> None:
        apart = (torch.arange(self.phases)[:, None] - torch.arange(self.phases)).abs()
        apart = torch.minimum(apart, self.phases - apart)
        near = torch.where(apart == 0, 1.0, torch.where(apart == 1, SHARE, 0.0)).to(FLOAT)
        near = torch.block_diag(*[near] * self.shape.outputs)
        sums = Sums([1] * len(near), penalties, self.halves, self.ridges, near)
        self.sums = sums.to(penalties.device)

    def grouped(self, x: Inputs, features: Tensor, model: Tensor | None = None) -> Phased:
        """The columns of windows by phase; where they are of several models, by model and phase.

        Args:
            x: the windows.
            features: (T, N, d) of `SeasonColumns`.
            model: (N,) of each window, −1 for one that is none.
        """
        phases = (self.columns.split(x).by_step[-self.context.PHASES] * self.phases + 1e-6).long() % self.phases
        group = torch.cat([phases + self.phases * target for target in range(self.shape.outputs)])
        groups = self.phases * self.shape.outputs
        if model is None:
            place, there = places(group, groups)
        else:
            group = torch.where(model >= 0, group + groups * model, -1)
            place, there = places(group, groups * (int(model.max()) + 1))
        return Phased(features.flatten(0, 1)[place], place, there)

    def look(self, held: Held, made: Phased, base: Tensor) -> tuple[Phased, Tensor]:
        """Of K models the columns (K, G, R, d) within their bounds, and the forecasts (M, K, N, T) of each memory.

        Args:
            held: of the sums of each.
            made: of `grouped`.
            base: (K, N, T).
        """
        assert self.sums is not None
        features, place, there = made
        bound = self.sums.bounds(held, self.phases)[:, :, None]
        features = torch.clamp(features.view(*bound.shape[:2], *features.shape[1:]), -bound, bound)
        departures = base.new_zeros(base.numel(), self.memories)
        departures[place[there]] = (features @ held["weights"].permute(0, 2, 3, 1)).flatten(0, 1)[there]
        series, windows, columns = base.shape
        means = departures.view(columns, series, windows, self.memories).permute(3, 1, 2, 0)
        return made._replace(features=features), base + means

    def parts(self, phased: Phased, rows: int, weights: Tensor) -> dict[str, Tensor]:
        """What columns add to the mix of the memories: label -> (N, T).

        Args:
            phased: of `look`, of one model. rows: N.
            weights: (T, M) of the memories in the mix.
        """
        assert self.sums is not None
        found = dict[str, Tensor]()
        for label in dict.fromkeys(self.columns.labels):
            own = [at for at, one in enumerate(self.columns.labels) if one == label]
            each = phased.features.new_empty(rows * len(weights), self.memories)
            values = phased.features[0, ..., own] @ self.sums.weights[..., own].permute(1, 2, 0)
            each[phased.place[phased.there]] = values[phased.there]
            found[label] = torch.einsum("tnm,tm->nt", each.unflatten(0, (len(weights), rows)), weights)
        return found

    def added(
        self,
        held: Held,
        phased: Phased,
        z: Tensor,
        errors: Tensor,
        passed: Sequence[float],
        due: Sequence[bool],
        copied: bool = False,
    ) -> tuple[list[str], Callable[[], set[str]]]:
        """Learn N windows of K models when the result is called; see `Sums.added`.

        Args:
            held: of the sums of each.
            phased: of `look`.
            z: (T, K, N) departures of the truths from the base, NaN = not observed.
            errors: (T, K) usual absolute error of a forecast; 0 where none is known.
            passed: (K,) steps in time that the windows span.
            due: (K,) whether the regressions are solved.
            copied: of `Sums.added`.
        """
        assert self.sums is not None
        target = z.flatten()[phased.place].view(phased.features.shape[:-1])
        weight = self._weights(errors)[..., None].expand_as(z).flatten()[phased.place].view_as(target)
        weight = weight * (target.isfinite() & phased.there.view_as(target))
        return self.sums.added(held, phased.features, target.nan_to_num(0.0), weight, passed, due, copied)

    def _weights(self, errors: Tensor) -> Tensor:
        """(T, K) 1/s², with the mean 1 over the steps of a target; 1 where an error is not known."""
        by_step = errors.unflatten(0, (self.shape.outputs, -1))
        most = by_step.amax(1, keepdim=True)
        weight = (by_step.clamp(min=LEAST * most) / most).square().reciprocal()
        weight = weight / weight.mean(1, keepdim=True)
        return torch.where((by_step > 0).all(1, keepdim=True), weight, 1.0).flatten(0, 1)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return ({} if self.sums is None else self.sums.state_dict()), {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.sums = None
        if tensors:
            self._make(tensors["penalties"])
            assert self.sums is not None
            for name, buffer in self.sums.state_dict().items():
                buffer.copy_(tensors[name])


def places(group: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Where the members of each group are, (G, R) among all; and (G, R) whether the group has this member.

    Args:
        group: of each member, of any shape; −1 for one of none.
        count: G.

    Example:
        >>> place, there = places(torch.tensor([[1, 0], [-1, 1]]), 2)
        >>> place.tolist(), there.tolist()
        ([[1, 0], [0, 3]], [[True, False], [True, True]])
    """
    group = group.flatten()
    counts = torch.bincount(group + 1, minlength=count + 1)[1:]
    there = torch.arange(int(counts.max()), device=group.device) < counts[:, None]
    place = torch.zeros(there.shape, dtype=torch.int64, device=group.device)
    place[there] = group.argsort(stable=True)[len(group) - int(counts.sum()) :]
    return place, there
