"""Linear algebra: factorisations with a jitter policy."""
