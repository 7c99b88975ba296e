"""Rows of a batch that a QSGP does not learn from: they tell the noise, of which a large basis leaves too little."""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.models.qsgp.engine import Engine, Lesson
from streamgp.models.qsgp.sites import ENOUGH, Sites

HELD, MOST = 20, 1000
"""One row in so many is held out in batch, at most so many of them."""
LATENT = 200
"""Held-out rows whose own variance is looked at."""


def shares(rows: int, sites: Sites | None, seed: int) -> Tensor:
    """(N,) 1, and 0 for the rows that a batch does not learn from; none of them without sites.

    None is held out where the noise is not judged by them: with a likelihood that judges none, or with fewer than the
    `ENOUGH` that it asks for.
    """
    share, held = torch.ones(rows, dtype=FLOAT), min(rows // HELD, MOST)
    if sites is not None and type(sites).judge is not Sites.judge and held >= ENOUGH:
        share[torch.randperm(rows, generator=torch.Generator().manual_seed(seed))[:held]] = 0.0
    return share


def enough(lesson: Lesson) -> bool:
    """Whether none is held out, or enough of the rows that the engine looks at: some look at few."""
    count = int((lesson.share == 0).sum())
    return not count or count >= ENOUGH


def judge(engine: Engine, lesson: Lesson) -> None:
    """The noise by what is held out, if anything is."""
    held = lesson.share == 0
    if bool(held.any()):
        error = (lesson.y - lesson.fitted)[held]
        latent = engine.variance(lesson.x[held][:LATENT]).mean().to(FLOAT)
        engine.sites.judge(error, latent.expand(len(error)), 0.0)
