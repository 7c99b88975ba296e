"""Nets on what a regression leaves: what each part learns, and that the mix is not worse than the regression."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from streamgp import registry
from streamgp.base import FLOAT, Model, Shape, Simulates
from streamgp.models.deep.on_regression import OnRegression, seen
from streamgp.testing.models import SHAPES, example_windows
from tests.models.deep_toys import PAIR, SYSTEM, chunk, series, windows


def build(name: str, shape: Shape = SYSTEM, **options: Any) -> OnRegression:
    module = registry.load("models", name)
    made = module.build(module.Config(**{"encoder": {"hidden": 8}, "online": {"window": 300}, **options}), shape)
    assert isinstance(made, OnRegression)
    return made


def line(shape: Shape) -> Model:
    module = registry.load("models", "linear")
    made: Model = module.build(module.Config(), shape)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gp_narx", "lstm"])
def test_on_a_stream_the_regression_is_linear_and_the_net_learns_what_it_left(name: str) -> None:
    x, y = windows(PAIR, series(400))
    model, alone = build(name, PAIR), line(PAIR)
    for start in range(0, 300, 20):
        some, truth = chunk(x, y, start, start + 20)
        issued = model.predict(some)
        below = alone.predict(some).mean
        assert torch.equal(issued.experts[0], below)
        model.update(some, truth, issued), alone.update(some, truth)
        learned = model.net.memory.sample()[1][-20:]
        assert torch.equal(learned, truth - below)
    some = chunk(x, y, 300, 320)[0]
    issued = model.predict(some)
    assert torch.equal(issued.experts[1], issued.experts[0] + model.net.predict(seen(some)).mean)
    share = model.share.weights[:, 1]
    wanted = (1 - share) * issued.experts[0] + share * issued.experts[1]
    torch.testing.assert_close(issued.mean, wanted)
    assert model.figures()["weight_net"] == pytest.approx(share.mean().item())


def run(name: str, rows: int, noisy: bool = False) -> tuple[float, float]:
    """The net's squared errors from row 400 on over the regression's, and the share of the mix that it ends with."""
    generator = torch.Generator().manual_seed(0)
    x, y = windows(SYSTEM, series(rows))
    if noisy:
        y = x.past[:, -1, :1] + 0.1 * torch.randn(len(x.past), 1, generator=generator, dtype=FLOAT)
    model, alone = build(name), line(SYSTEM)
    errors = torch.zeros(2, dtype=FLOAT)
    for start in range(0, rows - 20, 20):
        some, truth = chunk(x, y, start, start + 20)
        if start >= 400:
            errors += torch.stack([(each.predict(some).mean - truth).square().sum() for each in (model, alone)])
        model.update(some, truth), alone.update(some, truth)
    return float(errors[0] / errors[1]), model.figures()["weight_net"]


def test_a_net_that_is_worth_nothing_loses_its_share() -> None:
    errors, share = run("narx", 1600, noisy=True)
    assert errors < 1.02 and share < 0.4


@pytest.mark.slow
def test_what_a_line_cannot_learn_gives_the_net_its_share() -> None:
    errors, share = run("gp_narx", 1000)
    assert errors < 0.8 and share > 0.7


def test_a_fit_shows_the_net_residuals_of_rows_that_the_regression_has_not_seen() -> None:
    """Other truths in the validation rows: the net's residuals of the others are the same."""
    shape = SHAPES[1]  # a season, an input and a known input
    x, y = example_windows(shape, 300)
    model = build("narx", shape)
    held, other = model.options.held_out(300), y.clone()
    other[held] += 3.0
    found = []
    for truths in (y, other):
        model = build("narx", shape)
        list(model.fit(x, truths, 1))
        found.append(model.net.memory.sample()[1])
        assert bool((model.predict(x).variance > 0).all())
    torch.testing.assert_close(found[0][~held], found[1][~held])
    torch.testing.assert_close(found[1][held] - found[0][held], torch.full_like(y[held], 3.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gp_narx", "narx"])
def test_drawn_functions_have_the_mix_s_mean_and_variance(name: str) -> None:
    x, y = windows(PAIR, series(200))
    model = build(name, PAIR)
    for start in range(0, 180, 20):
        model.update(*chunk(x, y, start, start + 20))
    assert isinstance(model, Simulates)
    paths, some = 3000, chunk(x, y, 180, 183)[0]
    draw = model.functions(paths, torch.Generator().manual_seed(0))
    asked = type(some)(*(part.repeat(paths, 1, 1) for part in some.parts))
    found, issued = draw(asked).unflatten(0, (paths, 3)), model.predict(some)
    assert ((found.mean(0) - issued.mean) / issued.variance.sqrt()).abs().max() < 5 / paths**0.5
    assert ((found.var(0) / issued.variance) - 1).abs().max() < 6 * (2 / paths) ** 0.5
