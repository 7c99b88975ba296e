"""Every registered solver obeys the laws of a solver, within what it approximates; solvers broken on purpose do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from streamgp import registry
from streamgp.errors import NotPositiveDefinite
from streamgp.kernels import squared_exponential
from streamgp.solvers import Data, exact
from streamgp.testing import check_solver

TOLERANCES: dict[str, dict[str, float]] = {
    "exact": {},
    "kiss": {"value": 1e-3, "gradient": 1e-2},
    "kiss_cg": {"value": 1e-3, "gradient": 1e-2, "same": 1e-6},
}
"""Approximate solvers name theirs; a new one is held to the exact laws until it does."""

OPTIONS: dict[str, dict[str, int]] = {"kiss": {"grid": 26, "rank": 150}}
"""Of a solver's Config, where its defaults are larger than the rows of the suite need."""


SLOW = {"kiss_cg"}
"""Ten seconds, most of them for thousands of draws; `tests/papers` has its own."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in registry.names("solvers")]
)
def test_laws(name: str) -> None:
    module = registry.load("solvers", name)
    config = module.Config(**OPTIONS.get(name, {}))
    kernel = squared_exponential.Config(lengthscale=0.6)
    check_solver(
        lambda dims, columns: module.build(config, squared_exponential.build(kernel, dims), columns),
        **TOLERANCES.get(name, {}),
    )


class _Late(exact.DenseConditional):
    """Not frozen: it reads the noise of the solver's present."""

    def __init__(self, solver: exact.Exact, data: exact.DenseRows) -> None:
        super().__init__(solver.kernel, solver.noise, data)
        self._solver = solver

    def mean(self, h: Tensor) -> Tensor:
        return super().mean(h) * self._solver.noise.detach() / self.noise


class _Thawed(exact.Exact):
    def condition(self, data: Data) -> exact.DenseConditional:
        assert isinstance(data, exact.DenseRows)
        with torch.no_grad():
            return _Late(self, data)


class _Halved(exact.Exact):
    """The NLML without its ½, as the paper's equation 8 has it."""

    def nlml(self, data: Data) -> Tensor:
        return 2 * super().nlml(data)


class _Prior(exact.DenseRows):
    """Forgets the count, but not the rows."""

    def forget(self, kept: float) -> None:
        self.y = self.y * kept


class _Forgetful(exact.Exact):
    def data(self) -> exact.DenseRows:
        return _Prior(self.kernel.dims, len(self.log_noise), self.limit)


class _Marginal(exact.DenseConditional):
    """Draws every value by itself."""

    def draw(self, paths: int, generator: Generator) -> Any:
        def call(h: Tensor) -> Tensor:
            flat = h.flatten(0, 1)
            fresh = torch.randn(len(flat), len(self.noise), dtype=h.dtype, generator=generator)
            return (self.mean(flat) + self.variance(flat).sqrt() * fresh).unflatten(0, h.shape[:2])

        return call


class _Independent(exact.Exact):
    def condition(self, data: Data) -> exact.DenseConditional:
        assert isinstance(data, exact.DenseRows)
        with torch.no_grad():
            return _Marginal(self.kernel, self.noise, data)


class _Bare(exact.Exact):
    @property
    def noise(self) -> Tensor:
        """Without its floor."""
        return self.log_noise.exp()


BROKEN = {
    _Thawed: "a posterior changes",
    _Halved: "NLML",
    _Forgetful: "count is not",
    _Independent: "asked again",
    _Bare: "below the floor|not positive definite",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_solver_is_found(broken: type[exact.Exact]) -> None:
    kernel = squared_exponential.Config(lengthscale=0.6)
    with pytest.raises((AssertionError, NotPositiveDefinite), match=BROKEN[broken]):
        check_solver(lambda dims, columns: broken(exact.Config(), squared_exponential.build(kernel, dims), columns))
