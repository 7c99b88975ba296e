"""Distributions of T independent target columns: what a model answers with (see `streamgp.base.Predictive`).

Every class is a frozen dataclass of tensors that broadcast to one shape, usually (N, T). `parameters` stacks them,
`from_parameters` takes them apart again, and `affine` moves a distribution from one unit to another. All tensors
may carry any shape in place of (N, T), so that a ledger can keep single columns.
"""

from __future__ import annotations

from streamgp.predictives._logistic_normal import expected_slope, expected_softplus, log_probabilities, spread
from streamgp.predictives._shared import normal_abs

__all__ = ["expected_slope", "expected_softplus", "log_probabilities", "normal_abs", "spread"]
