"""Hyper-parameters from windows of a table."""
