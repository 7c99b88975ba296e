"""Every registered kernel obeys the laws of a covariance function, as it comes and with its options."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from streamgp import choice, registry
from streamgp.errors import UsageError
from streamgp.kernels import Kernel
from streamgp.kernels.squared_exponential import Config, SquaredExponential
from streamgp.testing import check_kernel
from tests.properties import examples

MIXTURE = {"name": "spectral_mixture", "components": 2, "seed": 3}
OPTIONS: list[dict[str, Any]] = [
    *({"name": "matern", "nu": nu, "separable": both} for nu in (0.5, 1.5, 2.5) for both in (False, True)),
    {"name": "rational_quadratic", "alpha": 0.7, "separable": True},
    {"name": "gamma_exponential", "gamma": 0.6},
    {"name": "gamma_exponential", "separable": True},
    {"name": "locally_periodic", "period": 2.0, "tied": True},
    MIXTURE,
    {"name": "sum", "parts": ["linear", {"name": "matern", "nu": 0.5}, {"name": "product", "parts": ["linear"] * 2}]},
    {"name": "sum", "parts": [{"name": "matern", "separable": True}, MIXTURE]},
    {"name": "product", "parts": ["periodic", {"name": "sum", "parts": ["squared_exponential", MIXTURE]}]},
]


@pytest.mark.sampled
@pytest.mark.parametrize("name", registry.names("kernels"))
def test_laws(name: str) -> None:
    module = registry.load("kernels", name)
    check_kernel(lambda dims: module.build(module.Config(), dims))


@pytest.mark.sampled
@pytest.mark.parametrize("options", OPTIONS, ids=json.dumps)
def test_laws_with_options(options: dict[str, Any]) -> None:
    config = choice.read("kernels", options)
    check_kernel(lambda dims: choice.build("kernels", config, dims))


@pytest.mark.parametrize("options", [*({"name": name} for name in registry.names("kernels")), *OPTIONS], ids=json.dumps)
def test_settings_survive_json(options: dict[str, Any]) -> None:
    config = choice.read("kernels", options)
    again = choice.read("kernels", json.loads(json.dumps(choice.written(config))))
    assert again == config and type(again) is type(config)
    first, second = (choice.build("kernels", each, 2).state_dict() for each in (config, again))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", registry.names("kernels"))
def test_the_hyper_parameters_move_after_a_copy(name: str) -> None:
    """Nothing computed from a hyper-parameter is kept."""
    module = registry.load("kernels", name)
    kernel = module.build(module.Config(), 2)
    moved = copy.deepcopy(kernel)
    with torch.no_grad():
        for value in moved.parameters():
            value.add_(0.1)
    x = torch.tensor([[0.0, 0.3], [0.5, -0.2]], dtype=torch.float64)
    assert not torch.equal(kernel(x, x), moved(x, x))
    moved.load_state_dict(kernel.state_dict())
    assert torch.equal(kernel(x, x), moved(x, x))


@examples(40)
@given(st.sampled_from([{"name": name} for name in registry.names("kernels")] + OPTIONS), st.integers(0, 10**6))
def test_positive_semi_definite_whatever_the_hyper_parameters(options: dict[str, Any], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    dims = 1 + seed % 4
    kernel = choice.build("kernels", choice.read("kernels", options), dims)
    x = torch.randn(15, dims, generator=generator, dtype=torch.float64)
    x[1] = x[0]
    with torch.no_grad():
        for value in kernel.parameters():
            value.add_(torch.randn(value.shape, generator=generator, dtype=torch.float64))
        gram, size = kernel(x, x), kernel.diagonal(x)
        assert torch.linalg.eigvalsh(gram)[0] > -1e-10 * size.max()
        assert bool((gram.abs() <= (1 + 1e-10) * (size[:, None] * size).sqrt()).all()), "Cauchy-Schwarz"


class OffGrid(SquaredExponential):
    def __init__(self, dims: int, kind: str) -> None:
        super().__init__(dims, 1.0, 1.0)
        self.kind = kind

    def grid_terms(self, axes: Sequence[Tensor]) -> list[list[Tensor]]:
        if self.kind == "silent":
            raise UsageError("no")
        terms = super().grid_terms(axes)
        if self.kind == "scaled":
            return terms * 2
        return [[column.detach() for column in term] for term in terms] if self.kind == "frozen" else terms


class Rooted(SquaredExponential):
    def correlation(self, x: Tensor, z: Tensor) -> Tensor:
        return torch.exp(-((x[:, None] - z).square().sum(2)).sqrt())


@pytest.mark.parametrize(("kind", "message"), [("silent", "hint"), ("scaled", "law 4"), ("frozen", "law 4: gradients")])
def test_a_broken_grid_is_found(kind: str, message: str) -> None:
    check_kernel(lambda dims: OffGrid(dims, "right"))
    with pytest.raises(AssertionError, match=message):
        check_kernel(lambda dims: OffGrid(dims, kind))


def test_a_gradient_that_is_lost_at_coincident_inputs_is_found() -> None:
    with pytest.raises(AssertionError, match="coincide"):
        check_kernel(lambda dims: Rooted(dims, 1.0, 1.0))


def test_the_registry_builds_what_the_module_builds() -> None:
    built: Kernel = choice.build("kernels", Config(lengthscale=2.0), 3)
    assert isinstance(built, SquaredExponential) and built.lengthscale.tolist() == pytest.approx([2.0] * 3)
