"""The model: exact between rebuilds, trained by marginal likelihood, and what it does when something goes wrong."""

from __future__ import annotations

import math
import sys
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from pydantic import ValidationError
from scipy import stats
from torch import Generator, Tensor

from streamgp.base import Inputs, Shape, Simulates
from streamgp.errors import NumericalError, UsageError
from streamgp.evidence.initial import example
from streamgp.models import finite_rkhs
from streamgp.models.finite_rkhs.learner import FiniteLearner
from streamgp.models.finite_rkhs.posterior import FinitePosterior
from streamgp.online.model import SimulatedStreamModel
from streamgp.predictives.student_t import StudentT
from streamgp.testing import reborn
from streamgp.testing.models import SHAPES, example_windows
from streamgp.training.fit import Fit
from tests.models.oracles_recursive import batch
from tests.words import naming

FLAT = Shape(targets=("y",), horizon=1, lags=0, past=("y", "a", "b"), future=("a", "b"))
LAGS = SHAPES[1]
EXACT: dict[str, Any] = {
    "fourier": {"size": 40, "frequencies": "drawn"},
    "rebuild": 0,
    "memory": "all",
    "temper": 1.0,
    "online": {"variance": None},
    "prior": "one",
    "limit": None,
    "evidence_rows": 60,
}
NET: dict[str, Any] = {"encoder": {"hidden": 16}, "training": {"batch": 32, "rate": 1e-2, "weights_rate": 3e-3}}


def build(shape: Shape = FLAT, **options: Any) -> SimulatedStreamModel:
    return finite_rkhs.build(finite_rkhs.Config(**options), shape)


def inside(model: SimulatedStreamModel) -> FinitePosterior:
    assert isinstance(model.posterior, FinitePosterior)
    return model.posterior


def fitting(model: SimulatedStreamModel) -> Fit:
    fit = inside(model).fit
    assert fit is not None
    return fit


def surface(rows: int, seed: int = 0, noise: float = 0.1) -> tuple[Inputs, Tensor]:
    """y = 50 + 10 sin(2a) b + noise."""
    generator = Generator().manual_seed(seed)
    u = torch.randn(rows, 1, 2, generator=generator, dtype=torch.float64)
    error = torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    y = 50 + 10 * (torch.sin(2 * u[:, :, 0]) * u[:, :, 1] + noise * error)
    return Inputs(u.new_zeros(rows, 0, 3), u), y


def standardised(model: SimulatedStreamModel, x: Inputs, y: Tensor) -> tuple[Tensor, Tensor]:
    """Features and residuals as the model sees them."""
    with torch.no_grad():
        return inside(model).learner.features(model.inputs(x)), model.targets(x, y)


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["gram", "root", "factor"])
@pytest.mark.parametrize("cut", [7, 50])
def test_between_rebuilds_rows_are_learned_exactly(form: str, cut: int) -> None:
    """Fit on 100 rows, then 300 of a stream: the batch posterior of all 400 with the same features."""
    x, y = example_windows(LAGS, 400)
    model = build(LAGS, **EXACT, form=form)
    list(model.fit(x.rows(slice(0, 100)), y[:100], 1))
    for start in range(100, 400, cut):
        rows = slice(start, min(start + cut, 400))
        assert model.update(x.rows(rows), y[rows]).done == "update"
    phi, r = standardised(model, x, y)
    regression = inside(model).learner.regression
    oracle = batch(phi, r, float(regression.kappa), phi[-30:])
    issued = model.predict(x.rows(slice(-30, None)))
    scale = model.outputs.scale.numpy()
    mean = oracle.mean * scale + model.outputs.location.numpy() + model.reference(x)[-30:].numpy()
    assert_allclose(issued.mean, mean, rtol=1e-9)
    s2 = (2 * regression.rate.numpy() + oracle.residual) / (2 * 2.0 + 400 - 2)
    assert_allclose(issued.latent_variance, oracle.leverage[:, None] * s2 * scale**2, rtol=1e-7)
    assert_allclose(issued.variance, (1 + oracle.leverage[:, None]) * s2 * scale**2, rtol=1e-7)


