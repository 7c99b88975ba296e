"""From rows to windows: what is asked at each row, and the ledger of forecasts whose truth is awaited."""
