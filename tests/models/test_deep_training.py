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
from streamgp.encoders import Encoder
from streamgp.errors import NotPositiveDefinite
from streamgp.models.deep.alternating import Alternating
from streamgp.models.deep.gp import GpPosterior
from streamgp.models.deep.posterior import FOLLOW
from streamgp.models.deep.squared_error import SquaredError
from streamgp.models.deep.staleness import Staleness
from streamgp.online.model import StreamModel
from streamgp.online.posterior import Units, no_rows
from streamgp.online.variance import OUTLIER
from streamgp.testing.stateful import reborn, same_bits
from streamgp.training.early_stopping import validation_rows, weights
from streamgp.training.fit import Fit
from tests.models.deep_toys import PAIR, SYSTEM, build, chunk, deep, fitted, gp_of, residuals, series, windows

ONE = torch.ones(1, dtype=FLOAT)
PLAIN = Units(ONE, ONE, ONE, lambda h: h, no_rows(ONE), lambda x: x.past[:, 0])
EVERY = pytest.mark.parametrize("name", ["gp_narx", "gp_lstm", "narx", "rnn"])


def parameters(model: StreamModel, x: Inputs) -> Tensor:
    return model.predict(x).parameters()


def afresh(model: StreamModel, x: Inputs, y: Tensor) -> Tensor:
    """What a GP predicts when its posterior is computed anew from all rows, at the weights that it has now."""
    own, z = gp_of(model), model.inputs(x)
    with torch.no_grad():
        h = own.encoder(z)
        data = own.solver.data()
        data.add(h, residuals(model, x, y))
        given = own.solver.condition(data)
        scale = model.outputs.scale
        mean = given.mean(h) * scale + model.outputs.location + model.reference(x)
        return torch.stack([mean, (given.variance(h) + given.noise) * scale.square() * own.factor])


def served(model: StreamModel, x: Inputs) -> Tensor:
    issued = model.predict(x)
    return torch.stack([issued.mean, issued.variance])


@pytest.mark.sampled
@pytest.mark.parametrize("solver", [{"name": "kiss", "grid": 16}, "exact"], ids=str)
@pytest.mark.parametrize("pretrain", [0, 2])
def test_the_best_weights_are_served_with_the_posterior_of_all_rows_at_them(solver: Any, pretrain: int) -> None:
    """After every epoch, better or not."""
    x, y = windows(SYSTEM, series(200))
    training = {"batch": 32, "encoder_rate": 0.05}
    model = build("gp_narx", solver=solver, pretrain=pretrain, training=training, patience=4)
    best, kept = math.inf, 0
    for _ in model.fit(x, y, epochs=9):
        fit = deep(model).fit
        assert fit is not None
        if fit.early.score < best:
            best, wanted = fit.early.score, weights(deep(model).trained)
        else:
            kept += 1
        assert all(torch.equal(value, wanted[key]) for key, value in weights(deep(model).trained).items())
        torch.testing.assert_close(served(model, x), afresh(model, x, y), rtol=1e-7, atol=1e-9)
    assert kept, "no epoch was worse than an earlier one: the test says nothing"


@pytest.mark.parametrize(
    ("name", "after"),
    [
        pytest.param("gp_narx", 1, marks=pytest.mark.slow),
        pytest.param("gp_lstm", 4, marks=pytest.mark.slow),
        ("narx", 4),
        ("rnn", 1),
    ],
)
def test_a_fit_taken_up_again_is_the_fit_that_was_never_left(name: str, after: int) -> None:
    x, y = windows(PAIR, series(160))

    def make() -> StreamModel:
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


@pytest.mark.sampled
@EVERY
def test_a_fit_stops_when_patience_ends_and_stays_stopped(name: str) -> None:
    x, y = windows(SYSTEM, series(200))
    model = build(name, patience=2)
    steps = list(model.fit(x, y, 200))
    fit = deep(model).fit
    assert 3 <= len(steps) < 200 and fit is not None and fit.early.since == 2
    before = parameters(model, x)
    assert not list(model.fit(x, y, 5)) and torch.equal(parameters(model, x), before)


