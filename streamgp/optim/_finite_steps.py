"""Steps on features and head together: one flat gradient, clipped as a whole, with a rate for each of three parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Json
from streamgp.optim._flat_steps import FlatAdaDelta, FlatAdam, FlatSteps
from streamgp.optim.descent import DescentConfig, rate
from streamgp.optim.finite_head import FiniteHead


class FiniteSteps:
    """Adam or AdaDelta on the parameters of features and of a head, in place. Stateful.

    Args:
        features: its parameters that ask for a gradient are stepped on; it may have none.
        head: weights and log_noise.
        config: schedule and clipping.
        optimiser: which.
        rates: of features, weights and log_noise, before the schedule.
        epochs: that a cosine spans; 0: it does not fall.

    Attributes:
        skipped: steps left out so far, since features or gradients were not finite.
    """

    def __init__(
        self,
        features: nn.Module,
        head: FiniteHead,
        config: DescentConfig,
        optimiser: Literal["adam", "adadelta"],
        rates: tuple[float, float, float],
        epochs: int,
    ) -> None:
        self.own = [p for p in features.parameters() if p.requires_grad]
        self.parameters = [*self.own, head.weights, head.log_noise]
        self.config, self.epochs, self.skipped = config, epochs, 0
        sizes = [p.numel() for p in self.parameters]
        self.sizes, self.top = sizes, max(rates)
        parts = [rates[0]] * len(self.own) + list(rates[1:])
        relative = [part / self.top if self.top else 0.0 for part in parts]
        device = head.weights.device
        # one dtype for all: float32 networks then have float64 moments, and a head its float64
        filled = [torch.full((s,), f, dtype=FLOAT, device=device) for s, f in zip(sizes, relative, strict=True)]
        self.factors = torch.cat(filled)
        self.uniform = len(set(relative)) == 1
        self.moments: FlatSteps = (FlatAdam if optimiser == "adam" else FlatAdaDelta)(self.factors)

    def through(self, phi: Tensor, gradient: Tensor) -> list[Tensor]:
        """Gradients in the features' parameters from that in φ (n, d); zeros where one is not used."""
        if not self.own or not phi.requires_grad:
            return [torch.zeros_like(p) for p in self.own]
        found = torch.autograd.grad(phi, self.own, gradient.to(phi.dtype), allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(self.own, found, strict=True)]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], t: float) -> bool:
        """One step, t epochs after the start.

        Args:
            gradients: of the features' parameters, weights and log_noise.

        Returns:
            whether it was taken; not, when a gradient was not finite.
        """
        flat = torch.cat([gradient.flatten().to(FLOAT) for gradient in gradients])
        norm = flat.norm()
        if not bool(torch.isfinite(norm)):
            self.skipped += 1
            return False
        if self.config.clip is not None:
            flat.mul_((self.config.clip / norm).clamp_(max=1.0))
        change = self.moments.direction(flat).mul_(rate(self.config, self.top, t, self.epochs))
        if not self.uniform:
            change.mul_(self.factors)
        for parameter, part in zip(self.parameters, change.split(self.sizes), strict=True):
            parameter.sub_(part.view_as(parameter))
        return True

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        """Moments, and the count; the parameters belong to their modules."""
        tensors, rest = self.moments.state()
        return tensors, {"skipped": self.skipped, "moments": rest}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.skipped = int(str(rest["skipped"]))
        inner = rest["moments"]
        assert isinstance(inner, dict)
        self.moments.restore(tensors, inner)
