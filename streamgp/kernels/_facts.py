"""What holds of a kernel, asked of the kernel itself: no list of names has to be kept."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from streamgp import registry
from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.kernels._base import Kernel
from streamgp.kernels._stationary import Stationary


def radial(kernel: nn.Module) -> bool:
    """Whether a kernel is a function of one distance, so that its evidence is cheap.

    Example:
        >>> from streamgp.kernels import linear, matern
        >>> radial(matern.build(matern.Config(), 2)), radial(matern.build(matern.Config(separable=True), 2))
        (True, False)
        >>> radial(linear.build(linear.Config(), 2))
        False
    """
    if not isinstance(kernel, Stationary):
        return False
    try:
        kernel.profile(torch.zeros(1, dtype=FLOAT))
    except UsageError:
        return False
    return True


def drawn(kernel: Kernel) -> bool:
    """Whether frequencies can be drawn from a kernel's spectral density.

    Example:
        >>> from streamgp.kernels import matern, periodic
        >>> drawn(matern.build(matern.Config(), 2)), drawn(periodic.build(periodic.Config(), 2))
        (True, False)
    """
    return kernel.normals > 0


def names_where(holds: Callable[[Kernel], bool]) -> str:
    """The kernels of which a fact holds with their defaults, on two columns, as a hint lists them.

    Example:
        >>> "matern" in names_where(radial), "periodic" in names_where(radial)
        (True, False)
    """
    found = []
    for name in registry.names("kernels"):
        try:
            module = registry.load("kernels", name)
        except UsageError:  # of another package, which cannot be imported
            continue
        if holds(module.build(module.Config(), 2)):
            found.append(name)
    return " or ".join(found)
