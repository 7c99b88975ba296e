"""A kernel over many columns whose hyper-parameters are shared in groups of columns.

A flattened window has a column for every lag of every channel. One lengthscale a column is more than some hundred rows
can tell; one a channel is what is wanted. Any registered kernel is tied this way: its per-dimension hyper-parameters
exist once a group, and are spread over the columns whenever the kernel is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.kernels._base import Kernel


class Tied(Kernel):
    """k(x, z) = k'(u ∘ x, u ∘ z; θ[groups]): k' over W columns, θ and u over G groups of them.

    What there is to learn has the names and the initial values that k' has over G columns: `log_lengthscale` (G,),
    `log_outputscale` (), `parts.0.log_period` (G,) and so on. Its gradients are the sums over each group's columns.

    Args:
        config: of the kernel k'.
        groups: (W,) int64, the group of each column, 0 … G − 1.
        unit: (G,) u, what the columns of a group are multiplied by; by default 1/√s_g of a group of s_g columns. Then
            two windows that are a lengthscale apart in all columns of one group, and equal otherwise, are one
            lengthscale apart however many columns these are.

    Attributes:
        dims: W.
        groups, unit: as given.

    Raises:
        UsageError: groups that leave one out, or units that are not positive.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = Tied(squared_exponential.Config(lengthscale=2.0), groups=torch.tensor([0, 1, 0]))
        >>> {name: list(value.shape) for name, value in kernel.named_parameters()}
        {'log_lengthscale': [2], 'log_outputscale': []}
        >>> x = torch.tensor([[0.0, 0.0, 0.0], [2.0, 0.0, 2.0]], dtype=FLOAT)
        >>> round(kernel(x[:1], x[1:]).log().item(), 12)  # a lengthscale away
        -0.5
    """

    groups: Tensor
    unit: Tensor

    def __init__(self, config: BaseModel, groups: Tensor, unit: Tensor | None = None) -> None:
        super().__init__()
        sizes = torch.bincount(groups)
        if not bool((sizes > 0).all()):
            raise UsageError("a group of columns is empty", hint="number the groups 0, 1, 2 … without a gap")
        unit = sizes.to(FLOAT).rsqrt() if unit is None else unit.to(FLOAT)
        if unit.shape != sizes.shape or not bool((torch.isfinite(unit) & (unit > 0)).all()):
            raise UsageError(
                f"{len(sizes)} groups of columns have units {unit.tolist()}", hint="give one positive unit a group"
            )
        self.config, self.dims = config, len(groups)
        self.register_buffer("groups", groups.clone(), persistent=False)
        self.register_buffer("unit", unit.clone())
        free: Kernel = choice.build("kernels", config, len(sizes))
        for name, child in free.named_children():
            self.add_module(name, child)
        for name, value in free.named_parameters(recurse=False):
            self.register_parameter(name, value)
        self._axes = _axes(config)
        whole: Kernel = choice.build("kernels", config, self.dims)
        self._asked = (_Ask(whole.requires_grad_(False)),)  # in a tuple, so that its parameters are none of ours

    @property
    def whole(self) -> Kernel:
        """k' over W columns; its own hyper-parameters are never looked at."""
        return self._asked[0].kernel

    def spread(self) -> dict[str, Tensor]:
        """The hyper-parameters of k' by name, those of a group on each of its columns; with their graph."""
        return {
            name: value if (axis := self._axes[name]) is None else value.index_select(axis, self.groups)
            for name, value in self.named_parameters()
        }

    def scaled(self, x: Tensor) -> Tensor:
        """(N, W) -> (N, W): u ∘ x."""
        return x * self.unit[self.groups]

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, W), (M, W) -> (N, M)"""
        out: Tensor = self._ask(lambda kernel: kernel.forward(self.scaled(x), self.scaled(z)))
        return out

    def diagonal(self, x: Tensor) -> Tensor:
        """(N, W) -> (N,)"""
        out: Tensor = self._ask(lambda kernel: kernel.diagonal(self.scaled(x)))
        return out

    def profile(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """k' as a function of s = Σ_d u_d² (x_d − z_d)²/s_d², where it is radial; see `Stationary.profile`.

        Raises:
            UsageError: it is not.
        """
        if not hasattr(self.whole, "profile"):
            raise UsageError(
                f"{type(self.whole).__name__} is no function of one distance",
                hint="use squared_exponential, or a kernel such as matern without separable=true",
            )
        out: tuple[Tensor, Tensor] = self._ask(lambda kernel: kernel.profile(squares))
        return out

    def _ask(self, look: Callable[[Any], Any]) -> Any:
        """What k' says with our hyper-parameters for its own."""
        spread = {f"kernel.{name}": value for name, value in self.spread().items()}
        return torch.func.functional_call(self._asked[0], spread, (look,))


class _Ask(nn.Module):
    """What a kernel says as a module's forward, so that it can be called with other hyper-parameters."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, look: Callable[[Kernel], Any]) -> Any:
        return look(self.kernel)


def _axes(config: BaseModel) -> dict[str, int | None]:
    """The axis of each hyper-parameter that runs over the columns, found from two kernels of different width."""
    two, three = (dict(choice.build("kernels", config, dims).named_parameters()) for dims in (2, 3))
    found: dict[str, int | None] = {}
    for name, value in two.items():
        differ = [axis for axis, size in enumerate(value.shape) if size != three[name].shape[axis]]
        found[name] = differ[0] if differ else None
    return found
