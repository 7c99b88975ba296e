"""Bayesian linear regression: additive, of one model or of many, and row by row."""
