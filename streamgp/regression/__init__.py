"""Bayesian linear regression: additive, of one model or of many, row by row, and by blocks of weights."""
