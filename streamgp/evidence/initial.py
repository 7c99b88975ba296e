"""Hyper-parameters that were found before, as something to start from: in units that outlive a scaling.

A model standardises by the rows that it has seen, so that its lengthscales mean something else under other rows. What
is kept here are hyper-parameters of standardised windows together with what one standardised unit of every channel and
of every target is; a model turns them into its own units once it has a scaling:

    ℓ_model = ℓ · scale_g / scale_g,model,   ρ²_model = ρ² · mean_t (s_t/s_t,model)²,   σ_t,model = σ_t / s_t,model

Kernels are those of `streamgp.kernels.Tied`: one lengthscale a channel, whose lags share it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from pydantic import BaseModel
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT, Json, Model, Shape
from streamgp.errors import UsageError
from streamgp.evidence.thinned import LogHyper
from streamgp.kernels import Kernel, Tied, names_where, radial
from streamgp.model_config import ModelConfig, models_with


@dataclass(frozen=True)
class Initial:
    """Hyper-parameters of windows of one shape.

    Attributes:
        shape: of the windows.
        target, decay: what was learned of the targets, as the models' options of these names.
        kernel: its Config as a mapping that `choice.read` takes.
        values: its hyper-parameters by name, logarithms; those that there is one of for each input, one a channel.
        scale: (G,) standard deviations of the channels, in their units; the past ones, then the future ones.
        target_scale: (T,) standard deviations of what was learned of the targets, in their units.
        noise: (T,) standard deviations of the noise, in the targets' units.
        found: how: method, rows, seconds, losses, the table; only the note on rows that were tuned on comes from it.
    """

    shape: Shape
    target: str
    decay: float
    kernel: Mapping[str, Json]
    values: Mapping[str, Tensor]
    scale: Tensor
    target_scale: Tensor
    noise: Tensor
    found: Mapping[str, Json]

    @property
    def config(self) -> BaseModel:
        """The kernel's Config."""
        return choice.read("kernels", self.kernel)

    def check(self, shape: Shape, target: str, decay: float) -> None:
        """See that the windows of a model are these, and that it learns the same of its targets.

        Raises:
            UsageError: it names all that differs.
        """
        differ = list[str]()
        for name in ("targets", "lags", "horizon", "season", "past", "future"):
            own, other = getattr(self.shape, name), getattr(shape, name)
            if own != other:
                what = {"past": "past channels", "future": "future channels"}.get(name, name)
                differ.append(f"for {what} {_told(own)}, and this run has {_told(other)}")
        if differ:
            raise UsageError(
                f"the hyper-parameters were found {'; '.join(differ)}",
                hint="tune with the same target, inputs, known, calendar, lags, horizon and season",
            )
        if learned(self.target, shape) != learned(target, shape):
            raise UsageError(
                f"the hyper-parameters were found for target={self.target}, and this model learns target={target}",
                hint=f"train with --set target={self.target}, or tune with --set target={target}",
            )
        if shape.seasonal and target in ("auto", "season") and decay != self.decay:
            raise UsageError(
                f"the hyper-parameters were found for decay={self.decay:g}, and this model has decay={decay:g}",
                hint=f"train with --set decay={self.decay:g}, or tune with --set decay={decay:g}",
            )

    def gain(self, target_scale: Tensor) -> float:
        """What a covariance is multiplied by in a model's units. target_scale: (T,) of the model."""
        return float((self.target_scale.to(target_scale) / target_scale).square().mean())

    def log_noise(self, target_scale: Tensor) -> Tensor:
        """(T,) log σ_t² in a model's units. target_scale: (T,) of the model."""
        return 2.0 * (self.noise.to(target_scale) / target_scale).log()

    def onto(self, kernel: Tied, scale: Tensor, target_scale: Tensor) -> Tensor:
        """Give a model's kernel these hyper-parameters; it then takes its inputs in the units that they were found in.

        Args:
            kernel: of a model whose windows are of this shape.
            scale: (G,) standard deviations of the channels by the model's scaling.
            target_scale: (T,) those of what it learns of its targets.

        Returns:
            (T,) log σ_t² in the model's units.

        Raises:
            UsageError: it is another kernel.
        """
        self.fits(kernel.config)
        units, gain = kernel.whole.units, math.log(self.gain(target_scale))
        ratio = scale / self.scale.to(scale)
        with torch.no_grad():
            kernel.unit.copy_(ratio * torch.bincount(kernel.groups).to(FLOAT).rsqrt())
            for name, parameter in kernel.named_parameters():
                unit = units[name]
                parameter.copy_(self.values[name].to(parameter) + (gain * unit.output if unit else 0.0))
        return self.log_noise(target_scale)

    def fits(self, config: BaseModel) -> None:
        """See that a kernel is the one that these hyper-parameters are of.

        Raises:
            UsageError: it is another one.
        """
        own, other = structure(self.config), structure(config)
        if own != other:
            raise UsageError(
                f"the hyper-parameters are those of kernel={_named(own)}, and this model has kernel={_named(other)}",
                hint="leave out --set kernel: the file says which one it is; or tune with the other kernel",
            )

    def hyper(self, scale: Tensor, target_scale: Tensor) -> LogHyper:
        """Those of a grouped radial kernel with one noise, in a model's units. Arguments as of `onto`.

        Example:
            >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
            >>> found = example(shape)  # ℓ = 1 and ρ² = 1 where u has the standard deviation 1, and y
            >>> two = torch.full((1,), 2.0, dtype=FLOAT)
            >>> [round(value, 3) for value in found.hyper(two, two).pack().exp().tolist()]
            [0.5, 0.25, 0.003]
        """
        ratio = self.scale.to(scale) / scale
        gain = math.log(self.gain(target_scale))
        return LogHyper(
            self.values["log_lengthscale"].to(scale) + ratio.log(),
            self.values["log_outputscale"].to(scale) + gain,
            self.log_noise(target_scale).mean(),
        )

    def radial(self, model: str, only: str | None = None) -> None:
        """See that the kernel is one that a model can have: a function of one distance.

        Args:
            model: its name, for the error.
            only: the one kernel that it has.

        Raises:
            UsageError: it is another one.
        """
        if only not in (None, self.kernel["name"]) or not radial(choice.build("kernels", self.config, 2)):
            offered = only or names_where(radial)
            separable = " without separable=true" if self.kernel.get("separable") else ""
            raise UsageError(
                f"{model} has no kernel={_named(structure(self.config))}, which the hyper-parameters are of",
                hint=f"tune with --set kernel={offered}{separable}, or use --model exact, which takes any",
            )