def test_rows_that_overlap_count_as_fewer_and_old_ones_less() -> None:
    x, y = example_windows(LAGS, 300)
    model = build(LAGS, **EXACT | {"temper": 4.0, "memory": 50})
    list(model.fit(x.rows(slice(0, 100)), y[:100], 1))
    model.update(x.rows(slice(100, 300)), y[100:])
    phi, r = standardised(model, x, y)
    weight = np.exp(-np.r_[np.full(100, 200), np.arange(199, -1, -1)] / 50) / 4  # the fit's rows are of one age
    oracle = batch(phi, r, float(inside(model).learner.regression.kappa), phi, weight)
    found = inside(model).learner.standing(model.inputs(x))
    assert_allclose(found.mean, oracle.mean, rtol=1e-7, atol=1e-8)
    assert_allclose(found.latent, oracle.leverage[:, None] * found.noise.numpy(), rtol=1e-7)
    assert float(inside(model).learner.regression.rows) == pytest.approx(weight.sum())


def test_student_t_is_the_posterior_predictive() -> None:
    x, y = surface(60)
    gaussian, student = (build(**EXACT | {"predictive": name}) for name in ("gaussian", "student_t"))
    for model in (gaussian, student):
        list(model.fit(x, y, 1))
    one, other = gaussian.predict(x), student.predict(x)
    assert isinstance(other, StudentT)
    torch.testing.assert_close(one.variance, other.variance)
    torch.testing.assert_close(other.dof, torch.full_like(other.dof, 64.0))  # 2a₀ + n


def test_without_validation_rows_the_epoch_of_least_nlml_is_served() -> None:
    """Step.loss is the exact NLML a row, of the GP with the trained features: against SciPy's dense normal."""
    x, y = surface(200)
    model = build(**NET, validation=0.0, rescale=0.0)
    losses = []
    for step in model.fit(x, y, 12):
        assert step.healthy and step.basis == inside(model).learner.width == 17 + 3
        losses.append(step.loss)
    assert min(losses) < losses[0] - 0.3
    phi, r = standardised(model, x, y)
    noise = float(inside(model).learner.head.noise.detach())
    covariance = (phi @ phi.T + noise * torch.eye(200, dtype=torch.float64)).numpy()
    wanted = -stats.multivariate_normal(np.zeros(200), covariance).logpdf(r[:, 0].numpy()) / 200
    assert min(losses) == pytest.approx(wanted, rel=1e-8)
    assert inside(model).learner.regression.rows == 200


def test_without_an_end_training_goes_at_its_full_rate() -> None:
    """A budget of time asks for epochs without end: a schedule over them would stay in its first thousandth."""
    x, y = surface(200)
    model = build(**NET, validation=0.0)
    losses = [step.loss for step, _ in zip(model.fit(x, y, sys.maxsize), range(12), strict=False)]
    assert min(losses) < losses[0] - 0.3 and fitting(model).optimiser.span == 0


def test_validation_rows_select_and_scale_and_are_learned_then() -> None:
    x, y = surface(400)
    model = build(**NET, validation=0.2)
    list(model.fit(x, y, 6))
    held = inside(model).config.held_out(400)
    assert held.sum() == 80 and inside(model).learner.regression.rows == 400
    other = build(**NET, validation=0.2)
    list(other.fit(x, y, 6))
    inside(other).learner.serve(*(part[~held] for part in (other.inputs(x), other.targets(x, y))))
    found = inside(other).learner.standing(other.inputs(x)[held])
    squares = (other.targets(x, y)[held] - found.mean).square() / (found.latent + found.noise)
    torch.testing.assert_close(inside(model).factor, squares.mean(0).clamp(min=1.0))
    score = 0.5 * (
        squares / inside(model).factor + torch.log(2 * torch.pi * (found.latent + found.noise) * inside(model).factor)
    )
    assert fitting(model).early.score == pytest.approx(float(score.mean()), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {**NET, "encoder": {"hidden": 32}},
        {**NET, "kernel": "squared_exponential", "fourier": {"size": 60}},
        {"fourier": {"size": 100}, "training": {"batch": 100}},
    ],
    ids=["net", "net and frequencies", "frequencies"],
)
def test_it_learns_a_surface_in_batch(options: dict[str, Any]) -> None:
    """Noise of 1 and a spread of 7: the error on new rows is below 4, where a linear model's is 7."""
    x, y = surface(600)
    new, truth = surface(200, seed=1)
    model = build(**options, online={"settled": 600})
    list(model.fit(x, y, 40))
    issued = model.predict(new)
    assert (issued.mean - truth).square().mean().sqrt() < 4.0
    inside = ((issued.mean - truth).abs() < 1.96 * issued.variance.sqrt()).double().mean()
    assert 0.85 < inside <= 1.0


