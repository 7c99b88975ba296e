"""Training runs, online and in batch, and what they report."""
