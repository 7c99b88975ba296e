"""Models on a net that start from hyper-parameters of a file: what of them is taken, in whose units, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp import registry
from streamgp.base import FLOAT, Inputs, Shape
from streamgp.encoders import Layout, mlp
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial, example, initialise
from streamgp.models.deep.gp import GpPosterior
from streamgp.models.deep.on_regression import OnRegression
from streamgp.online.model import StreamModel
from tests.models.deep_toys import PAIR, build, chunk, gp_of, series, windows
from tests.words import naming

STILL = {"training": {"encoder_rate": 0.0, "kernel_rate": 0.0}, "pretrain": 0, "validation": 0.0}
"""A training that leaves what it starts with."""
KERNELS: list[dict[str, Any]] = [
    {"name": "squared_exponential"},
    {"name": "matern", "nu": 1.5},
    {"name": "rational_quadratic"},
]


def found(kernel: dict[str, Any] = KERNELS[0], **changed: Any) -> Initial:
    """ℓ = (6, 3, 20) in raw units of y, u and u ahead, ρ = 8, σ = (0.5, 1) of windows of PAIR."""
    values = {
        "log_lengthscale": torch.tensor([6.0, 3.0, 20.0], dtype=FLOAT).log(),
        "log_outputscale": torch.zeros((), dtype=FLOAT),
    }
    if kernel["name"] == "rational_quadratic":
        values["log_alpha"] = torch.tensor(0.7, dtype=FLOAT)
    eight, noise = torch.full((2,), 8.0, dtype=FLOAT), torch.tensor([0.5, 1.0], dtype=FLOAT)
    plain = replace(example(PAIR), target="change", values=values, kernel=kernel, target_scale=eight, noise=noise)
    return replace(plain, **changed)


def first_layer(model: StreamModel) -> Tensor:
    return next(value for name, value in gp_of(model).encoder.named_parameters() if name.endswith("net.0.weight"))


@pytest.mark.sampled
@pytest.mark.parametrize("solver", ["exact", "kiss"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: str(kernel["name"]))
def test_noise_and_outputscale_are_the_files_and_rows_as_far_apart(kernel: dict[str, Any], solver: str) -> None:
    """In raw units; two rows are on average as many lengthscales apart as under the file's kernel, by NumPy's means."""
    x, y = windows(PAIR, series(120))
    model = build("gp_narx", PAIR, solver=solver, kernel=kernel, **STILL)
    model.initialise(found(kernel))
    fresh = first_layer(model).detach().clone()
    list(model.fit(x, y, 1))
    own, scale = gp_of(model).solver, model.outputs.scale
    torch.testing.assert_close(own.noise.sqrt() * scale, torch.tensor([0.5, 1.0], dtype=FLOAT), rtol=1e-6, atol=0)
    parameters = dict(own.kernel.named_parameters())
    wanted = (64.0 / scale.square()).mean().log()
    torch.testing.assert_close(parameters["log_outputscale"].detach(), wanted)
    if "log_alpha" in parameters:
        assert torch.equal(parameters["log_alpha"].detach(), torch.full_like(parameters["log_alpha"], 0.7))
    raw = torch.cat((x.past.flatten(1), x.future.flatten(1)), 1).numpy()
    lengths = torch.tensor([6.0, 3.0] * 4 + [20.0] * 2, dtype=FLOAT) * torch.tensor([2.0] * 8 + [2**0.5] * 2)
    far = 2.0 * (raw / lengths.numpy()).var(0).sum()  # E ‖a − b‖² of two rows
    with torch.no_grad():
        latent = gp_of(model).encoder(model.inputs(x)) / parameters["log_lengthscale"].exp()
    assert 2.0 * latent.numpy().var(0).sum() == pytest.approx(far, rel=1e-9)
    relevance = (first_layer(model).detach() / fresh)[0] * torch.cat(
        (model.inputs.scale[:2].repeat(4), model.inputs.scale[2:].repeat(2))
    ) ** -1
    torch.testing.assert_close(relevance * lengths, (relevance * lengths)[:1].expand(10))


def test_the_first_layer_of_a_perceptron_sees_the_files_distance() -> None:
    """Over its random weights ‖W (a − b)‖² is on average in proportion to the file's squared distance."""
    lengths = torch.tensor([0.5, 2.0, 8.0], dtype=FLOAT)
    encoder = mlp.build(mlp.Config(hidden=20_000, layers=1), Layout(0, 0, 1, 3))
    encoder.weigh(lengths[:0], 1.0 / lengths)
    weight = next(encoder.parameters()).detach()
    a = torch.randn(6, 3, dtype=FLOAT, generator=torch.Generator().manual_seed(0))
    found, wanted = (weight @ a.T).square().mean(0), (a / lengths).square().sum(1) / 3.0
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0)


