"""The methods of tuning and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.choice import OneOf
from streamgp.errors import UsageError
from streamgp.kernels import Tied, squared_exponential
from streamgp.optim import admm, implicit, marginal_likelihood
from streamgp.optim.admm import AdmmConfig, cv_admm
from streamgp.optim.implicit import ImplicitConfig, cv_implicit
from streamgp.optim.marginal_likelihood import MarginalLikelihoodConfig
from streamgp.optim.minimise import HUGE
from streamgp.optim.tuned import Each, Tuned
from streamgp_pipelines.assembly import flatten, read_settings, seeded


class TuneOptions(BaseModel):
    """What every way of tuning looks at: the kernel, and what is learned of a target."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kernel: Annotated[BaseModel, OneOf("kernels")] = Field(
        squared_exponential.Config(),
        description="any; its hyper-parameters start from the scales of the data, or once one is set as it says",
    )
    period: float | None = Field(
        None,
        gt=0,
        le=1e12,
        description="where the periods of a kernel that has them start, in the unit of its channel; none: from the "
        "scales of the data",
    )
    target: Literal["auto", "level", "change", "season"] = Field(
        "auto",
        description="what is learned of a target, as the models' option of this name: its level, its change from the "
        "present value, its departure from the season, or from a mixture of these",
    )
    decay: float = Field(
        0.9, ge=0, le=1, description="season: part of the present departure that is expected to be left after 4 rows"
    )


class MlOptions(TuneOptions):
    """Maximum marginal likelihood."""

    ml: MarginalLikelihoodConfig = Field(
        MarginalLikelihoodConfig(restarts=1, noise="shared"), description="maximum marginal likelihood"
    )


class AdmmOptions(TuneOptions):
    """Cross-validation by ADMM."""

    admm: AdmmConfig = Field(AdmmConfig(restarts=1), description="cross-validation by ADMM")


class ImplicitOptions(TuneOptions):
    """Cross-validation by the reduced gradient."""

    implicit: ImplicitConfig = Field(ImplicitConfig(restarts=1), description="cross-validation, its reduced gradient")


class Method(NamedTuple):
    """A way of tuning.

    Attributes:
        options: what can be set.
        own: the name under which its own options are.
        loss: what it minimises, in words.
        tune: see `streamgp.optim.tuned`.
        before: the loss of a kernel (with its log noise) on x, y, under the way's own options.
    """

    options: type[TuneOptions]
    own: str
    loss: str
    tune: Callable[[Tied, Tensor, Tensor, Tensor, Any, Each], Tuned]
    before: Callable[[Tied, Tensor, Tensor, Tensor, Any], float]


def _evidence(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: MarginalLikelihoodConfig) -> float:
    problem = marginal_likelihood.Problem(kernel, y.shape[1], x, y, config)
    return problem(problem.pack(dict(kernel.named_parameters()), log_noise))[0]


def _maximise(
    kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: MarginalLikelihoodConfig, each: Each
) -> Tuned:
    return marginal_likelihood.maximise(kernel, log_noise, x, y, config, each=each)


def _approached(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: AdmmConfig) -> float:
    run = admm.Run(kernel, log_noise, x, y, config)
    return run.loss(run.learned.read())[0]


def _held_out(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: ImplicitConfig) -> float:
    problem = implicit.Problem(kernel, log_noise, x, y, config)
    return problem(problem.learned.read())[0]


HELD_OUT = "mean squared error of rows held out, in standardised units"
NLML = "negative log marginal likelihood a row, in standardised units"
METHODS: dict[str, Method] = {
    "ml": Method(
        MlOptions, "ml", "negative log marginal likelihood a row, in standardised units", _maximise, _evidence
    ),
    "cv-admm": Method(AdmmOptions, "admm", HELD_OUT, cv_admm, _approached),
    "cv-implicit": Method(ImplicitOptions, "implicit", HELD_OUT, cv_implicit, _held_out),
}


def read_options(method: str, given: Mapping[str, Any], seed: int) -> TuneOptions:
    """The options of a method.

    Raises:
        UsageError: an option or a value is unknown; the hint names the method that an option is of.
    """
    others = {way.own: name for name, way in METHODS.items() if name != method}
    for key in flatten(given):
        if other := others.get(key.split(".")[0]):
            raise UsageError(
                f"--set {key.split('.')[0]}: there is no such option with --method {method}",
                hint=f"use --method {other}, or leave it out",
            )
    see = f"see: streamgp tune --method {method} --options"
    options: Any = seeded(read_settings(METHODS[method].options, given, see), seed)
    assert isinstance(options, TuneOptions)
    return options


def find(
    method: str,
    options: TuneOptions,
    kernel: Tied,
    log_noise: Tensor,
    x: Tensor,
    y: Tensor,
    each: Each = map,
) -> tuple[Tuned, float | None]:
    """Hyper-parameters by a method, and the loss of those it started from; None where it cannot be computed there.

    Args:
        method: its name.
        options: of its kind.
        kernel, log_noise: (T,) where to start.
        x: (n, W) standardised windows.
        y: (n, T) standardised targets, none missing.
        each: runs the starts, see `streamgp.optim.tuned`.

    Raises:
        NumericalError: no start led anywhere.
        UsageError: too few rows, or a kernel that this way does not take.
    """
    way = METHODS[method]
    own = getattr(options, way.own)
    with torch.no_grad():
        before = way.before(kernel, log_noise, x, y, own)
    return way.tune(kernel, log_noise, x, y, own, each), before if abs(before) < HUGE else None
