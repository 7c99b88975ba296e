"""Where searches for hyper-parameters start: scales read off the data, and draws around them.

The marginal likelihood has several maxima: short lengthscales with little noise explain few rows as well as long ones
with much, and a period's multiples fit nearly as well as the period. So a search starts more than once.

    lengthscales    log ℓ_g ~ N(log √G s_g, 1), s_g² the summed variance of group g's columns in the kernel's units:
                    rows at a typical distance correlate, however many groups there are
    on a circle     log ℓ_g ~ N(½ log W + what was given, 1): no unit, and W circles add up
    periods         log-uniform, from two typical spacings of the rows to their range
    noise           log σ² uniform from log 0.001 to log 1, of targets of unit variance
    anything else   N(what was given, 1) in logarithms
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT
from streamgp.kernels import Stationary, Tied

NOISE = (math.log(1e-3), 0.0)
"""Between which log σ² of a draw lies."""


def centres(kernel: Tied, x: Tensor) -> dict[str, Tensor]:
    """What the data says of each hyper-parameter, in logarithms; as given where it says nothing.

    Args:
        kernel: as given.
        x: (n, W)

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = Tied(squared_exponential.Config(), torch.tensor([0, 0, 1, 2]))
        >>> x = torch.tensor([[-1.0], [1.0]]).double().expand(2, 4) / 2**0.5
        >>> [round(value, 6) for value in centres(kernel, x)["log_lengthscale"].exp().tolist()]  # √3
        [1.732051, 1.732051, 1.732051]
    """
    found = {name: value.detach().clone() for name, value in kernel.named_parameters()}
    spread = _spread(kernel, x)
    for path, part in kernel.whole.named_modules():
        if not isinstance(part, Stationary):
            continue
        prefix = f"{path}." if path else ""
        circle = "log_lengthscale" if not part.spatial else "log_pattern_lengthscale"
        if part.spatial:
            found[f"{prefix}log_lengthscale"] = (math.sqrt(len(spread)) * spread).log()
        if prefix + circle in found:
            found[prefix + circle] += 0.5 * math.log(kernel.dims)
    return found


def draw_start(kernel: Tied, x: Tensor, columns: int, generator: Generator) -> tuple[dict[str, Tensor], Tensor]:
    """One more start: the logarithms of the hyper-parameters, and (columns,) of the noise; see the module.

    Args:
        kernel: as given.
        x: (n, W)
        columns: T.
        generator: on the CPU.
    """
    z, found = kernel.scaled(x), dict[str, Tensor]()
    for name, centre in centres(kernel, x).items():
        if name.rpartition(".")[2] == "log_period":
            low, high = _periods(kernel, z)
            share = torch.rand(centre.shape, generator=generator, dtype=FLOAT).to(centre.device)
            found[name] = low + share * (high - low)
        else:
            found[name] = centre + torch.randn(centre.shape, generator=generator, dtype=FLOAT).to(centre.device)
    share = torch.rand((), generator=generator, dtype=FLOAT)
    noise = (NOISE[0] + share * (NOISE[1] - NOISE[0])).expand(columns).clone()
    return found, noise.to(x.device)


def _spread(kernel: Tied, x: Tensor) -> Tensor:
    """(G,) s_g; 1 where a group never varies."""
    variance = kernel.scaled(x).var(0, correction=1 if len(x) > 1 else 0)
    summed = torch.zeros_like(kernel.unit).index_add_(0, kernel.groups, variance)
    return torch.where(summed > 1e-12, summed, 1.0).sqrt()


def _periods(kernel: Tied, z: Tensor) -> tuple[Tensor, Tensor]:
    """(G,), (G,): logarithms of two spacings and of the range, of each group's widest column."""
    span = z.amax(0) - z.amin(0)
    widest = torch.zeros_like(kernel.unit).scatter_reduce_(0, kernel.groups, span, "amax")
    widest = torch.where(widest > 0, widest, 1.0)
    return (widest * min(1.0, 2.0 / max(len(z) - 1, 1))).log(), widest.log()
