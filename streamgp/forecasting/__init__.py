"""Scores, and bands that stay calibrated."""
