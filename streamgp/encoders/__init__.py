"""Maps from a window to a latent vector, one a file."""
