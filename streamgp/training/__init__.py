"""Training in epochs with early stopping, whatever is trained."""
