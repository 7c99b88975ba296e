"""Sums, products and the linear kernel against dense arithmetic and GPyTorch."""

from __future__ import annotations

import json
from typing import Annotated

import pytest
import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from streamgp import choice
from streamgp.errors import UsageError
from streamgp.kernels import linear, matern, product, squared_exponential
from streamgp.kernels import sum as sum_of
from tests.kernels.twins import gpytorch_kernels, made, points, same, theirs
from tests.words import naming

PARTS = ["linear", {"name": "matern", "nu": 2.5}, {"name": "rational_quadratic", "alpha": 0.5}]


def test_linear_is_gpytorchs_and_a_constant() -> None:
    ours = made("linear")
    slopes = gpytorch_kernels.LinearKernel(ard_num_dims=3).double()
    slopes.initialize(variance=ours.variance.detach())
    constant = gpytorch_kernels.ConstantKernel().double()
    constant.initialize(constant=ours.bias.detach())
    same(ours, theirs(slopes + constant, 1.0))


def test_linear_is_the_covariance_of_lines() -> None:
    ours, x = made("linear"), points(6, 0)
    design = torch.cat((torch.ones(6, 1, dtype=torch.float64), x), 1)
    prior = torch.diag(torch.cat((ours.bias[None], ours.variance)))
    torch.testing.assert_close(ours(x, x), design @ prior @ design.T, rtol=1e-13, atol=1e-13)
    assert torch.equal(ours(x, x), ours(x, x).T)


def test_linear_has_no_grid() -> None:
    with pytest.raises(UsageError, match=naming("Linear Toeplitz")) as refused:
        made("linear", 1).grid_terms([torch.linspace(0, 1, 3, dtype=torch.float64)])
    assert refused.value.hint
    with pytest.raises(UsageError, match=naming("Linear")):
        made("sum", 1, parts=["periodic", "linear"]).grid_terms([torch.linspace(0, 1, 3, dtype=torch.float64)])


@pytest.mark.parametrize("name", ["sum", "product"])
def test_they_are_dense_arithmetic(name: str) -> None:
    ours = made(name, parts=PARTS)
    x, z = points(6, 0), points(5, 1)
    each = [part(x, z) for part in ours.parts]
    assert len(each) == 3
    expected = each[0] + each[1] + each[2] if name == "sum" else each[0] * each[1] * each[2]
    torch.testing.assert_close(ours(x, z), expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(ours.diagonal(x), ours(x, x).diagonal(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["sum", "product"])
def test_they_are_gpytorchs(name: str) -> None:
    ours = made(name, parts=PARTS[1:])
    rough, wide = ours.parts
    matern_twin = gpytorch_kernels.MaternKernel(nu=2.5, ard_num_dims=3)
    quadratic_twin = gpytorch_kernels.RQKernel(ard_num_dims=3)
    first = theirs(matern_twin, rough.outputscale, lengthscale=rough.lengthscale)
    second = theirs(quadratic_twin, wide.outputscale, lengthscale=wide.lengthscale, alpha=wide.alpha)
    same(ours, first + second if name == "sum" else first * second)


def test_parts_are_taken_by_name_by_options_and_by_config() -> None:
    config = sum_of.Config(parts=("linear", {"name": "matern", "nu": 0.5}, squared_exponential.Config(lengthscale=2.0)))
    assert config.parts == (linear.Config(), matern.Config(nu=0.5), squared_exponential.Config(lengthscale=2.0))


def test_a_composition_survives_the_json_of_a_models_settings() -> None:
    class Settings(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
        kernel: Annotated[BaseModel, choice.OneOf("kernels")] = product.Config()

    inner = {"name": "sum", "parts": ["linear", {"name": "matern", "nu": 0.5, "separable": True}]}
    settings = Settings.model_validate({"kernel": {"name": "product", "parts": [inner, "periodic"]}})
    for text in (settings.model_dump_json(), json.dumps(settings.model_dump())):
        again = Settings.model_validate_json(text)
        assert again == settings and hash(again) == hash(settings)
    assert json.loads(settings.model_dump_json())["kernel"]["parts"][0]["parts"][1]["nu"] == 0.5


@pytest.mark.parametrize(
    ("parts", "message"),
    [([], "1"), (["mattern"], ""), ([{"nu": 0.5}], ""), (["sum", 3], "3")],
)
def test_wrong_parts_are_refused(parts: list[object], message: str) -> None:
    with pytest.raises(ValidationError, match=naming(message)):
        product.Config.model_validate({"parts": parts})


def test_every_part_learns() -> None:
    ours, x = made("product", parts=[{"name": "sum", "parts": PARTS}, "periodic"]), points(4, 0)
    names = {name for name, _ in ours.named_parameters()}
    assert {"parts.0.parts.0.log_variance", "parts.0.parts.2.log_alpha", "parts.1.log_period"} <= names
    ours(x, x).sum().backward()
    assert all(value.grad is not None for value in ours.parameters())
