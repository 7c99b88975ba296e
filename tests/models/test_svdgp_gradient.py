"""Stochastic-gradient SVDGP: learning, growth, replacement, and going on bit for bit from a saved state."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp.base import Inputs, Shape, Step
from streamgp.models import svdgp
from streamgp.models.svdgp import gradient
from streamgp.models.svdgp.gradient import GradientPosterior
from streamgp.online.model import StreamModel
from tests.needs import needs

SMALL = {"mean_basis": 24, "covariance_basis": 16, "grow": 8, "batch": 64, "steps": 64}


def build(outputs: int = 1, small: dict[str, Any] | None = None, **options: Any) -> StreamModel:
    targets = ("y", "z", "w")[:outputs]
    shape = Shape(targets=targets, horizon=1, lags=0, past=(*targets, "u", "v"), future=("u", "v"))
    given = {"inference": "gradient", "gradient": SMALL | (small or {}), "reservoir": 128, "seed": 3} | options
    torch.manual_seed(0)
    model = svdgp.build(svdgp.Config.model_validate(given), shape)
    assert isinstance(model, StreamModel)
    return model


def inside(model: StreamModel) -> GradientPosterior:
    assert isinstance(model.posterior, GradientPosterior)
    return model.posterior


def rows(count: int, seed: int = 0, shift: float = 0.0, outputs: int = 1) -> tuple[Inputs, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    u = 4.0 * torch.rand(count, 2, dtype=torch.float64, generator=generator) - 2.0
    u[:, 0] += shift
    noise = 0.1 * torch.randn(count, 1, dtype=torch.float64, generator=generator)
    return Inputs(u.new_zeros(count, 0, outputs + 2), u[:, None]), torch.sin(2.0 * u[:, :1]) * torch.cos(
        u[:, 1:]
    ) + noise


def error(model: StreamModel, x: Inputs, y: Tensor) -> float:
    return (model.predict(x).mean - y).square().mean().sqrt().item()


def learn(model: StreamModel, x: Inputs, y: Tensor, batch: int, start: int = 0) -> list[Step]:
    parts = torch.arange(start, len(y)).split(batch)
    return [model.update(x.rows(part), y[part]) for part in parts]


@pytest.mark.slow
def test_it_learns_in_batch() -> None:
    model = build()
    x, y = rows(512)
    losses = [step.loss for step in model.fit(x, y, epochs=40)]
    assert losses[-1] < losses[0] - 0.5
    test_x, test_y = rows(256, seed=1)
    p = model.predict(test_x)
    assert error(model, test_x, test_y) < 0.2
    covered = ((test_y - p.mean).abs() < 1.96 * p.variance.sqrt()).double().mean().item()
    assert covered > 0.85
    assert (p.latent_variance >= 0).all()


@pytest.mark.slow
def test_a_fit_has_the_passes_that_adam_needs() -> None:
    x, y = rows(128)
    assert [build(**one).epochs_for(128) for one in ({}, {"parametrisation": "hybrid"})] == [1, 1]
    by_adam: dict[str, Any] = {"parametrisation": "decoupled", "small": {"mean_basis": 96, "covariance_basis": 32}}
    once, wanted = build(**by_adam), build(**by_adam)
    assert (wanted.epochs_for(128), wanted.epochs_for(10**6), wanted.warmup_epochs(128)) == (500, 1, 1)
    for one, epochs in ((once, 1), (wanted, 500)):
        list(one.fit(x, y, epochs))
    assert error(wanted, *rows(256, seed=1)) < 0.5 * error(once, *rows(256, seed=1))


def test_a_fit_behind_a_trained_encoder_has_its_points_where_the_rows_are() -> None:
    x, y = rows(1024)
    model = build(small={"covariance_basis": 64, "batch": 128}, encoder="mlp", reservoir=1024)
    next(model.fit(x, y, 1))
    assert error(model, *rows(256, seed=1)) < 0.2


@pytest.mark.slow
def test_it_learns_from_a_stream_that_is_sorted() -> None:
    model = build(reservoir=512)
    x, y = rows(1024)
    order = torch.argsort(x.future[:, 0, 0])
    steps = learn(model, x.rows(order), y[order], 32)
    assert all(step.healthy for step in steps)
    assert steps[-1].basis == 40
    assert error(model, *rows(256, seed=1)) < 0.45


@pytest.mark.slow
def test_basis_points_move_to_where_the_stream_went() -> None:
    model = build(small={"steps": 128}, memory=256)
    learn(model, *rows(512), 32)
    steps = learn(model, *rows(512, seed=1, shift=40.0), 32)
    assert any("replaced" in step.done for step in steps)
    assert error(model, *rows(256, seed=2, shift=40.0)) < 0.45


def test_before_the_first_row_it_is_the_prior() -> None:
    look = inside(build(outputs=3)).look(torch.randn(4, 2, dtype=torch.float64))
    assert look.mean.shape == (4, 3) and look.mean.abs().max() == 0
    torch.testing.assert_close(look.latent, torch.ones(4, 1, dtype=torch.float64))


@pytest.mark.slow
def test_restored_it_goes_on_bit_for_bit() -> None:
    x, y = rows(640)
    whole, fresh = build(memory=100), build(memory=100)
    learn(whole, x.rows(slice(280)), y[:280], 40)
    tensors, rest = copy.deepcopy(whole.state())
    fresh.restore(tensors, rest)
    assert learn(whole, x, y, 40, start=280) == learn(fresh, x, y, 40, start=280)
    ours, theirs = whole.state(), fresh.state()
    assert ours[1] == theirs[1]
    assert all(torch.equal(value, theirs[0][name]) for name, value in ours[0].items())
    assert {n: t.shape for n, t in tensors.items()} == {n: t.shape for n, t in ours[0].items()}
    assert torch.equal(whole.predict(x).parameters(), fresh.predict(x).parameters())


@pytest.mark.slow
def test_older_rows_stand_for_all_that_the_stream_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a forgetting time constant of τ rows and new ones of weight 1 the weights of a step tend to τ."""
    model = build(small={"steps": 1}, memory=200, rebuild=0)
    x, y = rows(1200)
    learn(model, x.rows(slice(1000)), y[:1000], 20)
    seen = []
    posterior = inside(model)
    ascend = posterior.ascend

    def spy(z: Tensor, targets: Tensor, weights: Tensor) -> float:
        seen.append((len(z), weights))
        return ascend(z, targets, weights)

    monkeypatch.setattr(posterior, "ascend", spy)
    learn(model, x, y, 20, start=1000)
    for count, weights in seen:
        assert count == 20 + 64 and torch.equal(weights[:20], torch.ones(20, dtype=torch.float64))
    total = torch.stack([weights.sum() for _, weights in seen]).mean().item()
    assert total == pytest.approx(200.0, rel=0.15)


