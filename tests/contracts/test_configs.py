"""Every option of every registered part: no number that is none, and no step that leads anywhere at once."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from streamgp import choice, registry
from streamgp.errors import UsageError
from streamgp.kernels import squared_exponential
from streamgp.solvers import kiss, kiss_cg
from tests.words import names, naming

GRIDS = ((1, 2048), (2, 512), (3, 64))
KINDS = ("models", "kernels", "encoders", "solvers", "likelihoods")
PARTS = [(kind, name) for kind in KINDS for name in registry.names(kind)]


def configs(kind: str, name: str) -> list[type[BaseModel]]:
    """A part's Config, and those that stand inside it."""
    found, left = list[type[BaseModel]](), [registry.load(kind, name).Config]
    while left:
        one = left.pop()
        if one not in found:
            found.append(one)
            left += [inner for field in one.model_fields.values() for inner in choice.inside(field).values()]
    return found


def refused(config: type[BaseModel], field: str, value: Any) -> bool:
    try:
        config.model_validate({field: value})
    except ValidationError as error:
        return any(field in one["loc"][:1] for one in error.errors())
    return False


@pytest.mark.sampled
@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_no_option_takes_infinity_or_nan(kind: str, name: str) -> None:
    for config in configs(kind, name):
        for field, about in config.model_fields.items():
            if about.annotation is str:  # names, of which any may be
                continue
            for value in (math.inf, -math.inf, math.nan, "inf", "nan"):
                assert refused(config, field, value), f"{config.__module__}: {field} takes {value}"


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_no_step_and_no_scale_is_absurd(kind: str, name: str) -> None:
    for config in configs(kind, name):
        for field in config.model_fields:
            if field.endswith(("rate", "lengthscale", "outputscale", "noise", "period", "grid")):
                for value in (1e300, 1e12, -1.0):
                    assert refused(config, field, value), f"{config.__module__}: {field} takes {value}"


@pytest.mark.parametrize(
    ("solver", "dims", "most"), [*((one, d, m) for one in (kiss, kiss_cg) for d, m in GRIDS), (kiss_cg, 4, 16)]
)
def test_a_grid_that_memory_cannot_hold_is_refused(solver: Any, dims: int, most: int) -> None:
    kernel = squared_exponential.build(squared_exponential.Config(), dims)
    if dims > 1:
        with pytest.raises(UsageError, match=naming(str(dims))) as caught:
            solver.build(solver.Config(grid=most + 1), kernel, 1)
        assert names(caught.value.hint, f"grid={most}")
    assert refused(solver.Config, "grid", 2049)
