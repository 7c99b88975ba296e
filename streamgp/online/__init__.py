"""A model on a stream: units, memory, winsorising, rebuilds and undoing, whatever infers inside."""
