"""Faults, each injected into real commands."""
