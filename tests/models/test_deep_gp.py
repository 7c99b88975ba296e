"""GPs behind an encoder: predictions against dense NumPy, drawn functions, dropout, modes, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from streamgp import registry
from streamgp.base import FLOAT, Inputs, Model, Shape, Simulates
from streamgp.errors import UsageError
from streamgp.online.model import SimulatedStreamModel, StreamModel
from streamgp.testing.models import SHAPES, example_windows
from tests.models.deep_toys import PAIR, SYSTEM, build, chunk, deep, fitted, gp_of, residuals, series, windows
from tests.needs import needs

DROPPED = {"draws": 3, "encoder": {"hidden": 8, "dropout": 0.3}}
DRAWN = pytest.mark.parametrize("options", [{}, {"solver": "exact"}, DROPPED], ids=["kiss", "exact", "dropout"])
Array = np.ndarray[Any, np.dtype[np.float64]]


def gp(name: str = "gp_narx", shape: Shape = SYSTEM, **options: Any) -> SimulatedStreamModel:
    model = build(name, shape, **options)
    assert isinstance(model, SimulatedStreamModel)
    return model


def serve(model: StreamModel) -> None:
    """The posterior again, of the rows that are kept."""
    x, y = model.memory.sample()[:2]
    deep(model).serve(model.inputs(x), residuals(model, x, y))


def squared_exponential(model: StreamModel, a: Array, b: Array) -> Array:
    kernel = gp_of(model).solver.kernel
    scale, lengths = float(kernel.outputscale.detach()), kernel.lengthscale.detach().numpy()
    gap = (a[:, None] - b[None]) / lengths
    return np.asarray(scale * np.exp(-0.5 * (gap**2).sum(-1)))


def test_forecasts_are_the_frame_and_the_dense_gp_on_the_latents() -> None:
    """Two columns, raw units, the validation factor, from NumPy alone."""
    x, y = windows(PAIR, series(160))
    model = gp(shape=PAIR, solver="exact", target="change", patience=3, training={"encoder_rate": 0.05})
    train, asked = chunk(x, y, 0, 130), chunk(x, y, 130, 155)[0]
    fitted(model, *train, epochs=12)
    own = gp_of(model)
    own.factor.copy_(torch.tensor([1.3, 0.8]))  # by itself it is 1 here

    def flat(w: Inputs) -> Array:
        past, future = w.past.numpy(), w.future.numpy()
        every, ahead = train[0].past.numpy(), train[0].future.numpy()
        scaled = [
            (part - all_of_it.mean((0, 1))) / all_of_it.std((0, 1))
            for part, all_of_it in ((past, every), (future, ahead))
        ]
        return np.concatenate([part.reshape(len(part), -1) for part in scaled], 1)

    z, z_asked = flat(train[0]), flat(asked)
    present = [w.past.numpy()[:, -1, :1].repeat(2, 1) for w in (train[0], asked)]
    left = train[1].numpy() - present[0]
    center, unit = left.mean(0), left.std(0)
    r = (left - center) / unit
    with torch.no_grad():
        h, h_asked = (own.encoder(torch.from_numpy(rows)).numpy() for rows in (z, z_asked))
    wanted, spread = np.empty((25, 2)), np.empty((25, 2))
    for t, noise in enumerate(own.solver.noise.tolist()):
        covariance = squared_exponential(model, h, h) + noise * np.eye(len(h))
        cross = squared_exponential(model, h_asked, h)
        wanted[:, t] = cross @ np.linalg.solve(covariance, r[:, t])
        prior = squared_exponential(model, h_asked, h_asked).diagonal()
        spread[:, t] = prior - (cross * np.linalg.solve(covariance, cross.T).T).sum(1)
    factor = own.factor.numpy()
    issued = model.predict(asked)
    np.testing.assert_allclose(issued.mean.numpy(), present[1] + center + unit * wanted, rtol=1e-8)
    np.testing.assert_allclose(issued.latent_variance.numpy(), factor * unit**2 * spread, rtol=1e-6, atol=1e-9)
    noise = factor * unit**2 * own.solver.noise.detach().numpy()
    np.testing.assert_allclose((issued.variance - issued.latent_variance).numpy(), np.tile(noise, (25, 1)), rtol=1e-8)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_variance_is_widened_by_what_the_validation_rows_say(power: float) -> None:
    x, y = windows(SYSTEM, series(200))
    model = gp(solver="exact", rescale=power, patience=30)
    held = deep(model).config.held_out(len(y))
    y[held] += 5 * torch.randn(int(held.sum()), 1, dtype=FLOAT, generator=torch.Generator().manual_seed(0))
    list(model.fit(x, y, 1))
    z, r = model.inputs(x), residuals(model, x, y)
    deep(model).serve(z[~held], r[~held])
    mean, latent, noise = deep(model).standing(z[held])
    score = ((r[held] - mean).square() / (latent + noise)).mean(0)
    assert score > 1.2
    torch.testing.assert_close(deep(model).factor, score**power)


@DRAWN
def test_drawn_functions_have_the_forecasts_mean_and_variance(options: dict[str, Any]) -> None:
    x, y = windows(PAIR, series(90))
    model = fitted(gp(shape=PAIR, **options), *chunk(x, y, 0, 60), epochs=2)
    assert isinstance(model, Simulates)
    paths, some = 3000, chunk(x, y, 70, 73)[0]
    draw = model.functions(paths, torch.Generator().manual_seed(0))
    asked = Inputs(
        *(part.repeat(paths, 1, 1) for part in some.parts)
    )  # path-major: path p has windows 3p, 3p + 1, 3p + 2
    found = draw(asked)
    assert found.shape == (3 * paths, 2) and found.dtype == FLOAT
    found, issued = found.unflatten(0, (paths, 3)), model.predict(some)
    error = (found.mean(0) - issued.mean) / issued.variance.sqrt()
    assert error.abs().max() < 5 / paths**0.5
    assert ((found.var(0) / issued.variance) - 1).abs().max() < 6 * (2 / paths) ** 0.5


@DRAWN
def test_a_path_is_one_function_wherever_it_is_asked(options: dict[str, Any]) -> None:
    """With next to no noise, the same window gives the same value, and windows far apart differ from path to path."""
    x, y = windows(SYSTEM, series(60))
    model = fitted(gp(**options), *chunk(x, y, 0, 40), epochs=1)
    with torch.no_grad():
        gp_of(model).solver.log_noise.fill_(-60.0)
    gp_of(model).solver.floor = 1e-9 if options.get("solver") != "exact" else 1e-7
    serve(model)
    draw = model.functions(4, torch.Generator().manual_seed(0))

    def ask(which: int) -> Tensor:
        return draw(Inputs(*(part[which : which + 1].expand(4, -1, -1) for part in x.parts)))

    first, other, again = ask(50), ask(52), ask(50)
    size = float(model.outputs.scale * deep(model).factor.sqrt())
    torch.testing.assert_close(first, again, rtol=0, atol=3e-3 * size)
    assert other.shape == (4, 1)


@pytest.mark.parametrize("name", ["gp_narx", "gp_lstm"])
def test_dropout_draws_are_networks_that_stay(name: str) -> None:
    x, y = windows(SYSTEM, series(160))
    encoder = {"hidden": 8, "dropout": 0.3}
    one, other = (fitted(gp(name, encoder=encoder, draws=draws), *chunk(x, y, 0, 120), epochs=2) for draws in (0, 20))
    other.load_state_dict(one.state_dict())
    serve(other)
    many, plain = other.predict(x), one.predict(x)
    assert torch.equal(many.parameters(), other.predict(x).parameters())
    alone = other.predict(x.rows(slice(7, 8)))
    torch.testing.assert_close(alone.parameters()[:, 0], many.parameters()[:, 7], rtol=1e-9, atol=1e-12)
    assert many.latent_variance.mean() > plain.latent_variance.mean()
    assert not torch.allclose(many.mean, plain.mean)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["gp_narx", "gp_rnn", "lstm"])
@pytest.mark.parametrize("first", [True, False], ids=["fitted", "before any data"])
def test_regression_never_looks_at_the_targets_past(name: str, first: bool) -> None:
    shape = SHAPES[1]
    x, y = example_windows(shape, 160)
    order = torch.randperm(160, generator=torch.Generator().manual_seed(0))
    past, future = x.past.clone(), x.future.clone()
    for channel in (0, 1, 4, 5):
        past[..., channel] = past[order][..., channel] * 3
    future[..., :2] = future[order][..., :2] - 5
    other = Inputs(past, future)
    found = []
    for each in (x, other):
        model = build(name, shape, mode="regression", target="auto")
        if first:
            fitted(model, *chunk(each, y, 0, 120), epochs=2)
            model.update(*chunk(each, y, 120, 140))
        found.append(model.predict(each).parameters())
    assert torch.equal(*found)


@pytest.mark.parametrize("target", ["level", "change", "season"])
def test_every_target_learns(target: str) -> None:
    x, y = example_windows(SHAPES[1], 300)
    model = fitted(gp(shape=SHAPES[1], target=target), *chunk(x, y, 0, 250), epochs=4)
    error = (model.predict(x.rows(slice(250, None))).mean - y[250:]).square().mean()
    assert error < 0.6 * y.var(0).mean()


REFUSED: list[tuple[str, Shape, dict[str, Any]]] = [
    ("gp_lstm", SHAPES[2], {}),
    ("lstm", SHAPES[2], {}),
    ("gp_lstm", SYSTEM, {"encoder": {"width": 5}}),
    ("gp_narx", SYSTEM, {"encoder": {"width": 4}}),
    ("gp_narx", SYSTEM, {"kernel": "linear"}),
    ("gp_narx", SYSTEM, {"kernel": {"name": "matern", "separable": False}}),
    ("gp_narx", SYSTEM, {"training": {"scheme": "submatrix"}}),
    ("gp_narx", SHAPES[0], {"mode": "regression"}),
    ("gp_narx", SYSTEM, {"mode": "regression", "target": "change"}),
    ("gp_narx", SYSTEM, {"target": "season"}),
]


@pytest.mark.parametrize(("name", "shape", "options"), REFUSED, ids=str)
def test_what_does_not_go_together_is_refused_with_a_hint(name: str, shape: Shape, options: dict[str, Any]) -> None:
    module = registry.load("models", name)
    with pytest.raises(UsageError) as refused:
        module.build(module.Config(**options), shape)
    assert refused.value.hint


@pytest.mark.parametrize(
    "options",
    [{"draws": -1}, {"pretrain": -1}, {"online": {"stale": 1.0}}, {"encoder": "identity"}, {"window": 3}],
    ids=str,
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        registry.load("models", "gp_narx").Config(**options)


def line(x: Inputs, y: Tensor) -> Model:
    linear = registry.load("models", "linear")
    model: Model = linear.build(linear.Config(), SYSTEM)
    list(model.fit(x, y, epochs=1))
    return model


@pytest.mark.slow
def test_a_stream_may_begin_with_a_single_row() -> None:
    x, y = windows(SYSTEM, series(40))
    model = gp(online={"window": 300})
    assert all(model.update(*chunk(x, y, row, row + 1)).healthy for row in range(len(y)))
    assert (model.predict(x).mean - y).square().mean().sqrt() < 0.7 * y.std()


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["matern", "rational_quadratic", "spectral_mixture", "periodic", "sum"])
def test_a_kernel_by_its_name_goes_with_the_grid(kernel: str) -> None:
    """And it learns what a line cannot."""
    x, y = windows(SYSTEM, series(120))
    models = fitted(gp(kernel=kernel), x, y, epochs=30), line(x, y)
    error, lines = ((model.predict(x).mean - y).square().mean().sqrt() for model in models)
    assert error < 0.95 * lines


def test_basis_is_what_the_mean_is_made_of() -> None:
    x, y = windows(SYSTEM, series(104))
    sizes = {s: list(gp(solver={"name": s, **g}).fit(x, y, 1))[-1].basis for s, g in SOLVERS}
    assert sizes["exact"] == 100 and 1 < sizes["kiss"] <= 256


SOLVERS: list[tuple[str, dict[str, int]]] = [("exact", {}), ("kiss", {"grid": 16})]


@pytest.mark.slow
def test_a_recurrent_system_is_learned_better_than_by_a_line() -> None:
    """Its band covers, and its log score beats the linear model's by far."""
    x, y = windows(SYSTEM, series(900))
    train, test = chunk(x, y, 0, 600), chunk(x, y, 600, 890)
    model = build("gp_lstm", encoder={"hidden": 16})
    fitted(model, *train, epochs=25)
    scores = [-each.predict(test[0]).log_prob(test[1]).mean().item() for each in (model, line(*train))]
    assert scores[0] < scores[1] - 0.3
    low, high = model.predict(test[0]).quantile(torch.tensor([0.05, 0.95], dtype=FLOAT))
    assert 0.8 <= ((low <= test[1]) & (test[1] <= high)).double().mean() <= 0.97


