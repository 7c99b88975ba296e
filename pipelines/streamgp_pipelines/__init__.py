"""The road of a row, from a source to a forecast: configuration, ingest, training, forecasting."""
