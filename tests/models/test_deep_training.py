"""Training of the models behind an encoder in batch, and what they do on a stream."""

from __future__ import annotations

import copy
import math
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs
from streamgp.errors import NotPositiveDefinite
from streamgp.models._deep.gp import DeepGp
from streamgp.models._deep.model import DeepModel
from streamgp.online.training import OUTLIER, weights
from streamgp.optim.early_stopping import validation_rows
from streamgp.optim.squared_error import SquaredError
from streamgp.testing.stateful import reborn, same_bits
from tests.models.deep_toys import PAIR, SYSTEM, build, chunk, fitted, series, windows

EVERY = pytest.mark.parametrize("name", ["gp_narx", "gp_lstm", "narx", "rnn"])


def parameters(model: DeepModel, x: Inputs) -> Tensor:
    return model.predict(x).parameters()


def afresh(model: DeepModel, x: Inputs, y: Tensor) -> Tensor:
    """What a GP predicts when its posterior is computed anew from all rows, at the weights that it has now."""
    assert isinstance(model, DeepGp)
    z = model.frame.inputs(x)
    with torch.no_grad():
        h = model.encoder(z)
        data = model.solver.data()
        data.add(h, model.frame.residual(x, z, y))
        posterior = model.solver.condition(data)
        scale = model.frame.scale
        mean = posterior.mean(h) * scale + model.frame.baseline(x, z)
        return torch.stack([mean, (posterior.variance(h) + posterior.noise) * scale.square() * model.factor])


def served(model: DeepModel, x: Inputs) -> Tensor:
    issued = model.predict(x)
    return torch.stack([issued.mean, issued.variance])


@pytest.mark.parametrize("solver", [{"name": "kiss", "grid": 16}, "exact"], ids=str)
@pytest.mark.parametrize("pretrain", [0, 2])
def test_the_best_weights_are_served_with_the_posterior_of_all_rows_at_them(solver: Any, pretrain: int) -> None:
    """After every epoch, better or not."""
    x, y = windows(SYSTEM, series(200))
    training = {"batch": 32, "encoder_rate": 0.05}
    model = build("gp_narx", solver=solver, pretrain=pretrain, training=training, patience=4)
    best, kept = math.inf, 0
    for _ in model.fit(x, y, epochs=9):
        if model.early.score < best:
            best, wanted = model.early.score, weights(model._learners())
        else:
            kept += 1
        assert all(torch.equal(value, wanted[key]) for key, value in weights(model._learners()).items())
        torch.testing.assert_close(served(model, x), afresh(model, x, y), rtol=1e-7, atol=1e-9)
    assert kept, "no epoch was worse than an earlier one: the test says nothing"


@EVERY
@pytest.mark.parametrize("after", [1, 4])
def test_a_fit_taken_up_again_is_the_fit_that_was_never_left(name: str, after: int) -> None:
    x, y = windows(PAIR, series(160))

    def make() -> DeepModel:
        dropped = {"hidden": 5, "dropout": 0.1}
        return build(name, PAIR, encoder=dropped, training={"batch": 32, "schedule": "cosine"}, patience=3)

    whole = make()
    steps = [step.loss for step in whole.fit(x, y, 8)]
    left = make()
    first = [step.loss for step in islice(left.fit(x, y, 8), after)]
    resumed = reborn(left, make())
    assert torch.equal(parameters(resumed, x), parameters(left, x))
    assert first + [step.loss for step in resumed.fit(x, y, 8 - after)] == steps
    assert torch.equal(parameters(resumed, x), parameters(whole, x))
    one, other = whole.state()[0], resumed.state()[0]
    assert one.keys() == other.keys() and all(same_bits(one[key], other[key]) for key in one)
    rows = chunk(*windows(PAIR, series(140, seed=3)), 0, 130)
    assert whole.update(*rows).loss == resumed.update(*rows).loss
    assert torch.equal(parameters(resumed, x), parameters(whole, x))


@EVERY
def test_a_fit_stops_when_patience_ends_and_stays_stopped(name: str) -> None:
    x, y = windows(SYSTEM, series(200))
    model = build(name, patience=2)
    steps = list(model.fit(x, y, 200))
    assert 3 <= len(steps) < 200 and model.early.since == 2
    before = parameters(model, x)
    assert not list(model.fit(x, y, 5)) and torch.equal(parameters(model, x), before)


