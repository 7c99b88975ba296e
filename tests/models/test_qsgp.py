"""QSGP as a model: what Config promises, streams, batches, outcomes, and rows that say too much."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import NumericalError, UsageError
from streamgp.features import fourier
from streamgp.models import qsgp
from streamgp.models.qsgp.posterior import QsgpPosterior, shares
from streamgp.models.qsgp.steps import StepsEngine
from streamgp.online.model import StreamModel
from streamgp.testing.models import SHAPES, example_windows
from streamgp.testing.stateful import reborn
from tests.words import naming

BLOCKS = {"size": 192, "width": 64}
SMALL: dict[str, Any] = {
    "features": BLOCKS,
    "reservoir": 400,
    "rebuild": 500,
    "kernel": "squared_exponential",
    "evidence_rows": 120,
}
REGRESSION = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def made(shape: Shape = REGRESSION, **options: Any) -> StreamModel:
    model = qsgp.build(qsgp.Config.model_validate({**SMALL, **options}), shape)
    assert isinstance(model, StreamModel)
    return model


def posterior(model: StreamModel) -> QsgpPosterior:
    assert isinstance(model.posterior, QsgpPosterior)
    return model.posterior


def wave(rows: int, seed: int = 11, noise: float = 0.1) -> tuple[Inputs, torch.Tensor]:
    """u uniform on (−3, 3), y = 5 + sin 2u + noise."""
    draws = torch.Generator().manual_seed(seed)
    u = 6.0 * torch.rand(rows, generator=draws, dtype=FLOAT) - 3.0
    y = 5.0 + torch.sin(2.0 * u) + noise * torch.randn(rows, generator=draws, dtype=FLOAT)
    return Inputs(torch.zeros(rows, 0, 2, dtype=FLOAT), u.view(rows, 1, 1)), y[:, None]


def stream(model: StreamModel, x: Inputs, y: torch.Tensor, batch: int = 50) -> None:
    for start in range(0, len(y), batch):
        part = slice(start, start + batch)
        assert model.update(x.rows(part), y[part]).healthy


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"likelihood": "student_t"}, "likelihood=laplace"),
        ({"likelihood": {"name": "gaussian", "noise": 0.3}}, "likelihood.noise"),
        ({"covariance": "exact", "features": {"size": 10000}}, "8192"),
        ({"learn": "once", "rebuild": 0}, ""),
        ({"steps": 7}, "solver=stochastic"),
        ({"solver": "stochastic", "covariance": "head"}, "solver=block"),
        ({"solver": "stochastic", "linear": True}, "solver=block"),
        ({"solver": "stochastic", "likelihood": "laplace"}, "likelihood=gaussian"),
        ({"likelihood": "laplace", "limit": 3.0}, "likelihood=gaussian"),
        ({"solver": "quadruple", "likelihood": "laplace", "control_variates": 7}, "likelihood=gaussian"),
        ({"solver": "quadruple", "likelihood": "laplace", "optimiser": "adagrad", "learn": "elbo"}, "gaussian"),
        ({"solver": "quadruple", "cells": 2}, "likelihood=logistic"),
        ({"likelihood": "logistic", "form": "theorem"}, "solver=quadruple"),
        ({"features": "inducing"}, "solver=quadruple"),
        ({"features": "inducing", "solver": "quadruple", "likelihood": "laplace"}, "likelihood=gaussian"),
        ({"features": "inducing", "solver": "quadruple", "covariance": "chevron"}, "covariance=chevron"),
        ({"features": "inducing", "solver": "quadruple", "linear": True}, "linear=true"),
        ({"augment": False}, "features=inducing"),
        ({"bases": 3}, ""),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=naming(said)):
        qsgp.Config.model_validate(options)


def test_what_cannot_be_built_is_refused_with_a_hint() -> None:
    for options in (
        {"likelihood": "logistic", "target": "change"},
        {"kernel": "linear"},
        {"kernel": {"name": "matern", "lengthscale": 2.0}},
        {"kernel": {"name": "matern", "separable": True}},
        {"linear": True, "features": {"size": 8, "width": 2}},
    ):
        with pytest.raises(UsageError) as refusal:
            qsgp.build(qsgp.Config.model_validate(options), SHAPES[1])
        assert refusal.value.hint
    assert qsgp.Config(features={"size": 300_000}).by_steps and not qsgp.Config().by_steps
    for one in ({"kernel": "matern", "solver": "stochastic"}, {"features": "inducing", "solver": "quadruple"}):
        written = qsgp.Config.model_validate(one).model_dump(mode="json")
        assert qsgp.Config.model_validate(written).model_dump(mode="json") == written, "a checkpoint cannot be read"
    older = {"features": {"size": 64, "width": 32}}  # as checkpoints had it before there were other features
    assert qsgp.Config.model_validate(older).features == fourier.Config(size=64, width=32)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"covariance": "head"},
        {"likelihood": "laplace"},
        {"solver": "stochastic", "steps": 200},
    ],
    ids=["default", "head", "laplace", "steps"],
)
def test_a_stream_is_learned_with_honest_bands(options: dict[str, Any]) -> None:
    """Noise of 0.1 around a wave of height 1, one pass over 1500 rows."""
    x, y = wave(2500)
    model = made(**options)
    stream(model, x.rows(slice(0, 1500)), y[:1500])
    issued, truth = model.predict(x.rows(slice(1500, None))), y[1500:]
    assert float((issued.mean - truth).square().mean().sqrt()) < 0.12
    low, high = issued.quantile(torch.tensor([0.025, 0.975], dtype=FLOAT))
    inside = float(((low <= truth) & (truth <= high)).to(FLOAT).mean())
    assert 0.92 < inside < 0.992  # 1000 rows: a standard error of 0.007
    far = Inputs(x.past[:1], torch.full((1, 1, 1), 40.0, dtype=FLOAT))
    if "solver" not in options:
        assert model.predict(far).latent_variance > 10 * issued.latent_variance.mean(), "far away nothing is known"


def test_a_batch_goes_on_until_it_changes_nothing_and_can_be_taken_up() -> None:
    x, y = wave(1500)
    model = made(covariance="head")
    wanted = model.epochs_for(1500)
    steps = list(model.fit(x, y, 60))
    assert wanted < 60 and len(steps) < 60, "a fit that changes nothing must end"
    losses = [step.loss for step in steps[4:]]
    assert all(one >= other - 1e-6 for one, other in pairwise(losses)), "a sweep went up"
    assert abs(float(posterior(model).engine.sites.level().sqrt() * model.outputs.scale) - 0.1) < 0.01, (
        "held-out rows tell the noise"
    )
    whole, cut = made(covariance="head"), made(covariance="head")
    list(whole.fit(x, y, 12))
    fit = cut.fit(x, y, 12)
    for _ in range(6):
        next(fit)
    taken_up = reborn(cut, made(covariance="head"))
    list(taken_up.fit(x, y, 6))
    assert (taken_up.predict(x).mean - whole.predict(x).mean).abs().max() < 1e-2, "a fit taken up ends elsewhere"
    assert int(taken_up.seen) == 1500, "a fit that is taken up has no new rows"
    stream(taken_up, *wave(200, seed=3))
    assert taken_up.seen == 1700


def test_the_kernel_is_chosen_by_evidence_without_lags() -> None:
    x, y = wave(400)
    rough = torch.where(x.future[:, 0] > 0.3, 1.0, 0.0) + 0.02 * (y - 5.0)
    smooth, edged = made(kernel=None), made(kernel=None)
    next(iter(smooth.fit(x, y, 1)))
    next(iter(edged.fit(x, rough, 1)))
    chosen = [int(posterior(model).engine.kernel.index) for model in (smooth, edged, reborn(edged, made(kernel=None)))]
    assert chosen[0] == 0 and chosen[1] > 0 and chosen[2] == chosen[1]
    named = made(kernel="matern")
    next(iter(named.fit(x, y, 1)))
    assert len(posterior(named).engine.kernel.radial) == 1


def test_hyper_parameters_learned_once_stay() -> None:
    x, y = wave(1200)
    model = made(learn="once")
    stream(model, x.rows(slice(0, 400)), y[:400])
    held = posterior(model).engine.kernel.log_lengthscale.clone()
    stream(model, x.rows(slice(400, None)), y[400:])
    assert torch.equal(held, posterior(model).engine.kernel.log_lengthscale) and model.rebuilt > 400


@pytest.mark.slow
def test_probabilities_are_calibrated_and_begin_at_the_share_of_ones() -> None:
    """P(1) = σ(3 sin 2u − 1)."""
    x, _ = wave(3000)
    u = x.future[:, 0, 0]
    p = torch.sigmoid(3.0 * torch.sin(2.0 * u) - 1.0)
    y = (torch.rand(3000, generator=torch.Generator().manual_seed(5), dtype=FLOAT) < p).to(FLOAT)[:, None]
    model = made(likelihood="logistic", reservoir=2000)
    stream(model, x.rows(slice(0, 2000)), y[:2000])
    issued = model.predict(x.rows(slice(2000, None))).mean[:, 0]
    assert float((issued - p[2000:]).abs().mean()) < 0.06
    best = -(y[2000:, 0] * p[2000:].log() + (1 - y[2000:, 0]) * (1 - p[2000:]).log()).mean()
    assert float(-model.predict(x.rows(slice(2000, None))).log_prob(y[2000:]).mean() - best) < 0.02
    rare = made(likelihood="logistic", linear=False)
    stream(rare, x.rows(slice(0, 100)), (torch.arange(100) % 10 == 0).to(FLOAT)[:, None])
    far = Inputs(x.past[:1], torch.full((1, 1, 1), 1e3, dtype=FLOAT))
    assert torch.isfinite(rare.predict(far).mean).all() and float(posterior(rare).engine.sites.offset) < -1.5


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{}, {"likelihood": "laplace"}], ids=["gaussian", "laplace"])
def test_one_glitch_widens_no_band(options: dict[str, Any]) -> None:
    x, y = wave(1000)
    spoiled = y.clone()
    spoiled[500] = 1e4
    widths = []
    for truth in (y, spoiled):
        model = made(**options)
        stream(model, x, truth)
        widths.append(float(model.predict(x).variance.sqrt().median()))
    assert widths[1] < 1.5 * widths[0]


def test_cost_of_an_update_does_not_grow_with_the_rows() -> None:
    """Rows kept, blocks visited and the state are the same after 1000 rows and after 2000."""
    x, y = wave(2000)
    model = made(rebuild=0)
    sizes = []
    for start in (0, 1000):
        stream(model, x.rows(slice(start, start + 1000)), y[start : start + 1000])
        sizes.append(sum(tensor.numel() for tensor in model.state()[0].values()))
        assert int((posterior(model).engine.current.share > 0).sum()) == 400
    assert sizes[0] == sizes[1]
    x, y = example_windows(SHAPES[1], 300)
    model = made(SHAPES[1])
    stream(model, x, y)
    assert posterior(model).engine.variance(model.inputs(x)).shape == (300, 6)


def test_outcomes_of_many_rows_are_learned_in_batch() -> None:
    """The height of the logit is chosen on others than those learned."""
    x, _ = wave(700)
    probability = torch.sigmoid(3.0 * torch.sin(x.future[:, :, 0]))
    y = (torch.rand(700, 1, generator=torch.Generator().manual_seed(1), dtype=FLOAT) < probability).to(FLOAT)
    model = made(likelihood="logistic")
    assert all(step.healthy for step in model.fit(x, y, 2))
    error = (model.predict(x).mean - probability).square().mean().sqrt()
    assert error < 0.12  # always to say a half: 0.33


def test_steps_that_look_at_few_rows_keep_all_of_a_rebuild() -> None:
    x, y = wave(1000)
    model = made(solver="stochastic", steps=20, reservoir=800, rebuild=600)
    stream(model, x, y, 200)
    assert model.rebuilt >= 600


def test_steps_look_at_every_row_of_a_table_in_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table four times as long as what steps look at: four portions, whose mean is better than one of them."""
    x, y = wave(600, noise=1.0)
    few = x.rows(slice(0, 150)), y[:150]
    errors = []
    for inputs, truth in ((x, y), few):
        model = made(solver="stochastic", steps=60, reservoir=150)
        engine, seen = posterior(model).engine, list[torch.Tensor]()
        assert isinstance(engine, StepsEngine)
        take = engine.descent.rows
        monkeypatch.setattr(
            engine.descent, "rows", lambda z, y, w, take=take, seen=seen: seen.append(y) or take(z, y, w)
        )
        first, second = model.fit(inputs, truth, 2)
        assert first.healthy and second.healthy
        if truth is y:
            assert all(len(part) <= 150 for part in seen)
            epochs = torch.cat(seen[:-4]).unique(), torch.cat(seen[-4:]).unique()
            assert len(epochs[0]) == len(epochs[1]) == 600, "rows that no step looked at"
        errors.append(float((model.predict(x).mean[:, 0] - 5.0 - torch.sin(2.0 * x.future[:, 0, 0])).square().mean()))
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("options", "many"),
    [
        ({}, 200_000),
        ({"covariance": "head"}, 200_000),
        ({"likelihood": "laplace"}, 200_000),
        ({"solver": "stochastic", "steps": 20}, 200_000),
        ({"solver": "stochastic", "steps": 20}, 100),
    ],
    ids=["default", "block", "laplace", "steps", "steps of very many features"],
)
def test_an_update_that_fails_changes_nothing(
    options: dict[str, Any], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only what steps change is copied, as they change it."""
    monkeypatch.setattr("streamgp.models.qsgp.posterior.MANY", many)
    x, y = wave(700)
    model = made(rebuild=0, **options)
    stream(model, x.rows(slice(0, 450)), y[:450])
    held = {name: tensor.clone() for name, tensor in model.state()[0].items()}
    learn = posterior(model).engine.learn

    def fail(new: int) -> None:
        learn(new)
        raise NumericalError("no factor", hint="none")

    with monkeypatch.context() as patch:
        patch.setattr(posterior(model).engine, "learn", fail)
        step = model.update(x.rows(slice(450, 500)), y[450:500])
    assert not step.healthy and "undone: no factor" in step.done
    changed = {name for name, tensor in model.state()[0].items() if not torch.equal(tensor, held[name])}
    assert changed <= {"generator", "winsorise.excess"}
    other = reborn(model, made(rebuild=0, **options))
    for one in (model, other):
        stream(one, x.rows(slice(500, None)), y[500:])
    assert torch.equal(model.predict(x).parameters(), other.predict(x).parameters())


def test_a_batch_fit_is_followed_by_the_stream_of_its_rows() -> None:
    """The first update after a fit takes up the rows that the memory keeps."""
    x, y = wave(700)
    model = made()
    list(model.fit(x.rows(slice(0, 600)), y[:600], 3))
    assert posterior(model).stale
    stream(model, x.rows(slice(600, None)), y[600:])
    current = posterior(model).engine.current
    kept = model.memory.sample()
    z, target = model.inputs(kept.x), (kept.y - model.reference(kept.x) - model.outputs.location) / model.outputs.scale
    assert torch.equal(current.share[kept.places], kept.weight) and torch.equal(current.y[kept.places], target)
    assert (current.fitted[kept.places] - posterior(model).engine.mean(z)).abs().max() < 1e-4


def test_rows_are_held_out_where_they_are_used() -> None:
    gauss, outcome = posterior(made()).engine.sites, posterior(made(likelihood="logistic")).engine.sites
    for rows, sites, held in ((3999, gauss, 0), (4000, gauss, 200), (4000, outcome, 0), (4000, None, 0)):
        assert int((shares(rows, sites, 0) == 0).sum()) == held
