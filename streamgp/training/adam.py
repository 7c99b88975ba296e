"""Adam (Kingma & Ba 2015): of PyTorch, and for tensors whose rows have their own ages; a schedule of its step size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim.adam import adam

from streamgp.state import Declared, Members, Value

DECAYS = (0.9, 0.999)
EPSILON = 1e-12
"""Less than the usual 1e-8, since losses are per row and gradients small."""


def schedule(initial: float, step: int) -> float:
    """γ_t = γ_0 (1 + 0.1 √t)⁻¹ (Cheng & Boots 2017, section 4).

    Example:
        >>> schedule(0.1, 0), schedule(0.1, 100)
        (0.1, 0.05)
    """
    return initial / (1.0 + 0.1 * math.sqrt(step))


class RowAdam(Declared):
    """Adam (Kingma & Ba 2015) in which every row of a tensor has its own age.

    Basis functions come and go. A row that is new, or that replaces another, starts with empty moments and the bias
    correction of a first step, while its neighbours go on. A row whose gradient is exactly zero at age zero (not in
    use yet) stays where it is.

    Args:
        parameters: name -> tensor of fixed shape, updated in place; rows are the first axis.
        rates: name -> factor on the step size; 1 where not named.

    Example:
        >>> w = torch.zeros(2, dtype=torch.float64)
        >>> adam = RowAdam({"w": w}, {})
        >>> adam.step({"w": torch.tensor([3.0, 0.0]).double()}, rate=0.1)
        >>> [round(v, 6) for v in w.tolist()]
        [-0.1, 0.0]
    """

    STATE = (Members("first", "second", "age"),)
    NOT_STATE: ClassVar[Mapping[str, str]] = {"parameters": "they belong to their owner"}

    def __init__(self, parameters: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        self.parameters = dict(parameters)
        self.rates = {name: rates.get(name, 1.0) for name in parameters}
        self.first = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self.age = {name: torch.zeros(p.shape[:1], dtype=p.dtype, device=p.device) for name, p in parameters.items()}

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rate: float) -> None:
        """Descend. Rows with a gradient, or that ever had one, grow older by one.

        Args:
            gradients: name -> gradient of what is minimised, of the parameter's shape; names may be missing.
            rate: step size.
        """
        for name, gradient in gradients.items():
            if not gradient.numel():
                continue
            first, second, age = self.first[name], self.second[name], self.age[name]
            first.lerp_(gradient, 1.0 - DECAYS[0])
            second.mul_(DECAYS[1]).addcmul_(gradient, gradient, value=1.0 - DECAYS[1])
            used = second.reshape(age.numel(), -1).amax(1).reshape(age.shape) > 0
            age.add_(used)
            shape = age.shape + (1,) * (gradient.ndim - age.ndim)
            power = age.clamp(min=1.0).reshape(shape)
            scale = rate * self.rates[name] / (1.0 - DECAYS[0] ** power)
            root = second.sqrt().div_((1.0 - DECAYS[1] ** power).sqrt_()).add_(EPSILON)
            self.parameters[name].sub_(scale * first / root)

    def forget(self, name: str, rows: Tensor | slice) -> None:
        """Start the rows of one tensor afresh."""
        self.first[name][rows] = 0.0
        self.second[name][rows] = 0.0
        self.age[name][rows] = 0.0

    def move(self, parameters: Mapping[str, Tensor], fn: Callable[[Tensor], Tensor]) -> None:
        """Go on with the parameters as they are after a move, to another device for instance, and take the state along.

        Args:
            parameters: of the same names.
            fn: what was done to each of them.
        """
        self.parameters = dict(parameters)
        for part in (self.first, self.second, self.age):
            part.update({name: fn(value) for name, value in part.items()})


class Adam(Declared):
    """Adam by PyTorch's fused kernel, on tensors that others own. Stateful.

    The kernel is called by its functional form: the first `torch.optim.Adam` of a process loads PyTorch's compiler,
    which takes three CPU-seconds.

    Args:
        parameters: updated in place; their number and sizes are fixed from now on, and the state follows them to where
            they go.

    Example:
        >>> w = torch.zeros(2)
        >>> Adam([w]).step([torch.tensor([3.0, -0.1])], rate=0.5)
        >>> w.round(decimals=6).tolist()
        [-0.5, 0.5]
    """

    STATE = (Members("first", "second"), Value("taken", int, key="age"))
    NOT_STATE: ClassVar[Mapping[str, str]] = {"parameters": "they belong to their owner"}

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self.first = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self.second = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self.age = [torch.zeros((), device=p.device) for p in self.parameters]

    @property
    def taken(self) -> int:
        """Steps."""
        return int(self.age[0]) if self.age else 0

    @taken.setter
    def taken(self, steps: int) -> None:
        for age in self.age:
            age.fill_(steps)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rate: float) -> None:
        """Descend, all tensors by one step of this size."""
        if (device := self.parameters[0].device) != self.age[0].device:
            self.first, self.second, self.age = (
                [t.to(device) for t in own] for own in (self.first, self.second, self.age)
            )
        adam(
            [p.detach() for p in self.parameters],
            [g.contiguous() for g in gradients],  # the kernel reads memory in order, whatever the strides
            self.first,
            self.second,
            [],
            self.age,
            fused=True,
            amsgrad=False,
            beta1=DECAYS[0],
            beta2=DECAYS[1],
            lr=rate,
            weight_decay=0.0,
            eps=EPSILON,
            maximize=False,
        )


def resized(steps: Adam, found: Tensor | None) -> Adam:
    """The steps on one tensor, as they are where it has this size, else from the beginning on one like it."""
    own = steps.parameters[0]
    return steps if found is None or found.shape == own.shape else Adam([torch.zeros_like(found, device=own.device)])
