"""Rows of a batch that are held out to estimate the noise: a large basis leaves too little of it in the others."""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.models.qsgp.engine import Engine, TrainingRows
from streamgp.models.qsgp.sites import ENOUGH, Sites

HELD, MOST = 20, 1000
"""One row in so many is held out in batch, at most so many of them."""
LATENT = 200
"""Held-out rows whose latent variance is computed."""


def shares(rows: int, sites: Sites | None, seed: int) -> Tensor:
    """(N,) weights: 1, and 0 for rows that are held out; none of them without sites.

    None is held out where the noise does not depend on them: with a likelihood without noise, or with fewer rows than
    `ENOUGH`.
    """
    share, held = torch.ones(rows, dtype=FLOAT), min(rows // HELD, MOST)
    if sites is not None and type(sites).update_noise is not Sites.update_noise and held >= ENOUGH:
        share[torch.randperm(rows, generator=torch.Generator().manual_seed(seed))[:held]] = 0.0
    return share


def enough(training: TrainingRows) -> bool:
    """Whether none is held out, or enough of the rows that the engine uses: some use few."""
    count = int((training.share == 0).sum())
    return not count or count >= ENOUGH


def noise_by_held_out(engine: Engine, training: TrainingRows) -> None:
    """Estimate the noise by the rows that are held out, if any."""
    held = training.share == 0
    if bool(held.any()):
        error = (training.y - training.fitted)[held]
        latent = engine.variance(training.x[held][:LATENT]).mean().to(FLOAT)
        engine.sites.update_noise(error, latent.expand(len(error)), 0.0)
