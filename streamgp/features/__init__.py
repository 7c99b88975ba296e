"""Basis functions: rows turned into features whose inner products are covariances."""
