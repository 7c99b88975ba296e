"""Hyper-parameters of a radial kernel by SCGD on all kept rows, in the place of L-BFGS or Adam on a thinned few.

    φ(x) = √(ρ²/P) [cos Ω u, sin Ω u],   u = x e^(−log ℓ_g)/√s_g,   Ω (P, W) drawn from the kernel's spectral density
    min over log ℓ, log ρ², log σ² of   NLML + ½ Σ_g (log ℓ_g − 1)²

NLML is that of regression on φ (`objectives.finite_evidence`), stepped on by mini-batches with SCGD's moving average
(Shoham & Avron, section 3.2); w is solved for before each epoch, from the sums of all rows. The prior is that of
`evidence.thinned`. One noise for all columns: the geometric mean of theirs.

Cost for n rows: an epoch O(n d²) for the sums and n/|b| steps of O(|b| d² + d³/8), d = 2P, against O(m³) an evaluation
on m thinned rows. Memory O(|b| d + d²).

Departure: rows enter as they are given; windows that overlap are not independent, so the caller thins them in time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite
from streamgp.evidence.search import ADAM, Strategy, Way
from streamgp.evidence.thinned import BOUND, CLEAR, LENGTHSCALE, Evaluation, LogHyper, Profile
from streamgp.features.fourier import standard_normals
from streamgp.kernels import Stationary
from streamgp.linalg.cholesky import cholesky, log_determinant
from streamgp.objectives.finite_evidence import Statistics, best_weights, regularised, ridge
from streamgp.training.descent import batches_of
from streamgp.training.finite_descent import FiniteDescent, FiniteDescentConfig
from streamgp.training.finite_head import FiniteHead

PAIRS, EPOCHS, FURTHER = 128, 12, 4
"""Frequencies; epochs at first, and from hyper-parameters that were found before."""
STEPS = 8
"""Mini-batches of an epoch, at least: few rows are cut into smaller ones."""
DESCENT = FiniteDescentConfig(batch=256, rate=5e-2, weights_rate=1e-2, noise_rate=2e-2, b=0.1)


class Radial(nn.Module):
    """φ with the hyper-parameters that are learned.

    Args:
        kernel: whose spectral density Ω is drawn from; its own hyper-parameters are left out of it.
        groups: (W,) the group of each column.
        begin: where the hyper-parameters start.
        pairs: P.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), 1)
        >>> begin = LogHyper.start(1, 0.0)
        >>> phi = Radial(kernel, torch.zeros(1, dtype=torch.int64), begin, 500)(torch.tensor([[0.0], [1.0]]).double())
        >>> [round(value, 1) for value in (phi @ phi.T)[0].tolist()]  # 1, exp(−½)
        [1.0, 0.6]
    """

    rate: Tensor
    groups: Tensor
    root: Tensor

    def __init__(self, kernel: Stationary, groups: Tensor, begin: LogHyper, pairs: int) -> None:
        super().__init__()
        normals, place = standard_normals(0, 0, pairs, kernel.normals), torch.arange(pairs)
        with torch.no_grad():
            scaled = kernel.frequencies(normals, place).rate.detach().cpu()
            unit = scaled * kernel.log_lengthscale.detach().cpu().exp()
        self.register_buffer("rate", unit.to(begin.lengthscale))
        self.register_buffer("groups", groups)
        self.register_buffer("root", torch.bincount(groups).to(FLOAT).sqrt()[groups])
        self.log_lengthscale = nn.Parameter(begin.lengthscale.clone())
        self.log_outputscale = nn.Parameter(begin.outputscale.clone())

    def forward(self, x: Tensor) -> Tensor:
        """(n, W) -> (n, 2P)"""
        unit = x * ((-self.log_lengthscale).exp()[self.groups] / self.root)
        phase = unit @ self.rate.T
        height = (0.5 * self.log_outputscale).exp() / len(self.rate) ** 0.5
        waves: Tensor = torch.cat([phase.cos(), phase.sin()], 1) * height
        return waves


def negative_evidence(data: Statistics, noise: Tensor) -> float:
    """½(l + TN log 2π) at the best w, in nats, summed over columns. noise: (T,)."""
    kappa = ridge(noise)
    lower = cholesky(regularised(data.gram, kappa), first=0.0).lower
    residuals = data.squares - (data.cross * best_weights(data, noise)).sum(0)
    fit = residuals / noise + data.rows * (noise.log() + math.log(2.0 * math.pi))
    return float(0.5 * (fit.sum() + len(noise) * (log_determinant(lower) - len(lower) * kappa.log())))


def descend(kernel: Stationary, x: Tensor, y: Tensor, groups: Tensor, begin: LogHyper, epochs: int) -> Evaluation:
    """So many epochs from one start.

    Args:
        kernel: see `Radial`.
        x, y: (n, W), (n, T) standardised, none missing.
        groups: (W,)
        begin: from where.
        epochs: passes over the rows.

    Returns:
        the last hyper-parameters, with the mean over columns of the penalised negative log evidence of all rows.

    Raises:
        NotPositiveDefinite: the rows are not finite.
    """
    columns = y.shape[1]
    features, head = Radial(kernel, groups, begin, PAIRS), FiniteHead(2 * PAIRS, columns, 0.1, 0.0).to(x.device)
    with torch.no_grad():
        head.log_noise.fill_(float(begin.noise))
    batch = max(min(DESCENT.batch, len(x) // STEPS), 1)
    driver = FiniteDescent(features, head, DESCENT.model_copy(update={"batch": batch}), epochs)
    generator, steps = torch.Generator().manual_seed(0), batches_of(len(x), batch)
    for _ in range(epochs):
        with torch.no_grad():
            head.weights.copy_(best_weights(driver.statistics(x, y), head.noise))
        driver.epoch(x, y, generator)
        if not driver.healthy:
            raise NotPositiveDefinite(
                "a step of SCGD on the hyper-parameters is not finite", hint="look for huge values in the inputs"
            )
        with torch.no_grad():  # the prior's part of these steps: its maximum is pulled to once an epoch
            pull = min(DESCENT.rate * steps / (len(x) * columns), 0.5)
            features.log_lengthscale.lerp_(torch.full_like(features.log_lengthscale, LENGTHSCALE), pull)
            for parameter in (features.log_lengthscale, features.log_outputscale, head.log_noise):
                parameter.clamp_(-BOUND, BOUND)
    with torch.no_grad():
        length, height = features.log_lengthscale.detach().clone(), features.log_outputscale.detach().clone()
        noise = head.noise.log().mean()
        value = negative_evidence(driver.statistics(x, y), head.noise) / columns
        value += 0.5 * float((length - LENGTHSCALE).square().sum())
    if not math.isfinite(value):
        raise NotPositiveDefinite("the evidence of the rows has no value", hint="look for huge values in the inputs")
    return Evaluation(LogHyper(length, height, noise), value)


def by_scgd(kernel: Stationary) -> Strategy:
    """The search of hyper-parameters of this kernel that `evidence.search.Search` takes."""

    def method(
        x: Tensor, y: Tensor, groups: Tensor, starts: Sequence[tuple[LogHyper, int]], *, profile: Profile
    ) -> Evaluation:
        del profile
        tried = list[Evaluation]()
        for begin, epochs in starts:
            tried.append(descend(kernel, x, y, groups, LogHyper.unpack(begin.pack().to(x)), epochs))
            if tried[-1].hyper.signal >= CLEAR:
                break
        return min(tried, key=lambda one: one.value)

    return method


def way(kernel: Stationary) -> Way:
    """See `evidence.search.Way`."""
    return Way(by_scgd(kernel), ADAM.starts, EPOCHS, FURTHER)
