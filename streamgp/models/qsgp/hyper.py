"""Hyper-parameters of a QSGP: by evidence, and for outcomes of 0 and 1 the height of their function by trial.

Outcomes are taken for a regression on −1 and 1 where lengthscales are concerned, with lengthscales that differ little
from one another: with free ones it overfits. That regression does not determine the height of a logit. It is the
outputscale under which held-out outcomes are the most probable: averaged over the posterior where predictions are, else
at the mode.

Where predictions are averaged the trial is Laplace's approximation in the space of rows (Rasmussen & Williams 2006,
algorithms 3.1 and 3.2, with rows that stand for several and an offset): in the space of features every height would
take O(n m²) for each Newton step; few rows take O(n³).

Shapes: n rows, N test rows, T columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial, structure
from streamgp.evidence.search import ADAM, Way
from streamgp.evidence.thinned import Evaluation, LogHyper, Profile, choose
from streamgp.evidence.thinned import start as default
from streamgp.linalg.cholesky import cholesky, whiten
from streamgp.models.qsgp.config import Config
from streamgp.models.qsgp.engine import Engine
from streamgp.models.qsgp.features import Candidates
from streamgp.predictives.bernoulli import Bernoulli

FEW = 400
"""Outcomes up to which all of five folds are held out in turn."""
EVALUATIONS, FURTHER = 20, 10
"""Evaluations of the evidence for each kernel, at first and from others."""
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
STEPS, HALVINGS = 50, 20
"""Of Newton's method, and of a step that goes up."""
ENOUGH = 1e-4
"""Logits; a step that changes less is the last."""


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
    kernel.take(_place(initial, kernel))


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
        x: Tensor, y: Tensor, groups: Tensor, starts: Sequence[tuple[LogHyper, int]], *, profile: Profile
    ) -> Evaluation:
        found = choose(x, y, groups, kernel.radial, starts, spread=SPREAD if outcomes else None)
        kernel.take(found.kernel)
        return Evaluation(found.hyper, found.value)

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
    averaged = engine.averaged
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


class Mode(NamedTuple):
    """Attributes:
    slope: (T, n) ∂ log p(y | f)/∂f, so that f = K slope.
    factor: (T, n, n) chol(I + W^½KW^½).
    root: (T, n) W^½.
    """

    slope: Tensor
    factor: Tensor
    root: Tensor


def mode(k: Tensor, y: Tensor, weight: Tensor, offset: Tensor) -> Mode:
    """Where Σ −w log p(y | f) + ½ fᵀK⁻¹f is least.

    Args:
        k: (n, n), float64.
        y: (n, T) 0 and 1, NaN = not observed.
        weight: (n,) how many rows each stands for.
        offset: (T,) added to f.

    Raises:
        NotPositiveDefinite: K is not finite.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> found = mode(one, one, one[0], 0.0 * one[0])
        >>> round(found.slope.item(), 4)  # a = 1 − σ(a)
        0.4011
    """
    side = torch.where(y > 0.5, 1.0, -1.0).mT.to(k)
    weight = (weight[:, None] * torch.isfinite(y)).mT
    truth, shift = torch.where(y > 0.5, 1.0, 0.0).mT.to(k), offset[:, None]

    def value(a: Tensor, f: Tensor) -> Tensor:
        return (weight * torch.nn.functional.softplus(-side * (f + shift))).sum(1) + 0.5 * (a * f).sum(1)

    a = torch.zeros_like(truth)
    f = a @ k
    eye = torch.eye(len(k), dtype=k.dtype, device=k.device)
    for _ in range(STEPS):
        p = torch.sigmoid(f + shift)
        root = (weight * p * (1.0 - p)).sqrt()
        factor = cholesky(eye + root[:, :, None] * k * root[:, None, :], first=0.0).lower
        b = root.square() * f + weight * (truth - p)
        solved = torch.cholesky_solve((root * (b @ k))[:, :, None], factor)[:, :, 0]
        step, before = b - root * solved - a, value(a, f)
        way = step @ k
        length = torch.ones_like(before)[:, None]
        for _ in range(HALVINGS):
            worse = ~(value(a + length * step, f + length * way) <= before + 1e-12 * before.abs())
            if not bool(worse.any()):
                break
            length[worse] *= 0.5
        a, f = a + length * step, f + length * way
        if float((length * way).abs().max()) < ENOUGH:
            break
    p = torch.sigmoid(f + shift)
    root = (weight * p * (1.0 - p)).sqrt()
    factor = cholesky(eye + root[:, :, None] * k * root[:, None, :], first=0.0).lower
    return Mode(weight * (truth - p), factor, root)


def forecast(found: Mode, cross: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Mean, without the offset, and variance of f at test rows, (N, T) both.

    Args:
        cross: (N, n) k(x, rows).
        prior: (N,) k(x, x).
    """
    known = whiten(found.factor, found.root[:, :, None] * cross.mT).square().sum(1)
    return (found.slope @ cross.mT).mT, (prior - known).clamp(min=0.0).mT
