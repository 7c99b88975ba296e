"""Checkpoints that learn while they answer: rows into their tables, learners on them, forecasts of the newest state."""