@runtime_checkable
class TakesInitial(Protocol):
    """A model that can start from hyper-parameters."""

    def initialise(self, initial: Initial) -> None:
        """Take them for its start, before the first fit or update.

        Raises:
            UsageError: its windows, what it learns of its targets, or its kernel is another.
        """


def initialise(model: Model, name: str, config: ModelConfig, initial: Initial) -> None:
    """Let a model start from hyper-parameters.

    Args:
        model: before its first fit or update.
        name: of the model.
        config: its options.
        initial: the hyper-parameters.

    Raises:
        UsageError: it has none of this kind, or they do not fit it.
    """
    if config.untuned or not isinstance(model, TakesInitial):
        instead = f"models that start from a file: {', '.join(models_with('tuned'))}"
        raise UsageError(f"{name} {config.untuned or 'takes no hyper-parameters'}", hint=instead)
    model.initialise(initial)


def learned(target: str, shape: Shape) -> str:
    """What the models' option `target` stands for: without lags there is nothing but the level to learn."""
    return "level" if target == "auto" and not shape.lags else target


def structure(config: BaseModel) -> dict[str, Any]:
    """A kernel's Config as written, without the values that its hyper-parameters start from.

    Example:
        >>> from streamgp.kernels import matern
        >>> structure(matern.Config(nu=0.5, lengthscale=3.0))
        {'name': 'matern', 'nu': 0.5, 'separable': False}
    """
    kernel: Kernel = choice.build("kernels", config, 1)
    starts = {name.removeprefix("log_") for name, _ in kernel.named_parameters(recurse=False)}
    found = {key: value for key, value in choice.written(config).items() if key not in starts}
    parts = getattr(config, "parts", None)
    return found if parts is None else found | {"parts": [structure(part) for part in parts]}


def plain(config: BaseModel) -> bool:
    """Whether no hyper-parameter of a kernel was set to start from.

    Example:
        >>> from streamgp.kernels import matern
        >>> plain(matern.Config(nu=0.5)), plain(matern.Config(nu=0.5, lengthscale=3.0))
        (True, False)
    """
    return choice.read("kernels", structure(config)) == config


def one_start(config: BaseModel) -> None:
    """See that a kernel beside a file of hyper-parameters has none of its own.

    Raises:
        UsageError: it has.
    """
    if not plain(config):
        raise UsageError(
            "--init and --set kernel both say where the kernel's hyper-parameters start", hint="leave out one of them"
        )


def example(shape: Shape) -> Initial:
    """For tests: ℓ = 1, ρ² = 1 and σ = 0.1 of a squared exponential, where everything has the standard deviation 1."""
    groups = (len(shape.past) if shape.lags else 0) + len(shape.future)
    one, columns = torch.ones(groups, dtype=FLOAT), torch.ones(shape.columns, dtype=FLOAT)
    values = {"log_lengthscale": torch.zeros(groups, dtype=FLOAT), "log_outputscale": torch.zeros((), dtype=FLOAT)}
    return Initial(
        shape, "auto", 0.9, {"name": "squared_exponential"}, values, one, columns, 0.1 * columns, {"method": "none"}
    )


def _named(about: Mapping[str, Any]) -> str:
    """A kernel's name, with those options of it that its hyper-parameters do not hold."""
    parts = about.get("parts")
    if parts is not None:
        return f"{about['name']}({', '.join(_named(part) for part in parts)})"
    options = [f"{key}={value}" for key, value in about.items() if key != "name" and value is not False]
    return str(about["name"]) + (f"({', '.join(options)})" if options else "")


def _told(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
