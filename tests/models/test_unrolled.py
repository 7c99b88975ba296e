"""Training on simulation error: simulations are those of a loop over windows, and they get better by it."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
from scipy.optimize import least_squares
from torch import Tensor

from streamgp.base import Inputs, OutputError, Shape
from streamgp.encoders import Layout
from streamgp.models.deep.unrolled import Chain
from streamgp.models.deep.variants import variant
from streamgp.testing import check_model

narx, gp_narx = variant("narx"), variant("gp_narx")
LAYOUT = Layout(lags=3, past=2, horizon=1, future=1)
SHAPE = Shape(targets=("y",), horizon=1, lags=3, past=("y", "u"), future=("u",), simulated=20)
QUICK = {"encoder": {"hidden": 16}, "epochs": 4, "online": {"window": 300}}


def system(count: int, noise: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A tank with a saturated valve, measured with noise: y (N,), u (N,)."""
    g = np.random.default_rng(seed)
    u, y = np.repeat(g.uniform(-2, 2, count // 10 + 1), 10)[:count], np.zeros(count)
    for t in range(1, count):
        y[t] = 0.95 * y[t - 1] + 0.2 * np.tanh(2 * u[t]) - 0.02 * y[t - 1] ** 3
    return torch.from_numpy(y + noise * g.normal(size=count)), torch.from_numpy(u)


def windows(y: Tensor, u: Tensor) -> tuple[Inputs, Tensor]:
    past = torch.stack([y, u], 1).unfold(0, 3, 1)[:-1].mT
    return Inputs(past, u[3:, None, None]), y[3:, None]


def flat(x: Inputs) -> Tensor:
    return torch.cat([x.past.flatten(1), x.future.flatten(1)], 1)


def test_errors_are_those_of_a_loop_and_so_is_their_gradient() -> None:
    """In standardised units, with a gap in the middle."""
    y, u = system(60, 0.1)
    z = (flat(windows(y, u)[0]) - 0.3) / 2.0
    keep = torch.arange(len(z)) != 20
    chain = Chain(z[keep], 1, LAYOUT)
    assert chain.starts(5).tolist() == [*range(15), *range(20, len(z) - 1 - 5)]
    weight = torch.linspace(-0.2, 0.3, 7).double().requires_grad_()
    step = lambda rows: (rows @ weight)[:, None].tanh()  # noqa: E731
    found = chain.errors(step, torch.tensor([3, 25]), 5)
    for place, start in enumerate((3, 26)):  # among all windows
        lags = list((y[start : start + 3] - 0.3) / 2.0)
        for ahead in range(5):
            at = start + ahead
            inputs = (u[at : at + 4] - 0.3) / 2.0
            row = torch.stack([value for pair in zip(lags[-3:], inputs[:3], strict=True) for value in pair])
            lags.append(step(torch.cat([row, inputs[3:]])[None])[0, 0])
            torch.testing.assert_close(found[place, ahead, 0], lags[-1] - (y[at + 3] - 0.3) / 2.0)
        (wanted,) = torch.autograd.grad(lags[-1], weight, retain_graph=True)
        (gradient,) = torch.autograd.grad(found[place, -1, 0], weight, retain_graph=True)
        torch.testing.assert_close(gradient, wanted)


def first_order(count: int, process: float, measured: float) -> tuple[Chain, np.ndarray, np.ndarray]:
    """x_t = 0.9 x_{t−1} + 0.5 u_t + noise, y = x + noise, as windows (y_{t−1}, u_{t−1}, u_t)."""
    g = np.random.default_rng(0)
    u, x = np.repeat(g.uniform(-1, 1, count // 5), 5), np.zeros(count)
    for t in range(1, count):
        x[t] = 0.9 * x[t - 1] + 0.5 * u[t] + process * g.normal()
    y = x + measured * g.normal(size=count)
    return Chain(torch.from_numpy(np.stack([y[:-1], u[:-1], u[1:]], 1)), 1, Layout(1, 2, 1, 1)), y, u


def test_a_linear_step_becomes_the_output_error_model() -> None:
    """SciPy's least squares of the same simulations; one-step least squares is biased by the noise of the lag."""
    chain, y, u = first_order(2000, 0.0, 0.5)
    weight = torch.tensor([0.5, 0.1]).double().requires_grad_()
    starts = torch.arange(0, 1950, 10)
    step = lambda z: (z[:, [0, 2]] @ weight)[:, None]  # noqa: E731
    solver = torch.optim.LBFGS([weight], max_iter=100, tolerance_change=1e-12, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        solver.zero_grad()
        loss = chain.loss(step, starts, torch.ones(40, 1).double())
        loss.backward()
        return loss

    solver.step(closure)

    def errors(w: np.ndarray) -> np.ndarray:
        value, found = y[starts], []
        for ahead in range(1, 41):
            value = w[0] * value + w[1] * u[starts + ahead]
            found.append(value - y[starts + ahead])
        return np.concatenate(found)

    found = weight.detach().numpy()
    np.testing.assert_allclose(found, least_squares(errors, [0.5, 0.1], xtol=1e-12, ftol=1e-12).x, atol=1e-5)
    one = np.linalg.lstsq(np.stack([y[:-1], u[1:]], 1), y[1:], rcond=None)[0]
    assert abs(found[0] - 0.9) < 0.02 < 0.1 < abs(one[0] - 0.9)


@pytest.mark.parametrize(("process", "measured", "low", "high"), [(0.2, 0.0, 0.8, 1.0), (0.0, 0.2, 0.0, 0.0)])
def test_noise_of_the_process_is_fed_back_and_noise_of_the_measurement_is_not(
    process: float, measured: float, low: float, high: float
) -> None:
    chain = first_order(4000, process, measured)[0]
    step = lambda z: 0.9 * z[:, :1] + 0.5 * z[:, 2:]  # noqa: E731
    assert low <= float(chain.fed_back(step, 20, torch.Generator().manual_seed(0))) <= high


def test_the_gradient_goes_through_the_posterior_of_a_gp() -> None:
    """Central differences of the simulation error, in weights of the encoder that move all latents."""
    y, u = system(200, 0.1)
    x, truth = windows(y, u)
    model = gp_narx.build(gp_narx.Config(**QUICK), replace(SHAPE, simulated=1))
    for _ in model.fit(x.rows(slice(0, 60)), truth[:60], epochs=1):
        pass
    posterior = model.net.posterior
    z, r = model.net.inputs(x), model.net.targets(x, truth - model.below.predict(x).mean)
    chain = Chain(z, 1, LAYOUT)

    def loss() -> Tensor:
        function = posterior.function(z, r, torch.Generator().manual_seed(0))
        step = lambda some: posterior.onto(some, function(some))  # noqa: E731
        return chain.loss(step, chain.some(5)[::16], torch.ones(5, 1).double())

    weight = next(iter(posterior.encoder.parameters()))
    (gradient,) = torch.autograd.grad(loss(), weight)
    for at in ((0, 0), (3, 2)):
        sides = []
        for shift in (1e-5, -2e-5):
            with torch.no_grad():
                weight[at] += shift
                sides.append(loss().item())
        with torch.no_grad():
            weight[at] += 1e-5
        assert float(gradient[at]) == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-3, abs=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "stream"), [(narx, False), (gp_narx, True)])
def test_a_model_that_is_trained_for_it_simulates_better(module: ModuleType, stream: bool) -> None:
    y, u = system(1500, 0.15)
    x, truth = windows(y, u)
    clean, driven = system(400, 0.0, seed=1)
    ahead, _ = windows(clean, driven)
    errors = []
    for steps in (20, 0):
        model = module.build(module.Config(**QUICK, rebuild=90), replace(SHAPE, simulated=steps))
        for _ in model.fit(x.rows(slice(0, 1200)), truth[:1200], epochs=4):
            pass
        for start in range(1200, 1497 if stream else 0, 99):
            model.update(x.rows(slice(start, start + 99)), truth[start : start + 99])
        lags = list(clean[:3])
        for at in range(300):
            past = torch.stack([torch.stack(lags[-3:]), driven[at : at + 3]], 1)[None]
            lags.append(model.predict(Inputs(past, ahead.future[at : at + 1])).mean[0, 0])
        errors.append(float((torch.stack(lags) - clean[:303]).square().mean().sqrt()))
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.slow
@pytest.mark.parametrize("module", [narx, gp_narx])
def test_laws(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgp.models.deep.simulation.STAGES", ((2, 10), (3, 10)))
    check_model(lambda shape: module.build(module.Config(**QUICK), shape), [replace(SHAPE, simulated=3)], full=512)


def test_functions_have_the_forecast_s_variance_and_paths_go_on_with_a_part_of_it() -> None:
    y, u = system(500, 0.1)
    x, truth = windows(y, u)
    model = narx.build(narx.Config(**QUICK), replace(SHAPE, simulated=2))
    for _ in model.fit(x, truth, epochs=3):
        pass
    draw = model.functions(400, torch.Generator().manual_seed(0))
    one = x.rows(torch.zeros(400, dtype=torch.int64))
    values, issued = torch.cat([draw(one) for _ in range(10)]), model.predict(x.rows(slice(0, 1)))
    assert abs(float(values.mean() - issued.mean[0, 0])) < 5 * float(values.std()) / 4000**0.5
    assert float(values.std()) == pytest.approx(float(issued.variance.sqrt()), rel=0.1)
    assert isinstance(draw, OutputError)
    model.net.posterior.fed_back.fill_(share := 0.3)
    value, observed = (torch.cat(parts) for parts in zip(*(draw.apart(one) for _ in range(10)), strict=True))
    assert float(value.var() / observed.var()) == pytest.approx(share, rel=0.15)
    assert float((observed - value).var() / observed.var()) == pytest.approx(1.0 - share, rel=0.15)
