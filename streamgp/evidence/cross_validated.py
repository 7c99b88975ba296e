"""What both ways of tuning by cross-validation share: their options, the vector that they move, starts, the result."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.errors import NumericalError
from streamgp.evidence.minimise import BOUND, HUGE, Minimum
from streamgp.evidence.starts import draw_start
from streamgp.evidence.tuned import Attempt, Each, attempts
from streamgp.kernels import Tied
from streamgp.objectives.cross_validation import Partition, rescale, splits
from streamgp.objectives.fold import Fold

SCOUTING = 15
"""Iterations after which starts are compared."""
GIB = 2**30
FEW = 20
"""Rows on which a change of the variances is checked."""


class CrossValidationConfig(BaseModel):
    """Hyper-parameters by the squared error of rows held out."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    folds: int = Field(2, ge=1, le=100, description="parts of the rows that are held out in turn; 1: hold-out, once")
    holdout: float = Field(0.5, gt=0, lt=1, description="hold-out alone: part of the rows that is held out")
    arrangement: Literal["random", "contiguous"] = Field(
        "random",
        description="random: rows anywhere are held out, which asks for interpolation; contiguous: spans of rows in "
        "order, hold-out the last ones, which asks for forecasts",
    )
    restarts: int = Field(
        0,
        ge=0,
        le=1000,
        description="further starts, drawn around the data's scales; the best after 15 iterations continues",
    )
    iterations: int = Field(60, ge=1, le=100_000, description="of the descent, at most")
    rank: int = Field(
        100, ge=0, le=10_000, description="columns of the pivoted Cholesky preconditioner, at most; 0: none"
    )
    memory: float = Field(
        1.0, ge=0, le=10_000, description="GiB that kept covariances may take; what does not fit is recomputed"
    )
    floor: float = Field(
        1e-4, ge=1e-12, le=1, description="least noise variance, in squared units of the standardised target"
    )
    seed: int = Field(0, ge=0, description="of the rows held out and of the further starts")


class KernelVector:
    """A kernel and the noise as one vector of logarithms.

    Args:
        kernel: copied.
        log_noise: (T,) log σ_t².
        floor: least σ².

    Attributes:
        kernel: the copy.
        noise: (T,) σ_t².
    """

    def __init__(self, kernel: Tied, log_noise: Tensor, floor: float) -> None:
        self.kernel = copy.deepcopy(kernel).requires_grad_(True)
        self.least = math.log(floor)
        self.noise = log_noise.detach().exp()
        self.size = sum(parameter.numel() for parameter in self.kernel.parameters()) + len(log_noise)
        self.write(self.read())

    def read(self) -> Tensor:
        """(P + T,)"""
        return torch.cat([*(value.detach().flatten() for value in self.kernel.parameters()), self.noise.log()])

    def clamped(self, at: Tensor) -> Tensor:
        """(P + T,) within bounds."""
        kernel, noise = at.split([self.size - len(self.noise), len(self.noise)])
        return torch.cat((kernel.clamp(-BOUND, BOUND), noise.clamp(self.least, BOUND)))

    @torch.no_grad()
    def write(self, at: Tensor) -> None:
        """(P + T,) into the kernel and the noise, clamped."""
        parameters = list(self.kernel.parameters())
        *kernel, noise = self.clamped(at).split([*(value.numel() for value in parameters), len(self.noise)])
        for parameter, part in zip(parameters, kernel, strict=True):
            parameter.copy_(part.view_as(parameter))
        self.noise = noise.exp()


class Scaled(NamedTuple):
    """A state dict of the kernel and (T,) σ_t², of the size that the rows' variance asks for.

    Attributes:
        same: whether the loss is what it was; not with several columns, nor where a noise came to its floor.
    """

    kernel: dict[str, Tensor]
    noise: Tensor
    same: bool


