"""Stochastic-gradient SVDGP: learning, growth, replacement, and going on bit for bit from a saved state."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from streamgp.encoders import Encoder, Layout, identity, mlp
from streamgp.likelihoods import Likelihood, gaussian, student_t
from streamgp.models.svdgp import gradient
from streamgp.models.svdgp.gradient import GradientConfig, GradientPosterior

SMALL = GradientConfig(mean_basis=24, covariance_basis=16, grow=8, batch=64, reservoir=128, steps=64)


def build(
    config: GradientConfig = SMALL, columns: int = 1, noise: Likelihood | None = None, front: Encoder | None = None
) -> GradientPosterior:
    torch.manual_seed(0)  # must not matter
    noise = noise or gaussian.build(gaussian.Config(), columns)
    return GradientPosterior(
        config, 2, columns, noise, front or identity.build(identity.Config(), Layout(1, 2)), seed=3
    )


def rows(count: int, seed: int = 0, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(count, 2, dtype=torch.float64, generator=generator) - 2.0
    x[:, 0] += shift
    noise = 0.1 * torch.randn(count, 1, dtype=torch.float64, generator=generator)
    return x, torch.sin(2.0 * x[:, :1]) * torch.cos(x[:, 1:]) + noise


def error(model: GradientPosterior, x: Tensor, y: Tensor) -> float:
    return (model.predictive(x).mean - y).square().mean().sqrt().item()


def test_it_learns_in_batch() -> None:
    model = build()
    x, y = rows(512)
    losses = [step.loss for step in model.fit(x, y, epochs=40)]
    assert losses[-1] < losses[0] - 0.5
    test_x, test_y = rows(256, seed=1)
    p = model.predictive(test_x)
    assert error(model, test_x, test_y) < 0.2
    inside = ((test_y - p.mean).abs() < 1.96 * p.variance.sqrt()).double().mean().item()
    assert inside > 0.85
    assert (p.latent_variance >= 0).all()


def test_it_learns_from_a_stream_that_is_sorted() -> None:
    model = build(SMALL.model_copy(update={"reservoir": 512}))
    x, y = rows(1024)
    order = torch.argsort(x[:, 0])
    for chosen in order.split(32):
        step = model.update(x[chosen], y[chosen])
        assert step.healthy, step.done
    assert step.basis == 40
    assert error(model, *rows(256, seed=1)) < 0.45


def test_basis_points_move_to_where_the_stream_went() -> None:
    model = build(SMALL.model_copy(update={"memory": 256, "steps": 128}))
    x, y = rows(512)
    for chosen in torch.arange(512).split(32):
        model.update(x[chosen], y[chosen])
    far_x, far_y = rows(512, seed=1, shift=40.0)
    told = [model.update(far_x[chosen], far_y[chosen]).done for chosen in torch.arange(512).split(32)]
    assert any("replaced" in done for done in told)
    assert error(model, *rows(256, seed=2, shift=40.0)) < 0.45


def test_before_the_first_row_it_is_the_prior() -> None:
    model = build(columns=3)
    mean, variance = model.predict(rows(4)[0])
    assert mean.shape == variance.shape == (4, 3)
    assert mean.abs().max() == 0
    torch.testing.assert_close(variance, torch.ones(4, 3, dtype=torch.float64))


def test_restored_it_goes_on_bit_for_bit() -> None:
    config = SMALL.model_copy(update={"memory": 100})
    x, y = rows(640)
    whole = build(config)
    batches = list(torch.arange(640).split(40))
    for chosen in batches[:7]:
        whole.update(x[chosen], y[chosen])
    tensors, rest = copy.deepcopy(whole.state())
    fresh = build(config)
    fresh.restore(tensors, rest)
    for chosen in batches[7:]:
        assert whole.update(x[chosen], y[chosen]) == fresh.update(x[chosen], y[chosen])
    ours, theirs = whole.state(), fresh.state()
    assert ours[1] == theirs[1]
    assert all(torch.equal(value, theirs[0][name]) for name, value in ours[0].items())
    assert {n: t.shape for n, t in tensors.items()} == {n: t.shape for n, t in ours[0].items()}
    assert torch.equal(whole.predictive(x).parameters(), fresh.predictive(x).parameters())


def test_predict_is_pure_and_one_row_is_its_row_of_the_batch() -> None:
    model = build()
    x, y = rows(128)
    model.update(x, y)
    before = copy.deepcopy(model.state())
    whole = model.predictive(x).parameters()
    alone = torch.cat([model.predictive(row[None]).parameters() for row in x], 1)
    torch.testing.assert_close(alone, whole, rtol=1e-10, atol=1e-13)
    after = model.state()
    assert before[1] == after[1] and all(torch.equal(v, after[0][n]) for n, v in before[0].items())
    assert not model.predictive(x).mean.requires_grad


def test_missing_targets_teach_nothing() -> None:
    x, y = rows(256)
    two = torch.cat((y, torch.full_like(y, torch.nan)), 1)
    model = build(columns=2)
    for _ in model.fit(x, two, epochs=10):
        pass
    mean, _ = model.predict(x)
    assert mean[:, 0].std() > 0.3 and mean[:, 1].abs().max() < 1e-6
    assert all(t.isfinite().all() for n, t in model.state()[0].items() if n != "replay.y" and t.is_floating_point())


def test_columns_share_bases_and_have_their_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient, "HYPER_RATE", 0.3)
    x, y = rows(512)
    both = torch.cat((y, y + 0.8 * torch.randn(512, 1, dtype=torch.float64, generator=torch.Generator())), 1)
    model = build(columns=2)
    for _ in model.fit(x, both, epochs=60):
        pass
    first, second = model.likelihood.scale.tolist()
    assert first < 0.3 and 0.6 < second < 1.1


def test_student_t_noise_keeps_outliers_from_the_mean() -> None:
    x, y = rows(512)
    spoilt = y.clone()
    spoilt[::10] += 6.0
    plain, robust = build(), build(noise=student_t.build(student_t.Config(dof=3.0), 1))
    for model in (plain, robust):
        for _ in model.fit(x, spoilt, epochs=25):
            pass
    test_x, test_y = rows(256, seed=1)
    assert error(robust, test_x, test_y) < 0.3
    assert error(robust, test_x, test_y) < 0.6 * error(plain, test_x, test_y)


def test_an_encoder_is_trained_along() -> None:
    encoder = mlp.build(mlp.Config(hidden=16, layers=1, width=2), Layout(1, 2))
    before = copy.deepcopy(encoder.state_dict())
    model = build(front=encoder)
    x, y = rows(512)
    for _ in model.fit(x, y, epochs=40):
        pass
    assert all(not torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    assert error(model, *rows(256, seed=1)) < 0.35


def test_dropout_is_for_training_alone() -> None:
    x, y = rows(256)
    learned = []
    for rate in (0.0, 0.3):
        model = build(front=mlp.build(mlp.Config(hidden=8, layers=1, width=2, dropout=rate), Layout(1, 2)))
        assert torch.equal(model.encoder(x), model.encoder(x))
        model.update(x, y)
        learned.append(model.predictive(x).mean)
        assert torch.equal(learned[-1], model.predictive(x).mean), "forecasts drop nothing"
    assert not torch.allclose(*learned)


def test_trouble_is_told_and_changes_nothing() -> None:
    model = build()
    x, y = rows(128)
    model.update(x, y)
    before = copy.deepcopy(model.state())
    step = model.update(torch.full_like(x, math.inf), y)
    assert not step.healthy and "infinite" in step.done
    assert all(torch.equal(value, model.state()[0][name]) for name, value in before[0].items())


def test_an_elbo_that_is_not_finite_is_a_step_not_taken() -> None:
    model = build()
    x, y = rows(128)
    model.update(x, y)
    before = {name: p.detach().clone() for name, p in model.named_parameters() if not name.endswith("points")}
    step = model.update(x, torch.full_like(y, 1e200))
    assert not step.healthy and "not finite" in step.done
    after = dict(model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_learns_what_the_cpu_learns() -> None:
    here = build()
    there = build().to("cuda")
    x, y = rows(320)
    for chosen in torch.arange(320).split(64):
        here.update(x[chosen], y[chosen])
        assert there.update(x[chosen].cuda(), y[chosen].cuda()).healthy
    ours, theirs = here.predictive(x).parameters(), there.predictive(x.cuda()).parameters().cpu()
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-7)
