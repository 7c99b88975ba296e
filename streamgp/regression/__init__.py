"""Bayesian linear regression, row by row."""
