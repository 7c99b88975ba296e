"""Squared error on rows held out, of a Gaussian process fitted to the others: hold-out and K folds.

    l(θ) = Σ_t ‖y_V,t − K_VT z_t‖²,   C_t z_t = y_T,t,   C_t = K_TT + σ_t² I

(Xu et al. 2019, equations (7) to (10) and (15)). T in the subscript is the fitted rows, V those held out; the columns
t share the kernel and have their own noise. A departure: the unit matrix of (8) is printed without its size, n_T.

l does not change when all variances, σ_t² among them, are multiplied by one factor: only z does. So l says nothing
of how large variances are; `rescale` sets them afterwards to where the marginal likelihood of the fitted rows is the
largest, c_t = y_T,tᵀ z_t/n_T, for free.

`fold` has l and its gradient by matrix-vector products alone, O(n²) and in bounded memory.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Generator, Tensor

from streamgp.errors import UsageError
from streamgp.kernels import Kernel, Tied

Arrangement: TypeAlias = Literal["random", "contiguous"]
"""How rows are held out: anywhere, or in spans of the order in which they came."""


class Partition(NamedTuple):
    """Rows that are fitted and rows that are held out, disjoint and in order.

    Attributes:
        train: (n_T,) int64.
        validation: (n_V,) int64.
    """

    train: Tensor
    validation: Tensor


def splits(n: int, folds: int, holdout: float, arrangement: Arrangement, generator: Generator) -> list[Partition]:
    """Ways to hold rows out: one part of the rows once, or each of K parts in turn.

    Args:
        n: rows.
        folds: K; 1 is hold-out.
        holdout: part of the rows that hold-out leaves for validation; K folds do not look at it.
        arrangement: anywhere, or in spans; hold-out then takes the last rows.
        generator: of the random one.

    Raises:
        UsageError: so few rows that a part is empty.

    Example:
        >>> fold = splits(6, 3, 0.5, "contiguous", torch.Generator())[0]
        >>> fold.train.tolist(), fold.validation.tolist()
        ([2, 3, 4, 5], [0, 1])
        >>> splits(4, 1, 0.25, "contiguous", torch.Generator())[0].validation.tolist()
        [3]
    """
    order = torch.randperm(n, generator=generator) if arrangement == "random" else torch.arange(n)
    held = round(holdout * n)
    parts = order.tensor_split(folds) if folds > 1 else (order[n - held :],)
    if not all(0 < len(part) < n for part in parts):
        raise UsageError(
            f"{n} rows cannot be split into {folds} folds, a part of {holdout:g} held out",
            hint="give more rows, fewer folds, or another part",
        )
    everything = torch.ones(n, dtype=torch.bool)
    return [Partition(everything.index_fill(0, part, False).nonzero()[:, 0], part.sort().values) for part in parts]


@torch.no_grad()
def rescale(kernel: Kernel, factor: float, x: Tensor) -> None:
    """Multiply all covariances of a kernel by `factor`, in place; the noise is yours to multiply.

    Args:
        kernel: that says which of its hyper-parameters are variances (`Kernel.units`).
        factor: > 0.
        x: (n, D) a few rows, on which it is seen whether that went well.

    Raises:
        UsageError: it did not; the kernel is as it was.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(outputscale=3.0), 1)
        >>> rescale(kernel, 2.0, torch.zeros(1, 1).double())
        >>> round(kernel.outputscale.item(), 9)
        6.0
    """
    asked = kernel.whole if isinstance(kernel, Tied) else kernel
    named, before = dict(kernel.named_parameters()), kernel(x, x)
    kept = {name: value.clone() for name, value in named.items()}
    for name, unit in asked.units.items():
        named[name].add_(0.0 if unit is None else math.log(factor) * unit.output)
    if not torch.allclose(kernel(x, x), factor * before, rtol=1e-6, atol=1e-9 * float(before.abs().max())):
        for name, value in kept.items():
            named[name].copy_(value)
        raise UsageError(
            f"{type(asked).__name__} does not say which of its hyper-parameters are variances",
            hint="use a kernel with an outputscale, and let its `units` say so",
        )