@EVERY
def test_epochs_that_a_fit_wants(name: str) -> None:
    assert build(name, epochs=7).epochs_for(10_000) == 7
    model = build(name, training={"batch": 64})
    assert [model.epochs_for(rows) for rows in (0, 100, 4000, 100_000)] == [60, 60, 24, 8]


def test_validation_rows_are_taught_only_through_the_posterior() -> None:
    """Other truths in the held-out rows: units, mean function, pre-training and an epoch are the same."""
    x, y = windows(SYSTEM, series(200))
    held = validation_rows(len(y), 0.15, 5)
    found = []
    for truths in (y, torch.where(held[:, None], 3 * y, y)):
        model = build("gp_narx", pretrain=2)
        list(model.fit(x, truths, 1))
        found.append(weights(model._learners()) | weights({"frame": model.frame}) | {"s": model.frame.scale})
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


def test_an_epoch_that_fails_numerically_is_undone_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = windows(SYSTEM, series(150))
    model = build("gp_narx", patience=50)
    assert isinstance(model, DeepGp)
    steps = model.fit(x, y, 3)
    next(steps)
    before = parameters(model, x)

    def fail(*_: Any) -> float:
        with torch.no_grad():
            model.solver.log_noise.fill_(math.nan)
        raise NotPositiveDefinite("no factor", hint="none")

    with monkeypatch.context() as patch:
        patch.setattr(model.alternating, "epoch", fail)
        told = next(steps)
    assert not told.healthy and "no factor" in told.done and torch.equal(parameters(model, x), before)
    assert next(steps).healthy
    fresh = build("gp_narx")
    monkeypatch.setattr(DeepGp, "_train", fail)
    with pytest.raises(NotPositiveDefinite):
        list(fresh.fit(x, y, 1))


def test_pre_training_above_1000_rows_or_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise starts at the error of the pre-trained net; latents are settled for the grid either way."""
    x, y = windows(SYSTEM, series(1300))
    cases: list[tuple[dict[str, int], int, bool]] = [({}, 900, False), ({}, 1290, True), ({"pretrain": 2}, 200, True)]
    for options, rows, wanted in cases:
        model = build("gp_narx", validation=0.0, **options)
        assert isinstance(model, DeepGp)
        some = chunk(x, y, 0, rows)
        model.frame.fit(*some)
        z = model.frame.inputs(some[0])
        r = model.frame.residual(some[0], z, some[1])
        again = copy.deepcopy(model)
        model._start(z, r)
        noise = again.solver.noise.item()
        if wanted:
            net = SquaredError(again.encoder, 1, again.config.pretraining)
            again.encoder.train()
            noise = [net.epoch(z, r, again.generator) for _ in range(options.get("pretrain", 5))][-1]
        assert model.solver.noise.item() == pytest.approx(noise, rel=1e-9)
        latent = model.encoder.inner(z)  # type: ignore[operator]
        assert latent.std(0).tolist() == pytest.approx([0.35, 0.35], rel=0.05)
        assert latent.mean(0).abs().max() < 0.02


def test_between_refreshes_the_posterior_is_that_of_forgotten_and_new_rows() -> None:
    x, y = windows(PAIR, series(420))
    model = build("gp_lstm", PAIR, online={"window": 300, "refresh": 200, "memory": 150.0})
    fitted(model, *chunk(x, y, 0, 300), epochs=2)
    assert isinstance(model, DeepGp)
    for start in range(300, 400, 20):
        assert model.update(*chunk(x, y, start, start + 20)).done == "update"
    z = model.frame.inputs(x)
    r = model.frame.residual(x, z, y)
    data = model.solver.data()
    with torch.no_grad():
        h = model.encoder(z)
    for start, stop in ((0, 300), *((s, s + 20) for s in range(300, 400, 20))):
        if start:
            data.forget(math.exp(-20 / 150))
        data.add(h[start:stop], r[start:stop])
    wanted = model.solver.condition(data)
    torch.testing.assert_close(model.posterior.mean(h), wanted.mean(h), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(model.posterior.variance(h), wanted.variance(h), rtol=1e-8, atol=1e-10)
    assert model.data.count == pytest.approx(
        300 * math.exp(-100 / 150) + 20 * sum(math.exp(-20 * i / 150) for i in range(5))
    )


@EVERY
def test_refreshes_follow_the_rows_and_nothing_else(name: str) -> None:
    x, y = windows(SYSTEM, series(260))
    options = {"window": 120, "refresh": 40, "steps": 3, "stale": 1e6}
    fresh = fitted(build(name, online=options), *chunk(x, y, 0, 120), epochs=1)
    for size, wanted in ((1, [40, 80, 120]), (15, [45, 90, 135]), (40, [40, 80, 120])):
        model, at = copy.deepcopy(fresh), []
        for start in range(120, 241, size):
            if model.update(*chunk(x, y, start, start + size)).done.startswith("refresh"):
                at.append(start + size - 120)
        assert at[:3] == wanted


@pytest.mark.parametrize("memory", [None, 200.0])
def test_the_variance_of_a_gp_follows_its_scores(memory: float | None) -> None:
    """f' = f (κ + (1 − κ) mean z²), κ = exp(−rows/memory), column by column; missing truths say nothing."""
    x, y = windows(PAIR, series(420))
    model = build("gp_narx", PAIR, online={"window": 300, "refresh": 1000, "variance": memory})
    fitted(model, *chunk(x, y, 0, 300), epochs=1)
    factor = model.factor.clone()
    for start in range(300, 400, 20):
        some, truth = chunk(x, y, start, start + 20)
        truth = 10 + 2 * (truth - 10)
        truth[::3, 1] = torch.nan
        issued = model.predict(some)
        squares = (truth - issued.mean).square() / issued.variance
        rows = torch.isfinite(squares).sum(0)
        if memory:
            kept = torch.exp(-rows.to(FLOAT) / memory)
            factor = factor * (kept + (1 - kept) * squares.clamp(max=OUTLIER).nanmean(0))
        model.update(some, truth)
        torch.testing.assert_close(model.factor, factor)
    assert memory is None or bool((factor > 1.2).all())


