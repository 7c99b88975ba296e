"""Quadruply stochastic Gaussian processes (Evans & Nair 2020)."""
