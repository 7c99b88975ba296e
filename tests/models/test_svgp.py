"""SVGP as a model: streams, rebuilds, batches, kernels, likelihoods, encoders, failures."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import NotPositiveDefinite, UsageError
from streamgp.evidence.initial import example
from streamgp.models import svgp
from streamgp.models.svgp import training as svgp_training
from streamgp.models.svgp.config import SvgpTrainingConfig
from streamgp.models.svgp.gaussian import GaussianHead
from streamgp.models.svgp.training import Training
from streamgp.testing.models import SHAPES, example_windows
from streamgp.testing.stateful import reborn
from tests.models.svgp_toys import REGRESSION, built, data, error, part, posterior_of, prior, run, surface
from tests.words import naming

SMALL: dict[str, Any] = {"points": 40, "evidence_rows": 60, "refresh": 4, "training": {"batch": 128}}


@pytest.mark.slow
def test_a_sorted_stream_is_learned_as_well_as_a_shuffled_one() -> None:
    (x, y), (held, truth) = surface(1500), surface(400, seed=1)
    errors = []
    for order in (torch.arange(1500), torch.argsort(x.future[:, 0, 0])):
        model = built(points=150, rebuild=400, reservoir=800, evidence_rows=100, refresh=0)
        assert all(step.healthy for step in run(model, x.rows(order), y[order]))
        errors.append(error(model, held, truth))
    assert errors[0] < 0.5 and errors[1] < 1.3 * errors[0] + 0.1  # the spread is 5


def test_rebuilds_come_early_and_then_at_their_interval() -> None:
    model = built(**SMALL, rebuild=150, reservoir=100)
    done = [step.done for step in run(model, *surface(700))]
    at = [50 * (number + 1) for number, what in enumerate(done) if what.startswith("rebuild")]
    assert at[0] == 50 and at[1] <= 150 and max(b - a for a, b in pairwise(at)) == 150


def test_between_rebuilds_a_stream_is_learned_exactly() -> None:
    """Whatever its micro-batches, and as a batch of the same prior would."""
    (x, y), (held, _) = surface(600, noise=1.0), surface(50, seed=1)
    models = [built(**SMALL, rebuild=0, limit=None) for _ in range(2)]
    for model, batch in zip(models, (25, 100), strict=True):
        model.update(x.rows(slice(0, 200)), y[:200])
        run(model, x.rows(slice(200, None)), y[200:], batch)
    one, other = (model.predict(held).parameters() for model in models)
    torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)
    whole, q = models[0], posterior_of(models[0])
    target = (y - whole.outputs.location) / whole.outputs.scale
    fresh = GaussianHead(40, 1)
    fresh.absorb(part(q.prior, whole.inputs(x), target), kept=1.0)
    z = whole.inputs(held)
    mean, latent = fresh.moments(*q.prior.features(z))
    torch.testing.assert_close(q.look(z).mean, mean, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(q.look(z).latent, latent, rtol=1e-7, atol=1e-7)


def test_epochs_raise_the_bound_and_lower_the_error() -> None:
    (x, y), (held, truth) = surface(1500, noise=0.3), surface(300, seed=1)
    model = built(points=30, kernel="squared_exponential", evidence_rows=60, training={"batch": 250, "rate": 0.03})
    losses, errors = [], []
    for step in model.fit(x, y, 8):
        losses.append(step.loss)
        errors.append(error(model, held, truth))
    assert losses[-1] < losses[0] - 0.1 and errors[-1] < 0.8 * errors[0]
    assert model.epochs_for(1500) == 60 and built(SHAPES[0]).epochs_for(1500) == 1


def test_float32_steps_are_those_of_float64_nearly(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = surface(400, noise=0.3)
    losses = []
    for precision in (torch.float32, torch.float64):
        monkeypatch.setattr(svgp_training, "PRECISION", precision)
        model = built(**{**SMALL, "training": {"batch": 100}})
        losses.append([step.loss for step in model.fit(x, y, 3)])
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)


def test_a_step_follows_the_bounds_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step of Adam has the sign of finite differences of the ELBO, for every hyper-parameter and point."""
    x, y = data(60)
    sparse, head = prior(x[:6]), GaussianHead(6, 2)
    head.start(y, torch.tensor(0.1, dtype=FLOAT))
    phi = sparse.features(x[:20])[0]
    head.natural.step((phi.T @ phi)[None], phi.T @ y[:20], rate=1.0)
    belief = head.belief()

    def elbo() -> float:
        sparse.refresh()
        with torch.no_grad():
            return float(head.terms(part(sparse, x, y), belief).value - belief.divergence())

    named = {"points": sparse.points, **dict(sparse.kernel.named_parameters()), "noise": head.log_noise}
    slopes = {}
    for name, value in named.items():
        slopes[name] = torch.zeros_like(value).flatten()
        for place in range(value.numel()):
            ends = []
            for move in (1e-5, -2e-5):
                value.data.view(-1)[place] += move
                ends.append(elbo())
            value.data.view(-1)[place] += 1e-5
            slopes[name][place] = (ends[0] - ends[1]) / 2e-5
    before = {name: value.detach().clone() for name, value in named.items()}
    monkeypatch.setattr(svgp_training, "PRECISION", torch.float64)
    config = SvgpTrainingConfig(rate=1e-6)
    Training(sparse, head, config).step(x, y, y.new_ones(60), torch.Generator())
    for name, value in named.items():
        clear = slopes[name].abs() > 1e-4
        moved = (value.detach() - before[name]).flatten()
        assert bool(clear.any()) and bool((moved[clear].sign() == slopes[name][clear].sign()).all()), name


