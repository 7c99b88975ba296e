"""Experts of an ensemble: a model as it is, or one that learns what the linear expert's forecast leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from streamgp.base import Inputs, Model, Shape, Step
from streamgp.mixing.mixer import Mixer
from streamgp.online.model import StreamModel
from streamgp.predictives.mixed import Mixed
from streamgp.state import Declared, Whole

LAGS = 8
"""Lags of the targets that a model on top of another sees."""


class Member(Declared, nn.Module):
    """A model as it is; Stateful.

    Args:
        name: of the model.
        model: before any data.
        later: whether it has no weight before any error is known.

    Attributes:
        count: forecasts that it contributes: one, or those that it mixes itself.
        first: (count,) which of them have weight before any error is known.
    """

    STATE = (Whole("model"),)

    def __init__(self, name: str, model: Model, later: bool = False) -> None:
        super().__init__()
        self.name, self.model = name, model
        mixer = getattr(model, "mixer", None)
        first = mixer.first > 0 if isinstance(mixer, Mixer) else torch.ones(1, dtype=torch.bool)
        self.count, self.first = len(first), first & (not later)

    @property
    def labels(self) -> list[str]:
        """The names of its forecasts."""
        return [self.name] if self.count == 1 else [f"{self.name} {place + 1}" for place in range(self.count)]

    def means(self, x: Inputs, base: Tensor | None) -> Tensor:
        """(count, N, T) forecasts. base: (N, T) what the linear expert forecasts; None where nobody asks for it."""
        issued = self.model.predict(x)
        if self.count > 1 and isinstance(issued, Mixed):
            return issued.experts
        return (self.model.cautious(x, issued) if isinstance(self.model, StreamModel) else issued.mean)[None]

    def update(self, x: Inputs, y: Tensor, given: Tensor, base: Tensor | None) -> Step:
        """Learn N windows.

        Args:
            x, y: the windows and their truths (N, T).
            given: (count, N, T) what it had forecast for them.
            base: (N, T) what the linear expert had forecast for them.
        """
        if self.count == 1:
            return self.model.update(x, y)
        return self.model.update(x, y, Mixed(given.mean(0), torch.zeros_like(y), torch.ones_like(y), given))

    def fit(self, x: Inputs, y: Tensor, base: Tensor | None, epochs: int) -> Iterator[Step]:
        """Learn N windows in batch. base: (N, T) what the linear expert forecasts without having seen them."""
        return self.model.fit(x, y, epochs)


class OnTop(Member):
    """A model of y − b(x), b the linear expert's forecast, which is added to what it forecasts.

    Args:
        name: of the model.
        model: before any data.
        sees: windows and b (N, T) -> the windows that the model sees.
        later: of `Member`.
    """

    def __init__(self, name: str, model: Model, sees: Callable[[Inputs, Tensor], Inputs], later: bool = False) -> None:
        super().__init__(name, model, later)
        self.sees = sees

    def means(self, x: Inputs, base: Tensor | None) -> Tensor:
        assert base is not None
        return (base + self.model.predict(self.sees(x, base)).mean)[None]

    def update(self, x: Inputs, y: Tensor, given: Tensor, base: Tensor | None) -> Step:
        assert base is not None
        return self.model.update(self.sees(x, base), y - base)

    def fit(self, x: Inputs, y: Tensor, base: Tensor | None, epochs: int) -> Iterator[Step]:
        assert base is not None
        return self.model.fit(self.sees(x, base), y - base, epochs)


class Few:
    """What a GP on top of the linear expert sees: b as a known input, the known inputs and the calendar of the steps
    ahead, and the newest lags of the targets.

    Args:
        shape: of the windows.

    Attributes:
        inner: the shape of what is seen.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        ahead = tuple(f"linear({name})" for name in shape.targets)
        known = shape.future[shape.outputs if shape.seasonal else 0 :]
        lags = min(shape.lags, LAGS)
        self.inner = replace(shape, lags=lags, past=shape.targets, future=(*ahead, *known), season=1)

    def __call__(self, x: Inputs, base: Tensor) -> Inputs:
        outputs, known = self.shape.outputs, self.shape.outputs if self.shape.seasonal else 0
        ahead = base.unflatten(1, (outputs, self.shape.horizon)).transpose(1, 2)  # (N, H, O)
        past = x.past[:, -LAGS:, :outputs]
        return Inputs(past, torch.cat([ahead, x.future[..., known:]], 2))
