"""From sources to a table, every row exactly once."""
