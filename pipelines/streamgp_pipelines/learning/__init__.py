"""A learner on its table: what a run reads, what it keeps, and what a checkpoint holds."""
