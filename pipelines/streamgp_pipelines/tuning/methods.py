"""The methods of tuning and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from streamgp.choice import OneOf
from streamgp.errors import UsageError
from streamgp.evidence import admm, implicit, marginal_likelihood
from streamgp.evidence.admm import AdmmConfig, cv_admm
from streamgp.evidence.implicit import ImplicitConfig, cv_implicit
from streamgp.evidence.marginal_likelihood import MarginalLikelihoodConfig
from streamgp.evidence.minimise import HUGE
from streamgp.evidence.tuned import Each, Tuned
from streamgp.kernels import Tied, squared_exponential
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


class HeldOutConfig(BaseModel):
    """The choice between methods by rows that forecasts have not seen."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    methods: tuple[Literal["ml", "cv-admm", "cv-implicit"], ...] = Field(
        ("ml", "cv-admm"), min_length=2, description="that are tried"
    )
    score: Literal["nlpd", "mse"] = Field(
        "nlpd", description="of these rows: negative log density, which bands want, or squared error"
    )
    scheme: Literal["auto", "loo", "part"] = Field(
        "auto",
        description="loo: each row is forecast from all others, by what a method finds on all; part: some rows are "
        "kept back from the methods, and the best continues with all; auto: part where windows have lags, and so "
        "overlap with those beside them, or where part or arrangement is set; else loo",
    )
    part: float = Field(0.25, gt=0, lt=1, description="of the rows that scheme=part keeps back")
    arrangement: Literal["random", "contiguous"] = Field(
        "random",
        description="rows that scheme=part keeps back: anywhere, which asks for interpolation, or the last, for "
        "forecasts",
    )
    seed: int = Field(0, ge=0, description="of the rows that scheme=part keeps back")

    @model_validator(mode="after")
    def _part(self) -> Self:
        given = [name for name in ("part", "arrangement") if name in self.model_fields_set]
        if given and self.scheme == "loo":
            raise ValueError(f"{' and '.join(given)} need scheme=part")
        return self

    def settled(self, lags: int) -> Literal["loo", "part"]:
        """The scheme, where windows have `lags` lags.

        Example:
            >>> [HeldOutConfig().settled(0), HeldOutConfig().settled(12), HeldOutConfig(scheme="loo").settled(12)]
            ['loo', 'part', 'loo']
        """
        if self.scheme != "auto":
            return self.scheme
        return "part" if lags or {"part", "arrangement"} & self.model_fields_set else "loo"


class AutoOptions(MlOptions, AdmmOptions, ImplicitOptions):
    """The method whose hyper-parameters forecast rows better that a forecast has not seen."""

    auto: HeldOutConfig = Field(HeldOutConfig(), description="which methods, and how they are judged")

    def for_windows(self, lags: int) -> Self:
        """With the scheme settled for windows of `lags` lags."""
        return self.model_copy(update={"auto": self.auto.model_copy(update={"scheme": self.auto.settled(lags)})})


class Method(NamedTuple):
    """A way of tuning.

    Attributes:
        options: what can be set.
        own: the name under which its own options are.
        loss: what it minimises, in words.
        tune: see `streamgp.evidence.tuned`.
        before: the loss of a kernel (with its log noise) on x, y, under the way's own options.
    """

    options: type[TuneOptions]
    own: str
    loss: str
    tune: Callable[[Tied, Tensor, Tensor, Tensor, Any, Each], Tuned]
    before: Callable[[Tied, Tensor, Tensor, Tensor, Any], float]


def _evidence(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: MarginalLikelihoodConfig) -> float:
    problem = marginal_likelihood.LikelihoodProblem(kernel, y.shape[1], x, y, config)
    return problem(problem.pack(dict(kernel.named_parameters()), log_noise))[0]


def _maximise(
    kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: MarginalLikelihoodConfig, each: Each
) -> Tuned:
    return marginal_likelihood.maximise(kernel, log_noise, x, y, config, each=each)


def _approached(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: AdmmConfig) -> float:
    run = admm.AdmmRun(kernel, log_noise, x, y, config)
    return run.loss(run.learned.read())[0]


def _held_out(kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, config: ImplicitConfig) -> float:
    problem = implicit.CrossValidatedProblem(kernel, log_noise, x, y, config)
    return problem(problem.learned.read())[0]


HELD_OUT = "mean squared error of rows held out, in standardised units"
NLML = "negative log marginal likelihood a row, in standardised units"
METHODS: dict[str, Method] = {
    "ml": Method(MlOptions, "ml", NLML, _maximise, _evidence),
    "cv-admm": Method(AdmmOptions, "admm", HELD_OUT, cv_admm, _approached),
    "cv-implicit": Method(ImplicitOptions, "implicit", HELD_OUT, cv_implicit, _held_out),
}

AUTO = "auto"


def options_of(method: str) -> type[TuneOptions]:
    """What can be set of a method, or of the choice between them.

    Raises:
        UsageError: there is no such method.
    """
    if method != AUTO and method not in METHODS:
        raise UsageError(f"--method: there is no {method!r}", hint=f"there are: {', '.join((*METHODS, AUTO))}")
    return AutoOptions if method == AUTO else METHODS[method].options


def read_options(method: str, given: Mapping[str, Any], seed: int) -> TuneOptions:
    """The options of a method.

    Raises:
        UsageError: an option or a value is unknown; the hint names the method that an option is of.
    """
    others = {way.own: name for name, way in METHODS.items() if name != method}
    taken = options_of(method)
    for key in flatten(given):
        if (other := others.get(key.split(".")[0])) and key.split(".")[0] not in taken.model_fields:
            raise UsageError(
                f"--set {key.split('.')[0]}: there is no such option with --method {method}",
                hint=f"use --method {other}, or leave it out",
            )
    see = f"see: streamgp tune --method {method} --options"
    options: Any = seeded(read_settings(taken, given, see), seed)
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
        each: runs the starts, see `streamgp.evidence.tuned`.

    Raises:
        NumericalError: no start led anywhere.
        UsageError: too few rows, or a kernel that this way does not take.
    """
    if isinstance(options, AutoOptions):
        found = _chosen(options, kernel, log_noise, x, y, each)
        method = found.judged[0][0]
    way = METHODS[method]
    own = getattr(options, way.own)
    with torch.no_grad():
        before = way.before(kernel, log_noise, x, y, own)
    if not isinstance(options, AutoOptions):
        found = way.tune(kernel, log_noise, x, y, own, each)
    return found, before if abs(before) < HUGE else None


def _chosen(options: AutoOptions, kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor, each: Each) -> Tuned:
    """By the better density of rows that forecasts have not seen."""
    from streamgp.papers.gpcv_admm.held_out import choose

    def way(one: Method, kernel: Tied, log_noise: Tensor, x: Tensor, y: Tensor) -> Tuned:
        return one.tune(kernel, log_noise, x, y, getattr(options, one.own), each)

    asked, scheme = options.auto, options.auto.settled(0)
    ways = {str(name): partial(way, METHODS[name]) for name in asked.methods}
    return choose(ways, kernel, log_noise, x, y, asked.score, scheme, asked.part, asked.arrangement, asked.seed)
