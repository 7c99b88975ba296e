"""Finite features for the tests: rows on which F is far from I, partitions, and estimates added up over them."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from streamgp.base import FLOAT
from streamgp.objectives.finite_evidence import Statistics, regularised, ridge, statistics
from streamgp.optim.finite_head import Estimator, FiniteHead


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