KERNELS: list[Any] = [
    "matern",
    {"name": "rational_quadratic", "separable": True},
    {"name": "sum", "parts": ["squared_exponential", "linear"]},
    {"name": "locally_periodic", "period": 3.0},
]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_any_kernel_learns(kernel: Any) -> None:
    (x, y), (held, truth) = surface(500), surface(200, seed=1)
    model = built(**SMALL, kernel=kernel, rebuild=200)
    assert all(step.healthy for step in run(model, x, y, 100))
    assert error(model, held, truth) < 2.0  # the spread is 5


@pytest.mark.parametrize("likelihood", ["laplace", "student_t"])
def test_the_bound_never_falls_far_under_noise_with_tails(likelihood: str) -> None:
    """Rows without outliers, whose noise is a twentieth of their spread: a whole natural-gradient step goes far beyond
    the function, and so does one that keeps q's whitened coordinates while the inducing inputs move."""
    (x, y), (held, truth) = surface(150, noise=0.25), surface(200, seed=1)
    model = built(likelihood=likelihood)
    losses = [step.loss for step in model.fit(x, y, 4)]
    issued = model.predict(held)
    assert max(losses) < losses[0] + 0.02 and error(model, held, truth) < 0.5
    assert 0.1 < float((issued.variance - issued.latent_variance).sqrt().mean()) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["laplace", "student_t"])
def test_outliers_teach_less_under_noise_with_tails(likelihood: str) -> None:
    (x, y), (held, truth) = surface(600, noise=0.5), surface(200, seed=1)
    wrong = torch.randperm(600, generator=torch.Generator().manual_seed(0))[:40]
    y[wrong] += 30.0 * torch.sign(torch.randn(40, 1, generator=torch.Generator().manual_seed(1), dtype=FLOAT))
    errors = []
    for noise in ("gaussian", likelihood):
        options = {**SMALL, "evidence_rows": 600, "kernel": "squared_exponential"}
        model = built(**options, likelihood=noise)
        steps = list(model.fit(x, y, 6))
        assert all(step.healthy for step in steps)
        errors.append(error(model, held, truth))
    assert errors[1] < 0.4 * errors[0]


