"""From a table of rows to windows, and the state that survives a kill."""
