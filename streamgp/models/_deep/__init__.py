"""Models behind an encoder: the frame, training in epochs, and learning from a stream."""