@pytest.mark.slow
def test_probabilities_of_outcomes_are_near_the_truth() -> None:
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(3000, 2, generator=generator, dtype=FLOAT)
    chance = torch.sigmoid(2.0 * torch.sin(2.0 * u[:, :1]) + 0.5)
    y = torch.bernoulli(chance, generator=generator)
    x = Inputs(torch.zeros(3000, 0, 3, dtype=FLOAT), u[:, None])
    model = built(points=25, likelihood="logistic", rebuild=1000, refresh=6, evidence_rows=200)
    assert all(step.healthy for step in run(model, x, y, 250))
    p = model.predict(x).mean
    assert float((p - chance).abs().mean()) < 0.05 and float((p - chance).mean().abs()) < 0.03


def test_an_encoder_learns_with_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svgp_training, "ENCODER_RATE", 0.3)
    (x, y), (held, truth) = surface(800), surface(200, seed=1)
    options = {**SMALL, "encoder": {"hidden": 16, "width": 2}, "training": {"batch": 100}}
    model = built(**options)
    before = {name: value.detach().clone() for name, value in posterior_of(model).prior.encoder.named_parameters()}
    steps = list(model.fit(x, y, 12))
    moved = dict(posterior_of(model).prior.encoder.named_parameters())
    assert all(not torch.equal(before[name], moved[name]) for name in before)
    assert steps[-1].loss < steps[0].loss - 0.3 and error(model, held, truth) < 1.5


