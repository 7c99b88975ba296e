"""Covariance functions, one a file: a frozen `Config` and `build(config, dims)` (see `_base`)."""
