"""Nets over the lags, alone or in front of a Gaussian process; see `variants` for the models that they make."""
