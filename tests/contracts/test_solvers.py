"""Every registered solver obeys the laws of a solver, within what it approximates."""

from __future__ import annotations

import pytest

from streamgp import registry
from streamgp.kernels import squared_exponential
from streamgp.testing import check_solver

TOLERANCES: dict[str, dict[str, float]] = {
    "exact": {},
    "kiss": {"value": 1e-3, "gradient": 1e-2},
    "kiss_cg": {"value": 1e-2, "gradient": 1e-1, "same": 1e-6},
}
"""Approximate solvers name theirs; a new one is held to the exact laws until it does."""

OPTIONS: dict[str, dict[str, int]] = {"kiss": {"grid": 26, "rank": 150}}
"""Of a solver's Config, where its defaults are larger than the rows of the suite need."""


@pytest.mark.parametrize("name", registry.names("solvers"))
def test_laws(name: str) -> None:
    module = registry.load("solvers", name)
    config = module.Config(**OPTIONS.get(name, {}))
    kernel = squared_exponential.Config(lengthscale=0.6)
    check_solver(
        lambda dims, columns: module.build(config, squared_exponential.build(kernel, dims), columns),
        **TOLERANCES.get(name, {}),
    )
