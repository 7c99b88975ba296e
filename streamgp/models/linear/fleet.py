"""Many series, a `window.Linear` each: where their states are, and which windows go to `Linear.look` and `learn`.

The sums have a leading axis, the code of the series. Windows of the series of a batch are laid out side by side,
(K, N), as many as the longest has, and what is not there has weight 0. No series sees another: its numbers are those of
a `Linear` of its own, but for the order in which batched products add (1e-9 of the value, at most).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from streamgp.base import Inputs, Json, Shape, Step
from streamgp.models.linear.window import CHUNK, Config, Linear
from streamgp.online.inputs import reporting, usable_rows
from streamgp.online.stacked import Packed, Stacked, left_out, plausible_rows


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
        look = self._one.look(packed, self._held.take(packed.codes), x)
        return self._one.distribution(*(packed.back(part) for part in look[2:])).parameters()

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
            loss, why = self._one.learn(own, held, x, y, guarded=False)
            self._held.put(own.codes, held)
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

    def _update(self, packed: Packed, x: Inputs, y: Tensor) -> dict[int, Step]:
        """Learn windows that are usable."""
        self._held.reserve(packed.codes)
        held = self._held.take(packed.codes)
        loss, why = self._one.learn(packed, held, x, y, guarded=True)
        self._held.put(packed.codes, held)
        steps = zip(packed.codes.tolist(), loss.tolist(), why, strict=True)
        return {
            code: Step(value, self._width, not text, f"update; undone: {text}" if text else "update")
            for code, value, text in steps
        }
