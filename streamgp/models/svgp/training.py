"""Training of an SVGP by mini-batches: natural gradients for q, Adam for kernel, inducing inputs, encoder and noise.

A step takes the features of a mini-batch and the head's terms of them, moves kernel, inducing inputs, encoder
and noise by the gradient at the q of now (in closed form but for the kernel function, `objectives.sparse`), and q by
its natural gradient. q is whitened, so that it stays near its best while these move.

The large products of a step may be made in float32; factors, sums and everything that predicts are float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from streamgp.encoders import Dropout
from streamgp.errors import NumericalError
from streamgp.models.svgp.config import SvgpTrainingConfig
from streamgp.models.svgp.head import BatchTerms, Part, VariationalHead
from streamgp.models.svgp.prior import SparsePrior
from streamgp.objectives.sparse import Belief, KernelGradient, kernel_gradient
from streamgp.state import Declared, Value, Whole
from streamgp.training.adam import RowAdam

NATURAL_RATE = 0.1
"""Step size of the natural gradient; 1 forgets all but the mini-batch."""
ENCODER_RATE = 0.1
"""Factor on the step size of the encoder's weights: q and the kernel follow them."""
PRECISION = torch.float32
"""Of the large products in a step, which it halves; factors and what predicts are float64."""
LARGEST = 12.0
"""Of a logarithm: hyper-parameters stay within e^±12 standardised units, so that their powers do not overflow."""


class Training(Declared):
    """Moves a prior and a head; Stateful. What it trains belongs to these.

    Args:
        prior: kernel, encoder and inducing inputs.
        head: q and the noise.
        config: of the steps.
    """

    STATE = (Value("frozen", bool), Whole("adam"))

    def __init__(self, prior: SparsePrior, head: VariationalHead, config: SvgpTrainingConfig) -> None:
        self.prior, self.head, self.config = prior, head, config
        self.frozen = False  # whether the kernel's hyper-parameters stay
        self.forget()

    def forget(self) -> None:
        """Forget the moments of Adam."""
        self.adam = RowAdam(self._parameters(), self._rates())

    def _parameters(self) -> dict[str, nn.Parameter]:
        return {
            **{f"prior.{name}": value for name, value in self.prior.named_parameters()},
            **{f"head.{name}": value for name, value in self.head.named_parameters()},
        }

    def _rates(self) -> dict[str, float]:
        return {name: ENCODER_RATE for name in self._parameters() if name.startswith("prior.encoder.")}

    def step(self, z: Tensor, y: Tensor, weight: Tensor, generator: Generator) -> float:
        """One mini-batch: (b, W) standardised windows, (b, T) targets, (b,) weights, scaled to all rows.

        Returns:
            the ELBO's estimate, all rows together.

        Raises:
            NumericalError: K_ZZ or the ELBO is not finite; nothing was changed.
        """
        covariances = self.prior.covariances(z, Dropout(generator))
        m = int(self.prior.count)
        with torch.no_grad():
            inverse = self.prior.whitening(covariances.gram).to(PRECISION)
            phi = covariances.cross.to(inverse.dtype) @ inverse.T
            belief = self.head.belief().leading(m, inverse.dtype)
            terms = self.head.terms(Part(phi, covariances.diagonal, y, weight), belief)
            value = float(terms.value - belief.divergence())
            if not math.isfinite(value):
                raise NumericalError("the ELBO is not finite", hint="lower training.rate")
            slopes = _slopes(inverse, phi, belief, terms)
        named = dict(self.prior.named_parameters())
        # a scalar: with tensors for gradients PyTorch first loads symbolic shapes, which takes longer than many steps
        surrogate = torch.stack([(one * slope).sum() for one, slope in zip(covariances, slopes, strict=True)]).sum()
        found = torch.autograd.grad(surrogate, list(named.values()), allow_unused=True)
        total = float(weight.sum())
        gradients = {f"prior.{n}": -g / total for n, g in zip(named, found, strict=True) if g is not None}
        if self.frozen:
            gradients = {name: slope for name, slope in gradients.items() if not name.startswith("prior.kernel.")}
        gradients |= {f"head.{name}": -slope / total for name, slope in terms.own.items()}
        if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients.values()):
            raise NumericalError("a gradient of the ELBO is not finite", hint="lower training.rate")
        self.adam.step(gradients, self.config.rate)
        with torch.no_grad():
            for name, value_ in self.adam.parameters.items():
                if ".log_" in name:
                    value_.clamp_(-LARGEST, LARGEST)
        self.head.natural.step(terms.outer, terms.moment, NATURAL_RATE)
        return value

    def steps(self, z: Tensor, y: Tensor, weight: Tensor, generator: Generator, count: int | None = None) -> float:
        """Mini-batches of all rows in random order, an epoch or `count` of them; returns the mean ELBO's estimate.

        Raises:
            NumericalError: see `step`; the steps before are taken.
        """
        rows, size, values = len(y), min(self.config.batch, len(y)), list[float]()
        left = max(round(rows / size), 1) if count is None else count
        while left > 0:
            order = torch.randperm(rows, generator=generator).to(z.device)
            for chosen in order.split(size)[: min(left, max(rows // size, 1))]:
                scale = rows / len(chosen)
                values.append(self.step(z[chosen], y[chosen], scale * weight[chosen], generator))
                left -= 1
        return sum(values) / max(len(values), 1)

    def move(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Follow parameters that `fn` was applied to, to another device for instance."""
        self.adam.move(self._parameters(), fn)


def _slopes(inverse: Tensor, phi: Tensor, belief: Belief, terms: BatchTerms) -> KernelGradient:
    """In float64, made in the dtype of the features."""
    kind = phi.dtype
    slopes = kernel_gradient(inverse, phi, belief, terms.slope.to(kind), terms.curve.to(kind), terms.bent.to(kind))
    return KernelGradient(*(slope.double() for slope in slopes))
