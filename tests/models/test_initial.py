"""Hyper-parameters to start from: whose units they are in, what a model makes of them, and files that will not do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from streamgp import choice, registry
from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import DataError, UsageError
from streamgp.evidence.initial import Initial, example, structure
from streamgp.evidence.initial_file import document, from_document
from streamgp.evidence.thinned import LogHyper
from streamgp.testing import example_windows
from tests.words import names, naming

SHAPE = Shape(targets=("y",), horizon=1, lags=3, past=("y", "u"), future=("k",))
OPTIONS: dict[str, dict[str, Any]] = {
    "svdgp": {"basis": 32},
    "rvm": {"dictionary": 60},
    "qsgp": {"features": {"size": 192, "width": 64}},
}


def windows(rows: int = 150) -> tuple[Inputs, torch.Tensor]:
    return example_windows(SHAPE, rows)


def found() -> Initial:
    """ℓ = (3, 5, 7) in raw units, ρ = 8, σ = 2."""
    values = {
        "log_lengthscale": torch.tensor([3.0, 5.0, 7.0]).double().log(),
        "log_outputscale": torch.zeros(()).double(),
    }
    eight, two = torch.full((1,), 8.0, dtype=FLOAT), torch.full((1,), 2.0, dtype=FLOAT)
    return replace(example(SHAPE), values=values, target_scale=eight, noise=two)


def hyper_of(model: Any) -> LogHyper:
    if hasattr(model, "posterior") and hasattr(model.posterior, "search"):
        return model.posterior.search.hyper
    return model.found.hyper if hasattr(model, "found") else model.hyper


@pytest.mark.parametrize("name", OPTIONS)
def test_with_learn_once_hyper_parameters_stay_what_they_are_in_raw_units(name: str) -> None:
    """Also at a rebuild, which has another scaling."""
    module = registry.load("models", name)
    model = module.build(module.Config(**OPTIONS[name], learn="once", rebuild=100), SHAPE)
    model.initialise(found())
    x, y = windows()
    model.update(x, y)
    x.past[..., 1] *= 3.0  # whose scale the rebuild has to follow
    for turn in range(2):
        hyper, scale, height = hyper_of(model), model.inputs.scale, float(model.outputs.scale)
        assert torch.allclose(hyper.lengthscale.exp() * scale, torch.tensor([3.0, 5.0, 7.0]).double())
        assert torch.allclose(hyper.outputscale.exp().sqrt() * height, torch.tensor(8.0).double())
        assert torch.allclose(hyper.noise.exp().sqrt() * height, torch.tensor(2.0).double())
        if not turn:
            assert "rebuild" in model.update(x, y).done


@pytest.mark.parametrize("name", OPTIONS)
def test_otherwise_they_are_where_the_first_estimate_starts(name: str) -> None:
    module = registry.load("models", name)
    starts: list[LogHyper] = []

    def noting(inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **told: Any) -> Any:
            starts.extend(start for start, _ in args[3])
            return inner(*args, **told)

        return call

    x, y = windows()
    model = module.build(module.Config(**OPTIONS[name]), SHAPE)
    search = model.posterior.search
    search.way = search.way._replace(method=noting(search.way.method))
    model.initialise(found())
    model.update(x, y)
    wanted = found().hyper(model.inputs.scale, model.outputs.scale)
    assert len(starts) == 1 and torch.equal(starts[0].pack(), wanted.pack())
    assert not torch.equal(hyper_of(model).pack(), wanted.pack())


@pytest.mark.sampled
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("learn", ["rebuild", "once"])
def test_a_restored_model_goes_on_bit_for_bit(name: str, learn: str) -> None:
    module = registry.load("models", name)

    def build() -> Any:
        made = module.build(module.Config(**OPTIONS[name], learn=learn, rebuild=100), SHAPE)
        made.initialise(found())
        return made

    x, y = windows(300)
    model = build()
    model.update(x.rows(slice(0, 100)), y[:100])
    again = build()
    again.restore(*(dict(part) for part in json_like(model)))
    for start in (100, 200):
        for one in (model, again):
            one.update(x.rows(slice(start, start + 100)), y[start : start + 100])
    assert torch.equal(model.predict(x).parameters(), again.predict(x).parameters())


def json_like(model: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    tensors, rest = model.state()
    return {name: value.clone() for name, value in tensors.items()}, json.loads(json.dumps(rest))


def test_qsgp_takes_the_kernel_of_the_file_and_its_shape() -> None:
    module = registry.load("models", "qsgp")
    rough = replace(found(), kernel={"name": "matern", "nu": 1.5})
    model = module.build(module.Config(**OPTIONS["qsgp"], kernel={"name": "matern", "nu": 1.5}, learn="once"), SHAPE)
    model.initialise(rough)
    model.update(*windows())
    assert model.posterior.engine.kernel.own.nu == 1.5
    other = module.build(module.Config(**OPTIONS["qsgp"]), SHAPE)
    with pytest.raises(UsageError, match=naming("kernel=matern squared_exponential")):
        other.initialise(rough)
    outcomes = module.build(module.Config(**OPTIONS["qsgp"], likelihood="logistic"), SHAPE)
    with pytest.raises(UsageError):
        outcomes.initialise(found())


def test_the_gain_of_several_columns_is_the_mean_of_theirs() -> None:
    shape = replace(SHAPE, horizon=2)
    two = replace(
        example(shape), target_scale=torch.tensor([1.0, 3.0]).double(), noise=torch.tensor([0.1, 0.6]).double()
    )
    own = torch.tensor([2.0, 1.0]).double()
    assert two.gain(own) == pytest.approx((0.25 + 9.0) / 2)
    assert torch.allclose(two.log_noise(own).exp(), torch.tensor([0.0025, 0.36]).double())
    hyper = two.hyper(torch.ones(3).double(), own)
    assert hyper.noise.exp().item() == pytest.approx((0.0025 * 0.36) ** 0.5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hyperparameters": 2}, "2 1"),
        ({"noise": [0.0]}, "noise"),
        ({"noise": [1.0, 1.0]}, "noise"),
        ({"scale": [1.0, "x", 1.0]}, "scale"),
        ({"values": {"log_lengthscale": [0.0, 0.0, 0.0]}}, "log_lengthscale log_outputscale"),
        ({"values": {"log_lengthscale": [0.0, 0.0, 900.0], "log_outputscale": 0.0}}, ""),
        ({"values": {"log_lengthscale": [0.0, [0.0], 0.0], "log_outputscale": 0.0}}, "log_lengthscale"),
        ({"kernel": {"name": "squared_exponentail"}}, "squared_exponentail"),
        ({"kernel": {"name": "matern", "nu": 0.7}}, "kernel"),
        ({"windows": {}}, "windows.targets"),
        ({"more": 1}, "more"),
        ({"target": "auto?"}, "target"),
    ],
)
def test_a_damaged_document_is_named(change: dict[str, Any], said: str) -> None:
    told = document(found()) | change
    with pytest.raises(DataError, match=naming("tuned.json")) as caught:
        from_document(json.loads(json.dumps(told)), "tuned.json")
    assert names(caught.value.message, said) and caught.value.hint


@pytest.mark.parametrize("told", [[], {}, 3, {"a": 1}])
def test_another_document_is_no_hyper_parameters(told: Any) -> None:
    with pytest.raises(DataError, match=naming("tuned.json")):
        from_document(told, "tuned.json")


def test_the_structure_of_a_kernel_is_all_but_where_it_starts() -> None:

    one = choice.read(
        "kernels", {"name": "sum", "parts": [{"name": "matern", "nu": 0.5, "lengthscale": 3.0}, "linear"]}
    )
    assert structure(one) == {
        "name": "sum",
        "parts": [{"name": "matern", "nu": 0.5, "separable": False}, {"name": "linear"}],
    }


def test_a_document_is_the_same_to_the_last_bit() -> None:
    third = replace(found(), scale=torch.tensor([1 / 3, 0.1, 1e-7]).double())
    again = from_document(json.loads(json.dumps(document(third))), "x")
    assert torch.equal(again.scale, third.scale)
    assert all(torch.equal(again.values[name], value) for name, value in third.values.items())