def test_missing_targets_teach_nothing() -> None:
    x, y = rows(256, outputs=2)
    two = torch.cat((y, torch.full_like(y, torch.nan)), 1)
    model = build(outputs=2)
    for _ in model.fit(x, two, epochs=10):
        pass
    mean = model.predict(x).mean
    assert mean[:, 0].std() > 0.3 and mean[:, 1].abs().max() < 1e-6
    assert all(t.isfinite().all() for n, t in model.state()[0].items() if "posterior" in n and t.is_floating_point())


@pytest.mark.slow
def test_columns_share_bases_and_have_their_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient, "HYPER_RATE", 0.3)
    x, y = rows(512, outputs=2)
    both = torch.cat((y, y + 0.8 * torch.randn(512, 1, dtype=torch.float64, generator=torch.Generator())), 1)
    model = build(outputs=2)
    for _ in model.fit(x, both, epochs=60):
        pass
    first, second = (inside(model).likelihood.scale * model.outputs.scale).tolist()
    assert first < 0.3 and 0.6 < second < 1.1


@pytest.mark.slow
def test_student_t_noise_keeps_outliers_from_the_mean() -> None:
    x, y = rows(512)
    spoilt = y.clone()
    spoilt[::10] += 6.0
    plain, robust = build(), build(likelihood={"name": "student_t", "dof": 3.0})
    for model in (plain, robust):
        for _ in model.fit(x, spoilt, epochs=25):
            pass
    test_x, test_y = rows(256, seed=1)
    assert error(robust, test_x, test_y) < 0.3
    assert error(robust, test_x, test_y) < 0.6 * error(plain, test_x, test_y)


