"""Training of finite-dimensional GPs and of their peer SVGP for equal CPU time, scored by the exact evidence.

φ is the perceptron of Shoham & Avron (2025), two layers of 128 rectified units, with the linear kernel, or with the
Gaussian one: random Fourier features of a squared exponential on the 128 outputs, 256 (the paper: 1,000) at
orthogonal frequencies. Inputs and target are
standardised on the rows to learn; what is scored is in the units of the files, as the paper's tables are:

    NLML   (1/2n)[yᵀC⁻¹y + log|C| + n log 2π] over all rows to learn, from ZᵀZ in float64; + log of the target's scale
    RMSE   of the rows held out, with the best w of all rows to learn

Both are those of the evaluation with the least NLML, as in the paper, which says "iteration". Evaluations are evenly
spread over the time, the last at its end, and are not counted in it; nor are imports, or reading the rows.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any, Literal, NamedTuple

import torch
from _finite_svgp import course
from _uci import Split
from torch import Tensor

from streamgp.encoders import Layout, mlp
from streamgp.errors import NumericalError
from streamgp.kernels import linear, squared_exponential
from streamgp.linalg.cholesky import cholesky, log_determinant
from streamgp.models.finite_rkhs.features import FiniteFeatures
from streamgp.models.finite_rkhs.training import FiniteTrainingConfig, descent
from streamgp.objectives.finite_evidence import Statistics, best_weights, regularised, ridge, statistics
from streamgp.training.finite_head import FiniteHead
from streamgp.training.fit import training

Kernel = Literal["linear", "gaussian", "gaussian 1000"]
ENCODER: dict[str, Any] = {
    "hidden": 128,
    "layers": 1,
    "width": 128,
    "activation": "relu",
    "outer": True,
    "precision": "float32",
}
FEATURES = {"linear": 0, "gaussian": 256, "gaussian 1000": 1000}
"""Random Fourier features."""
CHUNK = 2048
NOISE, FLOOR = 0.1, 1e-4
"""Of the standardised target's variance: the noise at first, and the mandatory floor."""
RATES: dict[Kernel, dict[str, float]] = {
    "linear": {"rate": 1e-2, "weights_rate": 2e-3},
    "gaussian": {"rate": 3e-3, "weights_rate": 3e-3},
    "gaussian 1000": {"rate": 3e-3, "weights_rate": 3e-3},
}
METHODS: dict[str, dict[str, Any]] = {
    "minimax": {"method": "minimax"},
    "scgd": {"method": "scgd"},
    "scgd 0.9": {"method": "scgd", "b": 0.9},
    "minimax mu=1": {"method": "minimax", "whitened": False, "mu": 1.0, "growth": 1.0},
    "minimax mu grows": {"method": "minimax", "whitened": False},
    "ldb": {"method": "ldb"},
    "bsgd": {"method": "bsgd"},
    "bsgd noise 0.0003": {"method": "bsgd", "noise_rate": 3e-4},
    "bsgd 0.003": {"method": "bsgd", "rate": 3e-3},
    "bsgd 0.003 noise 0.0003": {"method": "bsgd", "rate": 3e-3, "noise_rate": 3e-4},
    "bsgd 0.03": {"method": "bsgd", "rate": 3e-2},
    "none": {"method": "none"},
    **{
        f"scgd adadelta {rate:g}": {"method": "scgd", "optimiser": "adadelta", "rate": rate, "weights_rate": rate}
        for rate in (1e-3, 5e-3, 2e-2)
    },
}
"""Options of each."""


class Mark(NamedTuple):
    """An evaluation after `seconds` and `epochs` of training."""

    seconds: float
    epochs: float
    nlml: float
    rmse: float
    noise: float


class Outcome(NamedTuple):
    """Of a run: its evaluations, CPU milliseconds a step, and why it broke down, if it did."""

    marks: list[Mark]
    step: float
    failed: str

    @property
    def best(self) -> Mark:
        """The evaluation with the least NLML."""
        return min(self.marks, key=lambda mark: mark.nlml)

    @property
    def last(self) -> Mark:
        """The state at the end."""
        return self.marks[-1]


class Rows(NamedTuple):
    """A split in standardised units, float64, and the target's scale."""

    x: Tensor
    y: Tensor
    held: Tensor
    truth: Tensor
    scale: float


def standardised(rows: Split) -> Rows:
    """By mean and standard deviation of the rows to learn; a constant column becomes 0."""
    location, scale = rows.x.mean(0), rows.x.std(0)
    scale = torch.where(scale > 0, scale, 1.0)
    low, high = rows.y.mean(), rows.y.std()
    x, held = (rows.x - location) / scale, (rows.held - location) / scale
    return Rows(x, (rows.y - low) / high, held, (rows.truth - low) / high, float(high))


