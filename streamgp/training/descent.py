"""Adam on the parameters of one module: scheduled rates, clipping, and steps that are not finite left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Generator, Tensor, nn

from streamgp.state import Declared, Value, Whole
from streamgp.training.adam import Adam

LAST = 0.01
"""Part of the rate that is left at the end of a cosine."""
DELTA = 0.1
"""δ of the theorems' schedule; convergence is proved for 0 < δ <= 1."""
CLIP = 10.0
"""Largest norm of a gradient of the loss per row, over all weights."""


class DescentConfig(BaseModel):
    """What every mini-batch descent of this package takes. Losses are per row, so that rates do not follow N."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    batch: int = Field(128, ge=1, description="rows of a mini-batch, at most; an epoch is cut into even parts")
    schedule: Literal["constant", "cosine", "theorem"] = Field(
        "constant",
        description="how rates fall with the epochs t done: not at all; half a cosine over all epochs, to a hundredth; "
        "(1 + t)^-0.55, the rate of Al-Shedivat et al.'s theorems",
    )


def rate(config: DescentConfig, initial: float, t: float, epochs: int) -> float:
    """The step size after t epochs; t may be a fraction.

    A cosine spans `epochs`, stays at its end afterwards, and does not fall at all where `epochs` is 0.

    The schedule of theorems 1 and 2 (Al-Shedivat et al. 2017) is Θ(t^-(1+δ)/2), with t counted in epochs, a constant
    factor away from their mini-batches. Theorem 2 divides by the delay τ too, which is in `initial`.

    Example:
        >>> round(rate(DescentConfig(schedule="theorem"), 0.1, 3.0, epochs=0), 4)
        0.0467
        >>> round(rate(DescentConfig(schedule="cosine"), 0.1, 5.0, epochs=10), 12)
        0.0505
    """
    if config.schedule == "cosine" and epochs:
        fallen = 0.5 * (1.0 + math.cos(math.pi * min(t / epochs, 1.0)))
        return initial * (LAST + (1.0 - LAST) * fallen)
    if config.schedule == "theorem":
        return float(initial * (1.0 + t) ** (-0.5 * (1.0 + DELTA)))
    return initial


def batches_of(n: int, batch: int) -> int:
    """Mini-batches of an epoch over n rows: ⌈n/batch⌉, at least one."""
    return max(math.ceil(n / batch), 1)


def minibatches(n: int, batch: int, count: int, generator: Generator) -> Iterator[Tensor]:
    """`count` mini-batches of n rows, through one permutation after another, each in `batches_of` parts.

    The parts' sizes differ by at most one: every estimate then has about the same variance, and no part has a single
    row unless batch is 1 or 2.

    Example:
        >>> parts = list(minibatches(10, 4, count=5, generator=torch.Generator().manual_seed(0)))
        >>> [len(part) for part in parts], torch.cat(parts[:3]).sort().values.tolist() == list(range(10))
        ([4, 3, 3, 4, 3], True)
    """
    whole = batches_of(n, batch)
    for done in range(0, count, whole):
        order = torch.randperm(n, generator=generator, device=generator.device)
        yield from order.tensor_split(whole)[: count - done]


class Descent(Declared):
    """Adam (Kingma & Ba 2015) on a module's parameters that ask for a gradient. Stateful.

    Args:
        module: whose parameters are stepped on in place; it may have none.
        initial: rate before the schedule.
        config: schedule and clipping.
        epochs: that a cosine spans; 0: it does not fall.

    Attributes:
        parameters: name -> parameter.
        skipped: steps left out so far, since their gradient was not finite.

    Example:
        >>> line = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        >>> _ = nn.init.zeros_(line.weight)
        >>> descent = Descent(line, 0.1, DescentConfig())
        >>> descent.step((line.weight - 3).square().sum(), 0.0), round(line.weight.item(), 9)
        (True, 0.1)
    """

    STATE = (Value("skipped", int), Whole("adam"))
    NOT_STATE: ClassVar[Mapping[str, str]] = {
        "parameters": "they belong to their module",
        "span": "said again before an epoch",
    }

    def __init__(self, module: nn.Module, initial: float, config: DescentConfig, epochs: int = 0) -> None:
        self.initial, self.config, self.span = initial, config, epochs
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.adam = Adam(list(self.parameters.values()))
        self.skipped = 0

    def step(self, loss: Tensor, t: float) -> bool:
        """One step on a loss per row, t epochs after the start.

        Returns:
            whether the step was taken; not, when a gradient was not finite.
        """
        return self.descend(torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True), t)

    def descend(self, gradients: Sequence[Tensor | None], t: float) -> bool:
        """`step` with the gradients at hand, in the order of `parameters`; None where a parameter is not used."""
        if all(g is None for g in gradients):
            return True
        own = list(self.parameters.values())
        known = [torch.zeros_like(p) if g is None else g for p, g in zip(own, gradients, strict=True)]
        norm = float(torch.stack([torch.linalg.vector_norm(g) for g in known]).norm())
        if not math.isfinite(norm):
            self.skipped += 1
            return False
        if norm > CLIP:
            known = [g * (CLIP / norm) for g in known]
        self.adam.step(known, rate(self.config, self.initial, t, self.span))
        return True