@pytest.mark.parametrize("solver", ["kiss", "exact"])
def test_a_refresh_moves_the_encoder_and_serves_the_window_at_its_new_latents(solver: str) -> None:
    x, y = windows(SYSTEM, series(520))
    online = {"window": 200, "refresh": 50, "steps": 4, "rate": 1e-2}
    model = build("gp_narx", solver={"name": solver, **({"grid": 16} if solver == "kiss" else {})}, online=online)
    fitted(model, *chunk(x, y, 0, 200), epochs=2)
    before = weights(model._learners())
    assert model.update(*chunk(x, y, 200, 250)).done == "refresh: 50 rows"
    after = weights(model._learners())
    assert sum(not torch.equal(before[key], after[key]) for key in before) >= len(before) - 1
    window = chunk(x, y, 50, 250)
    torch.testing.assert_close(served(model, window[0]), afresh(model, *window), rtol=1e-7, atol=1e-9)


def test_a_refresh_that_fails_numerically_is_undone_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = windows(SYSTEM, series(420))
    model = fitted(build("gp_narx"), *chunk(x, y, 0, 300), epochs=1)
    assert isinstance(model, DeepGp)
    before, mean = weights(model._learners()), model.predict(x).mean
    own = model.online.steps

    def fail(*arguments: Any) -> float:
        own(*arguments)
        raise NotPositiveDefinite("no factor", hint="none")

    with monkeypatch.context() as patch:
        patch.setattr(model.online, "steps", fail)
        step = model.update(*chunk(x, y, 300, 400))
    assert step.done == "refresh: 100 rows; undone: no factor" and not step.healthy
    assert all(torch.equal(before[key], value) for key, value in weights(model._learners()).items())
    assert torch.equal(model.predict(x).mean, mean)
    assert model.update(*chunk(x, y, 400, 410)).healthy