def scaled(learned: KernelVector, folds: Sequence[Fold], fitted: Sequence[Tensor]) -> Scaled:
    """Variances where the marginal likelihood of the fitted rows is the largest: c_t = y_tᵀz_t/n_T, over all folds.

    One column's variances are all multiplied by its c, which leaves the loss as it is. Several columns share a kernel:
    it gets the geometric mean of their factors and each noise its own, as c_t σ_t² is nearly the variance of the
    residuals, which the loss alone determines badly. Then the loss is no longer quite what it was.

    Args:
        learned: what the folds were refreshed with; it is changed.
        folds: fitted to.
        fitted: (n_T, T) z = C⁻¹y of each.
    """
    pairs = list(zip(folds, fitted, strict=True))
    count = sum(len(fold.y_fitted) for fold in folds)
    factors = torch.stack([(fold.y_fitted * z).sum(0) for fold, z in pairs]).sum(0) / count  # (T,)
    same = True
    if bool((torch.isfinite(factors) & (factors > 0)).all()):
        rescale(learned.kernel, float(factors.log().mean().exp()), folds[0].x_fitted[:FEW])
        noise, least = learned.noise * factors, math.exp(learned.least)
        same = len(noise) == 1 and bool(noise >= least)
        learned.noise = noise.clamp(min=least)
    state = {name: value.detach().clone() for name, value in learned.kernel.state_dict().items()}
    return Scaled(state, learned.noise.clone(), same)


def parts(x: Tensor, config: CrossValidationConfig) -> list[Partition]:
    """The folds of the rows of x (n, W)."""
    generator = torch.Generator().manual_seed(config.seed)
    found = splits(len(x), config.folds, config.holdout, config.arrangement, generator)
    return [Partition(*(rows.to(x.device) for rows in split)) for split in found]


def starts(kernel: Tied, log_noise: Tensor, x: Tensor, config: CrossValidationConfig) -> list[Tensor]:
    """(P + T,) each: the kernel as given, then the draws."""
    names = [name for name, _ in kernel.named_parameters()]
    generator = torch.Generator().manual_seed(config.seed)
    found = [KernelVector(kernel, log_noise.to(x), config.floor).read()]
    for _ in range(config.restarts):
        values, noise = draw_start(kernel, x, len(log_noise), generator)
        found.append(torch.cat([*(values[name].flatten() for name in names), noise]))
    return found


def check(kernel: Tied, x: Tensor) -> None:
    """Fail before the work rather than after it; x (n, W).

    Raises:
        UsageError: the kernel does not say what its variances are.
    """
    rescale(copy.deepcopy(kernel), 2.0, x[:FEW])


class Searched(NamedTuple):
    """What a search over starts came to.

    Attributes:
        found: where the descent from the leading start ended.
        before: the history of the few iterations after which it led.
        failures: the starts that led nowhere, a sentence each.
        evaluations: of the objective, over all starts.
        elsewhere: CPU seconds that other processes spent.
    """

    found: Minimum
    before: list[float]
    failures: tuple[str, ...]
    evaluations: int
    elsewhere: float


def search(
    descend: Callable[[Tensor, int], tuple[Minimum, int]], offered: Sequence[Tensor], iterations: int, each: Each
) -> Searched:
    """The descent from the start that leads after a few iterations.

    Args:
        descend: start (P + T,), iterations -> where it ended, and evaluations; it keeps nothing of earlier descents.
        offered: the starts.
        iterations: at most.
        each: see `tuned`.

    Raises:
        NumericalError: no start has a finite loss.
    """
    failures, before, begin = list[str](), list[float](), offered[0]
    evaluations, elsewhere = 0, 0.0

    def attempt(start: Tensor) -> Attempt:
        begun, (one, count) = time.process_time(), descend(start, min(SCOUTING, iterations))
        return Attempt(one, count, "", time.process_time() - begun)

    if len(offered) > 1:
        tried, elsewhere = attempts(each, attempt, offered)
        reason = "the error of rows held out is not finite"
        failures = [f"start {number}: {reason}" for number, one in enumerate(tried) if not one.found.value < HUGE]
        leading = min((one.found for one in tried), key=lambda one: one.value)
        begin, before = leading.at, leading.history
        evaluations = sum(one.evaluations for one in tried)
    if len(failures) < len(offered):
        found, count = descend(begin, iterations)
        evaluations += count
    else:
        found = leading
    if not found.value < HUGE:
        raise NumericalError(
            f"no start of {len(offered)} has a finite cross-validated error",
            hint="look for constant or huge columns, raise the least noise, or start from longer lengthscales",
        )
    return Searched(found, before, tuple(failures), evaluations, elsewhere)
