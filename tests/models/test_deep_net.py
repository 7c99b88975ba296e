"""Plain nets behind the same frame: their variance, the stream, what they are made of."""

from __future__ import annotations

import pytest
import torch

from streamgp.base import FLOAT
from streamgp.models.deep.net import NetPosterior
from streamgp.models.deep.posterior import FOLLOW
from streamgp.online.model import StreamModel
from streamgp.online.variance import OUTLIER
from streamgp.training.early_stopping import weights
from tests.models.deep_toys import PAIR, SYSTEM, build, chunk, deep, fitted, series, windows

EVERY = pytest.mark.parametrize("name", ["narx", "rnn", "gru", "lstm"])


def net(model: StreamModel) -> NetPosterior:
    assert isinstance(model.posterior, NetPosterior)
    return model.posterior


@pytest.mark.sampled
@EVERY
def test_the_variance_is_the_validation_rows_squared_error(name: str) -> None:
    x, y = windows(PAIR, series(220))
    model = fitted(build(name, PAIR, patience=4), x, y, epochs=12)
    held = deep(model).config.held_out(len(y))
    issued = model.predict(x)
    squares = (issued.mean - y).square()
    error = torch.maximum(squares[held].mean(0), squares[~held].mean(0))
    torch.testing.assert_close(issued.variance, error.expand(len(y), 2))
    assert (issued.latent_variance == 0).all()


def test_without_validation_rows_it_is_the_training_rows_error() -> None:
    x, y = windows(SYSTEM, series(120))
    model = fitted(build("narx", validation=0.0), x, y, epochs=3)
    issued = model.predict(x)
    torch.testing.assert_close(issued.variance[0, 0], (issued.mean - y).square().mean())


@EVERY
def test_on_a_stream_it_is_the_running_mean_of_errors_made_before_learning(name: str) -> None:
    x, y = windows(PAIR, series(420))
    model = fitted(build(name, PAIR, rebuild=0), *chunk(x, y, 0, 300), epochs=2)
    wanted = model.predict(x.rows(slice(0, 1))).variance[0]
    for start in range(300, 400, 25):
        some, truth = chunk(x, y, start, start + 25)
        truth = truth.clone()
        truth[::4, 1] = torch.nan
        seen = torch.isfinite(truth)
        error = torch.where(seen, model.predict(some).mean - truth, 0.0)
        kept = torch.exp(-seen.sum(0).to(FLOAT) / FOLLOW)
        wanted = kept * wanted + (1 - kept) * error.square().sum(0) / seen.sum(0)
        model.update(some, truth)
        torch.testing.assert_close(model.predict(some).variance[0], wanted)


def test_a_glitch_counts_as_five_standard_deviations() -> None:
    x, y = windows(SYSTEM, series(320))
    model = fitted(build("narx"), *chunk(x, y, 0, 300), epochs=2)
    before = model.predict(x.rows(slice(0, 1))).variance
    some, truth = chunk(x, y, 300, 301)
    model.update(some, truth + 1e6)
    kept = torch.exp(torch.tensor(-1 / 2000.0, dtype=FLOAT))
    torch.testing.assert_close(model.predict(x.rows(slice(0, 1))).variance, before * (kept + (1 - kept) * OUTLIER))


@pytest.mark.sampled
@EVERY
def test_between_trainings_only_the_variance_learns(name: str) -> None:
    x, y = windows(SYSTEM, series(420))
    model = fitted(build(name), *chunk(x, y, 0, 300), epochs=2)
    before, mean = weights(deep(model).trained), model.predict(x).mean
    assert model.update(*chunk(x, y, 300, 350)).done == "update"
    assert all(torch.equal(before[key], value) for key, value in weights(deep(model).trained).items())
    assert torch.equal(model.predict(x).mean, mean)
    assert "epochs of 300 rows" in model.update(*chunk(x, y, 350, 400)).done
    assert all(not torch.equal(before[key], value) for key, value in weights(deep(model).trained).items())


@EVERY
def test_it_is_an_encoder_and_a_linear_head(name: str) -> None:
    x, y = windows(PAIR, series(120))
    model = fitted(build(name, PAIR), x, y, epochs=2)
    own, z = net(model), model.inputs(x)
    out = own.encoder(z) @ own.head.weight.T + own.head.bias
    wanted = out * model.outputs.scale + model.outputs.location + model.reference(x)
    torch.testing.assert_close(model.predict(x).mean, wanted)
    assert own.encoder.width == 8, "as wide as the hidden layer, unless the options name a width"
    assert net(build(name, encoder={"hidden": 8, "width": 3})).head.in_features == 3 and own.size == 0


@pytest.mark.sampled
@EVERY
def test_it_learns_what_a_line_cannot(name: str) -> None:
    x, y = windows(SYSTEM, series(700))
    model = fitted(build(name, encoder={"hidden": 16}), *chunk(x, y, 0, 500), epochs=25)
    test = chunk(x, y, 500, 690)
    flat = model.inputs(x)
    design = torch.cat([flat, torch.ones(len(flat), 1, dtype=FLOAT)], 1)
    line = torch.linalg.lstsq(design[:500], y[:500]).solution
    errors = [(mean - test[1]).square().mean() for mean in (model.predict(test[0]).mean, design[500:690] @ line)]
    assert errors[0] < 0.8 * errors[1]


def test_targets_that_never_vary() -> None:
    x, _ = windows(SYSTEM, series(80))
    model = build("narx", target="level")
    y = torch.full((len(x.past), 1), 5.0, dtype=FLOAT)
    fitted(model, x, y, epochs=5)
    issued = model.predict(x)
    assert torch.isfinite(issued.parameters()).all() and (issued.variance > 0).all()
    assert (issued.mean - 5).abs().max() < 1.0