@EVERY
def test_epochs_that_a_fit_wants(name: str) -> None:
    assert build(name, epochs=7).epochs_for(10_000) == 7
    model = build(name, training={"batch": 64})
    assert [model.epochs_for(rows) for rows in (0, 100, 4000, 100_000)] == [60, 60, 24, 8]


def test_validation_rows_are_taught_only_through_units_and_posterior() -> None:
    """Other truths in the held-out rows, of the same mean and spread: pre-training and an epoch are the same."""
    x, y = windows(SYSTEM, series(200))
    held = validation_rows(len(y), 0.15, 5)
    other, mean = y.clone(), y[held].mean(0)
    other[held] = 2 * mean - y[held]
    found = []
    for truths in (y, other):
        model = build("gp_narx", pretrain=2, target="level")
        list(model.fit(x, truths, 1))
        found.append(weights(deep(model).trained))
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, rtol=1e-6, atol=1e-9)


def test_an_epoch_that_fails_numerically_is_undone_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = windows(SYSTEM, series(150))
    model = build("gp_narx", patience=50)
    steps = model.fit(x, y, 3)
    next(steps)
    before = parameters(model, x)

    def fail(*_: Any) -> float:
        with torch.no_grad():
            gp_of(model).solver.log_noise.fill_(math.nan)
        raise NotPositiveDefinite("no factor", hint="none")

    with monkeypatch.context() as patch:
        patch.setattr(GpPosterior, "descend", fail)
        told = next(steps)
    assert not told.healthy and "no factor" in told.done and torch.equal(parameters(model, x), before)
    assert next(steps).healthy
    fresh = build("gp_narx")
    monkeypatch.setattr(GpPosterior, "descend", fail)
    with pytest.raises(NotPositiveDefinite):
        list(fresh.fit(x, y, 1))