@needs("gpu")
@pytest.mark.parametrize("name", ["gp_lstm", "gp_narx", "gru"])
@pytest.mark.parametrize("solver", ["kiss", "exact"])
def test_the_gpu_computes_what_the_cpu_does(name: str, solver: str) -> None:
    x, y = windows(PAIR, series(420))
    options: dict[str, Any] = {"encoder": {"hidden": 8, "precision": "float64"} if name != "gp_narx" else {"hidden": 8}}
    if name.startswith("gp_"):
        options["solver"] = {"name": solver, **({} if solver == "exact" else {"grid": 16})}
    issued = []
    for device in (torch.device("cpu"), torch.device("cuda")):
        model = build(name, PAIR, **options).to(device)

        def there(start: int, stop: int, device: torch.device = device) -> tuple[Inputs, Tensor]:
            some = chunk(x, y, start, stop)
            return some[0].to(device), some[1].to(device)

        fitted(model, *there(0, 300), epochs=2)
        assert all(model.update(*there(start, start + 30)).healthy for start in range(300, 390, 30))
        issued.append(model.predict(there(0, 400)[0]).parameters().cpu())
        if isinstance(model, SimulatedStreamModel):
            draw: Callable[[Inputs], Tensor] = model.functions(2, torch.Generator().manual_seed(0))
            assert draw(there(390, 392)[0]).device.type == device.type
    torch.testing.assert_close(issued[1], issued[0], rtol=1e-6, atol=1e-6)


