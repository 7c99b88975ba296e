"""Training of finite-dimensional GPs as Shoham & Avron (2025) have it: MINIMAX, BSGD, the controls, AdaDelta."""