def test_what_a_regression_leaves_has_the_files_noise_and_a_kernel_of_its_own() -> None:
    x, y = windows(PAIR, series(120))
    module, kernels = registry.load("models", "gp_narx"), list[dict[str, Tensor]]()
    for initial in (None, found(target="auto")):
        model = module.build(module.Config(encoder={"hidden": 8}, solver="exact", **STILL), PAIR)
        assert isinstance(model, OnRegression) and isinstance(model.net.posterior, GpPosterior)
        if initial is not None:
            model.initialise(initial)
        list(model.fit(x, y, 1))
        kernels.append(dict(model.net.posterior.solver.kernel.named_parameters()))
    noise = model.net.posterior.solver.noise.sqrt() * model.net.outputs.scale
    limit = torch.tensor([0.5, 1.0], dtype=FLOAT).minimum(model.net.outputs.scale)  # no more than there is
    torch.testing.assert_close(noise, limit, rtol=1e-6, atol=0)
    assert all(torch.equal(value, kernels[1][name]) for name, value in kernels[0].items())


def irrelevant(rows: int, seed: int) -> tuple[Inputs, Tensor]:
    """y = sin 2a + b²/2 + noise, beside six inputs that say nothing."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(rows, 8, generator=generator, dtype=FLOAT)
    y = (2 * u[:, 0]).sin() + u[:, 1].square() / 2 + 0.1 * torch.randn(rows, generator=generator, dtype=FLOAT)
    return Inputs(u.new_zeros(rows, 0, 1), u[:, None, :]), y[:, None]


@pytest.mark.slow
def test_which_inputs_matter_is_worth_more_than_the_rows_at_hand() -> None:
    """120 rows, two of eight inputs matter, and the file says which: at most 0.75 of the error without it."""
    shape = Shape(targets=("y",), horizon=1, lags=0, past=("y",), future=tuple("abcdefgh"))
    lengths = torch.tensor([1.0, 1.5, *[30.0] * 6], dtype=FLOAT)
    values = {"log_lengthscale": lengths.log(), "log_outputscale": torch.zeros((), dtype=FLOAT)}
    module, errors = registry.load("models", "gp_narx"), [0.0, 0.0]
    for seed in range(2):
        for place, initial in enumerate((None, replace(example(shape), values=values))):
            config = module.Config(encoder={"hidden": 32, "seed": seed}, solver="exact", pretrain=0)
            model = module.build(config, shape)
            if initial is not None:
                model.initialise(initial)
            list(model.fit(*irrelevant(120, seed), model.epochs_for(120)))
            x, y = irrelevant(300, 50 + seed)
            errors[place] += float((model.predict(x).mean - y).square().mean())
    assert errors[1] < 0.75**2 * errors[0]


def test_they_are_taken_once_and_a_fit_that_failed_gives_them_back() -> None:
    x, y = windows(PAIR, series(260))
    model = build("gp_narx", PAIR, **STILL)
    model.initialise(found())
    back = gp_of(model).snapshot()
    model.update(*chunk(x, y, 0, 100))
    weight = first_layer(model).detach().clone()
    assert gp_of(model).initial is None
    model.update(*chunk(x, y, 100, 250))  # twice the rows: trained again, with rates of 0
    assert model.rebuilt == 250 and torch.equal(first_layer(model), weight)
    back()
    assert gp_of(model).initial is not None and gp_of(model).trained_at == 0
    assert not torch.equal(first_layer(model), weight)


def test_a_restored_model_goes_on_bit_for_bit() -> None:
    x, y = windows(PAIR, series(320))

    def made() -> StreamModel:
        model = build("gp_lstm", PAIR, epochs=1)
        model.initialise(found())
        return model

    model, again = made(), made()
    model.update(*chunk(x, y, 0, 100))
    tensors, rest = model.state()
    again.restore({name: value.clone() for name, value in tensors.items()}, rest)
    for one in (model, again):
        one.update(*chunk(x, y, 100, 310))
        assert one.rebuilt == 310
    assert torch.equal(model.predict(x).parameters(), again.predict(x).parameters())


@pytest.mark.parametrize(
    ("options", "initial", "said"),
    [
        ({"mode": "regression", "target": "level"}, found(target="level"), "mode=regression"),
        ({}, found({"name": "matern", "nu": 1.5}), "kernel=matern squared_exponential"),
        ({}, found({"name": "periodic"}), "kernel=periodic"),
        ({"target": "level"}, found(), "target=change target=level"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], initial: Initial, said: str) -> None:
    with pytest.raises(UsageError, match=naming(said)) as refused:
        build("gp_narx", PAIR, **options).initialise(initial)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("name", "options", "said"), [("lstm", {}, "lstm kernel"), ("gp_lstm", {"mode": "regression"}, "mode=regression")]
)
def test_a_model_that_takes_none_says_why(name: str, options: dict[str, Any], said: str) -> None:
    module = registry.load("models", name)
    config = module.Config(**options)
    with pytest.raises(UsageError, match=naming(said)):
        initialise(module.build(config, PAIR), name, config, found(target="auto"))