def test_latents_stay_on_the_grid() -> None:
    x, y = windows(SYSTEM, series(200))
    model = fitted(gp(training={"encoder_rate": 0.3}), x, y, epochs=3)
    far = Inputs(x.past * 1e6, x.future)
    assert gp_of(model).encoder(model.inputs(far)).abs().max() <= 1


@pytest.mark.sampled
@pytest.mark.parametrize("scheme", ["majoriser", "algorithm2"])
def test_several_outputs_are_learned_over_one_encoder(scheme: str) -> None:
    """Two columns of their own units and noises, the second lagging the first, better than their present values."""
    y_and_u = series(420)
    whole = torch.from_numpy(np.column_stack([y_and_u[:, 0], 500.0 - 30.0 * np.roll(y_and_u[:, 0], 1), y_and_u[:, 1]]))
    shape = Shape(targets=("y", "v"), horizon=1, lags=4, past=("y", "v", "u"), future=())
    x = Inputs(whole.unfold(0, 4, 1)[:-1].transpose(1, 2), whole.new_zeros(len(whole) - 4, 1, 0))
    y = whole[4:, :2]
    model = gp(shape=shape, target="level", training={"scheme": scheme})
    fitted(model, *chunk(x, y, 0, 300), epochs=4)
    assert model.update(*chunk(x, y, 300, 320)).healthy
    error = (model.predict(x.rows(slice(320, None))).mean - y[320:]).abs().mean(0)
    present = (x.past[320:, -1, :2] - y[320:]).abs().mean(0)
    assert (error < present * torch.tensor([0.6, 0.3])).all()
    assert gp_of(model).solver.noise.unique().numel() == 2
