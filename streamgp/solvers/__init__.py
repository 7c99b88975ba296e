"""Marginal likelihoods and posteriors at fixed latents, one solver a file (see `Solver`)."""

from __future__ import annotations

from streamgp.solvers._base import Conditional, Data, Draw, Solver
from streamgp.solvers._surrogate import attach

__all__ = ["Conditional", "Data", "Draw", "Solver", "attach"]
