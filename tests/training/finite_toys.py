"""Finite features for the tests: rows on which F is far from I, partitions, and estimates added up over them."""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from streamgp.base import FLOAT
from streamgp.linalg.cholesky import cholesky, log_determinant, solve
from streamgp.objectives.finite_evidence import Statistics, regularised, ridge, statistics
from streamgp.training.finite_head import Estimator, FiniteHead


def loss(data: Statistics, weights: Tensor, noise: Tensor) -> Tensor:
    """l(θ) of all rows, differentiable in everything but the rows' number.

    Args:
        weights: (d, T)
        noise: (T,) σ_t², squared units of y.

    Returns:
        () in twice nats, not per row.

    Raises:
        NotPositiveDefinite: F could not be factorised.
    """
    kappa, width = ridge(noise), len(data.gram)
    residuals = data.squares - 2.0 * (weights * data.cross).sum(0) + (weights * (data.gram @ weights)).sum(0)
    shared = cholesky(data.gram + kappa * torch.eye(width, dtype=FLOAT), first=0.0).lower
    fit = (residuals + kappa * weights.square().sum(0)) / noise + data.rows * noise.log()
    return fit.sum() + len(noise) * (log_determinant(shared) - width * kappa.log())


def nlml(data: Statistics, noise: Tensor) -> Tensor:
    """Negative log marginal likelihood of all rows, ½(l + TN log 2π) at the best w; differentiable.

    Returns:
        () in nats, summed over columns. Where the fit is nearly perfect Σy² − ŷ² cancels: about 16 digits less those.

    Raises:
        NotPositiveDefinite: F could not be factorised.

    """
    kappa, width = ridge(noise), len(data.gram)
    lower = cholesky(data.gram + kappa * torch.eye(width, dtype=FLOAT), first=0.0).lower
    residuals = data.squares - (data.cross * solve(lower, data.cross)).sum(0)
    fit = residuals / noise + data.rows * (noise.log() + math.log(2.0 * math.pi))
    return 0.5 * (fit.sum() + len(noise) * (log_determinant(lower) - width * kappa.log()))


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=FLOAT, generator=torch.Generator().manual_seed(seed))


def features(rows: int, width: int, seed: int = 0) -> Tensor:
    """(N, d) features as a network gives them: positive, correlated, of very different sizes."""
    hidden = (normal(rows, 5, seed=seed) @ normal(5, width, seed=seed + 1)).relu()
    return hidden * torch.logspace(-1, 0.5, width, dtype=FLOAT)


def head_of(width: int, columns: int, *, noise: float = 0.3, floor: float = 0.05) -> FiniteHead:
    """A head with weights that are not the best, and another noise for every column."""
    head = FiniteHead(width, columns, noise, floor)
    with torch.no_grad():
        head.weights.copy_(0.5 * normal(width, columns, seed=7))
        head.log_noise.add_(torch.linspace(0.0, 1.0, columns, dtype=FLOAT))
    return head


def problem(rows: int, width: int, columns: int) -> tuple[Tensor, Tensor, FiniteHead, Statistics]:
    """φ, y, head, statistics."""
    phi = features(rows, width)
    y = phi @ normal(width, columns, seed=3) * 0.3 + 0.5 * normal(rows, columns, seed=4)
    return phi, y, head_of(width, columns), statistics([(phi, y)])


def true_rows(phi: Tensor, kappa: Tensor) -> Tensor:
    """(N, d) F⁻¹φ_i, half the gradient of log|F|."""
    out: Tensor = torch.linalg.solve(regularised(phi.T @ phi, kappa), phi.T).T
    return out


def estimated_rows(method: Estimator, phi: Tensor, head: FiniteHead, batch: int, passes: int = 1) -> Tensor:
    """(N, d) Pφ_i of every row from the mini-batch that it was in, over the last of some partitions."""
    kappa, out = ridge(head.noise.detach()), torch.zeros_like(phi)
    generator = torch.Generator().manual_seed(5)
    for _ in range(passes):
        for rows in torch.randperm(len(phi), generator=generator).split(batch):
            out[rows] = method.determinant(phi[rows], kappa, len(phi)).rows
    return out


def network(width: int, size: int, seed: int, dtype: torch.dtype = FLOAT) -> nn.Sequential:
    made = nn.Sequential(nn.Linear(width, 16, dtype=dtype), nn.ReLU(), nn.Linear(16, size, dtype=dtype), nn.Tanh())
    with torch.no_grad():
        for place, p in enumerate(made.parameters()):
            p.copy_(0.5 * normal(*p.shape, seed=seed + place))
    return made


class Live(TorchDispatchMode):
    """Counts the bytes of tensors that are alive among those made under it; workspace of LAPACK is not seen.

    Attributes:
        peak: the most that were alive at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = self.now = 0
        self.holders: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        known = {id(leaf) for leaf in tree_leaves((args, kwargs))}
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and id(leaf) not in known:
                storage = leaf.untyped_storage()
                self.hold(storage.data_ptr(), storage.nbytes(), new=not func.is_view)
                weakref.finalize(leaf, self.release, storage.data_ptr(), storage.nbytes())
        self.peak = max(self.peak, self.now)
        return out

    def hold(self, place: int, size: int, *, new: bool) -> None:
        if place in self.holders:
            self.holders[place] += 1
        elif new:
            self.holders[place] = 1
            self.now += size

    def release(self, place: int, size: int) -> None:
        if place in self.holders:
            self.holders[place] -= 1
            if not self.holders[place]:
                del self.holders[place]
                self.now -= size
