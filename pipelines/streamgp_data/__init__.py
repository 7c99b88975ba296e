"""Rows from files, recordings and brokers into an append-only table, each once (`ingestion`); and checkpoints.

It knows nothing of models: of `streamgp` it takes the errors, the contracts of a source, the registry and the clock of
a zone. Neither torch nor a server is imported to fill a table or to read it.
"""
