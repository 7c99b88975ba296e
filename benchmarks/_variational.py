"""Coupled variational Gaussian processes that Cheng & Boots (2017) compare with, on standardised rows: SVI (Hensman et
al. 2013), iVSGPR (Cheng & Boots 2016) and VSGPR (Titsias 2009).

SE-ARD kernel, basis points and hyper-parameters learned with the rest; every method starts at the hyper-parameters with
the best marginal likelihood of thinned rows, where streamgp's own do. With K = LLᵀ, φ = L⁻¹k(Z, x) and q of the
whitened values N(H⁻¹b/σ², H⁻¹), H = I + Λ/σ²:

    SVI       holds Λ and b, and moves them by γ towards (N/B) Σ φφᵀ and (N/B) Σ φy: natural gradients
    iVSGPR    holds P = L⁻ᵀΛL⁻¹ and c = L⁻ᵀb, the natural parameters of the process itself (its B and Ba), and moves
              these so: mirror ascent in the RKHS, which a step on Z, s or ρ leaves where it is
    VSGPR     the collapsed bound of 4,096 rows by L-BFGS, then the best q for all rows

γ and Adam's step decay as the paper's, γ_0 (1 + 0.1 √t)⁻¹; the basis grows by 128 rows of each mini-batch.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from _uci import Split
from scipy.optimize import minimize
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite
from streamgp.evidence.search import Search, thinned
from streamgp.kernels.squared_exponential import correlation
from streamgp.linalg.cholesky import cholesky, log_determinant, whiten

BATCH, GROW, NATURAL, ADAM = 1024, 128, 0.1, 0.01
COLLAPSED, EVIDENCE = 4096, 400
JITTER = 1e-6


class Belief(NamedTuple):
    """q on held-out rows, in units of the standardised target.

    Attributes:
        mean, latent: (N,) of the function.
        noise: variance of an observation around it.
        kl: KL[q ‖ p], nats.
    """

    mean: Tensor
    latent: Tensor
    noise: float
    kl: float


class Score(NamedTuple):
    """seconds: of CPU. nmse: mean squared error over the variance of the held-out targets. bound: VLB a row (nats, the
    expected log-likelihood of held-out rows less KL/N). nlpd: nats. coverage: of the 95 % band."""

    seconds: float
    nmse: float
    bound: float
    nlpd: float
    coverage: float


class Standard(NamedTuple):
    """Rows by the mean and deviation of those to learn: x (N, d), y (N,), held (n, d), truth (n,)."""

    x: Tensor
    y: Tensor
    held: Tensor
    truth: Tensor


def standard(rows: Split) -> Standard:
    """Standardised."""
    centre, scale = rows.x.mean(0), rows.x.std(0).clamp(min=1e-9)
    level, size = rows.y.mean(), rows.y.std()
    x, held = (rows.x - centre) / scale, (rows.held - centre) / scale
    return Standard(x, ((rows.y - level) / size)[:, 0], held, ((rows.truth - level) / size)[:, 0])


def score(belief: Belief, truth: Tensor, rows: int, seconds: float) -> Score:
    """Of held-out truth (n,); rows: N that were learned."""
    error, total = truth - belief.mean, belief.latent + belief.noise
    fit = -0.5 * (math.log(2.0 * math.pi * belief.noise) + (error.square() + belief.latent) / belief.noise)
    nlpd = 0.5 * (torch.log(2.0 * math.pi * total) + error.square() / total)
    inside = (error.abs() < 1.959964 * total.sqrt()).double().mean()
    nmse = error.square().mean() / truth.var()
    return Score(seconds, float(nmse), float(fit.mean()) - belief.kl / rows, float(nlpd.mean()), float(inside))


class Hyper(NamedTuple):
    """Logarithms: lengthscales (d,), ρ², σ²."""

    lengthscale: Tensor
    outputscale: Tensor
    noise: Tensor


def begin(rows: Standard) -> Hyper:
    """Of thinned rows, as streamgp's own methods start."""
    some = thinned(len(rows.y), 1, EVIDENCE, rows.x.device)
    width = rows.x.shape[1]
    groups, ones = torch.arange(width), torch.ones(width, dtype=FLOAT)
    found = Search(width, once=True).run(rows.x[some], rows.y[some, None], groups, ones, ones[:1])
    return Hyper(found.lengthscale, found.outputscale, found.noise)


