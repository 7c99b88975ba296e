"""Several models on one stream: the same forecasts scored, side by side."""
