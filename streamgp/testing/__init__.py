"""The conformance suites: what every model, kernel, feature map, solver, source and stateful part must do, as asserting
functions.

A new part is right when its suite passes; `tests/contracts` runs the suites over every registered name. They need
neither pytest nor data: they make their own.
"""

from streamgp.testing.kernels import check_kernel
from streamgp.testing.models import SHAPES, check_model, check_recovers, example_windows
from streamgp.testing.solvers import check_solver
from streamgp.testing.sources import CRASH_SCRIPTS, Crash, CrashingSource, Lines, check_source
from streamgp.testing.stateful import check_stateful, reborn, same_bits

__all__ = [
    "CRASH_SCRIPTS",
    "SHAPES",
    "Crash",
    "CrashingSource",
    "Lines",
    "check_kernel",
    "check_model",
    "check_recovers",
    "check_solver",
    "check_source",
    "check_stateful",
    "example_windows",
    "reborn",
    "same_bits",
]
