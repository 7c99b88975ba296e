"""Basis functions: what a function is expanded in, and their covariances."""
