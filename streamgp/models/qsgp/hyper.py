"""Hyper-parameters of a QSGP: by evidence, and for outcomes of 0 and 1 the height of their function by trial.

Outcomes are taken for a regression on −1 and 1 where lengthscales are concerned, with lengthscales that differ little
from one another: with free ones it overfits. That regression does not determine the height of a logit. It is the
outputscale under which held-out outcomes are the most probable: averaged over the posterior where predictions are, else
at the mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial, structure
from streamgp.evidence.lbfgs import choose
from streamgp.evidence.lbfgs import start as default
from streamgp.evidence.search import ADAM, Way
from streamgp.evidence.thinned import Estimate, Hyper, Profile
from streamgp.models.qsgp.config import Config
from streamgp.models.qsgp.engine import Engine
from streamgp.models.qsgp.kernel import Candidates
from streamgp.models.qsgp.trial import forecast, mode
from streamgp.predictives.bernoulli import Bernoulli

FEW = 400
"""Rows on which kernels are compared."""
EVALUATIONS, FURTHER = 20, 10
"""Evaluations of the evidence for each kernel, at first and from others; of the chosen one on all rows half of them."""
SPREAD = 0.2
"""Prior standard deviation of log ℓ among the columns of outcomes."""
HEIGHTS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""ρ² of a logit that are tried."""
HEIGHT_SPREAD = math.log(10.0)
"""Prior standard deviation of log ρ² around 0, where predictions are averaged: few outcomes determine it poorly."""
COARSE = (1.0, 10.0, 100.0)
"""Those where a trial takes long."""
TRIAL_ROWS, AVERAGED_ROWS = 2048, 1536
"""Rows of a trial, and of one whose predictions are averaged over the posterior."""


def accept(initial: Initial, config: Config, kernel: Candidates) -> None:
    """See that a model can start from these hyper-parameters, and take the kernel that they are of.

    Raises:
        UsageError: it learns outcomes, or its kernels are others.
    """
    if config.outcomes:
        raise UsageError(
            "the hyper-parameters were tuned for a continuous target; the function of likelihood=logistic is a logit",
            hint="leave out --init",
        )
    initial.radial("qsgp")
    place = _place(initial, kernel)
    kernel.take(place)
    with torch.no_grad():
        for name, value in kernel.radial[place].named_parameters():
            if name not in ("log_lengthscale", "log_outputscale"):  # such as α, which has no unit
                value.copy_(initial.values[name])


def _place(initial: Initial, kernel: Candidates) -> int:
    """Which of the kernels it is that the hyper-parameters are of.

    Raises:
        UsageError: it is none of them.
    """
    wanted = structure(initial.config)
    offered = [structure(config) for config in kernel.configs]
    if wanted not in offered:
        names = ", ".join(str(one["name"]) for one in offered)
        raise UsageError(
            f"the hyper-parameters are those of kernel={wanted['name']}, and this qsgp chooses from {names}",
            hint=f"train with --set kernel={wanted['name']}",
        )
    return offered.index(wanted)


def way(kernel: Candidates, *, outcomes: bool, slowly: bool) -> Way:
    """How hyper-parameters are searched.

    Args:
        kernel: those to choose from; the search takes the one with the best evidence.
        outcomes: whether targets are −1 and 1.
        slowly: take a few steps of Adam for the kernel that is in use, and do not go to where the evidence is best:
            windows that overlap are not independent, and at the best the noise is too low (PJM's load: 92 % of the
            truths in 95 % bands, and 94 % like this).
    """
    if slowly:
        return ADAM

    def method(
        x: Tensor, y: Tensor, groups: Tensor, starts: Sequence[tuple[Hyper, int]], *, profile: Profile
    ) -> Estimate:
        spread = SPREAD if outcomes else None
        tried = [
            choose(x, y, groups, kernel.radial, start, few=FEW, evaluations=count, refine=count // 2, spread=spread)
            for start, count in starts
        ]
        found = min(tried, key=lambda one: one.value)
        kernel.take(found.kernel)
        return Estimate(found.hyper, found.value)

    return Way(method, lambda groups: [default(groups)], EVALUATIONS, FURTHER)


def height(
    engine: Engine, z: Tensor, y: Tensor, share: Tensor, noise: Tensor, about: float | None, *, late: bool
) -> float:
    """The outputscale of a logit under which held-out outcomes are the most probable, by few of the rows.

    Leaves the engine without anything learned.

    Args:
        z, y, share: (R, W), (R, T), (R,) rows of a batch.
        noise: () passed on.
        about: the outputscale before, whose neighbours alone are tried; None tries all.
        late: hold out the last fifth, as of a stream, and not every fifth row.
    """
    averaged = engine.whole
    most = AVERAGED_ROWS if averaged else TRIAL_ROWS
    if len(z) > most:
        some = torch.linspace(0, len(z) - 1, most, device=z.device).round().long()
        z, y, share = z[some], y[some], share[some]
    number = torch.arange(len(z), device=z.device)
    held = number >= 0.8 * len(z) if late else number % 5 == 0
    offered, near = (HEIGHTS, 5.0) if engine.trial > 1 else (COARSE, 20.0)
    tried = [v for v in offered if about is None or about / near < v < about * near]
    scores = []
    if averaged:
        turns = 5 if len(z) <= FEW and not late else 1  # a fifth of few rows is too few
        folds = [number % 5 == turn for turn in range(turns)] if turns > 1 else [held]
        scores = [sum(_averaged(engine, z, y, share, held, noise, v) for held in folds) for v in tried]
        scores = [score + 0.5 * (math.log(v) / HEIGHT_SPREAD) ** 2 for v, score in zip(tried, scores, strict=True)]
    for v in tried if not averaged else ():
        engine.kernel.log_outputscale.fill_(v).log_()
        engine.begin(noise, y)
        training = engine.training_rows(z, y, torch.where(held, 0.0, share))
        for place in range(engine.trial):
            engine.epoch(training, place, engine.trial)
        fitted = engine.mean(z[held]).to(FLOAT)
        weight = share[held, None] * torch.isfinite(y[held])
        scores.append(float(engine.sites.misfit(y[held], fitted, weight).sum()))
    return tried[min(range(len(tried)), key=lambda i: scores[i])]


def _averaged(engine: Engine, z: Tensor, y: Tensor, share: Tensor, held: Tensor, noise: Tensor, v: float) -> float:
    """Σ −w log p of the held-out outcomes, averaged over the posterior of the others under outputscale v."""
    engine.kernel.log_outputscale.fill_(v).log_()
    engine.begin(noise, y)
    offset = engine.sites.offset
    with torch.no_grad():
        k = engine.basis.prior(z[~held], z)
        found = mode(k[:, ~held], y[~held], share[~held] / engine.temper, offset)
        mean, variance = forecast(found, k[:, held].mT, engine.basis.prior_variance(z[held]))
    weight = share[held, None] * torch.isfinite(y[held])
    log_prob = Bernoulli(mean + offset, variance).log_prob(torch.nan_to_num(y[held]))
    return float(-(weight * log_prob).sum())