def test_a_net_is_a_line_far_from_its_rows() -> None:
    """At four times their spread y has a standard deviation of 17; a net of few epochs alone is off by 16."""

    def sample(rows: int, seed: int, spread: float) -> tuple[Inputs, Tensor]:
        u = spread * torch.randn(rows, 1, 2, generator=Generator().manual_seed(seed), dtype=torch.float64)
        return Inputs(u.new_zeros(rows, 0, 3), u), 3.0 * (u[:, :, 0] - u[:, :, 1]) + torch.sin(2.0 * u[:, :, 0])

    x, y = sample(400, 0, 1.0)
    far, truth = sample(200, 1, 4.0)
    model = build(encoder="mlp")
    list(model.fit(x, y, 3))
    assert (model.predict(far).mean - truth).square().mean().sqrt() < 3.0


def test_frequencies_are_learned_from_enough_rows_on() -> None:
    x, y = surface(300)
    made = {"fourier": {"size": 40}, "rebuild": 100, "online": {"settled": 250}, "evidence_rows": 50}
    model = build(**made)
    start = inside(model).learner.features.normals.detach().clone()
    for at, moved in ((0, False), (100, False), (200, True)):
        rows = slice(at, at + 100)
        assert "rebuild" in model.update(x.rows(rows), y[rows]).done
        assert torch.equal(inside(model).learner.features.normals.detach(), start) != moved
    restored = reborn(model, build(**made))
    assert torch.equal(restored.predict(x).parameters(), model.predict(x).parameters())


@pytest.mark.parametrize("when", ["fit", "stream"])
def test_a_method_that_is_named_trains_frequencies_of_few_rows_too(when: str) -> None:
    """And each its own: what `training.method` says is what is done, in a fit and at a rebuild of a stream."""
    x, y = surface(120)
    made: dict[str, Any] = {"fourier": {"size": 20}, "rebuild": 100, "evidence_rows": 50, "epochs": 2}
    found = {}
    for method in ("auto", "scgd", "minimax", "bsgd", "ldb", "none"):
        model = build(**made, training={"method": method})
        if when == "fit":
            list(model.fit(x, y, 2))
        else:
            model.update(x, y)
        found[method] = inside(model).learner.features.normals.detach().clone()
    apart = [float((a - b).abs().max()) for a, b in combinations(found.values(), 2)]
    assert min(apart) > 0
    untrained = inside(build(**made)).learner.features.normals.detach()
    assert torch.equal(found["auto"], untrained) and finite_rkhs.Config().settled == 3500


def test_options_that_would_do_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="nothing to train") as told:
        build(fourier={"frequencies": "drawn"}, training={"method": "ldb"})
    assert "frequencies=learned" in told.value.hint
    with pytest.raises(UsageError, match="evidence=scgd") as told:
        build(encoder="mlp", evidence="scgd")
    assert "training.method=scgd" in told.value.hint


def test_what_fails_is_undone_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = surface(200)
    model = build(**NET, rebuild=60)
    list(model.fit(x.rows(slice(0, 100)), y[:100], 2))
    before = {name: value.clone() for name, value in model.state()[0].items() if not name.startswith("winsorise")}

    def fail(*_: Any, **__: Any) -> None:
        raise NumericalError("no factor", hint="none")

    with monkeypatch.context() as patch:
        patch.setattr(FiniteLearner, "add", fail)
        patch.setattr(FiniteLearner, "refresh", fail)
        for rows in (slice(100, 110), slice(100, 200)):  # an update, and a rebuild
            step = model.update(x.rows(rows), y[rows])
            assert not step.healthy and step.done.endswith("undone: no factor")
            now = model.state()[0]
            differ = {name for name in before if not torch.equal(now[name], before[name])}
            assert differ <= {"generator", "posterior.factor"}, differ
    assert model.update(x.rows(slice(100, 110)), y[100:110]).healthy


def test_a_failing_first_epoch_raises_and_a_later_one_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = surface(100)
    model = build(**NET, validation=0.0)
    fit = model.fit(x, y, 4)
    next(fit)
    before = model.predict(x).parameters()

    def fail(*_: Any) -> None:
        raise NumericalError("no factor", hint="none")

    with monkeypatch.context() as patch:
        patch.setattr(FiniteLearner, "descend", fail)
        step = next(fit)
        assert not step.healthy and "no factor" in step.done
        torch.testing.assert_close(model.predict(x).parameters(), before)
        with pytest.raises(NumericalError):
            next(build(**NET).fit(x, y, 1))
    assert next(fit).healthy


