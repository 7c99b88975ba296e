"""Gaussian processes on streams: online learning, calibrated forecasts, resumable state."""

from importlib.metadata import version

__version__ = version("streamgp")
