"""A tied kernel is the plain one with its hyper-parameters repeated, for every registered kernel."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp import choice, registry
from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.kernels import Kernel, Tied, matern, squared_exponential
from streamgp.testing import check_kernel

GROUPS = torch.tensor([0, 1, 0, 2, 1, 0])
UNIT = torch.tensor([0.5, 1.5, 1.0], dtype=FLOAT)
OPTIONS: list[dict[str, Any]] = [
    *({"name": name} for name in registry.names("kernels")),
    {"name": "matern", "nu": 2.5, "separable": True},
    {"name": "locally_periodic", "tied": True},
    {"name": "spectral_mixture", "components": 3},  # as many as groups: which axis is shared is no guess
    {"name": "sum", "parts": ["linear", {"name": "product", "parts": ["matern", "periodic"]}]},
]


def moved(options: dict[str, Any], unit: Tensor | None = UNIT) -> Tied:
    """A tied kernel whose hyper-parameters all differ."""
    kernel = Tied(choice.read("kernels", options), GROUPS, unit)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in kernel.parameters():
            value.add_(0.3 * torch.randn(value.shape, generator=generator, dtype=FLOAT))
    return kernel


def plain(kernel: Tied) -> Kernel:
    """Built for all columns, with the hyper-parameters written into each."""
    whole: Kernel = choice.build("kernels", kernel.config, len(GROUPS))
    free = dict(kernel.named_parameters())
    with torch.no_grad():
        for name, value in whole.named_parameters():
            own = free[name]
            spread = own if own.shape == value.shape else own[..., GROUPS]  # the shared axis is the last of all kernels
            value.copy_(spread)
    return whole


def rows(count: int, seed: int) -> Tensor:
    return torch.randn(count, len(GROUPS), generator=torch.Generator().manual_seed(seed), dtype=FLOAT)


@pytest.mark.parametrize("options", OPTIONS, ids=json.dumps)
def test_it_is_the_plain_kernel_with_repeated_hyper_parameters(options: dict[str, Any]) -> None:
    kernel = moved(options)
    whole, x, z = plain(kernel), rows(7, 1), rows(4, 2)
    unit = UNIT[GROUPS]
    assert torch.equal(kernel(x, z), whole(x * unit, z * unit))
    assert torch.equal(kernel.diagonal(x), whole.diagonal(x * unit))


@pytest.mark.parametrize("options", OPTIONS, ids=json.dumps)
def test_gradients_are_summed_over_a_group(options: dict[str, Any]) -> None:
    kernel = moved(options)
    whole, x, z = plain(kernel), rows(7, 1) * UNIT[GROUPS], rows(4, 2) * UNIT[GROUPS]
    weights = torch.randn(7, 4, dtype=FLOAT, generator=torch.Generator().manual_seed(4))
    (weights * kernel(rows(7, 1), rows(4, 2))).sum().backward()
    (weights * whole(x, z)).sum().backward()
    plainly = dict(whole.named_parameters())
    for name, value in kernel.named_parameters():
        wanted = plainly[name].grad
        assert wanted is not None and value.grad is not None
        if wanted.shape != value.shape:
            wanted = torch.zeros_like(value).index_add_(-1, GROUPS, wanted)
        assert torch.allclose(value.grad, wanted, rtol=1e-10, atol=1e-12), name
    assert all(value.grad is None for value in kernel.whole.parameters())


@pytest.mark.sampled
@pytest.mark.parametrize("name", registry.names("kernels"))
def test_laws_of_a_kernel(name: str) -> None:
    config = choice.read("kernels", name)
    check_kernel(lambda dims: Tied(config, torch.tensor([0, 1, 0])), dims=(3,))


def test_what_is_learned_and_what_is_kept() -> None:
    kernel = moved({"name": "sum", "parts": ["matern", "linear"]})
    names = {name: tuple(value.shape) for name, value in kernel.named_parameters()}
    assert names == {
        "parts.0.log_lengthscale": (3,),
        "parts.0.log_outputscale": (),
        "parts.1.log_variance": (3,),
        "parts.1.log_bias": (),
    }
    assert set(kernel.state_dict()) == {*names, "unit"}
    other = Tied(kernel.config, GROUPS)
    other.load_state_dict(kernel.state_dict())
    twin, x = copy.deepcopy(kernel), rows(5, 0)
    assert torch.equal(other(x, x), kernel(x, x)) and torch.equal(twin(x, x), kernel(x, x))
    with torch.no_grad():
        next(twin.parameters()).add_(1.0)
    assert torch.equal(other(x, x), kernel(x, x)), "a copy shares nothing"


def test_a_group_that_is_a_lengthscale_apart_is_so_whatever_its_size() -> None:
    kernel = Tied(squared_exponential.Config(lengthscale=3.0), GROUPS)
    for group in range(3):
        x = torch.where(group == GROUPS, 3.0, 0.0).to(FLOAT)[None]
        assert kernel(x, 0 * x).log().item() == pytest.approx(-0.5, abs=1e-12)


def test_profile_is_the_inner_one() -> None:
    kernel = moved({"name": "matern", "nu": 2.5})
    free = dict(kernel.named_parameters())
    x, z = rows(6, 1), rows(3, 2)
    lengthscale = (free["log_lengthscale"].exp() / UNIT)[GROUPS]
    squares = ((x[:, None] - z) / lengthscale).square().sum(2).detach()
    correlation, _ = kernel.profile(squares)
    assert torch.allclose(free["log_outputscale"].exp() * correlation, kernel(x, z), rtol=0, atol=1e-12)
    with pytest.raises(UsageError):
        moved({"name": "linear"}).profile(squares)
    with pytest.raises(UsageError):
        moved({"name": "matern", "separable": True}).profile(squares)


def test_functions_of_a_batch_of_inputs() -> None:
    """Functions are drawn under vmap."""
    kernel = moved({"name": "sum"})
    x, z = torch.stack([rows(3, 1), rows(3, 2)]), torch.stack([rows(4, 3), rows(4, 4)])
    found = torch.func.vmap(kernel)(x, z)
    assert torch.allclose(found, torch.stack([kernel(x[0], z[0]), kernel(x[1], z[1])]), rtol=0, atol=1e-14)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError):
        Tied(matern.Config(), torch.tensor([0, 2]))
    for unit in ([1.0], [1.0, 0.0], [1.0, float("nan")]):
        with pytest.raises(UsageError) as caught:
            Tied(matern.Config(), torch.tensor([0, 1]), torch.tensor(unit))
        assert caught.value.hint
