"""`streamgp serve` over HTTP: the API, who may use it and how much, metrics, and the live page."""
