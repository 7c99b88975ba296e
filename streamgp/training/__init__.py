"""Optimisers, whose state is tensors of fixed shape: a checkpoint goes on bit for bit. Epochs with early stopping."""
