"""Hyper-parameters by the marginal likelihood or by cross-validation, and where a search starts."""