def gaussian_kl(mean: Tensor, root: Tensor) -> Tensor:
    """KL[N(μ, H⁻¹) ‖ N(0, I)], H = root rootᵀ (M, M), μ (M,)."""
    eye = torch.eye(len(root), dtype=FLOAT)
    return 0.5 * (mean.square().sum() + whiten(root, eye).square().sum() - len(root) + log_determinant(root))


class Coupled(nn.Module):
    """SVI, or iVSGPR with `mirror`. size: M."""

    def __init__(self, hyper: Hyper, width: int, size: int, mirror: bool) -> None:
        super().__init__()
        self.size, self.mirror, self.taken = size, mirror, 0
        self.length = nn.Parameter(hyper.lengthscale.clone())
        self.scale, self.noise = (nn.Parameter(value.clone()) for value in hyper[1:])
        self.points = nn.Parameter(torch.zeros(size, width, dtype=FLOAT))
        self.count = 0
        self.precision, self.moment = torch.zeros(size, size, dtype=FLOAT), torch.zeros(size, dtype=FLOAT)
        self.adam = torch.optim.Adam(self.parameters(), ADAM)

    def grow(self, x: Tensor) -> None:
        """Rows (k, d) become points: Λ, or P, is 0 there, so that q stays."""
        new = min(len(x), self.size - self.count)
        self.points.data[self.count : self.count + new] = x[:new]
        self.count += new

    def factors(self) -> tuple[Tensor, Tensor]:
        """L (m, m), and the points over the lengthscales."""
        scaled = self.points[: self.count] / self.length.exp()
        return cholesky(self.scale.exp() * correlation(scaled, scaled), first=JITTER).lower, scaled

    def whitened(self, lower: Tensor) -> tuple[Tensor, Tensor]:
        """Λ and b."""
        m = self.count
        precision, moment = self.precision[:m, :m], self.moment[:m]
        return (lower.T @ precision @ lower, lower.T @ moment) if self.mirror else (precision, moment)

    def believe(self, half: Tensor, precision: Tensor, moment: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and latent variance (N,) of rows with φ = half (m, N), and KL."""
        noise = self.noise.detach().exp()
        root = cholesky(torch.eye(len(half), dtype=FLOAT) + precision / noise, first=0.0).lower
        mean = torch.cholesky_solve(moment[:, None] / noise, root)[:, 0]
        spread = self.scale.exp() - half.square().sum(0) + whiten(root, half).square().sum(0)
        return half.T @ mean, spread.clamp(min=1e-9), gaussian_kl(mean, root)

    def step(self, x: Tensor, y: Tensor, rows: int) -> None:
        """x: (B, d), y: (B,), of N rows."""
        self.grow(x[:GROW])
        decay = 1.0 / (1.0 + 0.1 * math.sqrt(self.taken))
        lower, scaled = self.factors()
        half = whiten(lower, self.scale.exp() * correlation(scaled, x / self.length.exp()))
        mean, latent, kl = self.believe(half, *self.whitened(lower))
        fit = -0.5 * (self.noise + ((y - mean).square() + latent) / self.noise.exp()).mean()
        self.adam.param_groups[0]["lr"] = decay * ADAM
        self.adam.zero_grad()
        (kl / rows - fit).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            towards = torch.linalg.solve_triangular(lower.T, half, upper=True) if self.mirror else half
            rate, share, m = decay * NATURAL, rows / len(y), self.count
            self.precision[:m, :m].lerp_(share * (towards @ towards.T), rate)
            self.moment[:m].lerp_(share * (towards @ y), rate)
        self.adam.step()
        self.taken += 1

    @torch.no_grad()
    def belief(self, held: Tensor) -> Belief:
        """q at held-out rows (n, d)."""
        lower, scaled = self.factors()
        half = whiten(lower, self.scale.exp() * correlation(scaled, held / self.length.exp()))
        mean, latent, kl = self.believe(half, *self.whitened(lower))
        return Belief(mean, latent, float(self.noise.exp()), float(kl))


def stochastic(rows: Standard, marks: Sequence[float], size: int, mirror: bool) -> Iterator[Score]:
    """SVI or iVSGPR, scored at each of the marks, in CPU-seconds; scoring is not counted."""
    torch.manual_seed(0)
    began = time.process_time()
    model = Coupled(begin(rows), rows.x.shape[1], min(size, len(rows.y)), mirror)
    due = sorted(marks)
    while due:
        for chosen in torch.randperm(len(rows.y)).split(BATCH):
            model.step(rows.x[chosen], rows.y[chosen], len(rows.y))
            spent = time.process_time() - began
            if spent >= due[0]:
                yield score(model.belief(rows.held), rows.truth, len(rows.y), spent)
                due = [mark for mark in due if mark > spent]
                began = time.process_time() - spent
            if not due:
                return


def collapsed(x: Tensor, y: Tensor, points: Tensor, hyper: Hyper) -> Tensor:
    """log N(y | 0, Q + σ²I) − tr(K − Q)/2σ² (Titsias 2009). x: (N, d), y: (N,), points: (M, d). O(N M²)."""
    scaled, noise, scale = points / hyper.lengthscale.exp(), hyper.noise.exp(), hyper.outputscale.exp()
    lower = cholesky(scale * correlation(scaled, scaled), first=JITTER).lower
    half = whiten(lower, scale * correlation(scaled, x / hyper.lengthscale.exp()))
    root = cholesky(torch.eye(len(points), dtype=FLOAT) + half @ half.T / noise, first=0.0).lower
    short = whiten(root, (half @ y)[:, None]) / noise
    slack = (len(y) * scale - half.square().sum()) / noise
    spread = log_determinant(root) + len(y) * (math.log(2.0 * math.pi) + hyper.noise)
    return -0.5 * (y.square().sum() / noise - short.square().sum() + spread + slack)


class _Over(Exception):
    """The time is over."""


def batch(rows: Standard, marks: Sequence[float], size: int) -> Iterator[Score]:
    """VSGPR, scored as `stochastic`; the time of the closed form on all rows is counted."""
    generator, width = torch.Generator().manual_seed(0), rows.x.shape[1]
    began, hyper = time.process_time(), begin(rows)
    some = torch.randperm(len(rows.y), generator=generator)[:COLLAPSED]
    x, y, size = rows.x[some], rows.y[some], min(size, len(some))
    start = torch.cat((hyper.lengthscale, torch.stack(hyper[1:]), x[:size].flatten()))
    due, best = sorted(marks), [math.inf, start]
    found = list[Score]()

    def unpack(packed: Tensor) -> tuple[Hyper, Tensor]:
        return Hyper(packed[:width], packed[width], packed[width + 1]), packed[width + 2 :].view(size, width)

    def judged(packed: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal began, due
        spent = time.process_time() - began
        if spent >= due[0] and math.isfinite(best[0]):
            belief = settled(rows, *unpack(best[1]))
            spent, paused = time.process_time() - began, time.process_time()
            found.append(score(belief, rows.truth, len(rows.y), spent))
            due = [mark for mark in due if mark > spent]
            began += time.process_time() - paused
        if not due:
            raise _Over
        here = torch.tensor(packed, dtype=FLOAT, requires_grad=True)
        try:
            parts = unpack(here)
            value = -collapsed(x, y, parts[1], parts[0]) / len(y)
            (slope,) = torch.autograd.grad(value, here)
        except NotPositiveDefinite:
            return 1e10, np.zeros_like(packed)
        reached = float(value.detach())
        if reached < best[0]:
            best[:] = reached, here.detach().clone()
        return reached, slope.numpy()

    with contextlib.suppress(_Over):
        minimize(judged, start.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": 10_000, "maxfun": 100_000})
    if due:
        belief = settled(rows, *unpack(best[1]))
        found.append(score(belief, rows.truth, len(rows.y), time.process_time() - began))
    yield from found


@torch.no_grad()
def settled(rows: Standard, hyper: Hyper, points: Tensor) -> Belief:
    """The best q of all rows for these points (M, d)."""
    scaled, noise, scale = points / hyper.lengthscale.exp(), hyper.noise.exp(), hyper.outputscale.exp()
    lower = cholesky(scale * correlation(scaled, scaled), first=JITTER).lower

    def features(x: Tensor) -> Tensor:
        return whiten(lower, scale * correlation(scaled, x / hyper.lengthscale.exp()))

    outer, moment = torch.zeros_like(lower), lower.new_zeros(len(lower))
    for x, y in zip(rows.x.split(COLLAPSED), rows.y.split(COLLAPSED), strict=True):
        half = features(x)
        outer += half @ half.T
        moment += half @ y
    root = cholesky(torch.eye(len(lower), dtype=FLOAT) + outer / noise, first=0.0).lower
    mean, half = torch.cholesky_solve(moment[:, None] / noise, root)[:, 0], features(rows.held)
    latent = (scale - half.square().sum(0) + whiten(root, half).square().sum(0)).clamp(min=1e-9)
    return Belief(half.T @ mean, latent, float(noise), float(gaussian_kl(mean, root)))
