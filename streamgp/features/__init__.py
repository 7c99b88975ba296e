"""Basis functions: what a function is expanded in, and their covariances."""

from __future__ import annotations

from streamgp.features._base import Features

__all__ = ["Features"]