def test_pre_training_above_1000_rows_or_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise starts at the error of the pre-trained net; latents are settled for the grid either way."""
    x, y = windows(SYSTEM, series(1300))
    cases: list[tuple[dict[str, int], int, bool]] = [({}, 900, False), ({}, 1290, True), ({"pretrain": 2}, 200, True)]
    for options, rows, wanted in cases:
        model = build("gp_narx", validation=0.0, **options)
        some = chunk(x, y, 0, rows)
        list(model.fit(*some, epochs=1))
        again = gp_of(build("gp_narx", validation=0.0, **options))
        z, r = model.inputs(some[0]), residuals(model, *some)
        own = copy.deepcopy(again)
        own.start(z, r, PLAIN, torch.Generator().manual_seed(7))
        noise = again.solver.noise.item()
        if wanted:
            net = SquaredError(again.encoder, 1, again.config.pretraining)
            again.encoder.train()
            generator = torch.Generator().manual_seed(7)
            noise = [net.epoch(z, r, generator) for _ in range(options.get("pretrain", 5))][-1]
        assert own.solver.noise.item() == pytest.approx(noise, rel=1e-9)
        latent = own.encoder.inner(z)  # type: ignore[operator]
        assert latent.std(0).tolist() == pytest.approx([0.35, 0.35], rel=0.05)
        assert latent.mean(0).abs().max() < 0.02


def test_the_target_itself_is_learned_from_latents_that_a_linear_head_explains() -> None:
    """Pretraining is that of the net before the bound, with the noise at its error; later it starts from the best
    head."""
    x, y = windows(SYSTEM, series(200))
    model = build("gp_narx", target="level", pretrain=3, validation=0.0)
    list(model.fit(x, y, epochs=1))
    z, r = model.inputs(x), residuals(model, x, y)
    for again in (False, True):
        own = gp_of(build("gp_narx", target="level", pretrain=3, validation=0.0))
        own.trained_at = 200 * again
        expected = copy.deepcopy(own)
        inner = expected.encoder.inner
        assert isinstance(inner, Encoder)
        epochs = 2 if again else 3
        net = SquaredError(inner, 1, own.config.pretraining, epochs)
        if again:
            net.head.regress(inner(z).detach(), r)
        expected.encoder.train()
        generator = torch.Generator().manual_seed(7)
        noise = [net.epoch(z, r, generator) for _ in range(epochs)][-1]
        expected.encoder.eval()
        inner.settle(z, 0.35)
        own.start(z, r, PLAIN, torch.Generator().manual_seed(7))
        assert own.solver.noise.item() == pytest.approx(noise, rel=1e-9)
        torch.testing.assert_close(own.encoder(z), expected.encoder(z), rtol=1e-9, atol=1e-12)


def test_pretraining_that_makes_it_worse_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = windows(SYSTEM, series(400))
    model = build("gp_narx", target="level", online={"window": 400})
    fitted(model, *chunk(x, y, 0, 200), epochs=10)
    before = weights(deep(model).trained)

    def spoil(self: GpPosterior, *arguments: Any) -> float:
        with torch.no_grad():
            for parameter in self.encoder.parameters():
                parameter.normal_(generator=torch.Generator().manual_seed(0)).mul_(30.0)
        return 1.0

    monkeypatch.setattr(GpPosterior, "_pretrain", spoil)
    monkeypatch.setattr(Alternating, "epoch", lambda *_: 0.0)
    step = model.update(*chunk(x, y, 200, 390))
    assert step.healthy and "epochs of 390 rows" in step.done
    assert all(torch.equal(before[key], value) for key, value in weights(deep(model).trained).items())


def test_between_trainings_the_posterior_is_that_of_forgotten_and_new_rows() -> None:
    x, y = windows(PAIR, series(420))
    model = build("gp_lstm", PAIR, rebuild=200, online={"window": 300, "memory": 150.0})
    fitted(model, *chunk(x, y, 0, 300), epochs=2)
    own = gp_of(model)
    for start in range(300, 400, 20):
        assert model.update(*chunk(x, y, start, start + 20)).done == "update"
    r = residuals(model, x, y)
    data = own.solver.data()
    with torch.no_grad():
        h = own.encoder(model.inputs(x))
    for start, stop in ((0, 300), *((s, s + 20) for s in range(300, 400, 20))):
        if start:
            data.forget(math.exp(-20 / 150))
        data.add(h[start:stop], r[start:stop])
    wanted = own.solver.condition(data)
    torch.testing.assert_close(own.given.mean(h), wanted.mean(h), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(own.given.variance(h), wanted.variance(h), rtol=1e-8, atol=1e-10)
    assert own.data.count == pytest.approx(
        300 * math.exp(-100 / 150) + 20 * sum(math.exp(-20 * i / 150) for i in range(5))
    )


@pytest.mark.slow
@EVERY
def test_trainings_follow_the_rows_and_nothing_else(name: str) -> None:
    x, y = windows(SYSTEM, series(260))
    options = {"window": 120, "stale": 1e6}
    fresh = fitted(build(name, rebuild=40, online=options), *chunk(x, y, 0, 120), epochs=1)
    for size, wanted in ((1, [40, 80, 120]), (15, [45, 90, 135]), (40, [40, 80, 120])):
        model, at = copy.deepcopy(fresh), []
        for start in range(120, 241, size):
            if model.update(*chunk(x, y, start, start + size)).done.startswith("rebuild"):
                at.append(start + size - 120)
        assert at[:3] == wanted


def test_the_variance_of_a_gp_follows_its_scores() -> None:
    """f' = f (κ + (1 − κ) mean z²), κ = exp(−rows/memory), column by column; missing truths say nothing."""
    x, y = windows(PAIR, series(420))
    model = build("gp_narx", PAIR, rebuild=1000, online={"window": 300, "stale": 1e9})
    fitted(model, *chunk(x, y, 0, 300), epochs=1)
    factor = deep(model).factor.clone()
    for start in range(300, 400, 20):
        some, truth = chunk(x, y, start, start + 20)
        truth = 10 + 2 * (truth - 10)
        truth[::3, 1] = torch.nan
        issued = model.predict(some)
        squares = (truth - issued.mean).square() / issued.variance
        rows = torch.isfinite(squares).sum(0)
        kept = torch.exp(-rows.to(FLOAT) / FOLLOW)
        factor = factor * (kept + (1 - kept) * squares.clamp(max=OUTLIER).nanmean(0))
        model.update(some, truth)
        torch.testing.assert_close(deep(model).factor, factor)
    assert bool((factor > 1.1).all())


