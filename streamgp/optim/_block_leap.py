"""A step of a block solver on all features at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.optim._conjugate_sweeps import TINY, Move
from streamgp.optim.block_rows import Rows, thin

if TYPE_CHECKING:
    from streamgp.optim.block_solver import BlockSolver


@torch.no_grad()
def leap(solver: BlockSolver, rows: Rows, factor: Tensor, done: Move | None) -> None:
    """Take it with the best length, and add it to what was `done`. factor: (m, m) lower triangular, of any P."""
    used, prior, spans = slice(0, solver.features.size), solver.prior, list(solver.features.spans())
    keep = len(rows.target) * solver.features.size * solver.dtype.itemsize <= solver.config.memory
    bent = solver.bent[used] if prior.dense else prior.times(solver.mu[used])
    pull = rows.weigh(rows.residual).to(solver.dtype)
    pulls = [thin(solver.features_of(rows, b, keep=keep).mT, pull) for b in range(len(spans))]
    slope = torch.cat(pulls).to(FLOAT) - solver.noise * bent
    step = torch.cholesky_solve(slope.to(factor.dtype), factor).to(solver.dtype)
    image = torch.zeros_like(rows.residual)
    for b, span in enumerate(spans):
        image += thin(solver.features_of(rows, b, keep=keep), step[span])
    step = step.to(FLOAT)
    bow = prior.times(step)
    curvature = (rows.weigh(image) * image).sum(0) + solver.noise * (bow * step).sum(0)
    length = (step * slope).sum(0) / curvature.clamp(min=TINY)
    step, image, bow = step * length, image * length, bow * length
    solver.gain += (step * slope).sum(0) / solver.noise
    solver.mu[used] += step
    rows.residual -= image
    if prior.dense:
        solver.bent[used] += bow
    if done is not None:
        done.mu.add_(step)
        done.image.add_(image)
        if prior.dense:
            done.bent.add_(bow)