def test_outliers_are_not_in_the_scale_of_noise_with_tails() -> None:
    """One row in twenty is 6 off: their Gaussian standard deviation is 1.3, that of the others 0.1."""
    x, y = rows(200)
    spoilt = y.clone()
    spoilt[::20] += 6.0
    model = build(likelihood="student_t")
    list(model.fit(x, spoilt, 1))
    low, high = model.predict(x).quantile(torch.tensor([0.1, 0.9], dtype=torch.float64))
    assert float((high - low).mean()) < 1.6  # 3.2 with the Gaussian one


@pytest.mark.slow
def test_an_encoder_is_trained_along() -> None:
    model = build(encoder={"hidden": 16, "layers": 1, "width": 2})
    before = copy.deepcopy(inside(model).encoder.state_dict())
    x, y = rows(512)
    for _ in model.fit(x, y, epochs=40):
        pass
    assert all(not torch.equal(before[name], value) for name, value in inside(model).encoder.state_dict().items())
    assert error(model, *rows(256, seed=1)) < 0.35


def test_dropout_is_for_training_alone() -> None:
    x, y = rows(256)
    learned = []
    for rate in (0.0, 0.3):
        model = build(encoder={"hidden": 8, "layers": 1, "width": 2, "dropout": rate})
        model.update(x, y)
        learned.append(model.predict(x).mean)
        assert torch.equal(learned[-1], model.predict(x).mean), "forecasts drop nothing"
    assert not torch.allclose(*learned)


def test_a_fit_forgets_what_was_learned_before() -> None:
    x, y = rows(128)
    fresh, again = build(encoder={"hidden": 8, "width": 2}), build(encoder={"hidden": 8, "width": 2})
    learn(again, *rows(256, seed=5, shift=9.0), 64)
    for model in (fresh, again):
        inside(model).generator.manual_seed(7)
    assert list(again.fit(x, y, epochs=3)) == list(fresh.fit(x, y, epochs=3))


def test_an_elbo_that_is_not_finite_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()
    x, y = rows(128)
    model.update(x, y)
    before = copy.deepcopy(model.state())
    monkeypatch.setattr(gradient.elbo, "scaled", lambda fit, weights: fit.sum() * torch.inf)
    step = model.update(x, y)
    assert not step.healthy and "undone" in step.done
    after = model.state()[0]
    assert all(torch.equal(value, after[name]) for name, value in before[0].items() if name.startswith(("post", "mem")))


@needs("gpu")
def test_cuda_learns_what_the_cpu_learns() -> None:
    here, there = build(), build().to("cuda")
    x, y = rows(320)
    learn(here, x, y, 64)
    assert all(step.healthy for step in learn(there, x.to(torch.device("cuda")), y.cuda(), 64))
    ours, theirs = here.predict(x).parameters(), there.predict(x.to(torch.device("cuda"))).parameters().cpu()
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "laplace"])
def test_early_bands_of_a_stream_are_neither_too_narrow_nor_too_wide(likelihood: str) -> None:
    """From row 400 of a noisy process on: raw 95 % bands cover .90 to .99, and the mean is near the function's. Laplace
    noise with the likeliest scale covers .983 of Gaussian noise."""
    generator = torch.Generator().manual_seed(1)
    x, _ = rows(1000, seed=4)
    clean = torch.sin(2.0 * x.future[:, 0, :1]) * torch.cos(x.future[:, 0, 1:])
    y = clean + 0.5 * torch.randn(1000, 1, dtype=torch.float64, generator=generator)  # noise as large as the signal
    model = build(small={"mean_basis": 128, "covariance_basis": 64, "steps": 8}, likelihood=likelihood, reservoir=1000)
    hit, off = [], []
    for part in torch.arange(1000).split(40):
        if part[0] >= 400:
            p = model.predict(x.rows(part))
            low, high = p.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
            hit.append(((y[part] > low) & (y[part] < high)).double())
            off.append((p.mean - clean[part]).square())
        model.update(x.rows(part), y[part])
    assert 0.90 <= torch.cat(hit).mean() <= 0.99
    assert torch.cat(off).mean().sqrt() < 0.25
