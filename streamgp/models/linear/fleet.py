"""Many series, a `window.Linear` each: where their states are, and which windows go to `Linear.look` and `learn`.

The sums have a leading axis, the code of the series. Windows of the series of a batch are laid out side by side,
(K, N), as many as the longest has, and what is not there has weight 0. No series sees another: its numbers are those of
a `Linear` of its own, but for the order in which batched products add (1e-9 of the value, at most).
"""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import Inputs, Shape, Step
from streamgp.models.linear.window import CHUNK, Config, Linear
from streamgp.online.fleet import StackedFleet
from streamgp.online.stacked import Packed, Stacked
from streamgp.state import Whole


class LinearFleet(StackedFleet):
    """Many `Linear` models; Stateful.

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

    STATE = (Whole("_held"),)

    def __init__(self, config: Config, shape: Shape, device: torch.device | None = None) -> None:
        self.config, self.shape = config, shape
        self._one = Linear(config, shape).to(device or torch.device("cpu"))
        self._held = Stacked(dict(self._one.named_buffers()))

    def predict(self, x: Inputs, series: Tensor, batch: int = 1) -> Tensor:
        """(P, R, T) parameters of what each window's model forecasts; nothing changes."""
        packed = Packed.of(series)
        look = self._one.look(packed, self._held.take(packed.codes), x)
        return self._one.distribution(*(packed.back(part) for part in look[2:])).parameters()

    def _update(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor | None) -> dict[int, Step]:
        packed = Packed.of(series)
        self._held.reserve(packed.codes)
        held = self._held.take(packed.codes)
        loss, why = self._one.learn(packed, held, x, y, guarded=True)
        self._held.put(packed.codes, held)
        return {
            code: Step(value, self._size(code), not text, f"update; undone: {text}" if text else "update")
            for code, value, text in zip(packed.codes.tolist(), loss.tolist(), why, strict=True)
        }

    def _fit(self, x: Inputs, y: Tensor, series: Tensor, codes: Tensor) -> dict[int, Step]:
        packed, every = Packed.of(series), codes.tolist()
        total, chunks, whys = dict.fromkeys(every, 0.0), dict.fromkeys(every, 0), dict.fromkeys(every, "")
        for start in range(0, packed.there.shape[1], CHUNK):
            own = packed.some(packed.there[:, start].nonzero()[:, 0], slice(start, start + CHUNK))
            held = self._held.take(own.codes)
            loss, why = self._one.learn(own, held, x, y, guarded=False)
            self._held.put(own.codes, held)
            for code, value, failed in zip(own.codes.tolist(), loss.tolist(), why, strict=True):
                total[code], chunks[code], whys[code] = total[code] + value, chunks[code] + 1, failed or whys[code]
        return {
            code: Step(
                total[code] / max(chunks[code], 1), self._size(code), not why, "epoch" + f"; undone: {why}" * bool(why)
            )
            for code, why in whys.items()
        }

    def _forget(self, codes: Tensor) -> None:
        self._held.reserve(codes)
        self._held.put(codes, self._held.fresh)

    def _size(self, code: int) -> int:
        return self._held.fresh["gram"].shape[0]
