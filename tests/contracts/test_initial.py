"""Every registered model starts from hyper-parameters, or says why it cannot; with every registered kernel."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp import choice, registry
from streamgp.base import FLOAT, Inputs, Model, Shape
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial, TakesInitial, example, initialise, structure
from streamgp.evidence.initial_file import document, from_document
from streamgp.kernels import Tied
from streamgp.model_config import ModelConfig, models_with
from streamgp.online.inputs import KernelInputs
from streamgp.testing import SHAPES, example_windows
from tests.words import naming

TUNED = models_with("tuned")
SMALL: dict[str, dict[str, Any]] = {"qsgp": {"features": {"size": 192, "width": 64}}, "svdgp": {"basis": 32}}
KERNELS: list[dict[str, Any]] = [
    *({"name": name} for name in registry.names("kernels")),
    {"name": "matern", "nu": 0.5, "separable": True},
    {"name": "locally_periodic", "tied": True},
    {"name": "product", "parts": ["squared_exponential", {"name": "sum", "parts": ["linear", "periodic"]}]},
]


def config_of(name: str) -> ModelConfig:
    config: ModelConfig = registry.load("models", name).Config(**SMALL.get(name, {}))
    return config


def built(name: str) -> list[tuple[Model, Shape]]:
    """The model for every shape that it can be built for."""
    module, found = registry.load("models", name), []
    for shape in SHAPES:
        try:
            found.append((module.build(config_of(name), shape), shape))
        except UsageError:
            continue
    return found


def initial_of(x: Inputs, y: Tensor, shape: Shape) -> Initial:
    """Lengthscales of two standard deviations, as if found in units of half a standard deviation."""
    inputs = KernelInputs(shape)
    inputs.scaling.fit(x)
    found = example(shape)
    values = {**found.values, "log_lengthscale": torch.full_like(inputs.scale, 4.0).log()}
    return replace(found, values=values, scale=0.5 * inputs.scale, target_scale=y.std(0), noise=0.2 * y.std(0))


@pytest.mark.sampled
@pytest.mark.parametrize("name", registry.names("models"))
def test_a_model_starts_from_hyper_parameters_or_says_why_not(name: str) -> None:
    cases = built(name)
    assert cases
    for model, shape in cases:
        x, y = example_windows(shape, 120)
        found = initial_of(x, y, shape)
        if name not in TUNED:
            with pytest.raises(UsageError) as caught:
                initialise(model, name, config_of(name), found)
            assert all(other in caught.value.hint for other in TUNED)
            continue
        assert isinstance(model, TakesInitial)
        initialise(model, name, config_of(name), found)
        step = model.update(x, y)
        assert step.healthy and bool(torch.isfinite(model.predict(x).mean).all())


@pytest.mark.parametrize("name", TUNED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    model, shape = built(name)[0]
    found = example(shape)
    other = replace(shape, lags=shape.lags + 1)
    for wrong, said in (
        (replace(found, shape=other), "lags 4 3"),
        (replace(found, target="level"), "target=level target=auto"),
        (replace(found, kernel={"name": "linear"}), "linear"),
    ):
        with pytest.raises(UsageError, match=naming(said)) as caught:
            initialise(model, name, config_of(name), wrong)
        assert caught.value.hint


@pytest.mark.parametrize("options", KERNELS, ids=json.dumps)
def test_a_kernel_under_another_scaling_is_the_same_function(options: dict[str, Any]) -> None:
    """k of the raw windows stays when a model standardises them, and its targets, otherwise; through a file."""
    config = choice.read("kernels", options)
    groups = torch.tensor([0, 1, 0, 1, 2])
    shape = Shape(targets=("y",), horizon=1, lags=2, past=("y", "u"), future=("k",))
    generator = torch.Generator().manual_seed(1)
    kernel = Tied(config, groups)
    for value in kernel.parameters():
        value.data.normal_(generator=generator, std=0.3)
    raw = torch.randn(6, 5, generator=generator, dtype=FLOAT)
    scale, target_scale = torch.tensor([2.0, 0.1, 7.0]).double(), torch.tensor([3.0]).double()
    values = {name: value.detach().clone() for name, value in kernel.named_parameters()}
    kept = Initial(shape, "auto", 0.9, structure(config), values, scale, target_scale, 0.3 * target_scale, {})
    found = from_document(json.loads(json.dumps(document(kept))), "tuned.json")
    assert found == replace(
        kept, values=found.values, scale=found.scale, target_scale=found.target_scale, noise=found.noise
    )
    other, size = Tied(config, groups), torch.tensor([0.5, 0.2, 11.0]).double()
    height = torch.tensor([0.7]).double()
    log_noise = found.onto(other, size, height)
    wanted = target_scale.square() * kernel(raw / scale[groups], raw / scale[groups])
    shown = height.square() * other(raw / size[groups], raw / size[groups])
    assert torch.allclose(shown, wanted, rtol=1e-10, atol=1e-12)
    assert torch.allclose(log_noise.exp() * height.square(), 0.09 * target_scale.square())