@pytest.mark.sampled
@pytest.mark.parametrize("predictive", ["gaussian", "student_t"])
@pytest.mark.parametrize("prior", ["one", "mixed"])
def test_drawn_functions_are_distributed_as_predict_says(predictive: str, prior: str) -> None:
    x, y = surface(40)
    model = build(**EXACT | {"predictive": predictive, "prior": prior})
    list(model.fit(x.rows(slice(0, 20)), y[:20], 1))
    model.update(x.rows(slice(20, 36)), y[20:36])
    inside(model).factor.fill_(1.7)
    some, paths = x.rows(slice(36, None)), 20_000
    assert isinstance(model, Simulates)
    tiled = Inputs(some.past.repeat(paths, 1, 1), some.future.repeat(paths, 1, 1))
    drawn = model.functions(paths, Generator().manual_seed(1))(tiled).reshape(paths, 4, 1)
    issued = model.predict(some)
    assert ((drawn.mean(0) - issued.mean) / issued.variance.sqrt()).abs().max() < 5 / paths**0.5
    p = torch.tensor([0.05, 0.25, 0.75, 0.95], dtype=torch.float64)
    share = (drawn < issued.quantile(p)[:, None]).double().mean(1)
    assert (share - p[:, None, None]).abs().max() < 5 * 0.5 / paths**0.5
    again = model.functions(50, Generator().manual_seed(1))
    one = Inputs(some.past[:1].expand(50, -1, -1), some.future[:1].expand(50, -1, -1))
    values = torch.stack([again(one)[:, 0] for _ in range(400)])  # the same function, fresh noise
    ratio = values.mean(0).var() / issued.latent_variance[0, 0]
    assert 0.3 < float(ratio) < 3.0 and float(values.var(0).mean()) < 1.6 * float(issued.variance[0, 0])


def test_hyperparameters_of_a_file_stay_with_learn_once() -> None:
    x, y = surface(200)
    initial = example(FLAT)
    once, always = (build(fourier={"size": 40}, learn=learn) for learn in ("once", "rebuild"))
    for model in (once, always):
        model.initialise(initial)
        list(model.fit(x, y, 1))
    wanted = initial.hyper(once.inputs.scale, once.outputs.scale)
    torch.testing.assert_close(inside(once).search.hyper.pack(), wanted.pack())
    assert not torch.allclose(inside(always).search.hyper.pack(), wanted.pack())
    lengthscale = inside(once).learner.features.kernel.log_lengthscale
    torch.testing.assert_close(lengthscale, wanted.lengthscale[once.inputs.groups])  # one column a group
    for options in ({"encoder": "mlp"}, {"kernel": "linear"}):
        with pytest.raises(UsageError, match=naming("Fourier")) as caught:
            build(**options).initialise(initial)
        assert "encoder=identity" in caught.value.hint
    with pytest.raises(UsageError, match=naming("kernel=squared_exponential")):
        build(kernel="matern").initialise(initial)


def test_a_glitch_teaches_little() -> None:
    x, y = surface(300)
    model = build(**EXACT | {"limit": 5.0})
    list(model.fit(x.rows(slice(0, 200)), y[:200], 1))
    before = model.predict(x)
    wrong = y[200:201] + 1e6
    model.update(x.rows(slice(200, 201)), wrong)
    assert (model.predict(x).mean - before.mean).abs().max() < 2 * before.variance.max().sqrt()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"form": "factor", "memory": 500}, ""),
        ({"form": "factor", "prior": "mixed"}, ""),
        ({"noise": 1e-5}, ""),
    ],
)
def test_options_that_exclude_each_other_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=naming(why)):
        finite_rkhs.Config(**options)


def test_what_is_not_set_follows_from_what_is() -> None:
    net = finite_rkhs.Config(encoder="mlp")
    found = net.net.model_dump()
    assert (found["hidden"], found["layers"], found["width"], found["outer"]) == (128, 1, 128, True)
    own = finite_rkhs.Config(encoder={"hidden": 32, "activation": "tanh", "width": 5}).net.model_dump()
    assert (own["hidden"], own["width"], own["activation"]) == (32, 5, "tanh")
    assert type(net.on_latents).__module__.endswith("linear") and net.straight(4)
    plain = finite_rkhs.Config()
    assert plain.straight(500) and not plain.straight(5000) and plain.mixed(LAGS) and not plain.mixed(FLAT)
    assert plain.forgetting(LAGS) == 4000.0 and plain.forgetting(FLAT) is None
    assert plain.tempering(LAGS) == pytest.approx(math.sqrt(3))
