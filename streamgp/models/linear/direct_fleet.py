"""`direct.DirectLinear` of many series at once: one model each, with the sums, solutions and mixes of all batched.

Series whose columns are the same, because their known inputs are of the same kinds, are alike: their states are
stacked (`stacked.Stacked`). A series begins alone; from then on its windows are looked at, mixed, limited and learned
beside those of others, a few series at a time, so that their sums stay near. No series sees another: its numbers are
those of a `DirectLinear` of its own, but for the order in which batched products add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, cast

import torch
from torch import Tensor

from streamgp.base import Inputs, Json, Shape, Step
from streamgp.mixing.mixer import Mixer
from streamgp.models.linear.columns import KNOTS, Known
from streamgp.models.linear.direct import CHUNK, DirectLinear, DirectRegression, MixedLook, side_by_side
from streamgp.online.fleet import NEAR, StackedFleet
from streamgp.online.inputs import learned
from streamgp.online.stacked import Packed, Stacked, chosen, wide
from streamgp.predictives.gaussian import Gaussian
from streamgp.regression.memories import under

Kinds: TypeAlias = "tuple[tuple[bool, int], ...]"
"""Whether each known input is a flag, and its rank: what decides which columns there are."""
State: TypeAlias = "dict[str, Tensor]"
"""Of K series, which is their leading axis."""


class Alike:
    """Models whose columns are the same.

    Args:
        make: a fresh model.
        kinds: of the known inputs.
    """

    def __init__(self, make: Callable[[], DirectLinear], kinds: Kinds) -> None:
        self.model, self.kinds = make(), kinds
        self.shape, self.regression = self.model.shape, self.model.regression
        levels, context = self.regression.levels, self.regression.context
        past, future = levels.new_zeros(1, self.shape.lags, len(self.shape.past)), levels.new_zeros(1, 1, 0)
        x = Inputs(past, future, levels.new_zeros(1, context.width))
        self.regression.assume(x, [Known(flag, 0.0, 1.0, levels.new_zeros(KNOTS), rank) for flag, rank in kinds])
        self.held = Stacked(state_of(self.model))

    def parameters(self, packed: Packed, x: Inputs) -> Tensor:
        """(P, K, N, T) of what the models of the windows forecast."""
        look, mix, _ = self._look(packed, self.held.take(packed.codes), x)
        return torch.cat([mix.parameters(), look.means])

    def update(self, packed: Packed, x: Inputs, y: Tensor, issued: Tensor | None) -> list[Step]:
        """Learn windows that are usable, as `DirectLinear.update` does; a step for each series.

        Args:
            packed: the windows.
            x, y: R windows and their truths.
            issued: (P, R, T) what was issued; None: what is forecast now.
        """
        held, rows = self.held.take(packed.codes), packed.counts.tolist()
        now, truth = self._look(packed, held, x), packed.truths(y)
        means = now.look.means if issued is None else issued[3:, packed.rows]
        loss, whys = self.model.learn(packed, held, now, truth, means, rows)
        seen = (truth - means).isfinite().all(0).flatten(1).any(1)  # a model that learns of no error stays as it is
        for name, part in now.mixer.state()[0].items():
            old = held[f"mixer.{name}"]
            held[f"mixer.{name}"] = torch.where(wide(seen, old), part.unflatten(0, (len(seen), -1)), old)
        self.held.put(*chosen(packed.codes, held, torch.tensor([not why for why in whys])))
        return [learned(value, self.regression.size, why) for value, why in zip(loss.tolist(), whys, strict=True)]

    def _look(self, packed: Packed, held: State, x: Inputs) -> MixedLook:
        """The windows as their models see them."""
        regression, (series, windows) = self.regression, packed.rows.shape
        x = x.rows(packed.rows.flatten())

        def of(name: str) -> Tensor:
            """(..., K · N) of each window's model."""
            found: Tensor = held[name].movedim(0, -1).repeat_interleave(windows, -1)
            return found

        def apart(part: Tensor) -> Tensor:
            """(..., K · N, T) -> (..., K, N, T)"""
            found: Tensor = part.unflatten(-2, (series, windows))
            return found

        levels, width, known = of("regression.levels"), of("regression.width"), list[Known]()
        if self.kinds:
            centre, scale, knots = of("known.centre"), of("known.scale"), of("regression.knots").mT
            known = [Known(flag, centre[k], scale[k], knots[k], rank) for k, (flag, rank) in enumerate(self.kinds)]
        prior = apart(self.model.prior(x, width.T))
        x, levels = regression.guarded(x, levels, width)
        bases, features, *by_phase = regression.made(x, known, levels)
        of_series = torch.where(packed.there, torch.arange(series, device=bases.device)[:, None], -1).flatten()
        phased = None if regression.phases is None else regression.phases.grouped(x, by_phase[0], of_series)
        own = under("regression.", held)
        look = regression.looked(own, apart(bases), apart(features).movedim(1, 0), phased)
        mixer = self._mixer(held)
        mixed = mixer.issue(side_by_side(look.means), side_by_side(prior))
        mix = Gaussian(*(part.unflatten(1, (series, -1)).transpose(0, 1) for part in mixed))
        return MixedLook(look, mix, mixer)

    def _mixer(self, held: State) -> Mixer:
        """One mixer for the columns of all series, side by side."""
        one, series = self.model.mixer, len(held["rows"])
        targets = tuple(f"{k}" for k in range(series * self.shape.outputs))
        found = Mixer(one.experts, replace(self.shape, targets=targets), one.memory, one.first).to(one.weights.device)
        found.restore({name: held[f"mixer.{name}"].flatten(0, 1) for name in one.state()[0]}, {})
        return found


