"""Steps on features and head together: one gradient, clipped as a whole, with a rate for each of three parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from streamgp.base import Json
from streamgp.optim._fused_steps import FusedAdaDelta, FusedAdam, FusedSteps
from streamgp.optim.descent import DescentConfig
from streamgp.optim.finite_head import FiniteHead


class FiniteSteps:
    """Adam or AdaDelta on the parameters of features and of a head, in place. Stateful.

    Args:
        features: its parameters that ask for a gradient are stepped on, all of one dtype; it may have none.
        head: weights and log_noise.
        config: clipping.
        optimiser: which.

    Attributes:
        skipped: steps left out so far, since features or gradients were not finite.
    """

    def __init__(
        self, features: nn.Module, head: FiniteHead, config: DescentConfig, optimiser: Literal["adam", "adadelta"]
    ) -> None:
        self.own = [p for p in features.parameters() if p.requires_grad]
        self.head, self.clip, self.skipped = head, config.clip, 0
        self.kind: type[FusedAdam] | type[FusedAdaDelta] = FusedAdam if optimiser == "adam" else FusedAdaDelta
        self._make()

    def through(self, phi: Tensor, gradient: Tensor) -> list[Tensor]:
        """Gradients in the features' parameters from that in φ (n, d); zeros where one is not used."""
        if not self.own or not phi.requires_grad:
            return [torch.zeros_like(p) for p in self.own]
        found = torch.autograd.grad(phi, self.own, gradient.to(phi.dtype), allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(self.own, found, strict=True)]

    def step(
        self, own: Sequence[Tensor], weights: Tensor, log_noise: Tensor, rates: tuple[float, float, float]
    ) -> bool:
        """One step.

        Args:
            own: gradients in the features' parameters.
            weights, log_noise: (d, T), (T,) gradients in the head's.
            rates: of features, weights and log_noise.

        Returns:
            whether it was taken; not, when a gradient was not finite.
        """
        norm = math.hypot(*_norms(own), float(weights.norm()), float(log_noise.norm()))
        if not math.isfinite(norm):
            self.skipped += 1
            return False
        self._follow()
        gradients = [list(own), [weights], [log_noise]]
        if self.clip is not None and norm > self.clip:
            gradients = [[part * (self.clip / norm) for part in some] for some in gradients]
        for name, some, rate in zip(("features", "weights", "log_noise"), gradients, rates, strict=True):
            if name in self.groups:
                self.groups[name].step(some, rate)
        return True

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        """Moments, and the count; the parameters belong to their modules."""
        tensors: dict[str, Tensor] = {}
        rest: dict[str, Json] = {"skipped": self.skipped}
        for name, group in self.groups.items():
            inner, rest[name] = group.state()
            tensors |= {f"{name}.{key}": value for key, value in inner.items()}
        return tensors, rest

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self._follow()
        self.skipped = int(str(rest["skipped"]))
        for name, group in self.groups.items():
            inner = rest[name]
            assert isinstance(inner, dict)
            own = {key.removeprefix(f"{name}."): t for key, t in tensors.items() if key.startswith(f"{name}.")}
            group.restore(own, inner)

    def _make(self) -> None:
        named = {"features": self.own, "weights": [self.head.weights], "log_noise": [self.head.log_noise]}
        self.groups: dict[str, FusedSteps] = {name: self.kind(parts) for name, parts in named.items() if parts}
        self.at = self.head.weights.data_ptr()

    def _follow(self) -> None:
        """Modules that went to another device or type have new tensors behind their parameters."""
        if self.head.weights.data_ptr() != self.at:
            tensors, rest = self.state()
            self._make()
            self.restore(tensors, rest)


def _norms(parts: Sequence[Tensor]) -> list[float]:
    if not parts:
        return []
    found: list[float] = torch.stack(torch._foreach_norm(list(parts))).tolist()
    return found
