"""`window.Linear` of many series at once: one model each, and one batched factorisation for all.

The sums have a leading axis, the code of the series. Windows of the series of a batch are laid out side by side,
(K, N), as many as the longest has, and what is not there has weight 0. No series sees another: its numbers are those of
a `Linear` of its own, but for the order in which batched products add (1e-9 of the value, at most).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Json, Predictive, Shape, Step
from streamgp.models.linear import conjugate
from streamgp.models.linear.window import CHUNK, INDEFINITE, OVERFLOW, REVIEW, Config, Linear
from streamgp.online.inputs import FEWEST, LARGEST, WILD, reporting, usable_rows
from streamgp.online.variance import random_walk_variance
from streamgp.online.winsorise import LASTING

_LIMITED = ("excess", "far")


class Packed(NamedTuple):
    """Windows of several series, side by side.

    Attributes:
        codes: (K,) of the series.
        rows: (K, N) of the batch.
        there: (K, N) whether a series has so many.
    """

    codes: Tensor
    rows: Tensor
    there: Tensor

    @classmethod
    def of(cls, series: Tensor) -> Packed:
        """series: (R,) codes, the rows of each in their order.

        Example:
            >>> Packed.of(torch.tensor([7, 3, 7])).rows.tolist()
            [[1, 0], [0, 2]]
        """
        order = series.argsort(stable=True)
        codes, counts = series[order].unique_consecutive(return_counts=True)
        there = torch.arange(int(counts.max()) if len(counts) else 0, device=series.device) < counts[:, None]
        index = torch.zeros(there.shape, dtype=torch.int64, device=series.device)
        index[there] = order
        return cls(codes, index, there)

    @property
    def counts(self) -> Tensor:
        """(K,) windows of each."""
        return self.there.sum(1)

    def back(self, values: Tensor) -> Tensor:
        """(K, N, ...) -> (R, ...), in the order of the batch."""
        found = values.new_empty(int(self.there.sum()), *values.shape[2:])
        found[self.rows[self.there]] = values[self.there]
        return found

    def mean(self, values: Tensor, where: Tensor | None = None) -> Tensor:
        """(K, N, ...) -> (K, ...) the means of what is there, and is where; 0 of nothing."""
        shown = self.there.view(*self.there.shape, *[1] * (values.dim() - 2))
        shown = shown & (torch.ones_like(shown) if where is None else where)
        return torch.where(shown, values, 0.0).sum(1) / shown.sum(1).clamp(min=1)


class Look(NamedTuple):
    """What windows look like to their models. u: (K, N, W + 1) features; lever: (K, N, 1); mean, latent, variance:
    (K, N, T); dof: (K, N, T) of the t distribution."""

    u: Tensor
    lever: Tensor
    mean: Tensor
    latent: Tensor
    variance: Tensor
    dof: Tensor


class LinearFleet:
    """Many `Linear` models; Stateful. A series that has no windows in a batch costs nothing.

    Args:
        config: of each.
        shape: of each.
        device: where the sums live.

    Example:
        >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
        >>> fleet = LinearFleet(Config(), shape)
        >>> u = torch.linspace(-1, 1, 400, dtype=torch.float64)[:, None]
        >>> x, series = Inputs(u.new_zeros(400, 0, 2), u[:, None]), torch.arange(400) % 2
        >>> _ = fleet.update(x, torch.where(series[:, None] > 0, 3 * u + 7, -u), series, u.new_zeros(3, 400, 1))
        >>> [round(value, 1) for value in fleet.predict(x.rows(slice(0, 2)), torch.tensor([0, 1]))[0, :, 0].tolist()]
        [1.0, 4.0]
    """

    def __init__(self, config: Config, shape: Shape, device: torch.device | None = None) -> None:
        self.config, self.shape = config, shape
        self._one = Linear(config, shape).to(device or torch.device("cpu"))
        self._fresh = dict(self._one.named_buffers())  # of a series before any data
        self._held = {name: part.new_zeros(0, *part.shape) for name, part in self._fresh.items()}
        self._size = 0  # S, series met

    def predict(self, x: Inputs, series: Tensor, batch: int = 1) -> Tensor:
        """(P, R, T) parameters of what each window's model forecasts; nothing changes."""
        packed = Packed.of(series)
        look = self._look(packed, self._taken(packed.codes), x)
        parts = (packed.back(part) for part in look[2:])
        return self._distribution(*parts).parameters()

    def update(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor) -> list[Step]:
        """Each model learns its windows, as `Linear.update` does; a step for each, in the order of the codes."""
        y, taken, _ = usable_rows(x, y)
        beyond = torch.isfinite(y).any(1) & ~taken
        whole = Packed.of(series)
        left_out = [int(count) for count in whole.mean(beyond[whole.rows].to(FLOAT)) * whole.counts + 0.5]
        packed = Packed.of(series[taken])
        done = dict[int, Step]()
        if len(packed.codes):
            done = self._update(packed, x.rows(taken), y[taken])
        nothing = Step(math.nan, self._width, True, "nothing observed")
        why = f"windows hold values beyond {LARGEST:.0e}"
        return [
            reporting(done.get(code, nothing), f"undone: {count} {why}" * (count > 0))
            for code, count in zip(whole.codes.tolist(), left_out, strict=True)
        ]

    def fit(self, x: Inputs, y: Tensor, series: Tensor) -> list[Step]:
        """Each model starts over from its windows, as `Linear.fit` does; a step for each, in the order of the codes."""
        codes = series.unique()
        self._reserve(codes)
        for name, part in self._fresh.items():
            self._held[name][codes] = part
        y, taken, _ = usable_rows(x, y)
        x, y, series = x.rows(taken), y[taken], series[taken]
        y, within = self._plausible(x, y, series)
        left = torch.bincount(series[~within], minlength=int(codes.max()) + 1)[codes]
        packed = Packed.of(series[within])
        x, y = x.rows(within), y[within]
        place = {code: at for at, code in enumerate(codes.tolist())}
        total, chunks, healthy = [0.0] * len(codes), [0] * len(codes), [True] * len(codes)
        for start in range(0, packed.there.shape[1], CHUNK):
            some = packed.there[:, start].nonzero()[:, 0]
            stop = start + CHUNK
            own = Packed(packed.codes[some], packed.rows[some, start:stop], packed.there[some, start:stop])
            held = self._taken(own.codes)
            loss, why = self._learn(own, held, x, y, guarded=False)
            for code, value, failed in zip(own.codes.tolist(), loss.tolist(), why, strict=True):
                at = place[code]
                total[at], chunks[at], healthy[at] = total[at] + value, chunks[at] + 1, healthy[at] and not failed
        glitches = (f"undone: {n} windows hold a value beyond {WILD:.0f} interquartile ranges" * (n > 0) for n in left)
        steps = zip(total, chunks, healthy, glitches, strict=True)
        return [reporting(Step(a / max(n, 1), self._width, well, "epoch"), text) for a, n, well, text in steps]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return {name: part[: self._size].clone() for name, part in self._held.items()}, {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        for name, part in self._held.items():
            self._held[name] = tensors[name].to(part).clone()
        self._size = len(tensors["rows"])

    @property
    def _width(self) -> int:
        return self._fresh["gram"].shape[0]

    def _reserve(self, codes: Tensor) -> None:
        """Room for these series; it doubles."""
        wanted, have = int(codes.max()) + 1 if len(codes) else 0, len(self._held["rows"])
        self._size = max(self._size, wanted)
        if wanted > have:
            more = max(wanted, 2 * have) - have
            for name, part in self._held.items():
                new = self._fresh[name].expand(more, *self._fresh[name].shape)
                self._held[name] = torch.cat([part, new])

    def _taken(self, codes: Tensor) -> dict[str, Tensor]:
        """Copies of the state of these series."""
        known = codes.clamp(max=max(len(self._held["rows"]) - 1, 0))
        new = codes >= len(self._held["rows"])
        if not len(self._held["rows"]):
            return {name: part.expand(len(codes), *part.shape).clone() for name, part in self._fresh.items()}
        found = {name: part[known] for name, part in self._held.items()}
        if bool(new.any()):
            for name, part in found.items():
                part[new] = self._fresh[name]
        return found

    def _flat(self, packed: Packed, x: Inputs) -> Tensor:
        """(K, N, W)"""
        return torch.cat([x.past.flatten(1), x.future.flatten(1)], 1)[packed.rows]

    def _features(self, flat: Tensor, centre: Tensor) -> Tensor:
        """(K, N, W + 1), see `Linear`."""
        centred = torch.nan_to_num(flat - centre[:, None], nan=0.0)
        return torch.cat([torch.ones_like(centred[..., :1]), centred], 2)

    def _look(self, packed: Packed, held: dict[str, Tensor], x: Inputs) -> Look:
        """The forecasts of their models; before any data those of a random walk."""
        reference = self._one.reference(x)[packed.rows]  # (K, N, T)
        fresh = held["rows"] == 0
        u = self._features(self._flat(packed, x), held["feature_centre"])
        factor = torch.where(fresh[:, None, None], torch.eye(self._width).to(u), held["factor"])
        lever = conjugate.leverage(factor, u)
        shape = (conjugate.A0 + held["count"] / 2)[:, None]  # (K, 1, T)
        noise = held["noise"][:, None] / (shape - 1)
        mean = reference + held["target_centre"][:, None] + u @ held["weights"]
        latent, variance = noise * lever, noise * (1 + lever)
        if bool(fresh.any()):
            none, prior = fresh[:, None, None], random_walk_variance(x, self.shape)[packed.rows]
            mean = torch.where(none, reference, mean)
            latent, variance = torch.where(none, 0.0, latent), torch.where(none, prior, variance)
        return Look(u, lever, mean, latent, variance, (2 * shape).expand_as(mean))

    def _distribution(self, mean: Tensor, latent: Tensor, variance: Tensor, dof: Tensor) -> Predictive:
        return self._one.distribution(mean, variance, latent, dof)

    def _update(self, packed: Packed, x: Inputs, y: Tensor) -> dict[int, Step]:
        """Learn windows that are usable."""
        self._reserve(packed.codes)
        loss, why = self._learn(packed, self._taken(packed.codes), x, y, guarded=True)
        steps = zip(packed.codes.tolist(), loss.tolist(), why, strict=True)
        return {
            code: Step(value, self._width, not text, f"update; undone: {text}" if text else "update")
            for code, value, text in steps
        }

    def _learn(
        self, packed: Packed, held: dict[str, Tensor], x: Inputs, y: Tensor, guarded: bool
    ) -> tuple[Tensor, list[str]]:
        """Add windows to the state of their series; (K,) the loss before it, and why one was not added.

        Args:
            held: the state of the series, as `_taken` has it.
            guarded: truths are limited, and windows weighed; see `Linear`.
        """
        there, counts = packed.there[..., None], packed.counts
        truth = torch.where(there, y[packed.rows], torch.nan)  # (K, N, T)
        look = self._look(packed, held, x)
        issued = self._distribution(*(part.flatten(0, 1) for part in look[2:]))
        density = issued.log_prob(truth.flatten(0, 1)).unflatten(0, truth.shape[:2])
        loss = -density.flatten(1).nanmean(1)
        old = dict(held)
        if guarded:
            truth, held["limit.excess"] = self._limited(packed, held, look, truth)
        begun = held["rows"] > 0
        flat, target = self._flat(packed, x), truth - self._one.reference(x)[packed.rows]
        known = torch.isfinite(target)
        u = look.u
        if not bool(begun.all()):
            first = {
                "feature_centre": packed.mean(flat, torch.isfinite(flat)),
                "target_centre": packed.mean(target, known),
                "size": packed.mean(truth.abs(), known),
            }
            for name, value in first.items():
                held[name] = torch.where(begun[:, None], held[name], value)
            u = self._features(flat, held["feature_centre"])
        target = target - held["target_centre"][:, None]
        completed = torch.where(known, target, u @ held["weights"])
        weight = there.to(u)
        if guarded:
            weight, held["limit.far"] = self._weighed(packed, held, look.lever)
        kept = torch.ones_like(held["rows"])
        if self.config.memory is not None:
            kept = torch.exp(-counts.to(FLOAT) / self.config.memory)
        weighted, total = weight * u, weight.sum((1, 2))
        for name, new in {
            "square": (weight * completed.square()).sum(1),
            "count": (weight * known).sum(1),
            "rows": total,
            "gram": u.mT @ weighted,
            "cross": weighted.mT @ completed,
        }.items():
            held[name] = held[name] * kept.view(-1, *[1] * (new.dim() - 1)) + new
        held["since"] = held["since"] + total
        why = self._solve(held)
        bad = torch.tensor([bool(text) for text in why], device=u.device)
        for name, part in held.items():
            lost = name in old and name != "limit.excess" and bool(bad.any())
            value = torch.where(bad.view(-1, *[1] * (part.dim() - 1)), old[name], part) if lost else part
            self._held[name][packed.codes] = value
        return loss, why

    def _solve(self, held: dict[str, Tensor]) -> list[str]:
        """The posteriors from the sums; why one has none, or ""."""
        spread = conjugate.spreads(held["gram"], held["rows"])
        unit = spread.rsqrt()
        unit[:, 0] = held["rows"].rsqrt()
        scaled = held["gram"] * unit[:, :, None] * unit[:, None]
        finite = torch.isfinite(scaled).flatten(1).all(1) & torch.isfinite(held["cross"]).flatten(1).all(1)
        scaled = torch.where(finite[:, None, None], scaled, torch.eye(self._width).to(scaled))
        if self.config.ridge is not None:
            held["ridge"] = torch.full_like(held["ridge"], self.config.ridge)
        else:
            due = ((held["since"] >= REVIEW * held["rows"]) & finite).nonzero()[:, 0]
            if len(due):
                cross = held["cross"][due] * unit[due, :, None]
                chosen = _ridges(scaled[due], cross, held["square"][due], held["rows"][due])
                finite[due] &= torch.isfinite(chosen)
                held["ridge"] = held["ridge"].index_copy(0, due, chosen.nan_to_num(1.0))
                held["since"] = held["since"].index_fill(0, due, 0.0)
        sums = (held[name] for name in ("cross", "square", "rows", "size", "ridge"))
        found = conjugate.solution(scaled, unit, *sums)
        held["factor"], held["weights"], held["noise"] = found[:3]
        healthy = torch.isfinite(found.weights).flatten(1).all(1) & torch.isfinite(found.noise).all(1)
        states = zip(finite.tolist(), found.failed.tolist(), healthy.tolist(), strict=True)
        return [
            OVERFLOW if not whole else INDEFINITE if failed else "" if well else "its numbers are not finite"
            for whole, failed, well in states
        ]

    def _limited(self, packed: Packed, held: dict[str, Tensor], look: Look, y: Tensor) -> tuple[Tensor, Tensor]:
        """Truths (K, N, T) as `Winsoriser` limits them, and how many of late were beyond."""
        limit, excess = self._one.limit, held["limit.excess"]
        if limit.deviations is None:
            return y, excess
        most, off = limit.deviations * look.variance.sqrt(), y - look.mean
        beyond = (off.abs() > most) & (held["count"] >= limit.settled)[:, None]
        within = torch.where(beyond & (excess <= LASTING)[:, None], look.mean + off.clamp(-most, most), y)
        return within, self._averaged(packed, excess, beyond)

    def _weighed(self, packed: Packed, held: dict[str, Tensor], lever: Tensor) -> tuple[Tensor, Tensor]:
        """(K, N, 1) weights as `Winsoriser.weights` has them, 0 where no window is, and how many of late were far."""
        limit, far, one = self._one.limit, held["limit.far"], packed.there[..., None].to(lever)
        settled = (held["rows"] > 0) & (held["rows"] >= limit.settled)
        if limit.deviations is None:
            return one, far
        less = settled & (far <= LASTING)
        weight = torch.where(less[:, None, None], one * lever.clamp(min=1.0).reciprocal(), one)
        return weight, torch.where(settled, self._averaged(packed, far, lever[..., 0] > 1.0), far)

    def _averaged(self, packed: Packed, part: Tensor, found: Tensor) -> Tensor:
        """A part of the newest rows moved by those that came."""
        share = -torch.expm1(-packed.counts.to(FLOAT) / self._one.limit.newest)
        return part.lerp(packed.mean(found.to(FLOAT)), share.view(-1, *[1] * (part.dim() - 1)))

    def _plausible(self, x: Inputs, y: Tensor, series: Tensor) -> tuple[Tensor, Tensor]:
        """Truths without glitches, and (R,) which windows hold none; see `online.inputs.plausible`."""
        packed = Packed.of(series)
        enough = packed.counts >= FEWEST
        y = torch.where(packed.back(self._wild(packed, y[:, None], enough))[:, 0], torch.nan, y)
        within = torch.isfinite(y).any(1)
        for part in (x.past, x.future):
            within &= ~packed.back(self._wild(packed, part, enough).flatten(2).any(2))
        return y, within

    def _wild(self, packed: Packed, values: Tensor, enough: Tensor) -> Tensor:
        """(K, N, L, C) which values (R, L, C) are glitches among those of their series."""
        own = values[packed.rows]
        own = torch.where(packed.there[..., None, None], own, torch.nan)
        levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=FLOAT, device=values.device)
        found = torch.zeros_like(own, dtype=torch.bool)
        for k in range(own.shape[3]) if own.shape[2] else ():
            low, first, median, third, high = torch.nanquantile(own[..., k].flatten(1), levels, dim=1)[..., None, None]
            spread = torch.where(third > first, third - first, high - low)
            found[..., k] = ((own[..., k] - median).abs() > WILD * spread) & (spread > 0)
        return found & enough[:, None, None, None]


def _ridges(*sums: Tensor) -> Tensor:
    """(K,) of `conjugate.ridge`; NaN where the eigenvalues of a model were not found."""
    try:
        return conjugate.ridge(*sums)
    except RuntimeError:  # torch.linalg.LinAlgError
        if len(sums[0]) == 1:
            return sums[-1] * torch.nan
        return torch.cat([_ridges(*(part[at : at + 1] for part in sums)) for at in range(len(sums[0]))])
