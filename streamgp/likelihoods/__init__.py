"""Observation models: the density of a target around the function, one a file (see `_base`)."""