@pytest.mark.parametrize("solver", ["kiss", "exact"])
def test_a_training_moves_the_encoder_and_serves_the_window_at_its_new_latents(solver: str) -> None:
    x, y = windows(SYSTEM, series(520))
    options = {"solver": {"name": solver, **({"grid": 16} if solver == "kiss" else {})}, "limit": None}
    model = build("gp_narx", rebuild=50, online={"window": 200}, **options)
    fitted(model, *chunk(x, y, 0, 200), epochs=2)
    before = weights(deep(model).trained)
    done = model.update(*chunk(x, y, 200, 250)).done
    assert done.startswith("rebuild: 50 rows; ") and done.endswith(" epochs of 200 rows")
    after = weights(deep(model).trained)
    assert sum(not torch.equal(before[key], after[key]) for key in before) >= len(before) - 1
    window = chunk(x, y, 50, 250)
    torch.testing.assert_close(served(model, window[0]), afresh(model, *window), rtol=1e-7, atol=1e-9)


def test_a_training_that_fails_numerically_is_undone_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = windows(SYSTEM, series(420))
    model = fitted(build("gp_narx"), *chunk(x, y, 0, 300), epochs=1)
    before, mean = weights(deep(model).trained), model.predict(x).mean
    own = GpPosterior.descend

    def fail(*arguments: Any) -> float:
        own(*arguments)
        raise NotPositiveDefinite("no factor", hint="none")

    with monkeypatch.context() as patch:
        patch.setattr(GpPosterior, "descend", fail)
        step = model.update(*chunk(x, y, 300, 400))
    assert step.done == "rebuild: 100 rows; undone: no factor; update" and not step.healthy
    assert all(torch.equal(before[key], value) for key, value in weights(deep(model).trained).items())
    assert not torch.equal(model.predict(x).mean, mean), "the new rows are learned"
    assert model.update(*chunk(x, y, 400, 410)).healthy


@pytest.mark.sampled
@pytest.mark.parametrize("learnable", [True, False])
def test_trainings_come_when_rows_have_doubled_and_more_seldom_where_they_gain_nothing(learnable: bool) -> None:
    x, y = windows(SYSTEM, series(1400))
    if not learnable:
        y = torch.randn(y.shape, generator=torch.Generator().manual_seed(0), dtype=FLOAT)
    model = build("gp_narx", rebuild=0, target="level", pretrain=0, online={"window": 300, "stale": 1e9})
    done = [model.update(*chunk(x, y, start, start + 70)).done for start in range(0, 1390, 70)]
    at = [70 * (place + 1) for place, what in enumerate(done) if "epochs of" in what]
    assert deep(model).fit is None
    if learnable:
        assert at[:3] == [70, 140, 280]
    else:
        assert len(at) <= 4 and at[-1] >= 4 * at[-2]


