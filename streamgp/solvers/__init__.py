"""Marginal likelihoods and posteriors at fixed latents, one solver a file (see `_base`)."""
