"""Distributions of T independent target columns: what a model answers with (see `streamgp.base.Predictive`).

Every class is a frozen dataclass of tensors that broadcast to one shape, usually (N, T). `parameters` stacks them,
`from_parameters` takes them apart again, and `affine` moves a distribution from one unit to another. All tensors
may carry any shape in place of (N, T), so that a ledger can keep single columns.
"""
