"""Outside libraries behind our contracts."""