def test_a_stale_model_that_gains_nothing_does_not_put_off_the_training_of_doubled_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is served is still that of 100 rows: 200 rows are twice as many, whatever was tried in between."""
    x, y = windows(SYSTEM, series(520))
    model = build("narx", rebuild=0, target="level", epochs=2, online={"window": 300})
    fitted(model, *chunk(x, y, 0, 100), epochs=1)
    monkeypatch.setattr(Fit, "gain", 0.0)
    monkeypatch.setattr(Staleness, "stale", property(lambda _: model.seen < 180))
    done = {start + 10: model.update(*chunk(x, y, start, start + 10)).done for start in range(100, 500, 10)}
    trained = {rows: "stale" in what for rows, what in done.items() if "epochs of" in what}
    assert trained == {170: True, 240: False}  # at least 64 rows apart; the next one waits for four times as many


def test_a_refit_trains_on_the_kept_windows_in_their_order() -> None:
    """Rows with a missing truth are left out of the fit, and stay in the ring."""
    x, y = windows(PAIR, series(100))
    partly = y.clone()
    partly[2::5, 0] = torch.nan
    model = build("narx", PAIR, online={"window": 64})
    for start in range(0, 90, 9):
        model.update(*chunk(x, partly, start, start + 9))
    kept_x, kept_y = model.memory.sample()[:2]
    assert same_bits(kept_y, partly[26:90]) and torch.equal(kept_x.past, x.past[26:90])
    assert int(model.memory.seen) == 90


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


@pytest.mark.slow
def test_a_jump_is_noticed_and_learned_sooner() -> None:
    x, y = windows(SYSTEM, series(800, noise=0.03))
    jump_x, jump_y = windows(SYSTEM, series(500, seed=1, gain=-3.0, noise=0.03))
    errors = {}
    for stale in (2.0, 1e9):
        online = {"window": 300, "stale": stale}
        model = fitted(build("gp_narx", rebuild=0, online=online), *chunk(x, y, 0, 400), epochs=10)
        done = [model.update(*chunk(x, y, s, s + 20)).done for s in range(400, 780, 20)]
        assert not any("stale" in what for what in done), "nothing is stale before the jump"
        squares, told = [], []
        for start in range(0, 480, 20):
            some = chunk(jump_x, jump_y, start, start + 20)
            squares.append((model.predict(some[0]).mean - some[1]).square().mean())
            told.append(model.update(*some).done)
        assert any("stale" in what for what in told) == (stale == 2.0)
        errors[stale] = torch.stack(squares)[8:].mean().item()
    assert errors[2.0] < 0.9 * errors[1e9]


@pytest.mark.sampled
@pytest.mark.parametrize("solver", [{"name": "kiss", "grid": 16}, "exact"], ids=str)
@pytest.mark.parametrize("refresh", [pytest.param(0, marks=pytest.mark.slow), 200])
def test_memory_is_flat(solver: Any, refresh: int) -> None:
    x, y = windows(SYSTEM, series(460))
    model = build("gp_narx", solver=solver, rebuild=refresh, online={"window": 48, "stale": 1e9})
    fitted(model, *chunk(x, y, 0, 96), epochs=1)
    sizes = []
    for start in range(96, 440, 16):
        model.update(*chunk(x, y, start, start + 16))
        sizes.append(sum(tensor.numel() for tensor in model.state()[0].values()))
    assert max(sizes[15:]) <= max(sizes[:15])


def test_fit_after_a_stream_begins_anew() -> None:
    x, y = windows(SYSTEM, series(500))
    model = fitted(build("gp_narx", validation=0.0), *chunk(x, y, 0, 150), epochs=2)
    model.update(*chunk(x, y, 150, 170))
    later = fitted(model, *chunk(x, y, 200, 490), epochs=2)
    r = residuals(later, x, y)[200:490]
    assert (
        (fit := deep(later).fit) is not None
        and fit.trained == 2
        and r.std(correction=0).item() == pytest.approx(1)
        and abs(r.mean().item()) < 1e-9
    )