class DirectFleet(StackedFleet):
    """Many `DirectLinear` models; Stateful.

    Args:
        shape: of the windows of each.
        ridge: of each; as of `DirectLinear`.
        memory: of each.
        limit: of each.
        device: where the sums live.
    """

    def __init__(
        self, shape: Shape, ridge: float, memory: float | None, limit: float | None, device: torch.device
    ) -> None:
        self._make: Callable[[], DirectLinear] = lambda: DirectLinear(shape, ridge, memory, limit).to(device)
        self._fresh, self._first, self._device = self._make(), self._make(), device
        self._alike: list[Alike] = []
        self._where = torch.zeros(0, 2, dtype=torch.int64)  # (S, 2) which of them a series is of, and its place there

    def predict(self, x: Inputs, series: Tensor, batch: int = 1) -> Tensor:
        """(P, R, T) parameters of what each window's model forecasts; nothing changes."""
        found = x.past.new_empty(3 + self._fresh.mixer.experts, len(series), self._fresh.shape.columns)
        new = self._of(series)[:, 0] < 0
        if bool(new.any()):
            found[:, new] = self._fresh.predict(x.rows(new)).parameters()
        for alike, packed in self._packed(series):
            found[:, packed.rows[packed.there]] = alike.parameters(packed, x)[:, packed.there]
        return found

    def _update(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor | None) -> dict[int, Step]:
        new = (self._of(series)[:, 0] < 0).nonzero()[:, 0]
        self._begin(Packed.of(series[new]), x.rows(new), y[new])
        steps = dict[int, Step]()
        for alike, some in self._packed(series):
            steps |= zip(series[some.rows[:, 0]].tolist(), alike.update(some, x, y, issued), strict=True)
        return steps

    def _fit(self, x: Inputs, y: Tensor, series: Tensor, codes: Tensor) -> dict[int, Step]:
        seen = torch.isfinite(y).any(1)
        self._begin(Packed.of(series[seen]), x.rows(seen), y[seen])

        def learn(some: Packed) -> list[Step]:
            rows = some.rows[some.there]
            return self.update(x.rows(rows), y[rows], series[rows])

        return self._in_chunks(Packed.of(series), codes, CHUNK, learn)

    def _forget(self, codes: Tensor) -> None:
        self._of(codes)
        self._where[codes] = -1

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors = {"where": self._where.clone()}
        for at, alike in enumerate(self._alike):
            tensors |= {f"{at}.{name}": part for name, part in alike.held.state()[0].items()}
        return tensors, {"kinds": [[list(kind) for kind in alike.kinds] for alike in self._alike]}

    def restore(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        kinds = cast("list[list[tuple[bool, int]]]", rest["kinds"])
        found = [Alike(self._make, tuple((bool(flag), int(rank)) for flag, rank in own)) for own in kinds]
        for at, alike in enumerate(found):
            alike.held.restore({name: tensors[f"{at}.{name}"] for name in alike.held.fresh}, {})
        self._where, self._alike = tensors["where"].clone(), found

    def _of(self, series: Tensor) -> Tensor:
        """(N, 2) of `_where`, which grows; −1 of those that have not begun."""
        more = int(series.max()) + 1 - len(self._where) if len(series) else 0
        if more > 0:
            self._where = torch.cat([self._where, torch.full((more, 2), -1)])
        return self._where[series]

    def _packed(self, series: Tensor) -> Iterator[tuple[Alike, Packed]]:
        """The windows of the series that have begun, those of a few series that are alike at a time."""
        which, place = self._of(series).unbind(1)
        for at, packed in Packed.by_kind(place, which):
            for some in packed.parts(NEAR // self._alike[at].held.bytes) if at >= 0 else ():
                yield self._alike[at], some

    def _begin(self, packed: Packed, x: Inputs, y: Tensor) -> None:
        """Begin series from their first windows: each with the state of a model before any data, but for what these
        say."""
        begun, regression = dict[int, list[tuple[int, State]]](), self._first.regression
        for code, rows, there in zip(packed.codes.tolist(), packed.rows, packed.there, strict=True):
            regression.describe(x.rows(rows[there]), y[rows[there]])
            kinds = tuple((what.flag, what.rank) for what in regression.known)
            at = next((at for at, alike in enumerate(self._alike) if alike.kinds == kinds), len(self._alike))
            if at == len(self._alike):
                self._alike.append(Alike(self._make, kinds))
            begun.setdefault(at, []).append((code, described(regression)))
        for at, members in begun.items():
            held = self._alike[at].held
            places = torch.arange(held.size, held.size + len(members))
            held.reserve(places)
            held.put(places, {name: torch.stack([own[name] for _, own in members]) for name in members[0][1]})
            for (code, _), place in zip(members, places.tolist(), strict=True):
                self._where[code] = torch.tensor([at, place])

    def _size(self, code: int) -> int:
        at = int(self._of(torch.tensor([code]))[0, 0])
        return 0 if at < 0 else self._alike[at].regression.size


def state_of(model: DirectLinear) -> State:
    """The tensors of a model that is begun, as a fleet stacks them."""
    tensors = {name: part for name, part in model.state()[0].items() if not name.endswith(".penalties")}
    return tensors | described(model.regression)


def described(regression: DirectRegression) -> State:
    """The tensors of `state_of` that the first windows decide."""
    found = {f"regression.{name}": getattr(regression, name).clone() for name in ("levels", "width", "base")}
    known, levels = regression.known, regression.levels
    if not known:
        return found
    own = {"centre": [what.centre for what in known], "scale": [what.scale for what in known]}
    found |= {f"known.{name}": levels.new_tensor(values) for name, values in own.items()}
    return found | {"regression.knots": torch.stack([what.knots for what in known])}
