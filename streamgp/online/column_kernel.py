"""The covariance of the function that a model learns, in the units of the columns: to print, and to evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.kernels import Kernel, Tied, Unit
from streamgp.kernels.sum import Sum
from streamgp.online.inputs import KernelInputs
from streamgp.online.posterior import LearnedFunction

Array = NDArray[np.float64]


class Term(NamedTuple):
    """One kernel of a sum: its hyper-parameters in the units of the columns, and what of its shape is not learned."""

    title: str
    values: dict[str, Array]
    fixed: Mapping[str, float] = MappingProxyType({})

    def __str__(self) -> str:
        parts = [f"{name}={value:g}" for name, value in self.fixed.items()]
        parts += [f"{name}={shown(value)}" for name, value in self.values.items()]
        return f"{self.title}({', '.join(parts)})"


class ColumnKernel:
    """k(X, Z), the prior covariance of the function at rows of X and of Z, in squared units of the target.

    A model standardises: with columns z(x) = (x − m)/s, a target of standard deviation s_y and the kernel κ of
    standardised columns, k(x, x') = s_y² κ(z(x), z(x')). Of several targets s_y² is the mean. The noise of an
    observation is not in it.

    Args:
        learned: of the posterior.
        inputs: of the model.
        scale: (T,) s_y.
        noise: (T,) variance of an observation in forecasts, standardised; None: as the posterior has learned rows.

    Attributes:
        hyperparameters: by name, in the units of the columns: lengthscale (F,), outputscale (), and those of further
            terms as linear.variance (F,), linear.bias (). A channel with lags has one value, for all of its lags
            together. Behind an encoder inputs have no unit.
        noise: (T,) standard deviations of an observation around the function, in forecasts.
        noise_of_fit: (T,) those with which the rows were learned. Forecasts have the noise that these leave, which is
            estimated from all rows.

    Example:
        >>> from streamgp.base import Shape
        >>> from streamgp.kernels import squared_exponential
        >>> inputs = KernelInputs(Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",)))
        >>> inputs.scaling.future.scale = torch.tensor([10.0], dtype=FLOAT)
        >>> own = Tied(squared_exponential.Config(lengthscale=2.0), inputs.groups).requires_grad_(False)
        >>> found = ColumnKernel(LearnedFunction(own, torch.ones(1)), inputs, torch.tensor([3.0], dtype=FLOAT))
        >>> found
        SquaredExponential(lengthscale=20, outputscale=9)
        >>> found([[0.0], [20.0]], [[0.0]]).round(2).tolist()
        [[9.0], [5.46]]
    """

    def __init__(
        self, learned: LearnedFunction, inputs: KernelInputs, scale: Tensor, noise: Tensor | None = None
    ) -> None:
        self._learned, self._inputs = learned, inputs
        self._gain = float(scale.square().mean())
        self.noise_of_fit = _array(learned.noise.sqrt().cpu() * scale.cpu())
        self.noise = self.noise_of_fit if noise is None else _array(noise.sqrt().cpu() * scale.cpu())
        self._terms = self._terms_of(learned)
        first, *others = self._terms
        self.hyperparameters: dict[str, Array] = dict(first.values)
        for term in others:
            self.hyperparameters |= {f"{term.title.lower()}.{name}": value for name, value in term.values.items()}

    def __call__(self, X: ArrayLike, Z: ArrayLike | None = None) -> Array:
        """(N, F), (M, F) -> (N, M) covariances; Z: X where it is left out.

        Raises:
            UsageError: the windows of the model have another number of columns.
        """
        x = self._seen(X)
        z = x if Z is None else self._seen(Z)
        found: Tensor = self._learned.kernel(self._encoded(x), self._encoded(z))
        if self._learned.slopes is not None:
            found = found + self._learned.slopes * (x @ z.mT + 1.0)
        return _array(found * self._gain)

    def diag(self, X: ArrayLike) -> Array:
        """(N, F) -> (N,) variances.

        Raises:
            UsageError: as a call.
        """
        x = self._seen(X)
        found: Tensor = self._learned.kernel.diagonal(self._encoded(x))
        if self._learned.slopes is not None:
            found = found + self._learned.slopes * (x.square().sum(1) + 1.0)
        return _array(found * self._gain)

    def __repr__(self) -> str:
        return " + ".join(map(str, self._terms))

    def _seen(self, X: ArrayLike) -> Tensor:
        """(N, F) rows -> (N, W) standardised."""
        rows = torch.tensor(np.asarray(X, np.float64), device=self._learned.noise.device)
        if rows.ndim != 2 or rows.shape[1] != self._inputs.width:
            shape = f"(N, {self._inputs.width})"
            raise UsageError(f"an array of shape {tuple(rows.shape)} is none of windows", hint=f"give one of {shape}")
        return self._inputs.of_flat(rows)

    def _encoded(self, z: Tensor) -> Tensor:
        return z if self._learned.encode is None else self._learned.encode(z)

    def _terms_of(self, learned: LearnedFunction) -> list[Term]:
        """The kernels that the covariance is the sum of."""
        kernel, gain = (learned.kernel, self._gain) if learned.functions is None else (learned.functions, 1.0)
        values, whole = dict(kernel.named_parameters()), kernel.whole if isinstance(kernel, Tied) else kernel
        found = []
        for prefix, part in _parts(whole):
            own = {name: self._in_units(values[prefix + name], unit, gain) for name, unit in part.units.items()}
            title = type(part).__name__ if learned.functions is None else f"Relevance of {type(part).__name__}"
            found.append(Term(title, {name.replace("log_", ""): value for name, value in own.items()}, part.fixed))
        if learned.slopes is not None:
            columns = torch.bincount(self._inputs.groups)
            variance = (learned.slopes * columns[columns > 0].to(FLOAT)).log()
            slopes = self._in_units(variance, Unit(input=-2, output=1), gain, encoded=False)
            bias = self._in_units(learned.slopes.log(), Unit(output=1), gain)
            found.append(Term("Linear", {"variance": slopes, "bias": bias}))
        return found

    def _in_units(self, logs: Tensor, unit: Unit | None, gain: float, encoded: bool = True) -> Array:
        """A hyper-parameter from its logarithm, in the units of the columns."""
        value = logs.detach().exp().cpu()
        if unit is None:
            return _array(value)
        groups = self._inputs.groups.cpu()
        present = groups.unique()
        scale = self._inputs.scale.cpu()[present]
        if encoded and self._learned.encode is not None:
            scale = torch.ones((), dtype=FLOAT)
        elif value.ndim and len(value) != len(scale):  # one a column of the window
            scale = self._inputs.scale.cpu()[groups]
        return _array(value * gain**unit.output * (scale**unit.input if unit.input else 1.0))


def _parts(kernel: Kernel) -> list[tuple[str, Kernel]]:
    """The kernels that a kernel is the sum of, with what the names of their hyper-parameters begin with."""
    if not isinstance(kernel, Sum):
        return [("", kernel)]
    return [(f"parts.{place}.", part) for place, part in enumerate(kernel.kernels)]


def _array(found: Tensor) -> Array:
    return np.asarray(found.detach().cpu().numpy())


def shown(value: Array) -> str:
    """Hyper-parameters as they are printed, to three digits.

    Example:
        >>> shown(np.array([0.12345, 2.0])), shown(np.array(3.0))
        ('[0.123, 2]', '3')
    """
    numbers = [f"{one:.3g}" for one in np.ravel(value)]
    return numbers[0] if len(numbers) == 1 else f"[{', '.join(numbers)}]"
