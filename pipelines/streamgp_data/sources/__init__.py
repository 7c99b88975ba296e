"""Readers of input formats, one a file."""
