"""Distributions of the targets, one family a file."""
