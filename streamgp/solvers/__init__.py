"""Marginal likelihoods and posteriors at fixed latents, one solver a file (see `Solver`)."""

from __future__ import annotations

from streamgp.solvers._base import Data, Draw, Posterior, Solver
from streamgp.solvers._surrogate import attach

__all__ = ["Data", "Draw", "Posterior", "Solver", "attach"]