def test_missing_targets_leave_what_a_rebuild_learns() -> None:
    shape = SHAPES[1]
    x, truth = example_windows(shape, 400)
    missing = torch.rand(truth.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    model = built(shape, **SMALL, rebuild=150)
    assert all(step.healthy for step in run(model, x, torch.where(missing, torch.nan, truth)))
    assert (model.predict(x).mean - truth)[missing].square().mean().sqrt() < 0.5 * truth.std()


def test_columns_have_their_own_noise() -> None:
    shape = Shape(targets=("a", "b"), horizon=1, lags=0, past=("a", "b", "u", "k"), future=("u", "k"))
    x, y = surface(1200)
    x = Inputs(torch.zeros(1200, 0, 4, dtype=FLOAT), x.future)
    noise = torch.randn(1200, 2, generator=torch.Generator().manual_seed(3), dtype=FLOAT)
    both = y + torch.tensor([0.5, 4.0], dtype=FLOAT) * noise
    model = built(shape, points=80, evidence_rows=100)
    list(model.fit(x, both, 2))
    issued = model.predict(x)
    spread = (issued.variance - issued.latent_variance).mean(0).sqrt()
    assert spread[0].item() == pytest.approx(0.5, rel=0.3) and spread[1].item() == pytest.approx(4.0, rel=0.1)


@pytest.mark.sampled
@pytest.mark.parametrize("likelihood", ["gaussian", "laplace"])
def test_a_rebuild_that_fails_changes_nothing_and_the_rows_are_learned(
    likelihood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = surface(300)
    options = {**SMALL, "likelihood": likelihood}
    failed, never = built(**options, rebuild=20), built(**options, rebuild=0)
    for model in (failed, never):
        list(model.fit(x.rows(slice(0, 200)), y[:200], 1))

    def fail(*_: Any, **__: Any) -> None:
        raise NotPositiveDefinite("no factor", hint="none")

    with monkeypatch.context() as patch:
        patch.setattr(Training, "steps", fail)  # after much of the rebuild is done
        step = failed.update(x.rows(slice(200, 220)), y[200:220])
    assert not step.healthy and step.done == "rebuild: 20 rows; undone: no factor; update"
    assert never.update(x.rows(slice(200, 220)), y[200:220]).healthy
    assert torch.equal(failed.predict(x).parameters(), never.predict(x).parameters())
    other = reborn(failed, built(**options, rebuild=20))
    for one in (failed, other):
        assert one.update(x.rows(slice(220, 240)), y[220:240]).done == "rebuild: 20 rows"
    assert torch.equal(failed.predict(x).parameters(), other.predict(x).parameters())


@pytest.mark.sampled
@pytest.mark.parametrize("kernel", ["squared_exponential", None, "locally_periodic"])
def test_a_first_batch_without_signal_does_not_last(kernel: str | None) -> None:
    """A rebuild searches from the last hyper-parameters, and from the default."""
    x, y = surface(500, noise=0.3)
    model = built(points=60, refresh=0, rebuild=60, kernel=kernel, evidence_rows=100)
    noise = torch.randn(50, 1, generator=torch.Generator().manual_seed(1), dtype=FLOAT)
    model.update(x.rows(slice(0, 50)), 100 + 5 * noise)
    q = posterior_of(model)
    with torch.no_grad():  # as far as such a batch can send them
        next(v for n, v in q.kernel.own.named_parameters() if n.endswith("log_outputscale")).fill_(-12.0)
        assert isinstance(q.head, GaussianHead)
        q.head.noise.fill_(1.0)
    assert model.warnings()
    run(model, x.rows(slice(50, None)), y[50:])
    assert not model.warnings() and error(model, x.rows(slice(400, None)), y[400:]) < 2.0  # the spread is 5


@pytest.mark.slow
def test_a_stream_of_single_rows_and_of_equal_rows_is_survived() -> None:
    model = built(**SMALL, reservoir=64)
    x, y = surface(40)
    assert all(step.healthy for step in run(model, x, y, batch=1))
    same = x.rows(torch.zeros(60, dtype=torch.int64))
    assert all(step.healthy for step in run(model, same, y[:1].expand(60, 1), batch=20))
    constant = built(**SMALL)
    level = torch.full((60, 1), 3.0, dtype=FLOAT)
    assert all(step.healthy for step in run(constant, same, level, batch=20))
    assert error(constant, same, level) < 1e-3


def test_hyper_parameters_of_a_file_stay_where_they_are_learned_once() -> None:
    x, y = surface(300)
    model = built(**SMALL, kernel="squared_exponential", learn="once", rebuild=200)
    found = example(REGRESSION)
    model.initialise(found)
    list(model.fit(x, y, 3))
    wanted = found.hyper(model.inputs.scale, model.outputs.scale).lengthscale
    torch.testing.assert_close(posterior_of(model).kernel.own.state_dict()["log_lengthscale"], wanted)
    model.update(x.rows(slice(0, 200))._replace(future=3.0 * x.future[:200]), y[:200])  # a rebuild, in other units
    again = found.hyper(model.inputs.scale, model.outputs.scale).lengthscale
    assert model.rebuilt == 500 and not torch.allclose(again, wanted, rtol=0.1)
    torch.testing.assert_close(posterior_of(model).kernel.own.state_dict()["log_lengthscale"], again)
    moved = built(**SMALL, kernel="squared_exponential")
    moved.initialise(found)
    list(moved.fit(x, y, 1))
    assert not torch.allclose(posterior_of(moved).kernel.own.state_dict()["log_lengthscale"], wanted, rtol=1e-2)
    with pytest.raises(UsageError):
        built(encoder="mlp").initialise(found)
    with pytest.raises(UsageError, match=naming("likelihood=logistic")):
        built(likelihood="logistic").initialise(found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"likelihood": {"name": "gaussian", "noise": 0.2}}, "Gaussian"),
        ({"likelihood": "laplace", "limit": 3.0}, ""),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=naming(said)):
        svgp.Config.model_validate(options)


def test_a_change_of_outcomes_is_refused() -> None:
    with pytest.raises(UsageError, match=naming("likelihood=logistic")):
        built(SHAPES[0], likelihood="logistic", target="change")


def test_points_fit_into_memory_where_every_column_has_its_covariance() -> None:
    wide = Shape(targets=("y",), horizon=48, lags=3, past=("y",), future=())
    assert svgp.Config().size(wide) == 512
    assert svgp.Config.model_validate({"likelihood": "laplace"}).size(wide) == 209
