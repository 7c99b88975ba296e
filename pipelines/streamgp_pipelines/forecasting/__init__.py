"""Forecasts and simulations from a checkpoint."""
