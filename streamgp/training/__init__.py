"""Optimisers, whose state is tensors of fixed shape: a checkpoint continues bit for bit. Epochs with early stopping."""
