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
from streamgp.online.inputs import learned
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
        return dict(zip(packed.codes.tolist(), self._learned(packed, x, y, guarded=True), strict=True))

    def _fit(self, x: Inputs, y: Tensor, series: Tensor, codes: Tensor) -> dict[int, Step]:
        return self._in_chunks(Packed.of(series), codes, CHUNK, lambda own: self._learned(own, x, y, guarded=False))

    def _learned(self, packed: Packed, x: Inputs, y: Tensor, guarded: bool) -> list[Step]:
        """Learn windows of series that have room; a step for each."""
        held = self._held.take(packed.codes)
        loss, why = self._one.learn(packed, held, x, y, guarded)
        self._held.put(packed.codes, held)
        size, done = self._size(0), "update" if guarded else "epoch"
        return [learned(value, size, text, done) for value, text in zip(loss.tolist(), why, strict=True)]

    def _forget(self, codes: Tensor) -> None:
        self._held.reserve(codes)
        self._held.put(codes, self._held.fresh)

    def _size(self, code: int) -> int:
        return self._held.fresh["gram"].shape[0]
