"""Covariance functions, one a file."""