def features(width: int, kernel: Kernel, seed: int) -> FiniteFeatures:
    """φ of windows with so many columns."""
    encoder = mlp.build(mlp.Config(**ENCODER, seed=seed), Layout(lags=0, past=0, future=width))
    on = linear.Config() if kernel == "linear" else squared_exponential.Config()
    found = FiniteFeatures(encoder, on, FEATURES[kernel] or 2, seed, linear=False)
    if kernel == "linear":
        found.kernel.requires_grad_(False)  # said twice by the encoder's last layer
    return found


def nlml(data: Statistics, noise: Tensor) -> float:
    """Negative log marginal likelihood of all rows, ½(l + TN log 2π) at the best w, in nats, summed over columns.

    Args:
        data: of all rows.
        noise: (T,) σ_t², squared units of y.
    """
    kappa, width = ridge(noise), len(data.gram)
    lower = cholesky(regularised(data.gram, kappa), first=0.0).lower
    residuals = data.squares - (data.cross * best_weights(data, noise)).sum(0)
    fit = residuals / noise + data.rows * (noise.log() + math.log(2.0 * math.pi))
    return float(0.5 * (fit.sum() + len(noise) * (log_determinant(lower) - width * kappa.log())))


@torch.no_grad()
def evaluate(phi: FiniteFeatures, head: FiniteHead, rows: Rows) -> tuple[float, float, float]:
    """NLML a row, RMSE, noise; the noise in variances of the standardised target."""
    noise = head.noise
    data = statistics((phi(x), y) for x, y in zip(rows.x.split(CHUNK), rows.y.split(CHUNK), strict=True))
    weights = best_weights(data, noise)
    mean = torch.cat([phi(x) @ weights for x in rows.held.split(CHUNK)])
    rmse = float((mean - rows.truth).square().mean().sqrt()) * rows.scale
    return nlml(data, noise) / data.rows + math.log(rows.scale), rmse, float(noise.mean())


def trained(
    rows: Rows,
    method: str,
    kernel: Kernel,
    batch: int,
    seconds: float,
    seed: int = 0,
    looks: int = 10,
    epochs: int = 0,
    **more: Any,
) -> Outcome:
    """Train for so many CPU-seconds or epochs, whichever is first, with a cosine that ends with them.

    Args:
        rows: standardised.
        method: of METHODS, or "svgp".
        looks: evaluations.
        epochs: at most; 0: no limit.
        more: options of `FiniteTrainingConfig`.
    """
    if method == "svgp":
        return sparse(rows, kernel, batch, seconds, seed, looks, epochs)
    config = FiniteTrainingConfig(batch=batch, **{**RATES[kernel], **METHODS[method], **more})
    phi = features(rows.x.shape[1], kernel, seed)
    head = FiniteHead(phi.width, 1, NOISE, FLOOR)
    driver = descent(phi, head, config)
    generator, whole = torch.Generator().manual_seed(seed), math.ceil(len(rows.y) / batch)
    x, marks, steps, failed, spent = rows.x.float(), list[Mark](), 0, "", 0.0
    some, most = max(min(whole // 4, 50), 1), epochs or 10**6

    def part() -> float:
        return max(spent / seconds, steps / whole / most)

    while part() < 1.0 and not failed:
        driver.epochs, before = steps // whole, time.process_time()
        done = steps / whole
        # the clock of the schedule is the time spent: its span is what the rest of the time would hold
        driver.span = min(max(round(done * seconds / spent), 1) if steps else 10**6, most)
        with training(phi):
            try:
                driver.steps(x, rows.y, some, generator)
            except NumericalError as error:
                failed = error.message
        steps += some
        spent += time.process_time() - before
        if part() >= (len(marks) + 1) / looks or failed:
            with contextlib.suppress(NumericalError):
                marks.append(Mark(spent, steps / whole, *evaluate(phi, head, rows)))
    marks = [mark for mark in marks if math.isfinite(mark.nlml)] or [Mark(spent, 0.0, math.nan, math.nan, math.nan)]
    return Outcome(marks, 1e3 * spent / max(steps, 1), failed)


def sparse(rows: Rows, kernel: Kernel, batch: int, seconds: float, seed: int, looks: int, epochs: int = 0) -> Outcome:
    """GPyTorch's SVGP; its NLML is the bound on it, −ELBO over all rows to learn."""
    marks, whole, steps = list[Mark](), math.ceil(len(rows.y) / batch), 1
    due = [seconds * (place + 1) / looks for place in range(looks)]
    x, y, held = rows.x.float(), rows.y[:, 0].float(), rows.held.float()
    for spent, steps, loss, mean in course(x, y, held, kernel == "linear", batch, due, seed, epochs * whole):
        rmse = float((mean.double() - rows.truth[:, 0]).square().mean().sqrt()) * rows.scale
        marks.append(Mark(spent, steps / whole, loss + math.log(rows.scale), rmse, math.nan))
    return Outcome(marks, 1e3 * marks[-1].seconds / steps, "")
