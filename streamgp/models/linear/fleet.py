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
from streamgp.linalg.batched import product
from streamgp.models.linear import conjugate
from streamgp.models.linear.window import CHUNK, INDEFINITE, OVERFLOW, REVIEW, Config, Linear
from streamgp.online.inputs import reporting, usable_rows
from streamgp.online.stacked import Packed, Stacked, left_out, limited, plausible_rows, wide
from streamgp.online.variance import random_walk_variance
from streamgp.online.winsorise import LASTING


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
        self._held = Stacked(dict(self._one.named_buffers()))

    def predict(self, x: Inputs, series: Tensor, batch: int = 1) -> Tensor:
        """(P, R, T) parameters of what each window's model forecasts; nothing changes."""
        packed = Packed.of(series)
        look = self._look(packed, self._held.take(packed.codes), x)
        parts = (packed.back(part) for part in look[2:])
        return self._distribution(*parts).parameters()

    def update(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor) -> list[Step]:
        """Each model learns its windows, as `Linear.update` does; a step for each, in the order of the codes."""
        whole, observed = Packed.of(series), y
        y, taken, _ = usable_rows(x, y)
        packed = whole if bool(taken.all()) else Packed.of(series[taken])
        done = dict[int, Step]()
        if len(packed.codes):
            some = (x, y) if bool(taken.all()) else (x.rows(taken), y[taken])
            done = self._update(packed, *some)
        nothing = Step(math.nan, self._width, True, "nothing observed")
        why = zip(whole.codes.tolist(), left_out(whole, observed, taken), strict=True)
        return [reporting(done.get(code, nothing), text) for code, text in why]

    def fit(self, x: Inputs, y: Tensor, series: Tensor) -> list[Step]:
        """Each model starts over from its windows, as `Linear.fit` does; a step for each, in the order of the codes."""
        codes, before = series.unique(), self._held.size
        self._held.reserve(codes)
        self._held.put(codes[codes < before], self._held.fresh)
        whole, observed = Packed.of(series), y
        y, taken, _ = usable_rows(x, y)
        left = dict(zip(codes.tolist(), left_out(whole, observed, taken), strict=True))
        x, y, series = x.rows(taken), y[taken], series[taken]
        there = series.unique()
        y, within, glitches = plausible_rows(x, y, series)
        for code, text in zip(there.tolist(), glitches, strict=True):
            left[code] = "; ".join(part for part in (left[code], text) if part)
        packed = Packed.of(series[within])
        x, y = x.rows(within), y[within]
        place = {code: at for at, code in enumerate(codes.tolist())}
        total, chunks, whys = [0.0] * len(codes), [0] * len(codes), [""] * len(codes)
        for start in range(0, packed.there.shape[1], CHUNK):
            some = packed.there[:, start].nonzero()[:, 0]
            own = packed.some(some, slice(start, start + CHUNK))
            held = self._held.take(own.codes)
            loss, why = self._learn(own, held, x, y, guarded=False)
            for code, value, failed in zip(own.codes.tolist(), loss.tolist(), why, strict=True):
                at = place[code]
                total[at], chunks[at], whys[at] = total[at] + value, chunks[at] + 1, failed or whys[at]
        steps = zip(total, chunks, whys, left.values(), strict=True)
        return [
            reporting(Step(a / max(n, 1), self._width, not why, f"epoch; undone: {why}" if why else "epoch"), text)
            for a, n, why, text in steps
        ]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return self._held.state(), {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self._held.restore(tensors)

    @property
    def _width(self) -> int:
        return self._held.fresh["gram"].shape[0]

    def _flat(self, packed: Packed, x: Inputs) -> Tensor:
        """(K, N, W)"""
        parts = [part.flatten(1) for part in (x.past, x.future) if part.shape[1] * part.shape[2]]
        return packed.laid(parts[0] if len(parts) == 1 else torch.cat([x.past.flatten(1), x.future.flatten(1)], 1))

    def _features(self, flat: Tensor, centre: Tensor) -> Tensor:
        """(K, N, W + 1), see `Linear`."""
        found = flat.new_empty(*flat.shape[:2], flat.shape[2] + 1)
        found[..., 0] = 1.0
        torch.sub(flat, centre[:, None], out=found[..., 1:]).nan_to_num_(nan=0.0)
        return found

    def _look(self, packed: Packed, held: dict[str, Tensor], x: Inputs) -> Look:
        """The forecasts of their models; before any data those of a random walk."""
        reference = packed.laid(self._one.reference(x))  # (K, N, T)
        fresh = held["rows"] == 0
        u = self._features(self._flat(packed, x), held["feature_centre"])
        factor = torch.where(fresh[:, None, None], torch.eye(self._width).to(u), held["factor"])
        lever = conjugate.leverage(factor, u)
        shape = (conjugate.A0 + held["count"] / 2)[:, None]  # (K, 1, T)
        noise = held["noise"][:, None] / (shape - 1)
        mean = reference + held["target_centre"][:, None] + product(u, held["weights"])
        latent, variance = noise * lever, noise * (1 + lever)
        if bool(fresh.any()):
            none, prior = fresh[:, None, None], packed.laid(random_walk_variance(x, self.shape))
            mean = torch.where(none, reference, mean)
            latent, variance = torch.where(none, 0.0, latent), torch.where(none, prior, variance)
        return Look(u, lever, mean, latent, variance, (2 * shape).expand_as(mean))

    def _distribution(self, mean: Tensor, latent: Tensor, variance: Tensor, dof: Tensor) -> Predictive:
        return self._one.distribution(mean, variance, latent, dof)

    def _update(self, packed: Packed, x: Inputs, y: Tensor) -> dict[int, Step]:
        """Learn windows that are usable."""
        self._held.reserve(packed.codes)
        loss, why = self._learn(packed, self._held.take(packed.codes), x, y, guarded=True)
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
        truth = torch.where(there, packed.laid(y), torch.nan)  # (K, N, T)
        look = self._look(packed, held, x)
        issued = self._distribution(*(part.flatten(0, 1) for part in look[2:]))
        density = issued.log_prob(truth.flatten(0, 1)).unflatten(0, truth.shape[:2])
        loss = -density.flatten(1).nanmean(1)
        old = dict(held)
        if guarded:
            forecast, excess = (look.mean, look.variance, truth), held["limit.excess"]
            truth, held["limit.excess"] = limited(self._one.limit, packed, *forecast, held["count"], excess)
        begun = held["rows"] > 0
        target = truth - packed.laid(self._one.reference(x))
        known = torch.isfinite(target)
        u = look.u
        if not bool(begun.all()):
            flat = self._flat(packed, x)
            first = {
                "feature_centre": packed.mean(flat, torch.isfinite(flat)),
                "target_centre": packed.mean(target, known),
                "size": packed.mean(truth.abs(), torch.isfinite(truth)),
            }
            for name, value in first.items():
                held[name] = torch.where(begun[:, None], held[name], value)
            u = self._features(flat, held["feature_centre"])
        target = target - held["target_centre"][:, None]
        completed = target if bool(known.all()) else torch.where(known, target, product(u, held["weights"]))
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
            "gram": product(u.mT, weighted),
            "cross": product(weighted.mT, completed),
        }.items():
            held[name] = held[name] * wide(kept, new) + new
        held["since"] = held["since"] + total
        why = self._solve(held)
        bad = torch.tensor([bool(text) for text in why], device=u.device)
        for name, part in held.items():
            lost = name in old and name != "limit.excess" and bool(bad.any())
            held[name] = torch.where(wide(bad, part), old[name], part) if lost else part
        self._held.put(packed.codes, held)
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

    def _weighed(self, packed: Packed, held: dict[str, Tensor], lever: Tensor) -> tuple[Tensor, Tensor]:
        """(K, N, 1) weights as `Winsoriser.weights` has them, 0 where no window is, and how many of late were far."""
        limit, far, one = self._one.limit, held["limit.far"], packed.there[..., None].to(lever)
        settled = (held["rows"] > 0) & (held["rows"] >= limit.settled)
        if limit.deviations is None:
            return one, far
        less = settled & (far <= LASTING)
        weight = torch.where(less[:, None, None], one * lever.clamp(min=1.0).reciprocal(), one)
        return weight, torch.where(settled, packed.averaged(far, lever[..., 0] > 1.0, limit.newest), far)


def _ridges(*sums: Tensor) -> Tensor:
    """(K,) of `conjugate.ridge`; NaN where the eigenvalues of a model were not found."""
    try:
        return conjugate.ridge(*sums)
    except RuntimeError:  # torch.linalg.LinAlgError
        if len(sums[0]) == 1:
            return sums[-1] * torch.nan
        return torch.cat([_ridges(*(part[at : at + 1] for part in sums)) for at in range(len(sums[0]))])
