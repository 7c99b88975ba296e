"""Covariance functions, one a file: a frozen `Config` and `build(config, dims)` (see `Kernel`)."""

from __future__ import annotations

from streamgp.kernels._base import Frequencies, Kernel, Unit
from streamgp.kernels._facts import drawn, names_where, radial
from streamgp.kernels._stationary import Stationary
from streamgp.kernels._tied import Tied

__all__ = ["Frequencies", "Kernel", "Stationary", "Tied", "Unit", "drawn", "names_where", "radial"]