def test_a_young_stream_is_fitted_anew_whenever_its_rows_have_doubled() -> None:
    x, y = windows(SYSTEM, series(700))
    model = build("gp_narx", online={"window": 300, "refresh": 1000, "epochs": 2})
    done = [model.update(*chunk(x, y, start, start + 10)).done for start in range(0, 690, 10)]
    at = [10 * (place + 1) for place, what in enumerate(done) if what.startswith("fit")]
    assert at[:4] == [10, 20, 40, 80] and at[-1] <= 320 and len(at) <= 6
    assert not model.iterate and not model.early.best


def test_a_refit_trains_on_the_kept_windows_in_their_order() -> None:
    """Rows with a missing truth are left out of the fit, and stay in the ring."""
    x, y = windows(PAIR, series(100))
    partly = y.clone()
    partly[2::5, 0] = torch.nan
    model = build("narx", PAIR, online={"window": 64, "epochs": 1})
    for start in range(0, 90, 9):
        model.update(*chunk(x, partly, start, start + 9))
    kept_x, kept_y = model.recent.rows()
    assert same_bits(kept_y, partly[26:90]) and torch.equal(kept_x.past, x.past[26:90])
    assert int(model.recent.seen) == 90


def test_missing_truths_teach_nothing() -> None:
    x, y = windows(PAIR, series(330))
    one, other = (fitted(build("gp_narx", PAIR), *chunk(x, y, 0, 300), epochs=1) for _ in range(2))
    before = parameters(one, x)
    step = one.update(x.rows(slice(300, 320)), torch.full((20, 2), torch.nan, dtype=FLOAT))
    assert step.done == "nothing observed" and torch.equal(parameters(one, x), before)
    holes = y[300:320].clone()
    holes[::2] = torch.nan
    one.update(x.rows(slice(300, 320)), holes)
    other.update(x.rows(slice(301, 320, 2)), y[301:320:2])
    assert torch.equal(parameters(one, x), parameters(other, x))


def test_a_jump_is_noticed_and_learned_sooner() -> None:
    x, y = windows(SYSTEM, series(800, noise=0.03))
    jump_x, jump_y = windows(SYSTEM, series(500, seed=1, gain=-3.0, noise=0.03))
    errors = {}
    for stale in (2.0, 1e9):
        online = {"window": 300, "refresh": 2000, "steps": 4, "stale": stale, "stale_steps": 40, "patience": 60}
        model = fitted(build("gp_narx", online={**online, "rate": 5e-3}), *chunk(x, y, 0, 400), epochs=10)
        done = [model.update(*chunk(x, y, s, s + 20)).done for s in range(400, 780, 20)]
        assert set(done) == {"update"}, "nothing is stale before the jump"
        squares, told = [], []
        for start in range(0, 480, 20):
            some = chunk(jump_x, jump_y, start, start + 20)
            squares.append((model.predict(some[0]).mean - some[1]).square().mean())
            told.append(model.update(*some).done)
        assert ("refresh: stale" in told) == (stale == 2.0)
        errors[stale] = torch.stack(squares)[8:].mean().item()
    assert errors[2.0] < 0.8 * errors[1e9]


@pytest.mark.parametrize("solver", [{"name": "kiss", "grid": 16}, "exact"], ids=str)
@pytest.mark.parametrize("refresh", [0, 40])
def test_memory_is_flat(solver: Any, refresh: int) -> None:
    x, y = windows(SYSTEM, series(600))
    model = build("gp_narx", solver=solver, online={"window": 48, "refresh": refresh, "steps": 1, "stale": 1e9})
    fitted(model, *chunk(x, y, 0, 96), epochs=1)
    sizes = []
    for start in range(96, 580, 16):
        model.update(*chunk(x, y, start, start + 16))
        sizes.append(sum(tensor.numel() for tensor in model.state()[0].values()))
    assert max(sizes[15:]) <= max(sizes[:15])


def test_fit_after_a_stream_begins_anew() -> None:
    x, y = windows(SYSTEM, series(500))
    model = fitted(build("gp_narx", validation=0.0), *chunk(x, y, 0, 150), epochs=2)
    model.update(*chunk(x, y, 150, 170))
    later = fitted(model, *chunk(x, y, 200, 490), epochs=2)
    z = later.frame.inputs(x)
    r = later.frame.residual(x, z, y)[200:490]
    assert later.trained == 2 and r.std(correction=0).item() == pytest.approx(1) and abs(r.mean().item()) < 1e-9
