"""Benchmarks on small cases."""
