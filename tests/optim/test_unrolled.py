"""Training on simulation error: simulations are those of a loop over windows, and they get better by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.base import Inputs, Shape
from streamgp.encoders import Layout
from streamgp.models.deep.variants import variant
from streamgp.optim.unrolled import Chain
from streamgp.testing import check_model

narx = variant("narx")
LAYOUT = Layout(lags=3, past=2, horizon=1, future=1)
SHAPE = Shape(targets=("y",), horizon=1, lags=3, past=("y", "u"), future=("u",), simulated=20)
QUICK = {"encoder": {"hidden": 16, "width": 16}, "epochs": 4, "online": {"window": 300}}


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
    """In standardised units that differ between inputs and targets, with a gap in the middle."""
    y, u = system(60, 0.1)
    x, truth = windows(y, u)
    z, learned = (flat(x) - 0.3) / 2.0, (truth - y[2:-1, None] - 0.1) / 0.5
    keep = torch.arange(len(z)) != 20
    chain = Chain(z[keep], learned[keep], LAYOUT)
    assert chain.starts(5).tolist() == [*range(15), *range(20, len(z) - 1 - 5)]
    weight = torch.linspace(-0.2, 0.3, 7).double().requires_grad_()
    net = lambda rows: (rows @ weight)[:, None].tanh()  # noqa: E731
    found = chain.errors(net, torch.tensor([3, 25]), 5)
    for place, start in enumerate((3, 26)):  # among all windows
        lags = list(y[start : start + 3])
        for step in range(5):
            at = start + step
            row = torch.stack([value for pair in zip(lags[-3:], u[at : at + 3], strict=True) for value in pair])
            lags.append(lags[-1] + 0.1 + 0.5 * net((torch.cat([row, u[at + 3 : at + 4]]) - 0.3)[None] / 2.0)[0, 0])
            torch.testing.assert_close(found[place, step, 0], (lags[-1] - y[at + 3]) / 0.5)
        (wanted,) = torch.autograd.grad(lags[-1] / 0.5, weight, retain_graph=True)
        (gradient,) = torch.autograd.grad(found[place, -1, 0], weight, retain_graph=True)
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_net_that_is_trained_for_it_simulates_better(stream: bool) -> None:
    y, u = system(1500, 0.15)
    x, truth = windows(y, u)
    clean, driven = system(400, 0.0, seed=1)
    ahead, _ = windows(clean, driven)
    errors = []
    for steps in (20, 0):
        model = narx.build(narx.Config(**QUICK, rebuild=90), replace(SHAPE, simulated=steps))
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
def test_laws() -> None:
    check_model(lambda shape: narx.build(narx.Config(**QUICK), shape), [replace(SHAPE, simulated=3)])


def test_functions_are_the_net_with_its_noise() -> None:
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
