"""What the benchmarks of tuning share: the processes of Xu et al. (2019), draws from them, three ways of tuning."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.evidence.admm import AdmmConfig, cv_admm
from streamgp.evidence.implicit import ImplicitConfig, cv_implicit
from streamgp.evidence.marginal_likelihood import MarginalLikelihoodConfig, maximise
from streamgp.evidence.tuned import Tuned
from streamgp.kernels import Tied

NOISE = 0.1
"""Variance of the noise that is drawn. The paper does not state its own; its test errors of 0.12 suggest this."""
START_NOISE = -1.0
"""log σ² where all searches start."""


class Process(NamedTuple):
    """A kernel as it is drawn from and as searches start, and the hyper-parameters that the paper's table 1 lists."""

    true: Any
    start: Any
    shown: tuple[str, ...]


def _lp(lengthscale: float, period: float) -> dict[str, Any]:
    """(20): one lengthscale for the drift and for the pattern."""
    return {"name": "locally_periodic", "tied": True, "lengthscale": lengthscale, "period": period}


def _se(lengthscale: float) -> dict[str, Any]:
    return {"name": "squared_exponential", "lengthscale": lengthscale}


def _sum(trend: float, pattern: float, period: float) -> dict[str, Any]:
    """(21), each part with a variance of its own."""
    return {"name": "sum", "parts": [_se(trend), _lp(pattern, period)]}


PROCESSES = {
    "SE": Process(_se(0.5), _se(1.0), ("log_lengthscale",)),
    "LP": Process(_lp(0.5, 1.0), _lp(1.0, 1.2), ("log_lengthscale", "log_period")),
    "SE+LP": Process(
        _sum(3.0, 1.0, 2.0),
        _sum(2.0, 2.0, 2.4),
        ("parts.0.log_lengthscale", "parts.1.log_lengthscale", "parts.1.log_period"),
    ),
}
"""Of table 1; all variances are 1."""


class Rows(NamedTuple):
    """x (n, 1), y (n, 1), and as many as asked of the same draw held out."""

    x: Tensor
    y: Tensor
    held: Tensor
    truth: Tensor


def tied(options: Any) -> Tied:
    """A kernel of one column."""
    return Tied(choice.read("kernels", options), torch.zeros(1, dtype=torch.int64))


def drawn(process: Process, n: int, top: float, seed: int, held: int = 500) -> Rows:
    """Inputs uniform in [0, top], a function from the process, noise on all targets."""
    generator = torch.Generator().manual_seed(seed)
    x = top * torch.rand(n + held, 1, generator=generator, dtype=FLOAT)
    with torch.no_grad():
        root = torch.linalg.cholesky(tied(process.true)(x, x) + NOISE * torch.eye(n + held))
    y = root @ torch.randn(n + held, 1, generator=generator, dtype=FLOAT)
    return Rows(x[:n], y[:n], x[n:], y[n:])


def start(process: Process) -> tuple[Tied, Tensor]:
    """Kernel and (1,) log σ²."""
    return tied(process.start), torch.full((1,), START_NOISE, dtype=FLOAT)


def implicit(process: Process, rows: Rows, **options: Any) -> Tuned:
    """cv-implicit, two folds."""
    return cv_implicit(*start(process), rows.x, rows.y, ImplicitConfig(**options))


def admm(process: Process, rows: Rows, **options: Any) -> Tuned:
    """cv-admm, by default as the paper has it: two folds, naive, at most 100 iterations."""
    asked: dict[str, Any] = {"scheme": "naive", "iterations": 100, **options}
    return cv_admm(*start(process), rows.x, rows.y, AdmmConfig(**asked))


def likelihood(process: Process, rows: Rows, **options: Any) -> Tuned:
    """ML-II by L-BFGS."""
    return maximise(*start(process), rows.x, rows.y, MarginalLikelihoodConfig(**options))


def tuned_kernel(kernel: Tied, found: Tuned) -> Tied:
    """The kernel with what was found."""
    own = copy.deepcopy(kernel)
    own.load_state_dict(found.kernel)
    return own.requires_grad_(False)


@torch.no_grad()
def error(kernel: Tied, noise: Tensor, rows: Rows) -> float:
    """Mean squared error of the targets held out, by the exact GP on all rows."""
    gram = kernel(rows.x, rows.x) + noise * torch.eye(len(rows.x), dtype=FLOAT)
    mean = kernel(rows.held, rows.x) @ torch.cholesky_solve(rows.y, torch.linalg.cholesky(gram))
    return float((mean - rows.truth).square().mean())


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
