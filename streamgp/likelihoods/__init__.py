"""How a noisy observation follows from the latent function, one a file."""
