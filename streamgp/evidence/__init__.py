"""Hyper-parameters by the marginal likelihood of thinned rows, and where a search starts."""
