"""Optimisers whose whole state is tensors of fixed shape, so that a checkpoint goes on bit for bit."""
